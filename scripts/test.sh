#!/usr/bin/env bash
# Sets up, builds, and runs every test that this machine can run, optimised.
#   scripts/test.sh [--full] [--all] [--preset NAME]...
# --full is what continuous integration runs: all tests under AddressSanitizer and UBSan, then all tests optimised,
# with each source file compiled alone. --all adds the tests labelled `slow`. --preset names a preset of
# CMakePresets.json to use in place of `release`.
set -euo pipefail
cd "$(dirname "$0")/.."

presets=()
exclude=(--label-exclude slow)
while [ $# -gt 0 ]; do
  case $1 in
    --full) presets+=(asan ci) ;;
    --all) exclude=() ;;
    --preset) presets+=("${2:?--preset needs a name}"); shift ;;
    -h | --help) sed -n '2,6s/^# //p' "$0"; exit 0 ;;
    *) echo "test.sh: unknown argument '$1'; see --help" >&2; exit 2 ;;
  esac
  shift
done
[ ${#presets[@]} -gt 0 ] || presets=(release)

./scripts/setup.sh
for preset in "${presets[@]}"; do
  echo "== $preset"
  cmake --preset "$preset" -DSTAGEGPT_TESTS=ON >/dev/null
  cmake --build --preset "$preset"
  ctest --preset "$preset" "${exclude[@]}"
done
