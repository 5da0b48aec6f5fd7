#!/usr/bin/env bash
# scripts/test.sh with fake versions of CMake and CTest: which presets it runs, its exit code, and its message
# when the time is over.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/scripts" "$work/bin"
cp "$here/../../scripts/test.sh" "$work/scripts/"
printf '#!/bin/sh\n' >"$work/scripts/setup.sh"
# The fake cmake only records its calls. The fake `ctest --preset P` also executes $work/P.
cat >"$work/bin/cmake" <<'END'
#!/bin/sh
echo "cmake $*" >>"$CALLS"
END
cat >"$work/bin/ctest" <<'END'
#!/bin/sh
echo "ctest $*" >>"$CALLS"
. "$BEHAVIOUR/$2"
END
chmod +x "$work/scripts/setup.sh" "$work/bin/cmake" "$work/bin/ctest"
export PATH="$work/bin:$PATH" CALLS="$work/calls" BEHAVIOUR="$work"

passing="echo '1/1 Test #1: a ....   Passed    1.00 sec'"
hanging="$passing; sleep 100"
failing="echo '1/1 Test #1: a ....***Failed    1.00 sec'; exit 8"

# expect STATUS TEXT ARGUMENTS…: the exit code, and a text that the output contains.
expect() {
  local status=$1 text=$2 got=0
  shift 2
  : >"$CALLS"
  "$work/scripts/test.sh" "$@" >"$work/out" 2>&1 || got=$?
  if [ $got != "$status" ] || ! grep -qF -- "$text" "$work/out"; then
    echo "test.sh $*: expected exit code $status and '$text', got $got and:" >&2
    cat "$work/out" >&2
    exit 1
  fi
}

expect_no_call() {
  if grep -- "$1" "$CALLS" >&2; then exit 1; fi
}

for preset in release ci asan; do echo "$passing" >"$work/$preset"; done
mkdir -p "$work/build/release/tests/labs"
touch "$work/build/release/tests/labs/a.passed"  # tests/support/run_script.sh
expect 0 "== all quick tests have run with: release; "
grep -qxF 'cmake --build --preset release --target quick_tests' "$CALLS"
grep -qxF 'ctest --preset release --label-regex ^(fast|quick)$' "$CALLS"
[ ! -e "$work/build/release/tests/labs/a.passed" ]
expect 0 "== asan" --full
[ "$(grep -c '^ctest' "$CALLS")" = 2 ]
tail -1 "$work/out" | grep -q "^== all tests have run with: ci, asan; "
grep -qxF 'cmake --build --preset asan' "$CALLS"
expect 0 "== all tests have run with: release; " --preset release
grep -qxF 'ctest --preset release --label-exclude slow' "$CALLS"
expect 0 "== all tests have run with: release; " --all
grep -qxF 'ctest --preset release' "$CALLS"
expect 2 "unknown argument '--fast'" --fast
expect 2 "expected a whole number, not 'ten'" --minutes ten
expect 0 "--minutes ends after N minutes" --help

echo "$failing" >"$work/ci"
expect 8 "***Failed" --full
expect_no_call '^ctest --preset asan'

# At the end, the output of what has failed.
logs=$work/build/ci/Testing/Temporary
mkdir -p "$logs"
echo "echo '2:a.b c' >'$logs/LastTestsFailed.log'; $failing" >"$work/ci"
printf '%s\n' '1/2 Testing: a.b' 'of another' '<end of output>' '2/2 Testing: a.b c' 'of this' '<end of output>' 'later' \
  >"$logs/LastTest.log"
expect 8 "== a.b c: the end of its output" --full
tail -1 "$work/out" | grep -qx 'of this'
# … but not that of an earlier run.
echo "$failing" >"$work/ci"
expect 8 "***Failed" --full
if grep 'the end of its output' "$work/out" >&2; then exit 1; fi
rm -r "$work/build"

# The time is over at once, so no preset has been run.
expect 1 "All tests have run with: none" --minutes 0

# The time is over during the second preset. `sed` changes the unit of --minutes to seconds.
sed -i 's/60 \* minutes/minutes/' "$work/scripts/test.sh"
echo "$passing" >"$work/ci"
echo "$hanging" >"$work/asan"
expect 1 "of asan only 1 tests have run, all passed. All tests have run with: ci" --full --minutes 3
echo "echo '1/9 Test #1: a ....***Failed    1.00 sec'; sleep 100" >"$work/asan"
expect 1 "***Failed" --full --minutes 3
echo "$hanging" >"$work/ci"
expect 1 "All tests have run with: none" --full --minutes 3
