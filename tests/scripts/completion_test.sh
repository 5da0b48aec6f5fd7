#!/usr/bin/env bash
# Completes command lines with completions/stagegpt.bash, as bash does.
#   completion_test.sh DIRECTORY_OF_PROGRAMS
set -uo pipefail
source "$(dirname "$0")/../../completions/stagegpt.bash"
export PATH=$1:$PATH ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
touch "text one.txt" other
failures=0

# completes EXPECTED WORD…: the completions of the last word, with spaces between them.
completes() {
  local expected=$1
  shift
  COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
  _stagegpt "$1" "${!#}" "${COMP_WORDS[COMP_CWORD - 1]}"
  [ "${COMPREPLY[*]}" = "$expected" ] || {
    echo "completion of '$*': expected '$expected', got '${COMPREPLY[*]}'"
    failures=$((failures + 1))
  }
}

completes "--n-layer --n-head --n-embd --non-finite --no-fused" stage0_train --n
completes "--steps" stage0_train --steps 10 --step
completes "--version" stage0_train --vers
completes "--help" doctor --h
completes "cosine constant" stage0_train --lr-schedule co
completes "cosine linear constant wsd" stage0_train --lr-schedule ""
completes "cosine constant" stage0_train --lr-schedule = co
completes "cosine linear constant wsd" stage0_train --lr-schedule =
completes "" stage0_train --steps ""
completes "text one.txt" stage0_train --data te
completes "other" prepare_data --input oth
completes "text one.txt" stage0_train --eval-task te
completes "text one.txt" stage0_evaluate --task te
completes "--json" doctor --js
completes "" stage0_train --no-such-flag x
completes "" no_such_program --
[[ $(complete -p stage3_train_emulated) = *_stagegpt* ]] || { echo "no completion for stage3_train_emulated"; failures=1; }
[ $failures = 0 ]
