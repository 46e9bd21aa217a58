#!/usr/bin/env bash
# run.sh [SECONDS]: libFuzzer on each fuzz_*.c, for so long each, from its seeds on. Needs clang
# with its runtime.
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=${1:-60}
python3 tests/fuzz/make_seeds.py build/seeds/oip_decode
python3 tests/fuzz/make_onnx_seeds.py build/seeds/onnx
# By the Makefile, for the machine flags of each file.
sanitize=fuzzer,address,undefined
make -s -j"$(nproc)" CC=clang SAN=fuzz CFLAGS="-g -O1" \
    build/fuzz/libserver.a build/fuzz/libqk.a

# fuzz NAME MAX_LEN [SEEDS]
fuzz()
{
    mkdir -p "build/corpus/$1"
    clang -std=gnu17 -g -O1 -I. -fsanitize=$sanitize -o "build/fuzz_$1" "tests/fuzz/fuzz_$1.c" \
        build/fuzz/libserver.a build/fuzz/libqk.a -lprotobuf-c -lm -ldl -lpthread
    "build/fuzz_$1" -max_total_time="$seconds" -max_len="$2" "build/corpus/$1" \
        "build/seeds/${3:-$1}"
}

fuzz oip_decode 4096
fuzz oip_reader 4096 oip_decode
fuzz onnx 4096
echo "3 passed, 0 failed" # or it has ended above
