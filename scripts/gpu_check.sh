#!/usr/bin/env bash
# Runs everything there is to run on a machine with a GPU: tests of the kernels, compute-sanitizer, a comparison with
# PyTorch's numbers, and measurements. Says what passed, failed and was skipped; exit code 1 when something failed.
#   scripts/gpu_check.sh [--bin DIR] [--no-bench]
# --bin takes programs that were built elsewhere for this machine's architecture; else they are built here, in
# build/gpu. Where CMake misses MPI, OpenBLAS or GoogleTest, stage 2's programs alone are built, and no tests run.
# Results go to $OUT (default ./gpu_check): summary.txt, log.txt, verify.json, bench_*.json, ladders.txt.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

bin='' bench=yes
while [ $# -gt 0 ]; do
  case $1 in
    --bin) bin=$(realpath "${2:?--bin needs a folder}"); shift ;;
    --no-bench) bench=no ;;
    -h | --help) sed -n '2,7s/^# //p' "$0"; exit 0 ;;
    *) echo "gpu_check.sh: unknown argument '$1'; see --help" >&2; exit 2 ;;
  esac
  shift
done

out=${OUT:-gpu_check}
mkdir -p "$out" || exit 1
summary=$out/summary.txt log=$out/log.txt
: >"$summary"
: >"$log"
PATH=$PATH:/usr/local/cuda/bin
export STAGEGPT_REQUIRE_GPU=1  # tests fail where they would be skipped for want of a GPU
failed=no

note() { echo "$*" | tee -a "$summary"; }

# attempt NAME FILE COMMAND…: runs a command for ten minutes at most, its standard output into FILE, the rest into the
# log, and notes how it ended.
attempt() {
  local name=$1 file=$2 start=$SECONDS code
  shift 2
  printf '\n== %s: %s\n' "$name" "$*" >>"$log"
  timeout 600 "$@" 2>>"$log" >>"$file"
  code=$?
  if [ $code -eq 0 ]; then
    note "passed   $name ($((SECONDS - start)) s)"
    return 0
  fi
  note "FAILED   $name (exit code $code, $((SECONDS - start)) s)"
  tail -n 20 "$file" "$log" >&2
  return $code
}
step() { attempt "$1" "$log" "${@:2}" || failed=yes; }
measure() {
  : >"$out/$1"
  attempt "${1%.*}" "$out/$1" "${@:2}" || failed=yes
}
# with PROGRAM: whether it was built; its steps are skipped else.
with() {
  [ -x "$bin/$1" ] && return 0
  note "skipped  what needs $1: it was not built"
  return 1
}

if ! command -v nvidia-smi >/dev/null || ! nvidia-smi >>"$log" 2>&1; then
  echo "gpu_check.sh: nvidia-smi finds no GPU on this machine" >&2
  exit 1
fi
architecture=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d '. ')
note "$(nvidia-smi --query-gpu=name,driver_version,compute_cap --format=csv,noheader | head -n 1)"
note "commit $(git rev-parse --short HEAD 2>/dev/null || echo unknown)"

if [ -z "$bin" ]; then
  configure=(cmake -S . -B build/gpu -DCMAKE_BUILD_TYPE=Release "-DCMAKE_CUDA_ARCHITECTURES=$architecture")
  if ! attempt 'configure' "$log" "${configure[@]}" -DSTAGEGPT_GPU_ONLY=OFF; then
    note "skipped  tests: log.txt says what CMake misses; ./scripts/setup.sh installs it"
    attempt 'configure stage 2 alone' "$log" "${configure[@]}" -DSTAGEGPT_GPU_ONLY=ON || exit 1
  fi
  targets=(stage2_train stage2_generate stage2_verify stage2_bench)
  if grep -q '^STAGEGPT_GPU_ONLY:BOOL=OFF' build/gpu/CMakeCache.txt; then
    targets+=(stage2_gpu_tests stage2_gpu_op_tests)
  fi
  # Ten minutes at a time are enough for a few cores; what has been built is kept.
  attempt build "$log" cmake --build build/gpu --parallel "$(nproc)" --target "${targets[@]}" || exit 1
  bin=$PWD/build/gpu/bin
fi

[ -x "$bin/stage2_verify" ] || { echo "gpu_check.sh: $bin holds no stage2_verify" >&2; exit 1; }

# Every test that is labelled gpu is in one of these two.
if with stage2_gpu_op_tests; then step 'op table' "$bin/stage2_gpu_op_tests" --gtest_brief=1; fi
if with stage2_gpu_tests; then step 'runtime and products' "$bin/stage2_gpu_tests" --gtest_brief=1; fi

# One product, as each instruction takes many times as long.
sanitize() {
  step "$1" compute-sanitizer --tool "$1" --error-exitcode 1 "$bin/stage2_gpu_op_tests" --gtest_brief=1 \
    --gtest_filter='*gpu_vectorised*:CachedAttention.*:Bf16.*'
}
if ! command -v compute-sanitizer >/dev/null; then
  note "skipped  compute-sanitizer: it is not installed"
elif with stage2_gpu_op_tests; then
  sanitize memcheck
  sanitize racecheck
fi

if with stage2_verify; then
  measure verify.json "$bin/stage2_verify" --model tests/golden/tiny.bin --state tests/golden/tiny_debug_state.bin --steps 10 --json
fi
if with stage2_train; then
  scratch=$(mktemp -d)
  trap 'rm -r "$scratch"' EXIT
  step 'train nano' "$bin/stage2_train" --run-dir "$scratch/run" --steps 100
  if with stage2_generate; then step generate "$bin/stage2_generate" --model "$scratch/run" --prompt 'Once there was'; fi
fi

if [ $bench = yes ] && with stage2_bench; then
  for precision in f32 tf32; do
    for batch in 4 16; do
      measure "bench_${precision}_b$batch.json" "$bin/stage2_bench" --model gpt2 --batch-size $batch --seq-len 1024 \
        --precision $precision --json
    done
  done
  : >"$out/ladders.txt"
  for ladder in 'layernorm' 'matmul' 'matmul --precision tf32'; do
    # shellcheck disable=SC2086  # two words
    attempt "ladder $ladder" "$out/ladders.txt" "$bin/stage2_bench" --ladder $ladder || failed=yes
  done
fi

[ $failed = no ]
