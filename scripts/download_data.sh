#!/usr/bin/env bash
# Downloads data sets for training and evaluation.
#   scripts/download_data.sh [--output DIR] DATASET...
# tinyshakespeare: 1.1 MB of Shakespeare's plays. tinystories: about 2 GB of short stories, written by GPT-4.
# hellaswag: the questions of HellaSwag's validation set, for stageN_evaluate --task.
# DIR: data/ in the repository. Existing files are kept, interrupted downloads are resumed. STAGEGPT_GITHUB_URL
# and STAGEGPT_HUGGINGFACE_URL set other hosts.
set -euo pipefail
. "$(dirname "$0")/download.sh"

directory=
datasets=()
while [ $# -gt 0 ]; do
  case $1 in
    --output) directory=${2:-}; [ -n "$directory" ] || usage_error "--output needs a directory"; shift ;;
    -h | --help) sed -n '2,7s/^# //p' "$0"; exit 0 ;;
    tinyshakespeare | tinystories | hellaswag) datasets+=("$1") ;;
    *) usage_error "unknown argument '$1'" ;;
  esac
  shift
done
[ ${#datasets[@]} -gt 0 ] || usage_error "expected a data set: tinyshakespeare, tinystories or hellaswag"
set_output "$directory" data

for dataset in "${datasets[@]}"; do
  case $dataset in
    tinyshakespeare)
      download "${github%/}/karpathy/char-rnn/master/data/tinyshakespeare/input.txt" "$output/tinyshakespeare.txt" \
        86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed
      ;;
    tinystories)
      files=${huggingface%/}/datasets/roneneldan/TinyStories/resolve/main
      download "$files/TinyStoriesV2-GPT4-valid.txt" "$output/tinystories_val.txt"
      download "$files/TinyStoriesV2-GPT4-train.txt" "$output/tinystories_train.txt"
      ;;
    hellaswag)
      download "${github%/}/rowanz/hellaswag/master/data/hellaswag_val.jsonl" "$output/hellaswag_val.jsonl"
      ;;
  esac
done

for dataset in "${datasets[@]}"; do
  case $dataset in
    tinyshakespeare)
      printf './build/release/bin/stage0_train --data %q\n' "$output/tinyshakespeare.txt"
      ;;
    tinystories)
      [ -s data/gpt2/encoder.json ] || echo "./scripts/download_gpt2.sh --vocabulary-only"
      printf './build/release/bin/prepare_data --input %q --tokenizer gpt2 --parse-special-tokens --output %q\n' \
        "$output/tinystories_train.txt" "$output/tinystories"
      ;;
    hellaswag)
      printf './build/release/bin/stage0_evaluate --model MODEL --task %q\n' "$output/hellaswag_val.jsonl"
      ;;
  esac
done
