#!/usr/bin/env bash
# Sets up, builds stage0_train and stage0_generate, and trains a small GPT-2 on data/dummy.txt in about a minute. At the end
# it prints a sample of generated text. Arguments are passed on to stage0_train.
set -euo pipefail
cd "$(dirname "$0")/.."

./scripts/setup.sh
cmake --preset release -DSTAGEGPT_TESTS=OFF >/dev/null
cmake --build --preset release --target stage0_train stage0_generate >&2
exec ./build/release/bin/stage0_train "$@"
