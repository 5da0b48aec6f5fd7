#!/usr/bin/env bash
# scripts/gpu_check.sh and gpu_report.py with fake programs, which pass, fail, take too long, are missing, or
# have no time left.
set -euo pipefail
scripts=$(realpath "$(dirname "$0")/../../scripts")
python3=$(command -v python3)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TMPDIR=$work
fail() { echo "FAILED: $*" >&2; [ ! -f "$work/said" ] || tail -n 60 "$work/said" >&2; exit 1; }

mkdir "$work/bin" "$work/path"
cat >"$work/bin/program" <<'END'
#!/usr/bin/env bash
name=$(basename "$0")
echo "$name $* ${GTEST_SHARD_INDEX:+shard $GTEST_SHARD_INDEX of $GTEST_TOTAL_SHARDS}" >>"$CALLS"
[[ "$name $*" != *${FAILING:-nothing}* ]] || { echo "$name fails" >&2; exit 3; }
[[ "$name $*" != *${SLOW:-nothing}* ]] || for ((i = 0; i < 300; ++i)); do [ ! -e "$0" ] || sleep 0.1; done
directory= page= arguments=$*
while [ $# -gt 0 ]; do
  [ "$1" != --run-dir ] || directory=$2
  [ "$1" != --out ] || page=$2
  shift
done
case $name in
  *_inspect_*) printf '<html>\n%s\n' "${PAGE_END:-</html>}" >"$page" ;;
  *_verify_*) echo '{"passed": true, "logits_error": 1e-7, "loss_error": 2e-8, "losses": [],'
    echo ' "tensors": [{"name": "wte.weight", "shape": [2], "error": 3e-6, "limit": 1e-4, "ok": true}]}' ;;
  *_train_*) loss=${STAGE2_LOSS:-4.25}
    [ "$name" = stage2_train_emulated ] || loss=${LOSS:-4.25}
    mkdir -p "$directory/checkpoints/step_00000020"
    hash=abc0; [[ $arguments != *--gpu-graph\ on* ]] || hash=${HASH:-abc0}
    echo '{"version": 1, "xxh3_128": "'"$hash"'"}' >"$directory/checkpoints/step_00000020/manifest.json"
    echo '{"step": 20, "loss": '"$loss"', "ms": {}}' >"$directory/metrics.jsonl" ;;
  *_generate_*) echo 'Once there was' ;;
  *_bench_*)
    if [[ $arguments == *--ladder* ]]; then
      echo '{"ladder": "a ladder", "bound": 100, "unit": "GB/s", "bound_name": "copy", "reference": "fast",'
      echo ' "versions": [{"name": "plain", "us": 12.5, "rate": 40, "share": 0.4, "of_reference": 0.5, "error": 1e-7}]}'
      exit
    fi
    if [[ $arguments == *--generate* ]]; then
      echo '{"ms_per_token": {"median": 0.25}, "bandwidth_share": 0.3, "device_work": {"launches": 65, "graphs": 1}}'
      exit
    fi
    norm=2.5; [[ $arguments != *--grad-accumulation* ]] || norm=${NORM:-2.5001}
    echo '{"ms_per_step": {"median": 20.0}, "tokens_per_second": 1000, "mfu": 0.25, "efficiency": 0.5,'
    echo ' "peak_memory_bytes": 1073741824, "first_step": {"loss": 5.5, "grad_norm": '"$norm"'},'
    echo ' "phases_ms": {"data": 1, "forward": 2, "backward": 3, "communication": 0, "optimizer": 4}}' ;;
esac
END
chmod +x "$work/bin/program"
for name in stage2_{train,generate,inspect,verify,bench}_emulated stage3_train_emulated stage2_emulated_op_tests stage2_tests; do
  ln -s program "$work/bin/$name"
done
cat >"$work/path/mpirun" <<'END'
#!/usr/bin/env bash
while [[ $1 == -* ]]; do [ "$1" = --oversubscribe ] && shift || shift 2; done
"$@"
END
# Python without PyTorch, or with a fake of it.
cat >"$work/path/python3" <<END
#!/usr/bin/env bash
[ "\$1 \$2" != '-c import torch' ] || exit \${NO_TORCH-1}
[ "\$1" != bench/peers/pytorch_step.py ] || { echo "pytorch \${*:2}" >>"\$CALLS"; echo '{"ms_per_step": {"median": 25.0}}'; exit; }
exec "$python3" "\$@"
END
chmod +x "$work/path"/*

# check ARGUMENTS…: runs a rehearsal with $programs and stores its exit code in $code.
programs=(--bin "$work/bin")
check() {
  code=0
  rm -rf "$work/out" "$work/calls"
  OUT=$work/out CALLS=$work/calls PATH=$work/path:$PATH "$scripts/gpu_check.sh" "${programs[@]}" --rehearse "$@" \
    >"$work/said" 2>&1 || code=$?
}
said() { grep -qE -- "$1" "$work/out/summary.txt" || fail "the summary has no line '$1'"; }
reported() { grep -qF -- "$1" "$work/report" || { cat "$work/report" >&2; fail "the report has no '$1'"; }; }

check
[ $code = 0 ] || fail "exit code $code where all passed"
for line in "end of the page, f32: '</html>' and '</html>'" "loss beyond 2.31 elements: '5.5' and '5.5'" \
  "gradient norm beyond 2.31 elements: '2.5' and '2.5001', at most 1e-4 of it apart" \
  "loss of stage 3, zero1: '4.25' and '4.25', at most 1e-4" "loss of stage 3, 2 ranks: '4.25' and '4.25'" \
  "bits with graphs and without: 'abc0' and 'abc0'" 'time plans ' 'bench bf16 b64 with plans ' 'bench bf16 b64 wgmma ' \
  'bench tf32 b16 materialised attention ' 'bench bf16 b4 graphs on round 2 ' 'token bf16 graphs on round 2 ' \
  'texts: 1, with graphs and without: ' 'texts: 3, with graphs and without: '; do
  said "^passed   $line"
done
said '^skipped  pytorch f32 b16 round 1: PyTorch is not installed'
! grep -qE 'FAILED|no time|cut off' "$work/out/summary.txt" || fail 'something did not pass'
grep -q -- '--resume' "$work/calls" || fail 'nano was not resumed'
grep -q -- '--gpu-attention flash' "$work/calls" || fail 'flash attention was not timed'
[ "$(grep -c 'stage2_emulated_op_tests.* shard [01] of 2$' "$work/calls")" = 2 ] || fail 'the op table in two processes'

# The most important steps come first.
grep -nE '^passed   (verify bf16|op table|bench (bf16 b64|bf16 b16|tf32 b16|f32 b16) round 1|stage 3, 1 rank, flat over host|profile|memcheck|racecheck|train with graphs off|ladder matmul bf16|memcheck, more tests) ' \
  "$work/out/summary.txt" | sed -E 's/^[0-9]+:passed   (.*) \([0-9]+ s\)$/\1/' >"$work/order"
printf '%s\n' 'verify bf16' 'op table' 'bench bf16 b64 round 1' 'bench bf16 b16 round 1' 'bench tf32 b16 round 1' \
  'bench f32 b16 round 1' 'stage 3, 1 rank, flat over host' profile memcheck racecheck 'train with graphs off' \
  'ladder matmul bf16' 'memcheck, more tests' | diff - "$work/order" >&2 || fail 'the order of the steps'

# The files, and the table at the end of the output.
find "$work/out" -type f -printf '%f\n' | sort | diff - <(printf '%s\n' log.txt.gz ncu.csv report.md results.jsonl summary.txt) >&2 ||
  fail 'the files'
gzip -dc "$work/out/log.txt.gz" | grep '^== ladder attention bf16: .*stage2_bench_emulated --ladder' >/dev/null || fail 'the log'
tail -n 25 "$work/said" | grep -F '| tf32 | 16 | 1 | 20.00 | – | – | 1000 |' >/dev/null || fail 'no table at the end'
! grep -qF 'a ladder; bound' "$work/said" || fail 'the table at the end is not brief'
cp "$work/out/report.md" "$work/report"
for text in '| pytorch f32 b16 round 1 | skipped | 0 s |' 'ncu.csv has no table' \
  '| f32 | 1.0e-07 | 2.0e-08 | 3.0e-06 | wte.weight | 1e-04 |' '| tf32 | 16 | 1 | 20.00 | – | – | 1000 | 25.0 % | 50 % | 1.0 |' \
  '| bf16 | 4 | 1 | 20.00 | 20.00 | 1.000 |' '| bf16 | on | 2 | 0.250 | 30 % | 65 | 1 |' '| tf32 b16 round 1 | 1.00 | 2.00 | 3.00 | 0.00 | 4.00 |' \
  'a ladder; bound: 100 GB/s, copy; reference: fast' '| plain | 12.5 | 40 | 40 % | 50 % | 1.0e-07 |'; do
  reported "$text"
done

cat >"$work/out/ncu.csv" <<'END'
==PROF== Profiling
"ID","Kernel Name","Grid Size","gpu__time_duration.sum","dram__bytes.sum","dram__throughput.avg.pct_of_peak_sustained_elapsed","sm__throughput.avg.pct_of_peak_sustained_elapsed","launch__registers_per_thread","sm__warps_active.avg.pct_of_peak_sustained_active"
"","","","us","Mbyte","%","%","register/thread","%"
"0","softmax(float *)","(8, 1, 1)","500.00","1,000","80","20","40","50.4"
"1","void adamw<1>(float *)","(1,024, 1, 1)","1,000.00","2,000","50","10","32","99.6"
END
"$scripts/gpu_report.py" "$work/out" >"$work/report" || fail 'gpu_report.py with a profile'
# shellcheck disable=SC2016  # the backquotes of Markdown
grep -A 1 -Fx '| `adamw` | (1,024,1,1) | 1000.0 | 2000 | 50 % | 10 % | 100 % | 32 |' "$work/report" |
  grep -qFx '| `softmax` | (8,1,1) | 500.0 | 2000 | 80 % | 20 % | 50 % | 40 |' || { cat "$work/report" >&2; fail 'the profile'; }

# What fails is reported, and the steps after it run.
FAILING='--ladder matmul' LOSS=4.2505 HASH=abc1 PAGE_END='<p>' NORM=2.501 check
[ $code = 1 ] || fail "exit code $code where a step failed"
said '^FAILED   ladder matmul \(.*exit code 3\)'
said "^FAILED   loss of stage 3, zero1: '4.2505' and '4.25', "
said "^FAILED   bits with graphs and without: 'abc1' and 'abc0'"
said "^FAILED   end of the page, bf16: '<p>' and '</html>'"
said "^FAILED   gradient norm beyond 2.31 elements: '2.5' and '2.501', "
said "^passed   loss beyond 2.31 elements: '5.5' and '5.5', "
said '^passed   memcheck, more tests '
grep -q 'stage2_bench_emulated fails' "$work/said" || fail 'the reason of a failure is not told'
# With PyTorch: its steps are compiled before the first of them is timed.
NO_TORCH=0 FAILING=stage2_emulated_op_tests LOSS=null STAGE2_LOSS=null check
[ $code = 1 ] || fail "exit code $code where tests failed"
said '^FAILED   op table '  # in processes of its own
said '^FAILED   racecheck '
said "^FAILED   loss of stage 3, zero1: '' and '', "
said '^passed   ladder attention bf16 '
said '^passed   PyTorch has compiled '
[ "$(grep -c '^pytorch .*--steps 1 --warmup 0 --precision' "$work/calls")" = 4 ] || fail 'what is compiled'
cp "$work/out/report.md" "$work/report"
reported '| bf16 | 64 | 2 | 20.00 | 25.00 | 0.80 | 1000 |'

# A run that ends too early keeps what it has. It has seven seconds for its steps: a step with under three is not begun.
SLOW='--precision f32 --json' check --seconds 12
[ $code = 0 ] || fail "exit code $code where the time was up"
said '^cut off  verify f32 '
said '^no time  memcheck'
for signal in KILL TERM; do
  rm -rf "$work/calls" "$work/out"
  SLOW=stage2_emulated_op_tests OUT=$work/out CALLS=$work/calls PATH=$work/path:$PATH "$scripts/gpu_check.sh" "${programs[@]}" --rehearse \
    >"$work/said" 2>&1 &
  until grep -qs op_tests "$work/calls"; do sleep 0.1; done
  kill -$signal $!
  wait $! 2>/dev/null || true
  grep -q '"step": "verify bf16", "status": "passed"' "$work/out/results.jsonl" || fail 'results of a killed run'
  "$scripts/gpu_report.py" --brief "$work/out" >"$work/report" || fail 'the report of a killed run'
  reported '| bf16 | 1.0e-07 | 2.0e-08 |'
done
[ -s "$work/out/report.md" ] || fail 'a run that is ended by TERM writes no report'
! grep -q 'op table' "$work/out/summary.txt" || fail 'a run that is ended by TERM ends too late'

# A bundle, packed and unpacked; programs that are missing.
rm "$work/bin/stage3_train_emulated"
mkdir "$work/bundle"
(cd "$work" && echo 'export BUNDLED=yes' >environment && echo 'commit 1234567' >contents.txt &&
  "$python3" -m tarfile -c bundle/bundle.tar.xz environment contents.txt bin)
for folder in . bundle; do
  programs=(--bundle "$work/$folder")
  check --seconds 10
  [ $code = 0 ] || fail "exit code $code with a bundle in $folder"
  said '^bundle: commit 1234567$'
  said '^passed   verify f32 '
  said '^skipped  stage 3, 1 rank, zero1 over host: stage3_train_emulated was not built'
  ! grep -q 'loss of stage 3' "$work/out/summary.txt" || fail 'losses of nothing'
done
programs=(--bundle "$work/path")
check
grep -q 'holds no bundle.tar.xz' "$work/said" || fail 'a folder without a bundle'

for wrong in '--seconds ten' '--what'; do
  # shellcheck disable=SC2086  # a flag and its value
  check $wrong
  [ $code = 2 ] || fail "exit code $code for $wrong"
done
! "$scripts/gpu_report.py" "$work" 2>/dev/null || fail 'a report of nothing'
