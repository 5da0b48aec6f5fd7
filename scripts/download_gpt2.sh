#!/usr/bin/env bash
# Downloads GPT-2's vocabulary (encoder.json, vocab.bpe) and weights (config.json, model.safetensors).
#   scripts/download_gpt2.sh [--output DIR] [--model gpt2|gpt2-medium|gpt2-large|gpt2-xl] [--vocabulary-only]
# DIR: data/gpt2 in the repository, or data/ and the other model's name. Existing files are kept, interrupted
# downloads are resumed. STAGEGPT_OPENAI_URL and STAGEGPT_HUGGINGFACE_URL set other hosts.
set -euo pipefail
. "$(dirname "$0")/download.sh"

directory=
model=gpt2
weights=true
while [ $# -gt 0 ]; do
  case $1 in
    --output) directory=${2:-}; [ -n "$directory" ] || usage_error "--output needs a directory"; shift ;;
    --model) model=${2:-}; [ -n "$model" ] || usage_error "--model needs a name"; shift ;;
    --vocabulary-only) weights=false ;;
    -h | --help) sed -n '2,5s/^# //p' "$0"; exit 0 ;;
    *) usage_error "unknown argument '$1'" ;;
  esac
  shift
done
case $model in
  gpt2) channels=768 ;;
  gpt2-medium) channels=1024 ;;
  gpt2-large) channels=1280 ;;
  gpt2-xl) channels=1600 ;;
  *) usage_error "--model: expected gpt2, gpt2-medium, gpt2-large or gpt2-xl, got '$model'" ;;
esac
set_output "$directory" "data/$model"

encodings=${openai%/}/gpt-2/encodings/main
download "$encodings/encoder.json" "$output/encoder.json" \
  196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783
download "$encodings/vocab.bpe" "$output/vocab.bpe" \
  1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5
if $weights; then
  files=${huggingface%/}/openai-community/$model/resolve/main
  download "$files/config.json" "$output/config.json"
  # Weights have no checksum here: those of another model must not be kept or resumed.
  grep -Eq "\"n_embd\": *$channels\b" "$output/config.json" ||
    fail "$output/config.json is not that of $model (n_embd $channels): remove it and the weights, or use another --output"
  download "$files/model.safetensors" "$output/model.safetensors"
fi

if [ "$output" = data/gpt2 ]; then
  echo "The vocabulary: --tokenizer gpt2"
else
  printf 'The vocabulary: --tokenizer-path %q\n' "$output"
fi
