#!/usr/bin/env bash
# The version: the commit that a build finds, and the version number in the files that name it.
#   version_test.sh CMAKE VERSION
# Skipped without git.
set -uo pipefail
cmake=$1 version=$2
root=$(cd "$(dirname "$0")/../.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failures=0
fail() { echo "version_test.sh: $*"; failures=$((failures + 1)); }

# field NAME EXPECTED: writes the version of $scratch/source, and compares a field.
field() {
  "$cmake" -DSOURCE="$scratch/source" -DOUTPUT="$scratch/version.cpp" -DNUMBER=7.8.9 -DBUILD_TYPE=Release "-DCOMPILER=GNU 12" \
    -DPROCESSOR=native -P "$root/cmake/write_version.cmake" || fail "exit code $?"
  grep -qF ".$1 = $2" "$scratch/version.cpp" || fail "$1: expected $2, got $(grep -F ".$1 = " "$scratch/version.cpp")"
}
in_source() { git -C "$scratch/source" -c user.name=test -c user.email=test "$@" >/dev/null; }

mkdir "$scratch/source"
export GIT_CEILING_DIRECTORIES=$scratch
field commit '""'
field changed false
field number '"7.8.9"'
git init -q "$scratch/source"
field commit '""'  # no commit yet
echo 1 >"$scratch/source/file"
in_source add file
in_source commit -m first
commit=$(git -C "$scratch/source" rev-parse HEAD)
field commit "\"$commit\""
field changed false
touch "$scratch/source/new" -d yesterday "$scratch/version.cpp"
before=$(stat -c %Y "$scratch/version.cpp")
field changed false  # a file that git does not know
[ "$(stat -c %Y "$scratch/version.cpp")" = "$before" ] || fail "the file is written although nothing has changed"
echo 2 >"$scratch/source/file"
field changed true
mkdir "$scratch/source/inner"
mv "$scratch/source/.git" "$scratch/git" && mkdir "$scratch/outer" && mv "$scratch/git" "$scratch/outer/.git"
mv "$scratch/source" "$scratch/outer/source"
ln -s outer/source "$scratch/source"
field commit '""'  # a source tree in another project's repository

grep -qE "^## \[?$version\]?" "$root/CHANGELOG.md" || fail "CHANGELOG.md has no $version"
grep -qE "^version: \"?$version\"?$" "$root/CITATION.cff" || fail "CITATION.cff is not of version $version"
grep -qF "version = \"$version\"" "$root/python/pyproject.toml" || fail "python/pyproject.toml is not of version $version"
[ $failures = 0 ]
