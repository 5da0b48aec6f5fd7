#!/usr/bin/env bash
# Sets up, builds, and trains a small GPT-2 on data/dummy.txt in about a minute; a sample of what it has learnt to
# write comes last. Arguments are passed on to stage0_train.
set -euo pipefail
cd "$(dirname "$0")/.."

./scripts/setup.sh
cmake --preset release -DSTAGEGPT_TESTS=OFF >/dev/null
cmake --build --preset release >&2
exec ./build/release/bin/stage0_train "$@"
