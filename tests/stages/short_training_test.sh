#!/usr/bin/env bash
# One short training of each stage, with a checkpoint, a resumed run, a sample and an evaluation: for the quick tests and the
# sanitizers, with which most other tests of programs do not run.
#   short_training_test.sh DIRECTORY_OF_PROGRAMS STAGE
set -euo pipefail
bin=$1 stage=$2
text=$(realpath "$(dirname "$0")/../../data/dummy.txt")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export OMP_WAIT_POLICY=passive OMPI_MCA_mpi_yield_when_idle=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
head -c 3000 "$text" >short.txt
suffix= ranks=() sync=()
case $stage in 2 | 3) suffix=_emulated ;; esac
case $stage in 1 | 3)
  ranks=(mpirun -np 2 --oversubscribe --bind-to none) sync=(--comm zero1-overlapped)
  export ASAN_OPTIONS=${ASAN_OPTIONS:-}:detect_leaks=0  # the MPI library does not free all its memory
  ;;
esac

model=(--data short.txt --n-layer 2 --n-head 2 --n-embd 16 --block-size 16)
training=(--grad-accumulation 2 --dropout 0.1 --steps 3 --max-new-tokens 2)
"${ranks[@]}" "$bin/stage${stage}_train$suffix" --run-dir run "${model[@]}" "${training[@]}" "${sync[@]}" --batch-size 2 --stop-after 2
"${ranks[@]}" "$bin/stage${stage}_train$suffix" --resume run --max-new-tokens 2
if [ "$stage" = 1 ]; then
  for flags in "--tensor-parallel 2 --batch-size 2" "--pipeline-parallel 2 --batch-size 2" "--comm overlapped --batch-size 2" \
    "--reproducible --batch-size 8"; do
    # shellcheck disable=SC2086  # a list of flags
    "${ranks[@]}" "$bin/stage1_train" --run-dir "run${flags// /}" "${model[@]}" "${training[@]}" $flags
  done
fi
"$bin/stage${stage}_generate$suffix" --model run --prompt "The" --max-new-tokens 2
"$bin/stage${stage}_evaluate$suffix" --model run --data short.txt
[ -e run/checkpoints/step_00000003/manifest.json ]
