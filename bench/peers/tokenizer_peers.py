#!/usr/bin/env python3
"""Measures how fast tiktoken and Hugging Face's tokenizers encode a file and learn merges, to compare with tokenizer_bench.

  tokenizer_peers.py FILE GPT2_DIRECTORY [--threads 1,2]

Needs tiktoken and tokenizers from PyPI; GPT2_DIRECTORY has encoder.json and vocab.bpe. Prints medians of 9 runs.
"""
import argparse
import os
import statistics
import time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("file")
parser.add_argument("gpt2")
parser.add_argument("--threads", default="1,2", help="numbers of threads for tiktoken's batches")
arguments = parser.parse_args()
os.environ["RAYON_NUM_THREADS"] = str(max(map(int, arguments.threads.split(","))))

import tiktoken  # noqa: E402
import tokenizers  # noqa: E402
from tiktoken.load import data_gym_to_mergeable_bpe_ranks  # noqa: E402
from tiktoken_ext import openai_public  # noqa: E402


def median_seconds(run, runs=9):
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


text = open(arguments.file, encoding="utf-8", newline="").read()
megabytes = len(text.encode()) / 1e6
ranks = data_gym_to_mergeable_bpe_ranks(vocab_bpe_file=os.path.join(arguments.gpt2, "vocab.bpe"),
                                        encoder_json_file=os.path.join(arguments.gpt2, "encoder.json"))
gpt2 = tiktoken.Encoding(name="gpt2", pat_str=openai_public.r50k_pat_str, mergeable_ranks=ranks,
                         special_tokens={"<|endoftext|>": 50256})
for threads in map(int, arguments.threads.split(",")):
    lines = text.splitlines(keepends=True)
    share = -(-len(lines) // threads)
    parts = ["".join(lines[i:i + share]) for i in range(0, len(lines), share)]
    run = (lambda: gpt2.encode_ordinary(text)) if threads == 1 else (
        lambda: gpt2.encode_ordinary_batch(parts, num_threads=threads))
    print(f"tiktoken {tiktoken.__version__}, {threads} threads: {megabytes / median_seconds(run):.1f} MB/s")


def learn(vocab_size):
    byte_level = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = byte_level
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=vocab_size, min_frequency=2, show_progress=False,
                                             initial_alphabet=byte_level.alphabet())
    tokenizer.train([arguments.file], trainer)


for vocab_size in 5000, 50256:
    print(f"tokenizers {tokenizers.__version__}, {os.environ['RAYON_NUM_THREADS']} threads, "
          f"vocabulary {vocab_size}: {1e3 * median_seconds(lambda: learn(vocab_size)):.0f} ms")
