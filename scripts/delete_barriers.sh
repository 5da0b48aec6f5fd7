#!/usr/bin/env bash
# Deletes each barrier of stage 2's kernels in turn, and checks whether the emulated tests detect it.
#   scripts/delete_barriers.sh [--list] [--target NAME]... [FILE]...
# A barrier is a __syncthreads, __syncthreads_or or __syncwarp in stage2_cuda/kernels/*.cuh, or in the FILEs (paths
# relative to the repository's root). Works in a copy of the tree, which is built once, and again for each barrier. Runs
# the test programs of --target (default: stage2_emulated_op_tests and stage2_tests). Prints one line per barrier:
# "caught" or "SURVIVED", file:line. Exit code 1 if a barrier survives without a comment on its line or the line before:
#   // survives deletion: REASON
# --list prints the barriers and runs nothing.
set -euo pipefail
cd "$(dirname "$0")/.."

program=${0##*/}
list=
targets=()
files=()
while [ $# -gt 0 ]; do
  case $1 in
    --list) list=1 ;;
    --target) targets+=("${2:?--target needs the name of a test program}"); shift ;;
    -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) echo "$program: unknown argument '$1'; see --help" >&2; exit 2 ;;
    *) files+=("$1") ;;
  esac
  shift
done
[ ${#targets[@]} -gt 0 ] || targets=(stage2_emulated_op_tests stage2_tests)
[ ${#files[@]} -gt 0 ] || files=(stage2_cuda/kernels/*.cuh)
for file in "${files[@]}"; do
  [ -f "$file" ] || { echo "$program: no such file: $file" >&2; exit 2; }
done

# file:line of each barrier that is not in a comment.
barriers() {
  awk '{ code = $0; sub(/\/\/.*/, "", code) }
       code ~ /__sync(threads|threads_or|warp)[ ]*\(/ { print FILENAME ":" FNR }' "${files[@]}"
}

# Whether a comment explains why the barrier at $1:$2 can be deleted.
is_justified() {
  sed -n "$(($2 > 1 ? $2 - 1 : 1)),$2p" "$1" | grep -q '// survives deletion: .'
}

mapfile -t places < <(barriers)
if [ -n "$list" ]; then
  [ ${#places[@]} -eq 0 ] || printf '%s\n' "${places[@]}"
  exit 0
fi
[ ${#places[@]} -gt 0 ] || { echo "$program: no barriers in ${files[*]}" >&2; exit 1; }

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git ls-files --cached --others --exclude-standard -z | tar --create --null --files-from=- --ignore-failed-read \
  2>/dev/null | tar --extract --directory "$copy"

build() { cmake --build "$copy/build" --target "${targets[@]}" >"$copy/log" 2>&1; }

# Runs the tests of the copy. Fails if a test fails or does not end.
tests_pass() {
  local target
  for target in "${targets[@]}"; do
    OMP_WAIT_POLICY=passive GTEST_FAIL_FAST=1 timeout 1800 "$copy/build/bin/$target" >"$copy/log" 2>&1 || return 1
  done
}

configure() { cmake -S "$copy" -B "$copy/build" -G Ninja -DCMAKE_BUILD_TYPE=Release >"$copy/log" 2>&1; }
if ! configure || ! build; then
  cat "$copy/log" >&2
  echo "$program: ${targets[*]}: not built" >&2
  exit 1
fi
tests_pass || { tail -20 "$copy/log" >&2; echo "$program: the tests fail before anything is deleted" >&2; exit 1; }

failed=0
for place in "${places[@]}"; do
  file=${place%:*} line=${place##*:}
  # Keeps the argument of a barrier, because the thread may use its value.
  sed -i "$line"'{s/__syncthreads_or *(/(/; s/__syncthreads *( *)//; s/__syncwarp *([^()]*)//}' "$copy/$file"
  if ! build; then
    verdict="NOT BUILT"
    failed=1
  elif ! tests_pass; then
    verdict=caught
  elif is_justified "$file" "$line"; then
    verdict="SURVIVED as it says"
  else
    verdict=SURVIVED
    failed=1
  fi
  echo "$verdict $place"
  cp "$file" "$copy/$file"
done
exit $failed
