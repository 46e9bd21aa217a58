#!/bin/sh
# Lays out the image's root file system; the build stage runs it: collect.sh PROGRAM ROOT
#
# The file system has the program; the libraries that it is linked with, and OpenBLAS, which it
# loads by itself, each where the dynamic linker finds it without a cache; the licences of all of
# these; a name for the user; and a folder for a socket.
set -eu
program=$1
root=$2

folder=$(dirname /usr/lib/*/libopenblas.so.0) # for the image's machine, not for this one
libraries=$root$folder
loader=$(readelf -l "$program" | sed -n 's/.*program interpreter: \(.*\)]/\1/p')
taken=

# Copies a library and the libraries that it is linked with. Skips the loader, which is one of them
# but has a place of its own.
take()
{
    if test -e "$libraries/$1" || test "$1" = "${loader##*/}"; then
        return
    fi
    cp -L "$folder/$1" "$libraries/"
    taken="$taken $folder/$1"
    take_linked "$folder/$1"
}

# Copies the libraries that a file is linked with. Asks readelf, which reads programs of any
# machine; ldd would run them.
take_linked()
{
    for name in $(readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)]/\1/p'); do
        take "$name"
    done
}

install -d "$libraries" "$root$(dirname "$loader")" "$root/etc" "$root/usr/share/doc/quantd"
cp "$program" "$root/quantd"
cp LICENSE "$root/usr/share/doc/quantd/copyright"
cp -L "$loader" "$root$loader"
take_linked "$program"
take libopenblas.so.0

# A package's licence is in a folder of its own. The common long licences are shared.
for file in "$loader" $taken; do
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

# An empty volume that is mounted here inherits owner and mode. So any user can create a socket in
# it, and the socket gets the group 65532, whichever user creates it.
install -d -o 65532 -g 65532 -m 3777 "$root/run/quantd"

find "$root" -type f -not -path '*/share/*' | sort
du -sh "$root"
