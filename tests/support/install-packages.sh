#!/bin/sh
# Installs what a task needs: install-packages.sh GROUP...
# GROUP: build, demo, test, fuzz, lint, conformance, load, replicas, reliability, clients, schema,
# console, kubernetes, arm64, man, image, podman, bench, model, numbers or debian. build:arm64 is
# build for that machine, wherever this is, with Debian's cross compiler and multiarch libraries.
#
# On Debian and its kin, missing packages come from apt, with sudo only if there is something to
# install and we are not root. Anywhere else this only looks, says what it does not find, and fails
# if there is such a thing. POSIX sh, and no more tools than a minimal Debian has.
set -eu

packages_of()
{
    case $1 in
    build) echo gcc libc6-dev make pkg-config libmicrohttpd-dev libgnutls28-dev libcjson-dev \
        libuv1-dev libprotobuf-c-dev protobuf-c-compiler protobuf-compiler \
        libopenblas-pthread-dev libisal-dev ;;
    build:*) packages_of build | sed "s/^gcc /binutils gcc-for-host /; s/pkg-config/pkgconf/
        s/\(gcc-for-host\|pkgconf\|lib[^ ]*-dev\)/&:${1#*:}/g" ;;
    demo) echo curl ;;
    debian) echo mmdebstrap git ;;
    test) echo libcriterion-dev python3 curl openssl git ;;
    fuzz) echo clang libclang-rt-dev python3 zlib1g-dev ;;
    lint) echo clang clang-format shellcheck git zlib1g-dev ;;
    conformance) echo python3 python3-venv curl ;;
    load) echo python3 curl gnuplot-nox ;;
    replicas) echo python3 haproxy wrk ;;
    reliability) echo slowhttptest wrk ;;
    clients) echo python3 python3-venv curl libcurl4-openssl-dev ;;
    arm64) echo gcc-aarch64-linux-gnu qemu-user mmdebstrap ;;
    man) echo help2man ;;
    image) echo python3 python3-venv ;;
    mutate) echo python3 python3-venv git ;;
    podman) echo buildah podman runc mmdebstrap catatonit netavark aardvark-dns iptables ;;
    schema) echo python3 python3-venv npm ;;
    kubernetes) echo python3 python3-venv npm openssl ;;
    console) echo python3 python3-venv npm chromium fonts-dejavu-core curl ;;
    bench) echo python3 python3-venv ;;
    model) echo python3 gcc-aarch64-linux-gnu llvm-19 ;;
    numbers) echo gcc g++ python3-pip libsimdjson-dev libfmt-dev libdragonbox-dev \
        libdouble-conversion-dev ;;
    *)
        echo "install-packages.sh: no group '$1': build, demo, test, fuzz, lint, conformance," \
            "load, replicas, reliability, clients, schema, console, kubernetes, arm64, man," \
            "image, podman, bench, model, numbers, mutate, debian" >&2
        exit 2
        ;;
    esac
}

# Debian: the package database decides.
installed()
{
    case $1 in
    npm) command -v npm >/dev/null && return ;; # Node's own packages have it inside
    esac
    test "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed
}

# Elsewhere packages have other names, so look for what is in them.
found()
{
    case $1 in
    libc6-dev) test -e /usr/include/stdio.h ;;
    libmicrohttpd-dev) pkg-config --exists libmicrohttpd ;;
    libgnutls28-dev) pkg-config --exists gnutls ;;
    libcjson-dev) pkg-config --exists libcjson ;;
    libisal-dev) pkg-config --exists libisal ;;
    zlib1g-dev) pkg-config --exists zlib ;;
    libuv1-dev) pkg-config --exists libuv ;;
    libprotobuf-c-dev) pkg-config --exists libprotobuf-c ;;
    protobuf-c-compiler) command -v protoc-gen-c >/dev/null ;;
    protobuf-compiler) command -v protoc >/dev/null ;;
    libcriterion-dev) pkg-config --exists criterion ;;
    libopenblas-pthread-dev) pkg-config --exists openblas ;;
    gnuplot-nox) command -v gnuplot >/dev/null ;;
    gcc-aarch64-linux-gnu) command -v aarch64-linux-gnu-gcc >/dev/null ;;
    llvm-19) command -v llvm-mca >/dev/null ;;
    libcurl4-openssl-dev) pkg-config --exists libcurl ;;
    python3-venv) python3 -c 'import ensurepip' ;;
    haproxy) command -v haproxy || test -x /usr/sbin/haproxy ;; # who is not root may not see it
    fonts-dejavu-core) ;; # whatever a browser finds there will do
    *) command -v "$1" >/dev/null ;;
    esac 2>/dev/null
}

check=found
if command -v dpkg-query >/dev/null && command -v apt-get >/dev/null; then
    check=installed
fi

missing=
for group; do
    packages=$(packages_of "$group") || exit 2
    for package in $packages; do
        "$check" "$package" || missing="$missing $package"
    done
done
test -n "$missing" || exit 0

if test "$check" = found; then
    echo "Not Debian, so nothing was installed. Missing, by their Debian names:$missing" >&2
    exit 1
fi

as_root=
if test "$(id -u)" != 0; then
    if ! command -v sudo >/dev/null; then
        echo "Missing packages. As root, run: apt-get install$missing" >&2
        exit 1
    fi
    as_root=sudo
fi

apt()
{
    # shellcheck disable=SC2086  # as_root is one word or none
    $as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Acquire::Retries=3 \
        -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 "$@"
}

echo "Installing with apt-get:$missing"
# A broken third-party source makes `update` fail although Debian's own is there: let install judge.
apt update || echo "apt-get update failed; trying with the package lists as they are" >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# shellcheck disable=SC2086  # a list of words
if ! apt install --no-install-recommends -y $missing >"$log" 2>&1; then
    cat "$log" >&2
    exit 1
fi
