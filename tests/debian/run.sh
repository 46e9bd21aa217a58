#!/bin/sh
# make test-debian: runs `make test` on bare machines of Debian: run.sh [SUITE]...
#
# SUITE is bookworm or trixie; default: both, one after the other. They have the oldest and the
# newest libmicrohttpd (0.9.75 and 1.0.1), and gcc 12 and 14. Each run makes a root file system that
# has only Debian's essential packages, apt and make. `make test` then installs the rest, on a clone
# of the commit that is checked out. Needs root. The whole output is in build/debian/SUITE.log. The
# last line is "N passed, N failed".
set -u
cd "$(dirname "$0")/../.." || exit 1
home=$PWD/build/debian
test $# != 0 || set -- bookworm trixie

for suite; do
    case $suite in
    bookworm | trixie) ;;
    *)
        echo "run.sh: expected bookworm or trixie, got $suite" >&2
        exit 2
        ;;
    esac
done
if test "$(id -u)" != 0; then
    echo "run.sh: expected root, which a root file system needs, got uid $(id -u)" >&2
    exit 1
fi

# Makes the root file system of a suite, with a clone of this repository in /quantd. The repository
# may belong to another user than root, which git would refuse to read. mmdebstrap makes no
# /etc/hosts, which every machine has: the tests resolve "localhost".
make_root()
{
    rm -rf "${home:?}/$1"
    mkdir -p "$home"
    mmdebstrap --quiet --variant=minbase --mode=root --include=make "$1" "$home/$1" &&
        printf '127.0.0.1 localhost\n::1 localhost\n' >"$home/$1/etc/hosts" &&
        git clone --quiet --no-local \
            --upload-pack "git -c safe.directory='*' upload-pack" . "$home/$1/quantd"
}

# Runs `make test` in a root, as a machine of its own would: with its own processes, which end with
# the test, its own mounts, and nothing of this environment.
test_in()
{
    # shellcheck disable=SC2016  # the inner shell's own $1
    unshare --mount --pid --fork --kill-child sh -c '
        mount -t proc proc "$1/proc" && mount --rbind /sys "$1/sys" &&
            mount --rbind /dev "$1/dev" && env -i HOME=/root LANG=C.UTF-8 \
            PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
            chroot "$1" sh -c "make -C /quantd --no-print-directory test; exit \$?"
        ' sh "$home/$1"
}

passed=0
failed=0
for suite; do
    began=$(date +%s)
    log=$home/$suite.log
    echo "==== $suite: making a root, and running make test in it"
    mkdir -p "$home"
    { { make_root "$suite" && test_in "$suite"; } </dev/null 2>&1 ||
        echo "$suite: exit status $?"; } >"$log"
    counts=$(sed -n 's/^\([0-9]*\) passed, \([0-9]*\) failed$/\1 \2/p' "$log" | tail -n 1)
    if test -z "$counts"; then
        tail -n 20 "$log"
        counts='0 1' # the run ended before it counted
    elif grep -q "^$suite: exit status " "$log" && test "${counts#* }" = 0; then
        counts="${counts% *} 1" # the run counted no failure, but failed
    fi
    sed -n "s/^---- FAILED /---- FAILED $suite: /p" "$log"
    version=$(sed -n '/^Package: libmicrohttpd-dev$/,/^$/s/^Version: //p' \
        "$home/$suite/var/lib/dpkg/status" 2>/dev/null)
    echo "$suite, libmicrohttpd ${version:-not installed}: ${counts% *} passed," \
        "${counts#* } failed, $(($(date +%s) - began)) s"
    passed=$((passed + ${counts% *}))
    failed=$((failed + ${counts#* }))
    test "${counts#* }" != 0 || rm -rf "${home:?}/$suite"
done
echo "$passed passed, $failed failed"
test "$failed" = 0
