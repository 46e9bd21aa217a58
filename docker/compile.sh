#!/bin/sh
# Compiles the image's program; the build stage runs it: compile.sh amd64|arm64 PROGRAM
set -eu
case $1 in
amd64) tools=x86_64-linux-gnu ;;
arm64) tools=aarch64-linux-gnu ;;
*)
    echo "compile.sh: expected amd64 or arm64, got $1" >&2
    exit 1
    ;;
esac
# The program is stripped, so -g would only cost time.
make -s -j"$(nproc)" CFLAGS=-O2 CC=$tools-gcc AR=$tools-ar PKG_CONFIG=$tools-pkg-config \
    build/quantd
$tools-strip -o "$2" build/quantd
