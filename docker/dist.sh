#!/bin/sh
# make dist: packs the sources of the commit that is checked out into build/quantd-VERSION.tar.gz.
# The same commit gives the same bytes everywhere, with the same gzip.
set -eu
cd "$(dirname "$0")/.."

fail()
{
    echo "dist.sh: $1" >&2
    exit 1
}

command -v git >/dev/null || fail 'expected git (Debian: apt-get install git), got none'
top=$(git rev-parse --show-toplevel 2>&1) || fail "expected a checkout of git, got: ${top%%
*}"
test "$top" = "$(pwd -P)" || fail "expected a checkout of git, got a folder in that of $top"
changes=$(git status --porcelain)
test -z "$changes" ||
    fail "expected a checkout without changes, got $(echo "$changes" | wc -l): ${changes%%
*}"
version=$(sed -n 's/^#define QD_VERSION "\(.*\)"$/\1/p' server/base/version.h)
test -n "$version" || fail 'server/base/version.h: expected #define QD_VERSION "…", got none'

# A released version is one commit. Sources of another commit must not get its name.
commit=$(git rev-parse HEAD)
tagged=$(git rev-parse --quiet --verify "refs/tags/v$version^{commit}") || tagged=$commit
test "$tagged" = "$commit" ||
    fail "expected commit $tagged, as the tag v$version says, or another QD_VERSION, got $commit"

# The archive depends neither on today's time nor on the umask and line ends of this machine's user.
file=build/quantd-$version.tar.gz
mkdir -p build
trap 'rm -f "$file.tar" "$file.part"' EXIT
git -c tar.umask=0022 -c core.autocrlf=false archive --format=tar --prefix="quantd-$version/" \
    --output="$file.tar" "$commit"
gzip -n -9 <"$file.tar" >"$file.part"
mv "$file.part" "$file"
sum=$(sha256sum "$file")
echo "dist.sh: made $file of commit $commit, SHA-256 ${sum%% *}"
