#!/usr/bin/env python3
"""Times training steps of StageGPT's stage 0 and of PyTorch in turns, on the CPU, and prints a table.

  steps.py PROGRAMS [--python PYTHON] [--rounds N] [--only NAME] [--also FLAGS]... [--llmc PROGRAM]

PROGRAMS is the folder that contains stage0_bench. PYTHON is a Python with torch (default: this one). Each round starts
every contestant once for each model, so that all meet the same disturbances; the table has the median over the rounds of
each contestant's median step, in tokens/s, and its ratio to the fastest PyTorch in the same precision. PyTorch runs eager
and compiled, each as installed and, if libtcmalloc_minimal is found, with tcmalloc preloaded, which makes it faster.

Between its timed steps stage0_bench also times products and AdamW alone, and it takes a new batch in each step; PyTorch
repeats one batch. For small models this costs StageGPT the contents of its caches. PyTorch's loss also includes
the rows that pad the vocabulary to a multiple of 128.

--also adds stage0_bench with more flags as a contestant, for example --also "--cpu-matmul blas". --llmc adds llm.c, for
the one shape that it contains.
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
    parser.add_argument("--llmc", metavar="PROGRAM", help="llm.c's train_gpt2")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of all contestants")
    parser.add_argument("--bf16", action="store_true", help="also StageGPT with --precision bf16, and PyTorch with bf16 autocast")
    parser.add_argument("--eager-only", action="store_true", help="without torch.compile, which takes minutes to start")
    return parser.parse_args()


def tcmalloc():
    name = ctypes.util.find_library("tcmalloc_minimal")
    return next(iter(glob.glob(f"/usr/lib*/*/{name}") + glob.glob(f"/usr/lib*/{name}")), None) if name else None


class Contestant:
    def __init__(self, name, precision, command, variables=None, only=None):
        self.name, self.precision, self.command, self.variables = name, precision, command, variables or {}
        self.only = only  # the name of the only model that it can train
        self.is_pytorch = name.startswith("PyTorch")

    def can_train(self, model_name):
        return self.only in (None, model_name)


def stagegpt(arguments, name, precision, more):
    program = os.path.join(arguments.programs, "stage0_bench")
    return Contestant(name, precision, lambda model, flags: [program, *model[0], *flags, "--json", *more])


def contestants(arguments):
    yield stagegpt(arguments, "StageGPT", "f32", [])
    for more in arguments.also:
        yield stagegpt(arguments, f"StageGPT {more}", "f32", shlex.split(more))
    if arguments.bf16:
        yield stagegpt(arguments, "StageGPT bf16", "bf16", ["--precision", "bf16"])
    folder = os.path.dirname(os.path.abspath(__file__))
    if arguments.llmc:
        yield Contestant("llm.c", "f32", lambda model, flags: [arguments.python, os.path.join(folder, "llmc_step.py"),
                                                               arguments.llmc, *flags], only="124M, 4 x 64")
    script = os.path.join(folder, "pytorch_step.py")
    allocators = {"": {}} | ({", tcmalloc": {"LD_PRELOAD": tcmalloc()}} if tcmalloc() else {})
    for precision in ["f32", "bf16"] if arguments.bf16 else ["f32"]:
        for mode in ["eager"] if arguments.eager_only else ["eager", "compiled"]:
            more = ["--precision", precision] + (["--compile"] if mode == "compiled" else [])
            for allocator, variables in allocators.items():
                yield Contestant(f"PyTorch {precision} {mode}{allocator}", precision,
                                 lambda model, flags, more=more: [arguments.python, script, *model[1], *flags, *more], variables)


def run(command, variables):
    """Returns tokens/s, and whether stage0_bench found the machine busy."""
    result = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True)
    if result.returncode != 0:
        sys.exit(f"{shlex.join(command)} exited with {result.returncode}:\n{result.stderr[-2000:]}")
    figures = json.loads(result.stdout[result.stdout.index("{"):])
    return figures["tokens_per_second"], bool((figures.get("busy") or {}).get("is_busy"))


def main():
    arguments = parse_args()
    models = {name: model for name, model in MODELS.items() if not arguments.only or arguments.only in name}
    if not models:
        sys.exit(f"--only: no model is named like '{arguments.only}': {', '.join(MODELS)}")
    everyone = list(contestants(arguments))
    flags = ["--steps", str(arguments.steps), "--warmup", "2", "--threads", str(arguments.threads)]
    speeds, busy = {}, 0  # (contestant, model): one figure for each round
    for round_number in range(arguments.rounds):
        first = round_number % len(everyone)  # another one begins in each round
        for model_name, model in models.items():
            for contestant in everyone[first:] + everyone[:first]:
                if not contestant.can_train(model_name):
                    continue
                print(f"round {round_number + 1}: {model_name}, {contestant.name}", file=sys.stderr)
                speed, is_busy = run(contestant.command(model, flags), contestant.variables)
                speeds.setdefault((contestant.name, model_name), []).append(speed)
                busy += is_busy
    print_table(arguments, models, everyone, speeds)
    if busy:
        print(f"\nOther programs kept the machine busy in {busy} of StageGPT's measurements.")


def print_table(arguments, models, everyone, speeds):
    median = {key: statistics.median(values) for key, values in speeds.items()}
    print(f"| tokens/s, {arguments.threads} threads, median of {arguments.rounds} rounds (least to most) | {' | '.join(models)} |")
    print("|---|" + "---|" * len(models))
    for contestant in everyone:
        cells = []
        for model in models:
            if not contestant.can_train(model):
                cells.append("")
                continue
            values, own = speeds[contestant.name, model], median[contestant.name, model]
            cell = f"{own:,.0f} ({min(values):,.0f} to {max(values):,.0f})"
            if contestant.name.startswith("StageGPT"):
                best = max(median[peer.name, model] for peer in everyone
                           if peer.is_pytorch and peer.precision == contestant.precision)
                cell += f", {own / best:.2f} of PyTorch's best"
            cells.append(cell)
        print(f"| {contestant.name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
