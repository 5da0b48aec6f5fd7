#!/usr/bin/env bash
# Sets up, builds stage0_train and stage0_generate, and trains a small GPT-2 on data/dummy.txt in one to three minutes. At the
# end it prints a sample of generated text, and commands to go on with. Arguments are passed on to stage0_train.
set -euo pipefail
cd "$(dirname "$0")/.."

echo "quickstart.sh, 1 of 3: packages" >&2
./scripts/setup.sh
echo "quickstart.sh, 2 of 3: building stage 0, two to three minutes on two cores when nothing is built yet" >&2
cmake --preset release -DSTAGEGPT_TESTS=OFF >/dev/null
cmake --build --preset release --target stage0_train stage0_generate >&2
echo "quickstart.sh, 3 of 3: training, one to three minutes; Ctrl-C stops it with a checkpoint" >&2
./build/release/bin/stage0_train "$@"

[ $# -eq 0 ] || exit 0
cat >&2 <<'END'

Next:
  ./build/release/bin/stage0_generate --model runs/nano --prompt "Once there was"    # more text
  ./build/release/bin/stage0_train --data FILE.txt --run-dir runs/mine               # your own text
END
