#!/bin/sh
# Runs the kernel checker on CPUs that QEMU plays: x86-64 with the scalar tier alone and with AVX2,
# and ARM, for which gcc-aarch64-linux-gnu compiles it. The environment's B is the build directory,
# of an x86-64. What is missing is named, and is no failure.
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

arm=aarch64-linux-gnu-gcc
if command -v "$arm" >/dev/null && command -v qemu-aarch64 >/dev/null; then
    # cblas.h, which is only declarations, comes from this machine.
    make -s B="$build/aarch64" CC="$arm" LDFLAGS="-no-pie -static" \
        CFLAGS="-O2 -idirafter $(pkg-config --variable=includedir openblas)" \
        "$build/aarch64/check-kernels"
    run aarch64 qemu-aarch64 "$build/aarch64/check-kernels"
else
    echo "No ARM was emulated: this needs qemu-aarch64 and $arm (qemu-user, gcc-aarch64-linux-gnu)."
fi
