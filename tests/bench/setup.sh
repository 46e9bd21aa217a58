#!/bin/sh
# Installs the peers of `make bench`, ONNX Runtime, OpenVINO and FastAPI, into build/bench/venv, in
# the versions of requirements.txt. If they cannot be installed, it says so, and the benchmark runs
# without them. OpenVINO may be missing alone.
set -eu
cd "$(dirname "$0")/../.."
venv=build/bench/venv
log=build/bench/pip.log
wanted=tests/bench/requirements.txt
installed=$venv/requirements.txt

most=build/bench/most.txt

# works FILE: whether the packages that FILE lists are installed.
works()
{
    cmp -s "$1" "$installed" && "$venv/bin/python" -c \
        'import fastapi, numpy, onnx, onnxruntime, orjson, uvicorn' 2>/dev/null
}

# install FILE: installs the packages that FILE lists.
install()
{
    "$venv/bin/python" -m pip install --no-input --disable-pip-version-check --progress-bar off \
        --retries 2 --timeout 20 --requirement "$1"
}

works "$wanted" && exit 0
mkdir -p build/bench
echo "bench: installing ONNX Runtime, OpenVINO and FastAPI into $venv"
{
    test -x "$venv/bin/python" || python3 -m venv --clear "$venv"
    grep -v openvino "$wanted" >"$most"
    # The next run tries again to install what is missing now.
    { install "$wanted" && cp "$wanted" "$installed"; } ||
        { install "$most" && cp "$most" "$installed"; }
} >"$log" 2>&1 </dev/null || true
works "$wanted" || works "$most" ||
    echo "bench: they could not be installed ($log): measuring without them"
