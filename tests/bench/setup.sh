#!/bin/sh
# Installs ONNX Runtime, the peer of `make bench`, into build/bench/venv. Where it cannot be had,
# says so, and the benchmark goes without.
set -eu
cd "$(dirname "$0")/../.."
venv=build/bench/venv
log=build/bench/pip.log

works()
{
    "$venv/bin/python" -c 'import numpy, onnx, onnxruntime' 2>/dev/null
}

works && exit 0
mkdir -p build/bench
echo "bench: installing ONNX Runtime into $venv"
{
    test -x "$venv/bin/python" || python3 -m venv --clear "$venv"
    "$venv/bin/python" -m pip install --no-input --disable-pip-version-check --progress-bar off \
        --retries 2 --timeout 20 numpy onnx onnxruntime
} >"$log" 2>&1 </dev/null || true
works || echo "bench: ONNX Runtime is not to be had ($log): measuring without it"
