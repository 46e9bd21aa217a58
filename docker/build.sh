#!/bin/sh
# Builds the image with Docker if an engine answers, otherwise with buildah. Variables:
#
#   IMAGE     the image's name and tag; default quantd
#   PLATFORM  linux/amd64, linux/arm64, or both with a comma between them: then the name is that of
#             a manifest list, and each machine pulls its own image. Default: this machine's
#   BASE      the image to build on; default debian:trixie-slim. With buildah also stand-in, for
#             machines that reach no registry: the same suite, made from Debian's packages. The
#             default falls back to stand-in by itself
set -eu
cd "$(dirname "$0")/.."
suite=trixie
image=${IMAGE:-quantd}
base=${BASE:-debian:$suite-slim}

fail()
{
    echo "build.sh: $1" >&2
    exit 1
}

container=
list=
clean_up()
{
    test -z "$container" || buildah rm "$container"
    test -z "$list" || buildah manifest rm "$list"
} >/dev/null
trap clean_up EXIT

# ---- What to build for ---------------------------------------------------------------------------

case $(uname -m) in
x86_64) machine=amd64 ;;
aarch64) machine=arm64 ;;
*) machine=$(uname -m) ;;
esac
platform=${PLATFORM:-linux/$machine}
case $platform in
linux/amd64 | linux/arm64) is_list= ;;
linux/amd64,linux/arm64 | linux/arm64,linux/amd64) is_list=1 ;;
*) fail "PLATFORM: expected linux/amd64, linux/arm64 or linux/amd64,linux/arm64, got $platform" ;;
esac

if docker version >/dev/null 2>&1; then
    builder=docker
elif command -v buildah >/dev/null; then
    builder=buildah
else
    fail "expected a Docker engine that answers, or buildah (Debian: apt-get install buildah),\
 got neither"
fi

# ---- The base image, of this machine: whatever is built for, it compiles -------------------------

known()
{
    format='{{.OCIv1.Architecture}}'
    test "$(buildah inspect --type image --format "$format" "$1" 2>/dev/null)" = "$machine"
}

# Makes the same slim image as the published ones: no manuals and no translations, but the licences.
# shellcheck disable=SC2016  # the hook's own $1
bootstrap()
{
    mmdebstrap --quiet --variant=minbase --mode=root \
        --dpkgopt='path-exclude=/usr/share/doc/*' \
        --dpkgopt='path-include=/usr/share/doc/*/copyright' \
        --dpkgopt='path-exclude=/usr/share/man/*' \
        --dpkgopt='path-exclude=/usr/share/info/*' \
        --dpkgopt='path-exclude=/usr/share/locale/*' \
        --customize-hook='rm -f "$1/etc/resolv.conf" "$1/etc/hostname"' "$suite" "$1"
}

# Makes the stand-in image. It has a name of its own, so that it is not mistaken for the published
# image.
make_stand_in()
{
    base=localhost/quantd-stand-in:$suite-$machine
    if known "$base"; then
        return
    fi
    command -v mmdebstrap >/dev/null ||
        fail "expected mmdebstrap (Debian: apt-get install mmdebstrap) to make $base, got none"
    test "$(id -u)" = 0 || fail "expected root, to make $base, got uid $(id -u)"
    echo "build.sh: making $base from Debian's packages"
    container=$(buildah from scratch)
    bootstrap "$(buildah mount "$container")" || fail "mmdebstrap could not make $base"
    buildah config --cmd bash "$container"
    buildah commit --quiet "$container" "$base" >/dev/null
}

# Takes the base image from this machine, or else from its registry, or else makes the stand-in.
find_base()
{
    if test "$base" = stand-in; then
        make_stand_in
    elif ! known "$base" &&
        ! buildah pull --quiet --platform "linux/$machine" "$base" >/dev/null 2>&1; then
        test -z "${BASE:-}" || fail "$base: expected it here or in its registry, got neither"
        echo "build.sh: $base: no registry has it for us" >&2
        make_stand_in
    fi
}

if test "$builder" = buildah; then
    find_base
elif test "$base" = stand-in; then
    fail 'BASE=stand-in: expected buildah, got a Docker engine'
fi

# ---- Build ---------------------------------------------------------------------------------------

version=$(sed -n 's/^#define QD_VERSION "\(.*\)"$/\1/p' server/base/version.h)
test -n "$version" || fail 'server/base/version.h: expected #define QD_VERSION "…", got none'
revision=$(git describe --always --dirty --abbrev=40 --exclude='*' 2>/dev/null || echo unknown)
# Use the commit's time, not today's, so that the same commit gives the same layers.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH
created=$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)

# Labels are options, not build arguments, because buildah 1.28 takes a label from its cache even if
# its argument has changed.
label=org.opencontainers.image
set -- --file docker/Dockerfile --platform "$platform" --build-arg BASE="$base" \
    --label $label.version="$version" --label $label.revision="$revision" \
    --label $label.created="$created"

# Uses Docker's own format, because other formats lose the health check. Newer versions of buildah
# set BUILDPLATFORM by themselves.
with_buildah()
{
    buildah build --format docker --isolation chroot --network host --layers --force-rm \
        --pull-never --timestamp "$SOURCE_DATE_EPOCH" --build-arg BUILDPLATFORM="linux/$machine" \
        "$@" . || fail "buildah could not build $image"
}

if test "$builder" = docker; then
    docker build --tag "$image" "$@" . || fail "docker could not build $image"
elif test -z "$is_list"; then
    with_buildah --tag "$image" "$@"
else
    # If a list of that name exists, it would grow. So the list gets a temporary name first.
    list=localhost/quantd-list-$$
    with_buildah --manifest "$list" "$@"
    buildah tag "$list" "$image"
fi
echo "build.sh: built $image, quantd $version for $platform"
