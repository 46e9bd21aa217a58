#!/bin/sh
# Makes a folder with the headers and libraries of arm64 that quantd and its tests are linked with:
# arm64-root.sh FOLDER. The compiler takes it as its --sysroot, and qemu-user as QEMU_LD_PREFIX.
#
# They are Debian's packages, unpacked and not installed: not all of them (libisal2, libnanomsg5)
# can be installed beside the same ones of this machine.
set -eu
root=$1
test ! -e "$root/complete" || exit 0

suite=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
packages=libc6-dev,libmicrohttpd-dev,libgnutls28-dev,libcjson-dev,libuv1-dev,libprotobuf-c-dev
packages=$packages,libopenblas-pthread-dev,libisal-dev,libcriterion-dev
echo "Unpacking Debian's libraries for arm64 into $root"
rm -rf "$root"
mkdir -p "$(dirname "$root")"
mmdebstrap --quiet --variant=extract --architectures=arm64 --include="$packages" \
    "$suite" "$root"

# QEMU takes a file from here wherever there is one of that name: no more than programs need.
(cd "$root" && rm -rf dev etc run tmp var usr/share)
# What packages do where they are installed: links that hold here, and the alternatives' ones.
root=$(cd "$root" && pwd)
find "$root" -type l -lname '/*' | while read -r link; do
    ln -sfn "$root$(readlink "$link")" "$link"
done
ln -s openblas-pthread/libopenblas.so.0 "$root/usr/lib/aarch64-linux-gnu/libopenblas.so.0"
ln -s openblas-pthread/cblas.h "$root/usr/include/aarch64-linux-gnu/cblas.h"
ln -s openblas-pthread/openblas_config.h "$root/usr/include/aarch64-linux-gnu/openblas_config.h"
touch "$root/complete"
