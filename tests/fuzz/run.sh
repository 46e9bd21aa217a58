#!/usr/bin/env bash
# run.sh [SECONDS]: libFuzzer on fuzz_oip_decode, from the examples on. Needs clang with its
# runtime.
set -euo pipefail
cd "$(dirname "$0")/../.."
mkdir -p build/corpus
python3 tests/fuzz/make_seeds.py build/seeds
# By the Makefile, for the machine flags of each file.
sanitize=fuzzer,address,undefined
make -s -j"$(nproc)" CC=clang B=build/fuzz \
    CFLAGS="-g -O1 -fsanitize=fuzzer-no-link,${sanitize#*,}" \
    build/fuzz/libserver.a build/fuzz/libqk.a
clang -std=gnu17 -g -O1 -I. -fsanitize=$sanitize -o build/fuzz_oip_decode \
    tests/fuzz/fuzz_oip_decode.c build/fuzz/libserver.a build/fuzz/libqk.a \
    -lcjson -lprotobuf-c -lm -ldl -lpthread
build/fuzz_oip_decode -max_total_time="${1:-60}" -max_len=4096 build/corpus build/seeds
echo "1 passed, 0 failed" # or it has ended above
