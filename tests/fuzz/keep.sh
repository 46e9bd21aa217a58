#!/usr/bin/env bash
# keep.sh NAME LONGEST_INPUT...: updates corpus.hex, from which each run of the fuzzers begins.
# Takes the inputs that run.sh has found and the inputs that were kept before, up to the length
# LONGEST_INPUT, and keeps a small set of them that covers the same code.
set -euo pipefail
cd "$(dirname "$0")/../.."
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
kept=tests/fuzz/corpus.hex
export LC_ALL=C # sort as Python does
while test $# -ge 2; do
    name=$1 longest=$2 more=()
    shift 2
    if test "$name" = http; then
        more=(-handle_term=0 -handle_int=0 -detect_leaks=0) # as in run.sh
    fi
    rm -rf "build/short/$name" "build/kept/$name"
    mkdir -p "build/short/$name" "build/kept/$name"
    find "build/corpus/$name" "build/seeds/$name" -type f -size -"$((longest + 1))"c \
        \( -path "build/corpus/*" -o -name "kept*" \) -exec cp -t "build/short/$name" {} +
    "build/fuzz_$name" -set_cover_merge=1 "${more[@]}" "build/kept/$name" "build/short/$name" \
        >"build/kept-$name.log" 2>&1
    {
        grep -v "^$name " "$kept" || true
        for input in "build/kept/$name"/*; do
            printf '%s ' "$name"
            od -An -v -tx1 "$input" | tr -d ' \n'
            echo
        done
    } | sort >"build/kept-$name.hex"
    mv "build/kept-$name.hex" "$kept"
    grep "^$name " "$kept" | wc -lc
done
