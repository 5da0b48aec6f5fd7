#!/usr/bin/env bash
# run_script.sh replaces the programs that a test does not name, runs a test again if its inputs have changed, and runs each test
# that is a script.
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
run_script=$root/tests/support/run_script.sh
failures=0
fail() { echo "run_script_test.sh: $*"; failures=$((failures + 1)); }

"$run_script" "git" "" git --version >/dev/null || fail "a program that is named is not found"
[[ $("$run_script" "git" "" sh -c 'cmake --version 2>&1; echo $?') = "cmake: not among the programs"*127 ]] ||
  fail "a program that is not named can be run"
"$run_script" "" "" sh -c 'command -v sed >/dev/null && exit 3'
[ $? = 3 ] || fail "the exit code of the test is lost, or a program of the system"
env -u STAGEGPT_MISSING_PROGRAM "$run_script" "no_such_program" "" true >/dev/null
[ $? = 77 ] || fail "a test is not skipped without a program that it needs"
STAGEGPT_MISSING_PROGRAM=5 "$run_script" "no_such_program" "" true >/dev/null
[ $? = 5 ] || fail "a missing program is not told as the caller wants it"

# The tree of a test is the one that run_script.sh lies in.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{tests/support,inputs,build}
cp "$run_script" "$work/tests/support/"
echo 1 >"$work/inputs/file"
# expect COUNT WHAT COMMAND…: COUNT runs of the command's test in all.
expect() {
  local count=$1 what=$2
  shift 2
  (cd "$work/build" && "$work/tests/support/run_script.sh" "" inputs sh -c "$@") >/dev/null
  [ "$(wc -l <"$work/runs")" = "$count" ] || fail "$what: $(wc -l <"$work/runs") runs, expected $count"
}
passing="echo >>$work/runs"
expect 1 "a test that has not run" "$passing"
expect 1 "a test whose inputs are the same" "$passing"
expect 2 "a test with another argument" "$passing; true"
echo 2 >"$work/inputs/file"
expect 3 "a test with a changed input" "$passing"
touch "$work/inputs/another"
expect 4 "a test with one more input" "$passing"
chmod +x "$work/inputs/file"
expect 5 "a test with an input that can be executed" "$passing"
for status in 3 77; do
  count=$(wc -l <"$work/runs")
  expect $((count + 1)) "a test that fails or is skipped" "$passing; exit $status"
  expect $((count + 2)) "a test that has failed or was skipped" "$passing; exit $status"
done
(cd "$work/build" && "$work/tests/support/run_script.sh" "" no_such_input true) 2>/dev/null && fail "a test passes without its inputs"

# Scripts that are registered without stagegpt_add_script_test().
while IFS= read -r line; do
  fail "not added by stagegpt_add_script_test(): $line"
done < <(grep -rnE 'add_test\(.*\.(sh|py)\b' "$root/tests" --include=CMakeLists.txt | grep -v 'run_script\.sh')
[ $failures = 0 ]
