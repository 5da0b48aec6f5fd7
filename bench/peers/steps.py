#!/usr/bin/env python3
"""Times training steps of StageGPT's stage 0 and of PyTorch in turns, on the CPU, and prints a table.

  steps.py PROGRAMS [--python PYTHON] [--rounds N] [--only NAME] [--also FLAGS]...

PROGRAMS is the folder that contains stage0_bench. PYTHON is a Python with torch (default: this one). Each round starts
every contestant once for each model, so that all meet the same disturbances; the table has the median over the rounds of
each contestant's median step, in tokens/s, and its ratio to the fastest PyTorch. PyTorch runs eager and compiled, each as
installed and, if libtcmalloc_minimal is found, with tcmalloc preloaded, which makes it faster.

--also adds stage0_bench with more flags as a contestant, for example --also "--cpu-matmul blas".
"""
import argparse
import ctypes.util
import glob
import json
import os
import shlex
import statistics
import subprocess
import sys

# Name: (flags of stage0_bench, flags of pytorch_step.py). The same shapes; f32; AdamW; gradients clipped.
MODELS = {
    "124M, 4 x 64": (["--model", "gpt2", "--batch-size", "4", "--seq-len", "64"], ["--batch-size", "4", "--seq-len", "64"]),
    "124M, 1 x 1024": (["--model", "gpt2", "--batch-size", "1", "--seq-len", "1024"], ["--batch-size", "1", "--seq-len", "1024"]),
    "124M, 4 x 1024": (["--model", "gpt2", "--batch-size", "4", "--seq-len", "1024"], ["--batch-size", "4", "--seq-len", "1024"]),
    "10M, 8 x 256": (
        ["--n-layer", "6", "--n-head", "6", "--n-embd", "384", "--block-size", "256", "--vocab-size", "65", "--batch-size", "8"],
        ["--n-layer", "6", "--n-head", "6", "--n-embd", "384", "--block-size", "256", "--vocab-size", "65", "--batch-size", "8",
         "--seq-len", "256"]),
    "nano, 16 x 128": (
        ["--vocab-size", "512", "--batch-size", "16"],
        ["--n-layer", "4", "--n-head", "4", "--n-embd", "128", "--block-size", "128", "--vocab-size", "512", "--batch-size", "16",
         "--seq-len", "128"]),
}


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("programs", help="folder of stage0_bench")
    parser.add_argument("--python", default=sys.executable, help="a Python with torch")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=3, help="timed steps of a contestant in a round")
    parser.add_argument("--only", help="models whose name contains this")
    parser.add_argument("--also", action="append", default=[], metavar="FLAGS", help="another stage0_bench, with these flags")
    parser.add_argument("--eager-only", action="store_true", help="without torch.compile, which takes minutes to start")
    return parser.parse_args()


def tcmalloc():
    name = ctypes.util.find_library("tcmalloc_minimal")
    return next(iter(glob.glob(f"/usr/lib*/*/{name}") + glob.glob(f"/usr/lib*/{name}")), None) if name else None


def contestants(arguments):
    """Yields (name, function of a model's flags that gives the command, further environment variables)."""
    here = os.path.dirname(os.path.abspath(__file__))
    length = ["--steps", str(arguments.steps), "--warmup", "2"]
    for more in ["", *arguments.also]:
        yield (f"StageGPT {more}".strip(),
               lambda model, more=more: [os.path.join(arguments.programs, "stage0_bench"), *model[0], *length, "--json",
                                         *shlex.split(more)], {})
    allocators = {"": {}} | ({", tcmalloc": {"LD_PRELOAD": tcmalloc()}} if tcmalloc() else {})
    for mode, flags in {"eager": [], "compiled": ["--compile"]}.items():
        if flags and arguments.eager_only:
            continue
        for allocator, variables in allocators.items():
            yield (f"PyTorch {mode}{allocator}",
                   lambda model, flags=flags: [arguments.python, os.path.join(here, "pytorch_step.py"), *model[1], *length,
                                               "--threads", str(os.cpu_count()), *flags], variables)


def tokens_per_second(command, variables):
    result = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{shlex.join(command)} exited with {result.returncode}:\n{result.stderr[-2000:]}")
    return json.loads(result.stdout.strip().splitlines()[-1] if "torch" in result.stdout else result.stdout)["tokens_per_second"]


def main():
    arguments = parse_args()
    models = {name: model for name, model in MODELS.items() if not arguments.only or arguments.only in name}
    everyone = list(contestants(arguments))
    print(f"| tokens/s, median of {arguments.rounds} rounds (least to most) | {' | '.join(models)} |")
    print("|---|" + "---|" * len(models))
    speeds = {}  # (contestant, model): one figure for each round
    for round_number in range(arguments.rounds):
        for model_name, model in models.items():
            for name, command, variables in everyone:
                print(f"round {round_number + 1}: {model_name}, {name}   ", end="\r", file=sys.stderr)
                speeds.setdefault((name, model_name), []).append(tokens_per_second(command(model), variables))
    median = {key: statistics.median(values) for key, values in speeds.items()}
    best = {model: max((median[name, model] for name, _, _ in everyone if name.startswith("PyTorch")), default=None) for model in models}
    for name, _, _ in everyone:
        cells = []
        for model in models:
            values = speeds[name, model]
            ratio = f", {median[name, model] / best[model]:.2f} of the fastest PyTorch" if name.startswith("StageGPT") else ""
            cells.append(f"{median[name, model]:,.0f} ({min(values):,.0f} to {max(values):,.0f}){ratio}")
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
