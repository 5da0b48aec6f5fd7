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
# In the background, so that SIGTERM to this script is passed on at once; Ctrl-C reaches the training directly.
env --default-signal=INT ./build/release/bin/stage0_train "$@" &
trap 'kill -TERM $!' TERM HUP
trap : INT
code=0
wait $! || code=$?
[ $code -le 128 ] || { code=0; wait $! || code=$?; }  # interrupted: until the training has written its checkpoint
[ $code -eq 0 ] || exit $code

[ $# -eq 0 ] || exit 0
run=$(find runs -maxdepth 1 -name 'nano*' -printf '%T@ %p\n' | sort -n | tail -n 1 | cut -d ' ' -f 2)
cat >&2 <<END

Next:
  ./build/release/bin/stage0_generate --model $run --prompt "Once there was"   # more text
  ./build/release/bin/stage0_train --data FILE.txt --run-dir runs/mine              # your text
END
