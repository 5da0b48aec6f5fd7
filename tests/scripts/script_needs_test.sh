#!/usr/bin/env bash
# needs.sh hides the programs that a test does not name, and each test that is a script is run by it.
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
needs=$root/tests/support/needs.sh
failures=0
fail() { echo "script_needs_test.sh: $*"; failures=$((failures + 1)); }

"$needs" "git" git --version >/dev/null || fail "a program that is named is not found"
"$needs" "git" sh -c 'command -v cmake' && fail "a program that is not named is found"
"$needs" "" sh -c 'command -v sed >/dev/null && exit 3'
[ $? = 3 ] || fail "the exit code of the test is lost, or a program of the system"
env -u STAGEGPT_MISSING_PROGRAM "$needs" "no_such_program" true >/dev/null
[ $? = 77 ] || fail "a test is not skipped without a program that it needs"
STAGEGPT_MISSING_PROGRAM=5 "$needs" "no_such_program" true >/dev/null
[ $? = 5 ] || fail "a missing program is not told as the caller wants it"

# Scripts that are registered without stagegpt_add_script_test().
while IFS= read -r line; do
  fail "not added by stagegpt_add_script_test(): $line"
done < <(grep -rnE 'add_test\(.*\.(sh|py)\b' "$root/tests" --include=CMakeLists.txt | grep -v 'needs\.sh')
[ $failures = 0 ]
