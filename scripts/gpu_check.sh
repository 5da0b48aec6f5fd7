#!/usr/bin/env bash
# Runs all checks that need a GPU, in order of importance: comparison with PyTorch's numbers, tests, measurements against
# PyTorch, stage 3, a profile of the kernels, compute-sanitizer. Exit code 1 if something failed.
#   scripts/gpu_check.sh [--bundle DIR | --bin DIR] [--seconds N] [--rehearse]
# --bundle uses the programs and libraries packed by scripts/gpu_bundle.sh, --bin programs that were built for this
# machine. Without both they are built here, in build/gpu (without MPI or OpenBLAS only stage 2's programs).
# --seconds is the time limit of all steps (default: 3600); steps without time left are listed. --rehearse runs every step
# on the emulator, with small models, on a machine without a GPU.
# Results are written to $OUT (default: gpu_check): summary.txt, results.jsonl, ncu.csv, and log.xz (log.txt until the end).
# scripts/gpu_report.py converts them to tables.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

bundle='' bin='' seconds=3600 rehearse=''
while [ $# -gt 0 ]; do
  case $1 in
    --bundle) bundle=$(realpath "${2:?--bundle needs a folder}"); shift ;;
    --bin) bin=$(realpath "${2:?--bin needs a folder}"); shift ;;
    --seconds) seconds=${2:?--seconds needs a number}; shift ;;
    --rehearse) rehearse=yes ;;
    -h | --help) sed -n '2,12s/^# //p' "$0"; exit 0 ;;
    *) echo "gpu_check.sh: unknown argument '$1'; see --help" >&2; exit 2 ;;
  esac
  shift
done
[[ $seconds =~ ^[0-9]+$ ]] || { echo "gpu_check.sh: --seconds: expected a number, got '$seconds'" >&2; exit 2; }

out=${OUT:-gpu_check}
mkdir -p "$out" || exit 1
out=$(realpath "$out")
summary=$out/summary.txt results=$out/results.jsonl log=$out/log.txt
: >"$summary"
: >"$results"
: >"$log"
deadline=$((SECONDS + seconds - 5))  # the rest is for packing
scratch=$(mktemp -d)
failed=no
own_libraries=${LD_LIBRARY_PATH:-}  # without the bundle's

finish() {
  rm -rf "$scratch"
  if command -v xz >/dev/null; then xz -f "$log"; else gzip -f "$log"; fi
}
trap finish EXIT
trap 'exit 1' TERM INT

note() { echo "$*" | tee -a "$summary"; }

# record NAME STATUS SECONDS CODE FILE: a line of results.jsonl, with the JSON object that FILE holds.
record() {
  local result=null
  [ "$(head -c 1 "$5" 2>/dev/null)" != '{' ] || result=$(tr '\n' ' ' <"$5")
  printf '{"step": "%s", "status": "%s", "seconds": %d, "exit_code": %d, "result": %s}\n' \
    "$1" "$2" "$3" "$4" "$result" >>"$results"
}

# step NAME LIMIT COMMAND…: runs a command for LIMIT seconds at most, or for what is left. Its standard output is in
# $scratch/output afterwards. Returns whether it passed.
step() {
  local name=$1 limit=$2 start=$SECONDS left=$((deadline - SECONDS)) code status
  shift 2
  : >"$scratch/output"
  if [ $left -lt 3 ]; then
    note "no time  $name"
    record "$name" 'no time' 0 0 /dev/null
    return 1
  fi
  printf '\n== %s: %s\n' "$name" "$*" >>"$log"
  timeout --kill-after=5 "$((limit < left ? limit : left))" "$@" >"$scratch/output" 2>"$scratch/errors" </dev/null
  code=$?
  cat "$scratch/errors" "$scratch/output" >>"$log"
  if [ $code -eq 0 ]; then
    status=passed
  elif [ $code -eq 124 ] && [ "$limit" -gt $left ]; then
    status='cut off'
  else
    status=FAILED failed=yes
    tail -n 5 "$scratch/output" "$scratch/errors" >&2
  fi
  note "$(printf '%-8s' "$status") $name ($((SECONDS - start)) s$([ $code -eq 0 ] || echo ", exit code $code"))"
  record "$name" "$status" $((SECONDS - start)) $code "$scratch/output"
  [ $code -eq 0 ]
}

skip() {
  note "skipped  $1: $2"
  record "$1" skipped 0 0 /dev/null
}

# with PROGRAM NAME: whether the program was built; else step NAME is skipped.
with() {
  [ -x "$bin/$1" ] && return 0
  skip "$2" "$1 was not built"
  return 1
}

# same NAME LIMIT A B: whether two numbers differ by at most LIMIT of the second.
same() {
  local status=passed
  awk -v a="$3" -v b="$4" -v limit="$2" 'BEGIN { d = a - b; exit !(a != "" && b != "" && d * d <= (limit * b) ^ 2) }' ||
    status=FAILED failed=yes
  note "$(printf '%-8s' $status) $1: $3 and $4, at most $2 of it apart"
  printf '{"step": "%s", "status": "%s", "values": ["%s", "%s"], "limit": %s}\n' "$1" $status "$3" "$4" "$2" >>"$results"
}

# equal NAME A B: whether two texts are equal, and not empty.
equal() {
  local status=passed
  [ -n "$2" ] && [ "$2" = "$3" ] || status=FAILED failed=yes
  note "$(printf '%-8s' $status) $1: '$2' and '$3'"
  printf '{"step": "%s", "status": "%s", "values": ["%s", "%s"]}\n' "$1" $status "$2" "$3" >>"$results"
}

# ---- The programs ----

prepare_bundle() {
  [ -f "$bundle/bundle.tar.gz" ] || { echo "gpu_check.sh: $bundle holds no bundle.tar.gz" >&2; exit 1; }
  mkdir -p "$scratch/bundle"
  tar -C "$scratch/bundle" -xzf "$bundle/bundle.tar.gz" || exit 1
  # shellcheck disable=SC1091
  source "$scratch/bundle/environment"
  bin=$scratch/bundle/bin
  note "bundle: $(head -n 1 "$scratch/bundle/contents.txt")"
}

build_here() {
  local architecture targets configure
  architecture=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d '. ')
  configure=(cmake -S . -B build/gpu -DCMAKE_BUILD_TYPE=Release -DCMAKE_UNITY_BUILD=ON
    "-DCMAKE_CUDA_ARCHITECTURES=$architecture")
  if ! step configure 600 "${configure[@]}" -DSTAGEGPT_GPU_ONLY=OFF; then
    failed=no
    skip tests "log says what CMake misses; ./scripts/setup.sh installs it"
    step 'configure stage 2 alone' 600 "${configure[@]}" -DSTAGEGPT_GPU_ONLY=ON || exit 1
  fi
  targets=(stage2_train stage2_generate stage2_inspect stage2_verify stage2_bench)
  if grep -q '^STAGEGPT_GPU_ONLY:BOOL=OFF' build/gpu/CMakeCache.txt; then
    targets+=(stage3_train stage3_verify stage3_bench stage2_gpu_tests stage2_gpu_op_tests)
  fi
  step build 3600 cmake --build build/gpu --parallel "$(nproc)" --target "${targets[@]}" || exit 1
  bin=$PWD/build/gpu/bin
}

PATH=$PATH:/usr/local/cuda/bin
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1  # containers often run as root
commit=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)
if [ -n "$rehearse" ]; then
  suffix=_emulated op_tests=stage2_emulated_op_tests tests=stage2_tests op_filter='*emulated_vectorised_reverse*layernorm*'
  check_filter='*layernorm*emulated_vectorised_reverse*' transport=host memory=0
  note "rehearsal on the emulator, commit $commit"
else
  suffix='' op_tests=stage2_gpu_op_tests tests=stage2_gpu_tests op_filter='*'
  check_filter='*gpu_vectorised*:*attention*gpu_cublaslt*:*gpu_bf16*:CachedAttention.*:Bf16.*' transport=nccl
  export STAGEGPT_REQUIRE_GPU=1  # tests fail where they would be skipped for want of a GPU
  if ! command -v nvidia-smi >/dev/null || ! nvidia-smi >>"$log" 2>&1; then
    echo "gpu_check.sh: nvidia-smi finds no GPU on this machine; --rehearse needs none" >&2
    exit 1
  fi
  memory=$(nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits | head -n 1)
  device=$(nvidia-smi --query-gpu=name,driver_version,compute_cap --format=csv,noheader | head -n 1)
  note "$device, $memory MiB, commit $commit"
  printf '{"step": "machine", "status": "passed", "device": "%s", "memory_mib": %d, "commit": "%s", "date": "%s"}\n' \
    "$device" "$memory" "$commit" "$(date -u +%F)" >>"$results"
fi
if [ -n "$bundle" ]; then prepare_bundle; fi
if [ -z "$bin" ]; then
  [ -z "$rehearse" ] || { echo "gpu_check.sh: --rehearse needs --bundle or --bin" >&2; exit 2; }
  build_here
fi
[ -x "$bin/stage2_verify$suffix" ] || { echo "gpu_check.sh: $bin holds no stage2_verify$suffix" >&2; exit 1; }
ldd "$bin/stage2_train$suffix" >>"$log"

# ---- The steps ----

golden=(--model tests/golden/tiny.bin --state tests/golden/tiny_debug_state.bin)
bench_model=(--model gpt2 --seq-len 1024)
[ -z "$rehearse" ] || bench_model=(--n-layer 1 --n-head 2 --n-embd 32 --vocab-size 300 --block-size 32)
nano=(--steps 20 --val-fraction 0.02 --eval-every 1000 --checkpoint-every 1000)
[ -z "$rehearse" ] || nano+=(--n-layer 1 --n-embd 32 --n-head 2 --block-size 16 --batch-size 2 --max-new-tokens 5)

verify() {
  for precision in f32 tf32 bf16; do
    step "verify $precision" 60 "$bin/stage2_verify$suffix" "${golden[@]}" --steps 10 --precision $precision --json
  done
}

unit_tests() {
  if with $op_tests 'op table'; then step 'op table' 150 "$bin/$op_tests" --gtest_brief=1 "--gtest_filter=$op_filter"; fi
  if with $tests 'runtime and products'; then step 'runtime and products' 60 "$bin/$tests" --gtest_brief=1; fi
}

train_nano() {
  local train=("$bin/stage2_train$suffix" "${nano[@]}" --run-dir "$scratch/nano")
  step 'train nano' 60 "${train[@]}" --stop-after 10 &&
    step 'resume nano' 60 "$bin/stage2_train$suffix" --resume --run-dir "$scratch/nano" &&
    step generate 60 "$bin/stage2_generate$suffix" --model "$scratch/nano" --prompt 'Once there was' --max-new-tokens 20
}

# The page of a trained model; with --precision bf16 attention and logits are those of bf16.
inspect() {
  local precision inspected=("$bin/stage2_inspect$suffix" --model "$scratch/nano" --prompt 'Once there was')
  with "stage2_inspect$suffix" inspect || return
  [ -d "$scratch/nano/checkpoints" ] || { skip inspect 'nano was not trained'; return; }
  for precision in f32 bf16; do
    step "inspect $precision" 60 "${inspected[@]}" --precision $precision --out "$scratch/inspect_$precision.html" --json - &&
      equal "end of the page, $precision" "$(tail -n 1 "$scratch/inspect_$precision.html")" '</html>'
  done
}

# bench PRECISION BATCH ROUND: a training step, then PyTorch's.
bench() {
  local name="$1 b$2 round $3" steps=(--steps 10 --warmup 3)
  [ "$2" -lt 64 ] || steps=(--steps 5 --warmup 1)
  [ -z "$rehearse" ] || steps=(--steps 2 --warmup 1)
  step "bench $name" 90 "$bin/stage2_bench$suffix" "${bench_model[@]}" --batch-size "$2" --precision "$1" "${steps[@]}" --json
  [ "$1 $2" != 'f32 64' ] || cp "$scratch/output" "$scratch/f32_b64"
  if ! env LD_LIBRARY_PATH="$own_libraries" python3 -c 'import torch' 2>/dev/null; then
    skip "pytorch $name" 'PyTorch is not installed'
    return
  fi
  local torch=(env LD_LIBRARY_PATH="$own_libraries" python3 bench/peers/pytorch_step.py --precision "$1" --batch-size "$2" "${steps[@]}")
  if [ -n "$rehearse" ]; then
    torch+=(--n-layer 1 --n-head 2 --n-embd 32 --vocab-size 300 --seq-len 32)
  else
    torch+=(--device cuda --compile --seq-len 1024)
  fi
  step "pytorch $name" 150 "${torch[@]}"
}

# Beyond 2³¹ elements: the logits of 64 · 1024 tokens, beside the same samples in four parts.
first_step() { tr '\n' ' ' <"$1" | sed -n "s/.*\"first_step\": {[^}]*\"$2\": *\([-+.0-9e]*\).*/\1/p"; }
large_products() {
  if [ -z "$rehearse" ] && [ "$memory" -lt 70000 ]; then
    skip 'more than 2^31 elements' 'the GPU has too little memory'
  elif [ -s "$scratch/f32_b64" ] && step 'bench f32 b16 in 4 micro-steps' 90 "$bin/stage2_bench$suffix" "${bench_model[@]}" \
    --batch-size 16 --grad-accumulation 4 --steps 1 --warmup 0 --json; then
    same 'loss beyond 2^31 elements' 1e-5 "$(first_step "$scratch/f32_b64" loss)" "$(first_step "$scratch/output" loss)"
    same 'gradient norm beyond 2^31 elements' 1e-4 "$(first_step "$scratch/f32_b64" grad_norm)" \
      "$(first_step "$scratch/output" grad_norm)"
  fi
}

last_loss() { tail -n 1 "$1/metrics.jsonl" | sed -n 's/.*"loss": *\([-+.0-9e]*\).*/\1/p'; }
stage3() {
  local comm mpirun=(mpirun --oversubscribe --bind-to none) train=("$bin/stage3_train$suffix" "${nano[@]}")
  with "stage3_train$suffix" 'stage 3' || return
  step 'stage 2 for comparison' 60 "$bin/stage2_train$suffix" "${nano[@]}" --run-dir "$scratch/stage2" || return
  for comm in per-tensor flat bucketed overlapped zero1 zero1-overlapped zero2; do
    step "stage 3, 1 rank, $comm over $transport" 60 "${mpirun[@]}" -np 1 "${train[@]}" --comm $comm --transport $transport \
      --run-dir "$scratch/stage3_$comm" &&
      same "loss of stage 3, $comm" 1e-4 "$(last_loss "$scratch/stage3_$comm")" "$(last_loss "$scratch/stage2")"
  done
  step 'stage 3, 2 ranks on one GPU' 60 "${mpirun[@]}" -np 2 "${train[@]}" --transport host --share-gpu --run-dir "$scratch/stage3_2" &&
    same 'loss of stage 3, 2 ranks' 1e-4 "$(last_loss "$scratch/stage3_2")" "$(last_loss "$scratch/stage2")"
}

# Flash attention beside the materialised one, whose products are in TF32.
attentions() {
  local attention
  for attention in materialised flash; do
    step "bench tf32 b16 $attention attention" 60 "$bin/stage2_bench$suffix" "${bench_model[@]}" --batch-size 16 \
      --precision tf32 --gpu-attention $attention --steps 5 --warmup 1 --json
  done
}

# Steps in CUDA graphs, and op by op: the same weights, and times in turns.
# hash_of RUN: of all files of its checkpoint of step 20.
hash_of() { sed -n 's/.*"xxh3_128": *"\([0-9a-f]*\)".*/\1/p' "$1"/checkpoints/step_00000020/manifest.json | tail -n 1; }
graphs() {
  local graph batch round train=("$bin/stage2_train$suffix" "${nano[@]}" --grad-accumulation 2 --dropout 0.1)
  for graph in off on; do
    step "train with graphs $graph" 60 "${train[@]}" --gpu-graph $graph --run-dir "$scratch/graphs_$graph" || return
  done
  equal 'bits with graphs and without' "$(hash_of "$scratch/graphs_on")" "$(hash_of "$scratch/graphs_off")"
  for batch in 4 64; do
    for round in 1 2; do
      for graph in off on; do
        step "bench bf16 b$batch graphs $graph round $round" 90 "$bin/stage2_bench$suffix" "${bench_model[@]}" --batch-size $batch \
          --precision bf16 --gpu-graph $graph --steps 5 --warmup 3 --json
      done
    done
  done
}

# cuBLASLt's algorithms, timed; then steps with them and with those of the heuristic, in turn.
plans() {
  local batch=64
  [ -z "$rehearse" ] || batch=2
  local bench=("$bin/stage2_bench$suffix" "${bench_model[@]}" --batch-size $batch --precision bf16 --json)
  step 'time plans' 120 "${bench[@]}" --steps 1 --warmup 0 --gpu-matmul-plans "$scratch/plans.json" --gpu-matmul-tune || return
  [ ! -s "$scratch/plans.json" ] || cp "$scratch/plans.json" "$out/plans.json"
  step 'bench bf16 b64 with plans' 90 "${bench[@]}" --steps 5 --warmup 1 --gpu-matmul-plans "$scratch/plans.json"
  step 'bench bf16 b64 without plans' 90 "${bench[@]}" --steps 5 --warmup 1
}

ladders() {
  step 'ladder layernorm' 60 "$bin/stage2_bench$suffix" --ladder layernorm --json
  step 'ladder matmul' 60 "$bin/stage2_bench$suffix" --ladder matmul --json
  step 'ladder matmul tf32' 60 "$bin/stage2_bench$suffix" --ladder matmul --precision tf32 --json
  step 'ladder matmul bf16' 60 "$bin/stage2_bench$suffix" --ladder matmul --precision bf16 --json
  step 'ladder attention' 60 "$bin/stage2_bench$suffix" --ladder attention --json
  step 'ladder attention bf16' 60 "$bin/stage2_bench$suffix" --ladder attention --precision bf16 --json
}

# tool NAME: whether one of the toolkit's programs is there; on the emulator its steps run without it.
tool() {
  [ -n "$rehearse" ] || command -v "$1" >/dev/null || { skip "$1" 'it is not installed'; return 1; }
}

profile() {
  tool ncu || return
  local ncu=(ncu --csv --page raw --launch-count 600 --metrics
    gpu__time_duration.sum,dram__bytes.sum,dram__throughput.avg.pct_of_peak_sustained_elapsed,sm__throughput.avg.pct_of_peak_sustained_elapsed,launch__registers_per_thread,sm__warps_active.avg.pct_of_peak_sustained_active)
  [ -z "$rehearse" ] || ncu=()
  step 'ncu of a step' 120 "${ncu[@]}" "$bin/stage2_bench$suffix" "${bench_model[@]}" --batch-size 4 --precision bf16 --steps 1 \
    --warmup 0 --json
  cp "$scratch/output" "$out/ncu.csv"
}

sanitize() {
  tool compute-sanitizer || return
  with $op_tests compute-sanitizer || return
  local check command
  for check in memcheck racecheck initcheck synccheck; do
    command=(compute-sanitizer --tool $check --error-exitcode 1)
    [ -z "$rehearse" ] || command=()
    # Each tensor is a block of its own, so that memcheck sees its end.
    step $check 120 env STAGEGPT_ALLOCATOR=direct "${command[@]}" "$bin/$op_tests" --gtest_brief=1 "--gtest_filter=$check_filter"
  done
}

verify
unit_tests
train_nano
inspect
for precision in bf16 tf32 f32; do
  for batch in 16 64 4; do bench $precision $batch 1; done
done
large_products
graphs
attentions
plans
stage3
bench bf16 64 2
bench tf32 16 2
bench f32 16 2
ladders
profile
sanitize

[ $failed = no ]
