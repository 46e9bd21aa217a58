#!/usr/bin/env bash
# run.sh [SECONDS [NAME]...]: runs libFuzzer on each fuzz_*.c, or on the named ones, for SECONDS
# each, starting from its seeds. Needs clang with its runtime.
set -euo pipefail
cd "$(dirname "$0")/../.."
seconds=${1:-60}
shift || true
python3 tests/fuzz/make_seeds.py build/seeds/oip_decode
python3 tests/fuzz/make_onnx_seeds.py build/seeds/onnx
python3 tests/fuzz/make_more_seeds.py build/seeds
# The Makefile builds the libraries, because it knows the machine flags of each file.
sanitize=fuzzer,address,undefined
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
# In libqk, clang also checks that the code that plans calls wraps no number and cuts none off: see
# the Makefile.
flags="-std=gnu17 -g -O1 -I. -fsanitize=$sanitize -fno-sanitize-recover=all"
libraries=$(pkg-config --libs libmicrohttpd libcjson libuv libprotobuf-c gnutls libisal zlib)
make -s -j"$(nproc)" CC=clang SAN=fuzz CFLAGS="-g -O1" \
    build/fuzz/libserver.a build/fuzz/libqk.a build/fuzz/server/main.o
# Makes the whole server a function, which fuzz_http runs beside itself.
objcopy --redefine-sym main=quantd_main build/fuzz/server/main.o build/fuzz/quantd_main.o

names=("$@")
started=()
# fuzz NAME LONGEST_INPUT [OTHER]: starts the fuzzer NAME from its own seeds and those of OTHER.
# As many run at a time as there are CPUs.
fuzz()
{
    if test "${#names[@]}" != 0 && [[ " ${names[*]} " != *" $1 "* ]]; then
        return
    fi
    while test "$(jobs -pr | wc -l)" -ge "$(nproc)"; do
        wait -n || true
    done
    started+=("$1")
    rm -f "build/fuzz_$1.passed"
    run_fuzzer "$@" &
}

run_fuzzer()
{
    local name=$1 more=() log
    mkdir -p "build/corpus/$name" "build/seeds/$name"
    if test "$name" = http; then
        # The server handles signals itself, and its threads run until the process ends.
        more=(build/fuzz/quantd_main.o -handle_term=0 -handle_int=0 -detect_leaks=0)
    fi
    # shellcheck disable=SC2086  # lists of words
    clang $flags -o "build/fuzz_$name" "tests/fuzz/fuzz_$name.c" "${more[@]:0:1}" \
        build/fuzz/libserver.a build/fuzz/libqk.a $libraries -lm -ldl -lpthread
    log=build/fuzz_$name.log
    if "build/fuzz_$name" -max_total_time="$seconds" -max_len="$2" -artifact_prefix=build/ \
        "${more[@]:1}" "build/corpus/$name" "build/seeds/$name" ${3:+"build/seeds/$3"} \
        >"$log" 2>&1; then
        touch "build/fuzz_$name.passed"
        echo "  ok   $name: $(tail -n 1 "$log")"
    else
        cat "$log"
        printf '\n---- FAILED %s: %s\n' "$name" \
            "$(grep -a -m 1 -E 'ERROR|runtime error|Assertion|panic' "$log" || tail -n 1 "$log")"
    fi
}

fuzz oip_decode 262144
fuzz oip_reader 262144 oip_decode
fuzz oip_encode 65536
fuzz onnx 65536
fuzz http 65536
fuzz framing 65536 http
fuzz tensor 65536
fuzz config 65536
fuzz operator 2048
fuzz inflate 4096
wait
passed=0
failed=0
for name in "${started[@]}"; do
    if test -e "build/fuzz_$name.passed"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
    fi
done
echo "$passed passed, $failed failed"
test "$failed" = 0
