#!/bin/sh
# Builds build/bench/numbers.so of those readers and printers that are to be had: simdjson, fmt,
# Dragonbox and double-conversion are Debian's, yyjson comes with its Python package, zmij as a
# crate where there is a cargo. Says which are missing; the benchmark goes without them.
set -eu
cd "$(dirname "$0")/../../.."
here=tests/bench/peers
folder=build/bench/numbers
library=build/bench/numbers.so
log=build/bench/numbers.log
yyjson=4.0.6 # of the Python package
zmij=1.0.23

test "$library" -nt "$here/numbers.cpp" && test "$library" -nt "$here/setup_numbers.sh" && exit 0
mkdir -p "$folder/zmij/src"
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

get_zmij()
{
    cat >"$folder/zmij/Cargo.toml" <<END
[package]
name = "zmij_print"
version = "0.1.0"
edition = "2021"
[lib]
crate-type = ["staticlib"]
[dependencies]
zmij = "=$zmij"
[profile.release]
panic = "abort"
lto = true
codegen-units = 1
[workspace]
END
    cp "$here/zmij.rs" "$folder/zmij/src/lib.rs"
    (cd "$folder/zmij" && RUSTFLAGS="-C target-cpu=native" cargo build --release --quiet)
}

set -- # objects and libraries
flags=
if get_yyjson >>"$log" 2>&1 </dev/null; then
    set -- "$@" "$folder/yyjson.o"
    flags="$flags -I$folder/yyjson-$yyjson/yyjson"
else
    echo "bench: no yyjson ($log)"
fi
if get_zmij >>"$log" 2>&1 </dev/null; then
    set -- "$@" "$folder/zmij/target/release/libzmij_print.a"
    flags="$flags -DHAS_ZMIJ"
else
    echo "bench: no zmij ($log)"
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
