#!/usr/bin/env bash
# scripts/doctor.sh, on machines that lack something: tools of the build are replaced by fake ones.
set -uo pipefail
scripts=$(realpath "$(dirname "$0")/../../scripts")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch" || exit 1
mkdir -p scripts tools build/release/bin
cp "$scripts/doctor.sh" scripts
stand_in() { printf '#!/bin/sh\n%s\n' "$2" >"$1"; chmod +x "$1"; }
stand_in scripts/setup.sh 'exit 0'
stand_in tools/c++ 'echo "c++ 12.2.0"'
stand_in tools/cmake 'echo "cmake version 3.25.1"'
stand_in tools/ninja 'echo 1.11.1'
stand_in tools/python3 'echo "Python 3.11.2"'

failed=0
# expect NAME EXIT_CODE PATTERN...: each pattern matches a line of the output.
expect() {
  local name=$1 expected=$2 status=0 output pattern
  shift 2
  output=$(CXX= PATH=$scratch/tools:$PATH ./scripts/doctor.sh --json 2>&1) || status=$?
  [ $status -eq "$expected" ] || { echo "$name: exit code $status, expected $expected"; failed=1; }
  for pattern in "$@"; do
    grep -Eq "$pattern" <<<"$output" || { printf '%s: nothing matches %s in\n%s\n' "$name" "$pattern" "$output"; failed=1; }
  done
}

expect "all there" 0 '^ok +compiler +c\+\+ 12.2.0$' '^ok +cmake +3.25.1$' '^ok +ninja +1.11.1$' '^ok +packages' \
  '^ok +python3 +3.11.2$' '^note +doctor +not built yet'
stand_in tools/cmake 'echo "cmake version 3.9.6"'
expect "an old tool" 1 '^problem +cmake +version 3.9.6, 3.25 or newer'
stand_in tools/cmake 'echo "cmake version 4.0"'
expect "a new tool" 0 '^ok +cmake +4.0$'
stand_in tools/python3 'echo "Python 3.10.12"'
expect "an old Python" 1 '^problem +python3 +version 3.10.12, 3.11 or newer'
stand_in tools/python3 'echo "Python 3.11.2"'
stand_in scripts/setup.sh 'echo ninja-build libxxhash-dev; exit 1'
expect "packages" 1 '^problem +packages +missing: ninja-build libxxhash-dev$'
stand_in scripts/setup.sh 'exit 0'
stand_in tools/c++ 'echo "error: unrecognised option -std=c++20" >&2; exit 1'
expect "an old compiler" 1 '^problem +compiler +c\+\+ does not compile C\+\+20: error: unrecognised'
stand_in tools/c++ 'echo "c++ 12.2.0"'
stand_in tools/launcher '"$@"'
output=$(CXX="launcher c++" PATH=$scratch/tools:$PATH ./scripts/doctor.sh 2>&1)
if ! grep -q '^ok  *compiler  *c++ 12.2.0$' <<<"$output"; then
  echo "a compiler behind a launcher is not found"; failed=1
fi
stand_in build/release/bin/doctor 'echo "the program, $*"; exit 1'
expect "what the program says" 1 '^the program, --json$'
stand_in build/release/bin/doctor 'exit 0'
expect "a program that is content" 0 '^ok +compiler'

exit $failed
