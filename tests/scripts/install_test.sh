#!/usr/bin/env bash
# Installs the programs of a build into an empty folder, and runs them from there, in another folder.
#   install_test.sh CMAKE BUILD_DIRECTORY VERSION
set -uo pipefail
cmake=$1 build=$2 version=$3
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
prefix=$scratch/prefix
failures=0
fail() { echo "install_test.sh: $*"; failures=$((failures + 1)); }

"$cmake" --install "$build" --prefix "$prefix" >/dev/null || exit 1
mkdir "$scratch/work"
cd "$scratch/work"
export PATH=$prefix/bin:$PATH ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0  # the MPI library does not free all its memory

for program in stage{0,1}_{train,generate,evaluate,inspect,verify,bench} stage{2,3}_{train,generate,evaluate,inspect,verify,bench}_emulated \
  prepare_data convert_checkpoint compare_stages doctor; do
  said=$("$prefix/bin/$program" --version) || fail "$program --version: exit code $?"
  case $said in "$program (StageGPT) $version"$'\n'*) ;; *) fail "$program --version: $said" ;; esac
  [ -s "$prefix/share/bash-completion/completions/$program" ] || fail "no completion for $program"
done

stage0_train --steps 2 --n-layer 1 --n-head 2 --n-embd 16 --block-size 16 --max-new-tokens 4 --run-dir run >sample 2>log ||
  fail "stage0_train: exit code $?: $(cat log)"
grep -qF "data: $prefix/share/stagegpt/data/dummy.txt, " log || fail "stage0_train: other data: $(cat log)"
stage0_generate --model run --max-new-tokens 2 >/dev/null 2>log || fail "stage0_generate: $(cat log)"
for file in README.md CHANGELOG.md copyright docs/install.md; do
  [ -s "$prefix/share/doc/stagegpt/$file" ] || fail "no $file"
done
[ $failures = 0 ]
