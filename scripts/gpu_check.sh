#!/usr/bin/env bash
# Runs all checks that need a GPU, the most important ones first, in ten minutes. Exit code 1 if something failed.
#   scripts/gpu_check.sh [--bundle DIR | --bin DIR] [--seconds N] [--rehearse]
# --bundle uses what scripts/gpu_bundle.sh has packed, or its unpacked folder; --bin uses programs that were built for this
# machine. Without both they are built here, in build/gpu (without MPI or OpenBLAS only stage 2's programs).
# --seconds is the time limit of all steps, without building (default: 570); steps without time left are listed.
# --rehearse runs every step on the emulator, with small models, on a machine without a GPU.
# Results are written to $OUT (default: gpu_check), each as soon as it is known: summary.txt, results.jsonl, ncu.csv, plans.json,
# log.txt. At the end scripts/gpu_report.py writes report.md, and log.txt is packed.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

bundle='' bin='' seconds='' rehearse=''
while [ $# -gt 0 ]; do
  case $1 in
    --bundle) bundle=$(realpath "${2:?--bundle needs a folder}"); shift ;;
    --bin) bin=$(realpath "${2:?--bin needs a folder}"); shift ;;
    --seconds) seconds=${2:?--seconds needs a number}; shift ;;
    --rehearse) rehearse=yes ;;
    -h | --help) sed -n '2,10s/^# //p' "$0"; exit 0 ;;
    *) echo "gpu_check.sh: unknown argument '$1'; see --help" >&2; exit 2 ;;
  esac
  shift
done
# The emulator takes longer than a GPU.
patience=1
if [ -n "$rehearse" ]; then patience=10 seconds=${seconds:-3600}; fi
[[ ${seconds:=570} =~ ^[0-9]+$ ]] || { echo "gpu_check.sh: --seconds: expected a number, got '$seconds'" >&2; exit 2; }
[ -z "$rehearse" ] || [ -n "$bundle$bin" ] || { echo "gpu_check.sh: --rehearse needs --bundle or --bin" >&2; exit 2; }

out=${OUT:-gpu_check}
mkdir -p "$out" || exit 1
out=$(realpath "$out")
summary=$out/summary.txt results=$out/results.jsonl log=$out/log.txt
rm -f "$out"/{ncu.csv,plans.json,report.md,log.txt.gz}
: >"$summary"
: >"$results"
: >"$log"
scratch=$(mktemp -d)
failed=no warming='' running=''
own_libraries=${LD_LIBRARY_PATH:-}  # without the bundle's

finish() {
  # shellcheck disable=SC2086  # one word for each process
  [ -z "$warming$running" ] || kill $warming $running 2>/dev/null
  scripts/gpu_report.py "$out" >"$out/report.md" 2>>"$log"
  scripts/gpu_report.py --brief "$out"
  gzip -f "$log"
  rm -rf "$scratch"
}
trap finish EXIT
trap 'exit 1' TERM INT

# ---- What a step is ----

note() { echo "$*" | tee -a "$summary"; }

# record NAME STATUS SECONDS CODE FILE: a line of results.jsonl, with the JSON object that FILE holds.
record() {
  local result=null
  [ "$(head -c 1 "$5" 2>/dev/null)" != '{' ] || result=$(tr '\n' ' ' <"$5")
  printf '{"step": "%s", "status": "%s", "seconds": %d, "exit_code": %d, "result": %s}\n' \
    "$1" "$2" "$3" "$4" "$result" >>"$results"
}

skip() { note "skipped  $1: $2"; record "$1" skipped 0 0 /dev/null; }

# step NAME LIMIT COMMAND…: runs a program or an exported function for LIMIT seconds at most, or for what is left. Its
# standard output is in $scratch/output afterwards. Returns whether it passed. Where a program is missing it is skipped.
step() {
  local name=$1 limit=$(($2 * patience)) start=$SECONDS left=$((deadline - SECONDS)) code=0 status=passed word
  shift 2
  : >"$scratch/output"
  for word in "$@"; do
    [[ $word != "$bin"/* || -x $word ]] || { skip "$name" "${word##*/} was not built"; return 1; }
  done
  [ -n "$(type -t "$1")" ] || { skip "$name" "$1 is not installed"; return 1; }
  if [ $left -lt 3 ]; then
    note "no time  $name"
    record "$name" 'no time' 0 0 /dev/null
    return 1
  fi
  printf '\n== %s: %s\n' "$name" "$*" >>"$log"
  [ "$(type -t "$1")" != function ] || set -- bash -c '"$@"' "$1" "$@"
  timeout --kill-after=5 "$((limit < left ? limit : left))" "$@" >"$scratch/output" 2>"$scratch/errors" </dev/null &
  running=$!
  wait $running || code=$?
  cat "$scratch/errors" "$scratch/output" >>"$log"
  if [ $code -eq 124 ] && [ "$limit" -gt $left ]; then
    status='cut off'
  elif [ $code -ne 0 ]; then
    status=FAILED failed=yes
    tail -n 5 "$scratch/output" "$scratch/errors" >&2
  fi
  note "$(printf '%-8s' "$status") $name ($((SECONDS - start)) s$([ $code -eq 0 ] || echo ", exit code $code"))"
  record "$name" "$status" $((SECONDS - start)) $code "$scratch/output"
  [ $code -eq 0 ]
}

# compare NAME A B [LIMIT]: whether two texts are equal and not empty, or two numbers differ by at most LIMIT of the second.
compare() {
  local status=passed
  awk -v a="$2" -v b="$3" -v limit="${4:-}" 'BEGIN {
    if (a == "" || b == "") exit 1
    exit limit == "" ? a "" != b "" : !((a - b) ^ 2 <= (limit * b) ^ 2) }' || status=FAILED failed=yes
  note "$(printf '%-8s' $status) $1: '$2' and '$3'${4:+, at most $4 of it apart}"
  printf '{"step": "%s", "status": "%s", "values": ["%s", "%s"]}\n' "$1" $status "$2" "$3" >>"$results"
}

# ---- The programs ----

unpack_bundle() {
  if [ ! -f "$bundle/environment" ]; then
    [ -f "$bundle/bundle.tar.xz" ] || { echo "gpu_check.sh: $bundle holds no bundle.tar.xz" >&2; exit 1; }
    # Not by tar: the machine may have no program for xz.
    python3 -m tarfile -e "$bundle/bundle.tar.xz" "$scratch/bundle" 2>>"$log" || { tail -n 5 "$log" >&2; exit 1; }
    bundle=$scratch/bundle
  fi
  # shellcheck disable=SC1091
  source "$bundle/environment"
  bin=$bundle/bin
  note "bundle: $(head -n 1 "$bundle/contents.txt")"
}

build_here() {
  local architecture targets configure deadline=$((SECONDS + 7200))
  architecture=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -n 1 | tr -d '. ')
  configure=(cmake -S . -B build/gpu -DCMAKE_BUILD_TYPE=Release -DCMAKE_UNITY_BUILD=ON
    "-DCMAKE_CUDA_ARCHITECTURES=$architecture")
  if ! step configure 600 "${configure[@]}" -DSTAGEGPT_GPU_ONLY=OFF; then
    failed=no
    skip tests "log says what CMake misses; ./scripts/setup.sh installs it"
    step 'configure stage 2 alone' 600 "${configure[@]}" -DSTAGEGPT_GPU_ONLY=ON || exit 1
  fi
  targets=(stage2_{train,generate,inspect,verify,bench})
  if grep -q '^STAGEGPT_GPU_ONLY:BOOL=OFF' build/gpu/CMakeCache.txt; then
    targets+=(stage3_train stage2_gpu_tests stage2_gpu_op_tests)
  fi
  step build 3600 cmake --build build/gpu --parallel "$(nproc)" --target "${targets[@]}" || exit 1
  bin=$PWD/build/gpu/bin
}

PATH=$PATH:/usr/local/cuda/bin
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1  # containers often run as root
commit=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)
if [ -n "$rehearse" ]; then
  note "rehearsal on the emulator, commit $commit"
else
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
if [ -n "$bundle" ]; then unpack_bundle; fi
[ -n "$bin" ] || build_here

# ---- What the steps run: on a GPU, or in a rehearsal ----

if [ -z "$rehearse" ]; then
  suffix='' op_tests=$bin/stage2_gpu_op_tests tests=$bin/stage2_gpu_tests transport=nccl
  processes=12 op_filter='*' test_filter='*'
  rows_filter='*/OpTable.*attention*gpu_bf16*:*/OpTable.*layernorm*gpu_bf16*:*/OpTable.*cross_entropy*gpu_bf16*'
  wide_filter='*gpu_vectorised*:*attention*gpu_cublaslt*:*gpu_bf16*:CachedAttention.*:OneRow.*:LargestLogits.*:DrawTokens.*:Bf16.*'
  model=(--model gpt2 --seq-len 1024) steps=(--steps 10 --warmup 3) nano=()
  tokens=(--model gpt2 --steps 256 --warmup 16)
  torch_model=(--seq-len 1024 --device cuda --compile)
  # Each kernel once for each size of its grid: all launches of a step would take minutes.
  # shellcheck disable=SC2054  # commas between metrics
  ncu=(ncu --csv --page raw --clock-control none --filter-mode per-launch-config --launch-count 1 --metrics
    gpu__time_duration.sum,dram__bytes.sum,dram__throughput.avg.pct_of_peak_sustained_elapsed,sm__throughput.avg.pct_of_peak_sustained_elapsed,launch__registers_per_thread,sm__warps_active.avg.pct_of_peak_sustained_active)
else
  suffix=_emulated op_tests=$bin/stage2_emulated_op_tests tests=$bin/stage2_tests transport=host
  processes=2 op_filter='*emulated_vectorised_reverse*layernorm*' test_filter='Staging.*:Orders/Reductions.*'
  rows_filter='*layernorm*emulated_bf16*' wide_filter='*layernorm*emulated_vectorised_reverse*'
  model=(--n-layer 1 --n-head 2 --n-embd 32 --vocab-size 300 --block-size 8) steps=(--steps 2 --warmup 1)
  tokens=("${model[@]}" "${steps[@]}")
  torch_model=(--n-layer 1 --n-head 2 --n-embd 32 --vocab-size 300 --seq-len 8)
  nano=(--n-layer 1 --n-embd 32 --n-head 2 --block-size 16 --batch-size 2 --max-new-tokens 5)
  ncu=()
  export OMP_WAIT_POLICY=passive  # also fast beside other programs
fi
nano+=(--steps 20 --val-fraction 0.02 --eval-every 1000 --checkpoint-every 1000)
train=("$bin/stage2_train$suffix" "${nano[@]}" --run-dir)
bench=("$bin/stage2_bench$suffix" "${model[@]}" --json)
b16=("${bench[@]}" --batch-size 16) b64=("${bench[@]}" --batch-size 64)
pytorch=(env "LD_LIBRARY_PATH=$own_libraries" python3 bench/peers/pytorch_step.py "${torch_model[@]}")
mpirun=(mpirun --oversubscribe --bind-to none)
one_rank=()
if command -v mpirun >/dev/null; then one_rank=("${mpirun[@]}" -np 1); fi
[ -x "$bin/stage2_verify$suffix" ] || { echo "gpu_check.sh: $bin holds no stage2_verify$suffix" >&2; exit 1; }
ldd "$bin/stage2_train$suffix" >>"$log"

# in_processes N PROGRAM…: the tests of a program, in N processes at once.
in_processes() { seq 0 $(($1 - 1)) | GTEST_TOTAL_SHARDS=$1 xargs -P "$1" -I{} env GTEST_SHARD_INDEX={} "${@:2}"; }

# compile_pytorch COMMAND…: the steps that are timed later find what is compiled here. Two at once: all have no place in 80 GB.
compile_pytorch() {
  { "$@" --precision bf16 --batch-size 16; "$@" --precision bf16 --batch-size 64; } &
  { "$@" --precision tf32 --batch-size 16; "$@" --precision f32 --batch-size 16; } &
  wait
}
export -f in_processes compile_pytorch

# beside_pytorch PRECISION BATCH ROUND: a training step, then PyTorch's.
beside_pytorch() {
  local name="$1 b$2 round $3" size=(--precision "$1" --batch-size "$2" "${steps[@]}")
  step "bench $name" 60 "${bench[@]}" "${size[@]}"
  if [ -n "$warming" ]; then step "pytorch $name" 120 "${pytorch[@]}" "${size[@]}"; else skip "pytorch $name" 'PyTorch is not installed'; fi
}

# sanitize TOOL LIMIT FILTER [MORE]: tests under compute-sanitizer. Each tensor is a block, so that memcheck sees its end.
sanitize() {
  local tool=(compute-sanitizer --error-exitcode 1 --tool "$1")
  [ -z "$rehearse" ] || tool=()
  STAGEGPT_ALLOCATOR=direct step "$1${4:-}" "$2" "${tool[@]}" "$op_tests" --gtest_brief=1 "--gtest_filter=$3"
}

last_loss() { tail -n 1 "$scratch/$1/metrics.jsonl" | sed -n 's/.*"loss": *\([-+.0-9e]*\).*/\1/p'; }
first_step() { tr '\n' ' ' <"$1" | sed -n "s/.*\"first_step\": {[^}]*\"$2\": *\([-+.0-9e]*\).*/\1/p"; }
# checkpoint_hash RUN: of all files of its checkpoint of step 20.
checkpoint_hash() { sed -n 's/.*"xxh3_128": *"\([0-9a-f]*\)".*/\1/p' "$scratch/$1"/checkpoints/step_00000020/manifest.json | tail -n 1; }

# ---- The steps, in order of importance: name, limit in seconds, command ----

deadline=$((SECONDS + seconds - 5))  # the rest is for the report
if "${pytorch[@]:0:3}" -c 'import torch' 2>/dev/null; then
  timeout 150 bash -c 'compile_pytorch "$@"' compile "${pytorch[@]}" --steps 1 --warmup 0 >"$scratch/compile" 2>&1 &
  warming=$!
fi

for precision in f32 tf32 bf16; do
  step "verify $precision" 30 "$bin/stage2_verify$suffix" --model tests/golden/tiny.bin --state tests/golden/tiny_debug_state.bin \
    --steps 10 --precision $precision --json
done
step 'op table' 60 in_processes $processes "$op_tests" --gtest_brief=1 "--gtest_filter=$op_filter"
step 'runtime and products' 60 "$tests" --gtest_brief=1 "--gtest_filter=$test_filter"

# Nothing of this is timed, so PyTorch may still compile.
step 'train nano' 30 "${train[@]}" "$scratch/nano" --stop-after 10 &&
  step 'resume nano' 30 "$bin/stage2_train$suffix" --resume --run-dir "$scratch/nano" &&
  step generate 30 "$bin/stage2_generate$suffix" --model "$scratch/nano" --prompt 'Once there was' --max-new-tokens 20
for precision in f32 bf16; do  # with bf16 attention and logits are those of bf16
  page=$scratch/inspect_$precision.html
  step "inspect $precision" 30 "$bin/stage2_inspect$suffix" --model "$scratch/nano" --prompt 'Once there was' --precision $precision \
    --out "$page" --json - && compare "end of the page, $precision" "$(tail -n 1 "$page")" '</html>'
done

[ -z "$warming" ] || step 'PyTorch has compiled' 160 tail --pid="$warming" -f /dev/null
beside_pytorch bf16 64 1
beside_pytorch bf16 16 1
beside_pytorch tf32 16 1
beside_pytorch f32 16 1

step 'stage 2 beside stage 3' 30 "${train[@]}" "$scratch/stage2"
for comm in per-tensor flat bucketed overlapped zero1 zero1-overlapped; do
  step "stage 3, 1 rank, $comm over $transport" 30 "${one_rank[@]}" "$bin/stage3_train$suffix" "${nano[@]}" --comm $comm \
    --transport $transport --run-dir "$scratch/$comm" && compare "loss of stage 3, $comm" "$(last_loss $comm)" "$(last_loss stage2)" 1e-4
done
step 'stage 3, 2 ranks on one GPU' 30 "${mpirun[@]}" -np 2 "$bin/stage3_train$suffix" "${nano[@]}" --transport host --share-gpu \
  --run-dir "$scratch/ranks" && compare 'loss of stage 3, 2 ranks' "$(last_loss ranks)" "$(last_loss stage2)" 1e-4

step profile 90 "${ncu[@]}" "${b16[@]}" --precision bf16 --steps 1 --warmup 0
[ ! -s "$scratch/output" ] || cp "$scratch/output" "$out/ncu.csv"

sanitize memcheck 60 "$rows_filter"
sanitize racecheck 90 "$rows_filter"

# The rest. Beyond 2³¹ elements: the logits of 64 · 1024 tokens, beside the same samples in four parts.
if [ -z "$rehearse" ] && [ "$memory" -lt 70000 ]; then
  skip 'more than 2^31 elements' 'the GPU has too little memory'
elif step 'bench f32 b64' 60 "${b64[@]}" --precision f32 --steps 1 --warmup 0 && mv "$scratch/output" "$scratch/whole" &&
  step 'bench f32 b16 in 4 micro-steps' 60 "${b16[@]}" --precision f32 --grad-accumulation 4 --steps 1 --warmup 0; then
  compare 'loss beyond 2^31 elements' "$(first_step "$scratch/whole" loss)" "$(first_step "$scratch/output" loss)" 1e-5
  compare 'gradient norm beyond 2^31 elements' "$(first_step "$scratch/whole" grad_norm)" "$(first_step "$scratch/output" grad_norm)" 1e-4
fi

accumulate=(--grad-accumulation 2 --dropout 0.1)
step 'train with graphs off' 30 "${train[@]}" "$scratch/graphs_off" --gpu-graph off "${accumulate[@]}" &&
  step 'train with graphs on' 30 "${train[@]}" "$scratch/graphs_on" --gpu-graph on "${accumulate[@]}" &&
  compare 'bits with graphs and without' "$(checkpoint_hash graphs_on)" "$(checkpoint_hash graphs_off)"
for round in 1 2; do
  for graph in off on; do
    step "bench bf16 b4 graphs $graph round $round" 60 "${bench[@]}" --batch-size 4 --precision bf16 --gpu-graph $graph "${steps[@]}"
  done
done
beside_pytorch bf16 64 2

for round in 1 2; do
  for graph in off on; do
    step "token bf16 graphs $graph round $round" 30 "$bin/stage2_bench$suffix" --generate "${tokens[@]}" --json --precision bf16 \
      --gpu-graph $graph
  done
done
for texts in 1 3; do
  write=("$bin/stage2_generate$suffix" --model "$scratch/nano" --num-samples $texts --max-new-tokens 100 --gpu-graph)
  step "texts: $texts, graphs off" 30 "${write[@]}" off && mv "$scratch/output" "$scratch/text" &&
    step "texts: $texts, graphs on" 30 "${write[@]}" on &&
    compare "texts: $texts, with graphs and without" "$(<"$scratch/output")" "$(<"$scratch/text")"
done

plans=(--gpu-matmul-plans "$out/plans.json")
step 'time plans' 120 "${b64[@]}" --precision bf16 --steps 1 --warmup 0 "${plans[@]}" --gpu-matmul-tune
step 'bench bf16 b64 with plans' 60 "${b64[@]}" --precision bf16 "${steps[@]}" "${plans[@]}"
step 'bench bf16 b64 without plans' 60 "${b64[@]}" --precision bf16 "${steps[@]}"
if [ -n "$rehearse" ] || [[ $device == *', 9.0' ]]; then
  STAGEGPT_EMULATOR_CAPABILITY=9.0 step 'bench bf16 b64 wgmma' 60 "${b64[@]}" --precision bf16 "${steps[@]}" --gpu-matmul wgmma
else
  skip 'bench bf16 b64 wgmma' 'the compute capability is not 9.0'
fi
for attention in materialised flash; do
  step "bench tf32 b16 $attention attention" 60 "${b16[@]}" --precision tf32 --gpu-attention $attention "${steps[@]}"
done
for ladder in layernorm matmul 'matmul tf32' 'matmul bf16' attention 'attention bf16'; do
  read -r kernel precision <<<"$ladder"
  step "ladder $ladder" 60 "$bin/stage2_bench$suffix" --ladder "$kernel" --precision "${precision:-f32}" --json
done
sanitize initcheck 60 "$rows_filter"
sanitize synccheck 60 "$rows_filter"
sanitize memcheck 120 "$wide_filter" ', more tests'

[ $failed = no ]
