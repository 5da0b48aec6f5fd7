#!/usr/bin/env bash
# Sets up, builds what the tests labelled `fast` or `quick` need, and runs these: the table of ops on the CPU and on the emulator, what
# runs in one process, two ranks, and a short training of each stage. Ten minutes on two cores.
#   scripts/test.sh [--full] [--all] [--preset NAME]... [--minutes N]
# --preset NAME builds everything with a preset of CMakePresets.json, such as `release`, and runs every test but those labelled
# `slow`. Where a test has many similar cases, it tries a sample. --full is what continuous integration runs: the preset `ci`, in
# which no case is left out, then `asan`: under AddressSanitizer and UBSan what parses, allocates, threads or emulates. --all
# also runs the tests labelled `slow`. --minutes ends after N minutes and says what has not run, a failure.
set -euo pipefail
cd "$(dirname "$0")/.."

presets=()
targets=() chosen=(--label-exclude slow)
quick=true
minutes=
while [ $# -gt 0 ]; do
  case $1 in
    --full) presets+=(ci asan) quick= ;;
    --all) chosen=() quick= ;;
    --preset) presets+=("${2:?--preset needs a name}") quick=; shift ;;
    --minutes) minutes=${2:?--minutes needs a number}; shift ;;
    -h | --help) sed -n '2,9s/^# //p' "$0"; exit 0 ;;
    *) echo "test.sh: unknown argument '$1'; see --help" >&2; exit 2 ;;
  esac
  shift
done
[ ${#presets[@]} -gt 0 ] || presets=(release)
[ -z "$quick" ] || { targets=(--target quick_tests) chosen=(--label-regex '^(fast|quick)$'); }
case $minutes in *[!0-9]*) echo "test.sh: --minutes: expected a whole number, not '$minutes'" >&2; exit 2 ;; esac

# Runs a command; exits with 124 if it has not ended when the time is over.
in_time() {
  if [ -z "$minutes" ]; then "$@"; return; fi
  local left=$((60 * minutes - SECONDS))
  [ $left -gt 0 ] || return 124
  timeout --kill-after 20 $left "$@"
}

output=$(mktemp)
trap 'rm -f "$output"' EXIT

# Shows again how the output of each failed test ends, where the end of a long log is all that is read.
show_failures() {
  [ -s "$1/LastTestsFailed.log" ] || return 0
  cut -d: -f2- "$1/LastTestsFailed.log" | while read -r name; do
    echo "== $name: the end of its output"
    awk -v name="$name" '
      $2 == "Testing:" && substr($0, index($0, "Testing: ") + 9) == name { inside = 1 }
      inside && $0 == "<end of output>" { exit }
      inside' "$1/LastTest.log" | tail -15
  done
}

# Exits with 124 if the time is over and no test has failed so far.
test_preset() {
  local begin=$SECONDS
  : >"$output"
  find "build/$1/tests" -name '*.passed' -delete 2>/dev/null || true  # tests/support/run_script.sh
  cmake --preset "$1" -DSTAGEGPT_TESTS=ON >/dev/null || return
  in_time cmake --build --preset "$1" "${targets[@]}" || return
  echo "== $1: built in $((SECONDS - begin)) s"
  rm -f "build/$1/Testing/Temporary/LastTestsFailed.log"  # ctest keeps that of an earlier run
  in_time ctest --preset "$1" "${chosen[@]}" | tee "$output" && return
  local status=${PIPESTATUS[0]}
  show_failures "build/$1/Testing/Temporary" >&2
  if [ "$status" = 124 ] && grep -E '\*\*\*(Failed|Timeout|Exception)' "$output" >&2; then return 1; fi
  return "$status"
}

./scripts/setup.sh
complete=
for preset in "${presets[@]}"; do
  echo "== $preset"
  status=0
  test_preset "$preset" || status=$?
  if [ $status = 124 ]; then
    echo "test.sh: $minutes minutes are over; of $preset only $(grep -c ' Passed ' "$output" || true) tests have run, all" \
         "passed. All tests have run with: ${complete:-none}"
    exit 1
  fi
  [ $status = 0 ] || exit $status
  complete+="${complete:+, }$preset"
done
echo "== all ${quick:+quick }tests have run with: $complete; $SECONDS s"
