#!/usr/bin/env bash
# scripts/plot_run.py plots runs, and reports invalid ones. Exit code 77 means "skipped": no matplotlib.
set -euo pipefail
script=$(dirname "$0")/../../scripts/plot_run.py
for python in python3 /usr/bin/python3 none; do
  if "$python" -c 'import matplotlib' 2>/dev/null; then break; fi
done
if [ "$python" = none ]; then echo "no matplotlib"; exit 77; fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/fox" "$work/owl" "$work/empty" "$work/broken" "$work/_x" "$work/"'a$b^$' "$work/lists"
for step in 1 2 3; do
  echo '{"version":2,"step":'$step',"loss":'$((5 - step))',"grad_norm":null,"learning_rate":0.1,"tokens_per_second":9,"validation_loss":2,"validation_accuracy":0.5,"validation_perplexity":7.4,"bits_per_byte":2.5}'
  [ $step = 3 ] || echo '{"version":1,"step":'$step',"loss":4,"grad_norm":1,"learning_rate":0.1}' >>"$work/owl/metrics.jsonl"
done >"$work/fox/metrics.jsonl"
printf '{"version":2,"st' >>"$work/fox/metrics.jsonl"  # an incomplete line
touch "$work/empty/metrics.jsonl"
cp "$work/owl/metrics.jsonl" "$work/_x"
cp "$work/owl/metrics.jsonl" "$work/"'a$b^$'
echo '{"version":2,"step":1,"loss":[4]}' >"$work/lists/metrics.jsonl"
echo 'no json' >"$work/broken/metrics.jsonl"

fail() { echo "FAILED: $*" >&2; exit 1; }
draw() { "$python" "$script" "$@" >"$work/said" 2>&1; }
refused() {  # refused MESSAGE ARGUMENT...
  local says=$1 code=0
  shift
  draw "$@" || code=$?
  [ $code = 2 ] || fail "exit code $code for $*"
  grep -qF -- "$says" "$work/said" || fail "$* says: $(cat "$work/said")"
}

draw "$work/fox" --output "$work/one.png" || fail "$(cat "$work/said")"
[ "$(head -c 8 "$work/one.png" | od -An -tx1 | tr -d ' ')" = 89504e470d0a1a0a ] || fail "no PNG"
draw "$work/fox" "$work/owl" --output "$work/two.svg" || fail "$(cat "$work/said")"
for text in "fox, validation" owl "Learning rate" "nats per token" "tokens per second" "Gradient norm" "accuracy" "bits per byte"; do
  grep -qF "$text" "$work/two.svg" || fail "two.svg lacks $text"
done
draw "$work/_x" "$work/"'a$b^$' --output "$work/names.svg" || fail "$(cat "$work/said")"
for text in _x 'a$b^$'; do
  grep -qF -- "$text -->" "$work/names.svg" || fail "names.svg lacks $text"
done
draw --help && grep -q -- --output "$work/said" || fail "no help"
refused "metrics.jsonl: No such file" "$work/nowhere"
refused "has no steps yet" "$work/empty"
refused "metrics.jsonl:1 is no line of metrics" "$work/broken"
refused "metrics.jsonl:1 is no line of metrics" "$work/lists"
refused "expected a name that ends in .png or .svg" "$work/fox" --output "$work/x.pdf"
refused "cannot write" "$work/fox" --output "$work/nowhere/x.png"
echo passed
