#!/usr/bin/env bash
# Sets up, builds, and runs every test that this machine can run.
#   scripts/test.sh [--all] [--preset NAME]...
# --all adds the tests labelled `slow`. Presets (CMakePresets.json): release, then asan, unless others are named.
set -euo pipefail
cd "$(dirname "$0")/.."

presets=()
exclude=(--label-exclude slow)
while [ $# -gt 0 ]; do
  case $1 in
    --all) exclude=() ;;
    --preset) presets+=("${2:?--preset needs a name}"); shift ;;
    -h | --help) sed -n '2,4s/^# //p' "$0"; exit 0 ;;
    *) echo "test.sh: unknown argument '$1'; see --help" >&2; exit 2 ;;
  esac
  shift
done
[ ${#presets[@]} -gt 0 ] || presets=(release asan)

./scripts/setup.sh
for preset in "${presets[@]}"; do
  echo "== $preset"
  cmake --preset "$preset" -DSTAGEGPT_TESTS=ON >/dev/null
  cmake --build --preset "$preset"
  ctest --preset "$preset" "${exclude[@]}"
done
