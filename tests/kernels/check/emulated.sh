#!/bin/sh
# Runs the kernel checker on CPUs that QEMU plays: x86-64 with the scalar tier alone and with AVX2,
# and then ARM's cores. The environment's B is the build directory of an x86-64; where this is none,
# that is named, and is no failure.
set -eu

build=${B:-build}

# run NAME COMMAND...: says what the checker says, but for kernels that pass.
run()
{
    name=$1
    shift
    echo "$name:"
    said=$build/check-kernels.$name
    "$@" >"$said" 2>/dev/null || true
    grep -v '^ok ' "$said" || true
    grep -q ' passed, 0 failed$' "$said"
}

if test "$(uname -m)" = x86_64 && command -v qemu-x86_64 >/dev/null; then
    # What QEMU 7 does otherwise than any CPU: gathers whose indices are in the fourth vector
    # register, masked loads at the end of a page, and which of two NaNs a division gives.
    set --
    case $(qemu-x86_64 --version) in
    *' version 7.'*)
        set -- --except dequantize/float8 --except sgemm/requantize --except quantize/fp
        echo "This QEMU has errors that float8s, masked loads and NaNs meet: they are left out."
        ;;
    esac
    for cpu in Nehalem Haswell; do
        run "$cpu" qemu-x86_64 -cpu "$cpu" "$build/check-kernels" "$@"
    done
else
    echo "No x86-64 was emulated: this needs one, and qemu-x86_64 (Debian's package qemu-user)."
fi

# Its cores are in tests/support/run_tests.py.
unset B
make --no-print-directory ARCH=arm64 check-kernels
