#!/usr/bin/env bash
# Downloads data sets for training and evaluation.
#   scripts/download_data.sh [--output DIR] [--shards N] DATASET...
# tinyshakespeare: 1.1 MB of Shakespeare's plays. tinystories: about 2 GB of short stories, written by GPT-4.
# hellaswag: the questions of HellaSwag's validation set, for stageN_evaluate --task.
# fineweb: FineWeb as tokens of GPT-2, in llm.c's shards of 100 million tokens, 200 MB each: the validation shard and the first
# N training shards, with --shards N (default: 1; 103 are all, 10 billion tokens).
# DIR: data/ in the repository. Existing files are kept, interrupted downloads are resumed. STAGEGPT_GITHUB_URL
# and STAGEGPT_HUGGINGFACE_URL set other hosts.
set -euo pipefail
. "$(dirname "$0")/download.sh"

directory=
shards=1
datasets=()
while [ $# -gt 0 ]; do
  case $1 in
    --output) directory=${2:-}; [ -n "$directory" ] || usage_error "--output needs a directory"; shift ;;
    --shards) shards=${2:-}; [ -n "$shards" ] || usage_error "--shards needs a number"; shift ;;
    -h | --help) sed -n '2,9s/^# //p' "$0"; exit 0 ;;
    tinyshakespeare | tinystories | hellaswag | fineweb) datasets+=("$1") ;;
    *) usage_error "unknown argument '$1'" ;;
  esac
  shift
done
[ ${#datasets[@]} -gt 0 ] || usage_error "expected a data set: tinyshakespeare, tinystories, hellaswag or fineweb"
[[ $shards =~ ^[1-9][0-9]{0,2}$ && $shards -le 103 ]] || usage_error "--shards: expected 1 to 103, not '$shards'"
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
    fineweb)
      files=${huggingface%/}/datasets/kjj0/fineweb10B-gpt2/resolve/main
      download "$files/fineweb_val_000000.bin" "$output/fineweb/fineweb_val_000000.bin"
      for shard in $(seq -f 'fineweb_train_%06.0f.bin' "$shards"); do
        download "$files/$shard" "$output/fineweb/$shard"
      done
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
    fineweb)
      [ -s data/gpt2/encoder.json ] || echo "./scripts/download_gpt2.sh --vocabulary-only"
      printf './build/release/bin/stage0_train --tokenizer gpt2 --data %q\n' "$output/fineweb/fineweb_train_*.bin"
      ;;
  esac
done
