#!/usr/bin/env python3
"""Times training steps of llm.c's train_gpt2 on the CPU: GPT-2 124M, 4 x 64 tokens, f32, the shapes that it contains.

  llmc_step.py PROGRAM [--threads N] [--steps N] [--warmup N]

PROGRAM is train_gpt2, built from llm.c's sources. It reads its model and its tokens from fixed names in the working
directory; this script writes random ones of the same shapes to a temporary folder (1 GB). Prints one JSON object, as
pytorch_step.py does. llm.c does not clip gradients. Needs torch.
"""
import argparse
import array
import json
import os
import re
import statistics
import subprocess
import tempfile
from pathlib import Path

import torch

LAYERS, HEADS, CHANNELS, BLOCK, VOCABULARY, PADDED = 12, 12, 768, 1024, 50257, 50304
BATCH, LENGTH = 4, 64
HEADER_INTS = 256


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=Path, help="llm.c's train_gpt2")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warmup", type=int, default=3)
    return parser.parse_args()


def header(*values: int) -> bytes:
    return array.array("i", [*values, *[0] * (HEADER_INTS - len(values))]).tobytes()


def parameters() -> list[torch.Tensor]:
    """In the order of the file."""
    c, ones, zeros = CHANNELS, torch.ones, torch.zeros

    def normal(*shape: int) -> torch.Tensor:
        return 0.02 * torch.randn(shape)

    return [
        normal(PADDED, c), normal(BLOCK, c),
        ones(LAYERS, c), zeros(LAYERS, c),
        normal(LAYERS, 3 * c, c), zeros(LAYERS, 3 * c), normal(LAYERS, c, c), zeros(LAYERS, c),
        ones(LAYERS, c), zeros(LAYERS, c),
        normal(LAYERS, 4 * c, c), zeros(LAYERS, 4 * c), normal(LAYERS, c, 4 * c), zeros(LAYERS, c),
        ones(c), zeros(c),
    ]  # fmt: skip


def write_model(path: Path) -> None:
    with path.open("wb") as file:
        file.write(header(20240326, 3, BLOCK, VOCABULARY, LAYERS, HEADS, CHANNELS, PADDED))
        for tensor in parameters():
            file.write(tensor.numpy().tobytes())


def write_tokens(path: Path) -> None:
    count = 100 * BATCH * LENGTH
    path.parent.mkdir(parents=True, exist_ok=True)
    tokens = torch.randint(VOCABULARY, (count,)).tolist()
    path.write_bytes(header(20240520, 1, count) + array.array("H", tokens).tobytes())


def times(program: Path, folder: Path, threads: int, steps: int) -> list[float]:
    """Milliseconds of the first steps; the program is ended after them."""
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    found = []
    command = ["stdbuf", "-oL", str(program.resolve())]
    with subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            if match := re.match(r"step \d+: train loss \S+ \(took (\S+) ms\)", line):
                found.append(float(match[1]))
            if len(found) == steps:
                process.kill()
                break
    if len(found) < steps:
        raise SystemExit(f"{program} ended after {len(found)} of {steps} steps, with {process.returncode}")
    return found


def main() -> None:
    arguments = parse_args()
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_model(folder / "gpt2_124M.bin")
        for part in ("train", "val"):
            write_tokens(folder / f"dev/data/tinyshakespeare/tiny_shakespeare_{part}.bin")
        milliseconds = times(arguments.program, folder, arguments.threads, arguments.warmup + arguments.steps)
    timed = milliseconds[arguments.warmup :]
    median = statistics.median(timed)
    print(json.dumps({
        "ms_per_step": {"median": median, "min": min(timed), "max": max(timed)},
        "tokens_per_second": BATCH * LENGTH / median * 1000,
    }))  # fmt: skip


if __name__ == "__main__":
    main()
