#!/bin/sh
# make test-image: builds the image, runs it as docker/README.md says, and counts what held.
#
# With Docker where an engine answers, then on the published base image; else with buildah and
# podman, which it installs, as root and without a registry: then the base is a stand-in made from
# Debian's packages. Kubernetes' schemas and podman-compose come from PyPI, into build/image.
#
# PLATFORM is build.sh's: another machine's image is run in an emulator, with longer deadlines; of
# both, this machine's.
set -eu
cd "$(dirname "$0")/../.."
out=$PWD/build/image
mkdir -p "$out"

if docker version >/dev/null 2>&1; then
    ENGINE=docker
    tests/support/install-packages.sh image
else
    ENGINE=podman
    BASE=stand-in
    export BASE
    if test "$(id -u)" != 0; then
        echo "run.sh: expected a Docker engine that answers, or root for podman, got neither" >&2
        exit 1
    fi
    tests/support/install-packages.sh image podman
    # A runtime that also knows mixed cgroups, no need of systemd, and no limits above our own.
    CONTAINERS_CONF=$out/containers.conf
    export CONTAINERS_CONF
    cat >"$CONTAINERS_CONF" <<'END'
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
[containers]
default_ulimits = ["nofile=20000:20000", "nproc=32768:32768"]
[network]
network_backend = "netavark"
END
fi
IMAGE=quantd-test
APPLICATION=quantd-test-example
machine=$(dpkg --print-architecture)
PLATFORM=${PLATFORM:-linux/$machine}
export ENGINE IMAGE APPLICATION PLATFORM
case $PLATFORM in
"linux/$machine" | *,*) ;;
linux/amd64) EMULATOR=qemu-x86_64 ;;
linux/arm64) EMULATOR=qemu-aarch64 ;;
esac
if test -n "${EMULATOR:-}"; then
    export EMULATOR
    if ! test -e "/proc/sys/fs/binfmt_misc/$EMULATOR"; then
        echo "run.sh: $PLATFORM on $machine: expected $EMULATOR in binfmt_misc, got none:" \
            "docker/README.md says how" >&2
        exit 1
    fi
fi

venv=$out/venv
if ! test -e "$venv/complete"; then
    python3 -m venv "$venv"
    "$venv/bin/pip" install -q kubernetes-validate==1.37.0 podman-compose==1.6.0
    touch "$venv/complete"
fi

build()
{
    docker/build.sh || return
    if test "$ENGINE" = docker; then
        docker build --tag "$APPLICATION" docker/example
    else
        buildah build --isolation chroot --network host --layers --pull-never \
            --build-arg BASE="localhost/quantd-stand-in:trixie-$machine" \
            --tag "$APPLICATION" docker/example
    fi
}

echo "Building $IMAGE and $APPLICATION with ${BASE:-the published base image}"
if ! build >"$out/build.log" 2>&1; then
    cat "$out/build.log" >&2
    exit 1
fi
exec "$venv/bin/python" tests/image/test_image.py "$@"
