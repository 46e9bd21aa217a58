#!/bin/sh
# Lays out the image's root file system; the build stage runs it: collect.sh PROGRAM ROOT
#
# The program; what it is linked with, and OpenBLAS, which it loads by itself, each where the
# dynamic linker looks without a cache; the licences of all that; a name for the user; a place for a
# socket.
set -eu
program=$1
root=$2

blas=$(readlink -f /usr/lib/*/libopenblas.so.0)
libraries=$root$(dirname /usr/lib/*/libc.so.6)
loader=$(ldd "$program" | awk '$1 ~ /^\/lib/ { print $1 }')
linked=$(ldd "$program" "$blas" | awk '$2 == "=>" { print $3 }' | sort -u)

install -d "$libraries" "$root$(dirname "$loader")" "$root/etc" "$root/usr/share/doc/quantd"
cp "$program" "$root/quantd"
cp LICENSE "$root/usr/share/doc/quantd/copyright"
cp -L "$loader" "$root$loader"
cp -L "$blas" "$libraries/libopenblas.so.0"
for file in $linked; do
    cp -L "$file" "$libraries/"
done

# A package's licence is in its own folder, and the long ones are shared.
for file in "$loader" "$blas" $linked; do
    package=$(dpkg-query -S "$(readlink -f "$file")" | cut -d : -f 1)
    licence=/usr/share/doc/$package/copyright
    if ! test -e "$licence"; then
        echo "collect.sh: no licence of $package in the base image; expected $licence" >&2
        exit 1
    fi
    install -D -m 644 "$licence" "$root$licence"
done
cp -r /usr/share/common-licenses "$root/usr/share/"

echo 'quantd:x:65532:65532:quantd:/:/nonexistent' >"$root/etc/passwd"
echo 'quantd:x:65532:' >"$root/etc/group"

# An empty volume that is mounted here inherits owner and mode: any user can make a socket in it,
# and the socket gets the group 65532, whoever makes it.
install -d -o 65532 -g 65532 -m 3777 "$root/run/quantd"

find "$root" -type f -not -path '*/share/*' | sort
du -sh "$root"
