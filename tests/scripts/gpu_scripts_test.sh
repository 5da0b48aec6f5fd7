#!/usr/bin/env bash
# scripts/gpu_check.sh and gpu_report.py with fake programs, which pass, fail, take too long, are missing, or
# have no time left.
set -euo pipefail
scripts=$(realpath "$(dirname "$0")/../../scripts")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() { echo "FAILED: $*" >&2; [ ! -f "$work/said" ] || tail -n 60 "$work/said" >&2; exit 1; }

mkdir "$work/bin"
cat >"$work/bin/program" <<'END'
#!/usr/bin/env bash
name=$(basename "$0")
echo "$name $*" >>"$CALLS"
[[ "$name $*" != *${FAILING:-nothing}* ]] || { echo "$name fails" >&2; exit 3; }
[[ "$name $*" != *${SLOW:-nothing}* ]] || sleep 60
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
  *_train_*) loss=4.25
    [ "$name" = stage2_train_emulated ] || loss=${LOSS:-4.25}
    mkdir -p "$directory/checkpoints/step_00000020"
    hash=abc0; [[ $arguments != *--gpu-graph\ on* ]] || hash=${HASH:-abc0}
    echo '{"version": 1, "xxh3_128": "'"$hash"'"}' >"$directory/checkpoints/step_00000020/manifest.json"
    echo '{"step": 20, "loss": '"$loss"', "ms": {}}' >"$directory/metrics.jsonl" ;;
  *_bench_*)
    if [[ $arguments == *--ladder* ]]; then
      echo '{"ladder": "a ladder", "bound": 100, "unit": "GB/s", "bound_name": "copy", "reference": "fast",'
      echo ' "versions": [{"name": "plain", "us": 12.5, "rate": 40, "share": 0.4, "of_reference": 0.5, "error": 1e-7}]}'
      exit
    fi
    echo '{"ms_per_step": {"median": 20.0}, "tokens_per_second": 1000, "mfu": 0.25, "efficiency": 0.5,'
    echo ' "peak_memory_bytes": 1073741824, "first_step": {"loss": 5.5, "grad_norm": 2.5},'
    echo ' "phases_ms": {"data": 1, "forward": 2, "backward": 3, "communication": 0, "optimizer": 4}}' ;;
esac
END
chmod +x "$work/bin/program"
for name in stage2_{train,generate,inspect,verify,bench}_emulated stage3_train_emulated stage2_emulated_op_tests stage2_tests; do
  ln -s program "$work/bin/$name"
done
cat >"$work/mpirun" <<'END'
#!/usr/bin/env bash
while [[ $1 == -* ]]; do [ "$1" = --oversubscribe ] && shift || shift 2; done
"$@"
END
printf '#!/bin/sh\nexit 1\n' >"$work/python3"  # a Python without PyTorch
chmod +x "$work/mpirun" "$work/python3"

# check ARGUMENTS…: runs a rehearsal and stores its exit code in $code.
check() {
  code=0
  rm -rf "$work/out"
  OUT=$work/out CALLS=$work/calls PATH=$work:$PATH "$scripts/gpu_check.sh" --bin "$work/bin" --rehearse "$@" \
    >"$work/said" 2>&1 || code=$?
}
said() { grep -qE -- "$1" "$work/out/summary.txt" || fail "the summary has no line '$1'"; }

check
[ $code = 0 ] || fail "exit code $code where all passed"
for line in '^passed   verify f32 ' '^passed   op table ' '^passed   inspect bf16 ' "^passed   end of the page, f32: '</html>' and '</html>'" '^passed   bench tf32 b16 round 2 ' '^skipped  pytorch f32 b4 round 1: ' \
  '^passed   loss beyond 2.31 elements: 5.5 and 5.5' '^passed   stage 3, 1 rank, zero1 over host ' '^passed   bench tf32 b16 materialised attention ' \
  '^passed   loss of stage 3, 2 ranks: 4.25 and 4.25' '^passed   memcheck ' '^passed   ncu of a step ' \
  '^passed   bench bf16 b4 graphs on round 2 ' \
  "^passed   bits with graphs and without: 'abc0' and 'abc0'" '^passed   time plans ' '^passed   bench bf16 b64 with plans ' '^passed   ladder matmul bf16 ' '^passed   ladder attention ' '^passed   ladder attention bf16 '; do
  said "$line"
done
! grep -qE 'FAILED|no time|cut off' "$work/out/summary.txt" || fail 'something did not pass'
[ -s "$work/out/log.xz" ] || [ -s "$work/out/log.txt.xz" ] || [ -s "$work/out/log.txt.gz" ] || fail 'no log'
[ "$(find "$work/out" -type f | wc -l)" -le 8 ] || fail 'too many files'
grep -q -- '--resume' "$work/calls" || fail 'nano was not resumed'
grep -q -- '--gpu-attention flash' "$work/calls" || fail 'flash attention was not timed'

"$scripts/gpu_report.py" "$work/out" >"$work/report" || fail 'gpu_report.py'
for text in '| pytorch f32 b4 round 1 | skipped | 0 s |' 'ncu.csv has no table' '| f32 | 1.0e-07 | 2.0e-08 | 3.0e-06 | wte.weight | 1e-04 |' \
  '| tf32 | 16 | 2 | 20.00 | – | – | 1000 | 25.0 % | 50 % | 1.0 |' '| bf16 | 4 | 1 | 20.00 | 20.00 | 1.000 |' \
  '| tf32 b16 round 1 | 1.00 | 2.00 | 3.00 | 0.00 | 4.00 |' \
  'a ladder; bound: 100 GB/s, copy; reference: fast' '| plain | 12.5 | 40 | 40 % | 50 % | 1.0e-07 |'; do
  grep -qF -- "$text" "$work/report" || { cat "$work/report" >&2; fail "the report has no '$text'"; }
done

cat >"$work/out/ncu.csv" <<'END'
==PROF== Profiling
"ID","Kernel Name","gpu__time_duration.sum","dram__bytes.sum","dram__throughput.avg.pct_of_peak_sustained_elapsed","sm__throughput.avg.pct_of_peak_sustained_elapsed"
"","","us","Mbyte","%","%"
"0","void adamw<1>(float *)","1,000.00","2,000","50","10"
"1","softmax(float *)","500.00","1,000","80","20"
"2","void adamw<1>(float *)","2,000.00","4,000","80","40"
END
"$scripts/gpu_report.py" "$work/out" >"$work/report" || fail 'gpu_report.py with a profile'
grep -qF '| `adamw` | 2 | 3000 | 85.7 % | 2000 | 70 % | 30 % |' "$work/report" || { cat "$work/report" >&2; fail 'the profile'; }

FAILING='--ladder matmul' check
[ $code = 1 ] || fail "exit code $code where a step failed"
said '^FAILED   ladder matmul \(.*exit code 3\)'
said '^passed   memcheck '
grep -q 'stage2_bench_emulated fails' "$work/said" || fail 'the reason of a failure is not told'

LOSS=4.2505 check
[ $code = 1 ] || fail "exit code $code where stage 3 differs from stage 2"
said '^FAILED   loss of stage 3, zero1: 4.2505 and 4.25, '

HASH=abc1 check
[ $code = 1 ] || fail "exit code $code where graphs change bits"
said "^FAILED   bits with graphs and without: 'abc1' and 'abc0'"

PAGE_END='<p>' check
[ $code = 1 ] || fail "exit code $code where a page is cut"
said "^FAILED   end of the page, bf16: '<p>' and '</html>'"

SLOW='--precision f32 --json' check --seconds 9
[ $code = 0 ] || fail "exit code $code where the time was up"
said '^cut off  verify f32 '
said '^no time  memcheck'

rm "$work/bin/stage3_train_emulated"
check
said '^skipped  stage 3: stage3_train_emulated was not built'

for wrong in '--seconds ten' '--what'; do
  # shellcheck disable=SC2086  # a flag and its value
  check $wrong
  [ $code = 2 ] || fail "exit code $code for $wrong"
done
"$scripts/gpu_report.py" "$work" 2>/dev/null && fail 'a report of nothing' || true
