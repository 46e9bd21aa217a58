#!/usr/bin/env bash
# run.sh [SECONDS]: libFuzzer on fuzz_oip_decode, from the examples on. Needs clang with its
# runtime, and a CPU with AVX2.
set -euo pipefail
cd "$(dirname "$0")/../.."
mkdir -p build/corpus
python3 tests/fuzz/make_seeds.py build/seeds
clang -std=gnu17 -g -O1 -ffp-contract=off -fno-strict-aliasing -mavx2 -mfma -mf16c -I. \
    -fsanitize=fuzzer,address,undefined -o build/fuzz_oip_decode tests/fuzz/fuzz_oip_decode.c \
    server/{status,arena,text,refusal,json_*,oip_*}.c kernels/*.c kernels/*/*.c \
    -lcjson -lm -ldl -lpthread
build/fuzz_oip_decode -max_total_time="${1:-60}" -max_len=4096 build/corpus build/seeds
echo "1 passed, 0 failed" # or it has ended above
