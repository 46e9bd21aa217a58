#!/bin/sh
# Builds build/bench/numbers.so with all available readers and printers of numbers: simdjson, fmt,
# Dragonbox and double-conversion are Debian's, yyjson comes with its Python package, zmij and xjb
# from their repositories. Says which are missing; the benchmark runs without them.
set -eu
cd "$(dirname "$0")/../../.."
here=tests/bench/peers
folder=build/bench/numbers
library=build/bench/numbers.so
log=build/bench/numbers.log
yyjson=4.0.6 # of the Python package
zmij=132313d
xjb=2e68f5c

test "$library" -nt "$here/numbers.cpp" && test "$library" -nt "$here/setup_numbers.sh" && exit 0
mkdir -p "$folder"
echo "bench: building $library"
: >"$log"

tests/support/install-packages.sh numbers >>"$log" 2>&1 </dev/null || true

get_yyjson()
{
    python3 -m pip download --no-input --disable-pip-version-check --retries 2 --timeout 20 \
        --no-deps --no-binary :all: --dest "$folder" "yyjson==$yyjson" &&
        tar -xzf "$folder/yyjson-$yyjson.tar.gz" -C "$folder" &&
        gcc -O3 -march=native -fPIC -c -o "$folder/yyjson.o" \
            "$folder/yyjson-$yyjson/yyjson/yyjson.c"
}

get_repository() # OWNER/NAME COMMIT SOURCE HEADER
{
    name=${1#*/}
    test -d "$folder/$name" ||
        git clone --quiet --no-checkout "https://github.com/$1" "$folder/$name" || return 1
    git -C "$folder/$name" checkout --quiet "$2" -- "$3" "$4" &&
        g++ -std=c++20 -O3 -march=native -fPIC -c -o "$folder/$name.o" "$folder/$name/$3"
}

set -- # objects and libraries
flags=
if get_yyjson >>"$log" 2>&1 </dev/null; then
    set -- "$@" "$folder/yyjson.o"
    flags="$flags -I$folder/yyjson-$yyjson/yyjson"
else
    echo "bench: no yyjson ($log)"
fi
if get_repository vitaut/zmij $zmij zmij.cc zmij.h >>"$log" 2>&1 </dev/null; then
    set -- "$@" "$folder/zmij.o"
    flags="$flags -I$folder/zmij"
else
    echo "bench: no zmij ($log)"
fi
if get_repository xjb714/xjb $xjb src/ftoa.cpp src/ftoa.h >>"$log" 2>&1 </dev/null; then
    set -- "$@" "$folder/xjb.o"
    flags="$flags -I$folder/xjb/src"
else
    echo "bench: no xjb ($log)"
fi
for name in simdjson dragonbox_to_chars double-conversion; do
    if echo 'int main(){}' | g++ -x c++ -o "$folder/try" - "-l$name" 2>>"$log"; then
        set -- "$@" "-l$name"
    else
        echo "bench: no $name ($log)"
    fi
done
for include in /usr/include/dragonbox-*; do
    test ! -d "$include" || flags="$flags -I$include"
done
# shellcheck disable=SC2086  # words
g++ -std=c++17 -O3 -march=native -fPIC -shared -I. $flags -o "$library.new" "$here/numbers.cpp" \
    "$@" >>"$log" 2>&1 && mv "$library.new" "$library" ||
    echo "bench: $library cannot be built ($log): measuring without it"
