"""Hand-outs and model answers state what commands print: numbers_test.py DIRECTORY_OF_PROGRAMS. No number is a time.

A text whose program is not built is not compared; the profiled programs are not in every build.
"""

import functools
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "labs"))

from kit.checks import ENVIRONMENT  # noqa: E402
from kit.lab_file import Count, numbered  # noqa: E402
from kit.programs import Command  # noqa: E402

PROGRAMS = Path(sys.argv.pop(1)).resolve()


def counted(lab: int, flag: str = "") -> str:
    """The command of the first `count` of a lab that has the flag."""
    commands = (" ".join(line.command) for line in numbered(ROOT, lab).measures if isinstance(line, Count))
    return next(command for command in commands if flag in command)


def ladder(lab: int) -> str:
    """The first `count` of a lab, for all versions of its ladder."""
    return re.sub(r" --ladder-version \S+", "", counted(lab))


NAIVE = (f"stage0_train --cpu-kernels naive --data {ROOT}/data/dummy.txt --tokenizer char --n-layer 2 --n-head 4 --n-embd 64 "
         "--block-size 48 --batch-size 16 --steps 5 --eval-every 100 --run-dir run")
PEAK, RANKS, ROWS, TILES = counted(2), counted(4, "zero1") + " --json", ladder(5), ladder(6)
WAITS, TREE = counted(7, "per-tensor"), counted(7, "--reproducible")
LARGE = ("stage0_bench --model gpt2 --n-layer 8 --n-embd 512 --n-head 8 --vocab-size 1000 --batch-size 1 --seq-len 1 --steps 1 "
         "--warmup 0 --json")
SECTORS = "{sectors:,} | {ideal_sectors:,} | {requests:,} | {wavefronts:,} |"
REQUESTS, KB = "{requests} | {sectors} | {ideal_sectors} |", "{kb_asked:.1f} | {kb_least:.1f} |"
WAVEFRONTS = "{wavefronts} | {ideal_wavefronts} |"
EFFICIENCY, CONFLICTS = "{sectors} | {efficiency:.0f} % |", "{wavefronts} | {bank_conflicts} | {kb_asked:.0f} |"

TESTS = "--gtest_list_tests --gtest_filter"

# A command, the kernel of its report, pages of labs/, and what they say: its numbers stand for themselves.
STATED = [
    (NAIVE, "", "0_run/model", "measured {loss[0]:.4f}. The"),
    (NAIVE, "", "0_run/model", "loss {loss[0]:.4f} at step 1,"),
    (NAIVE, "", "1_by_hand/HANDOUT", "The first losses are {loss[0]:.4f}, {loss[1]:.4f}, {loss[2]:.4f} "),
    (NAIVE, "", "1_by_hand/model", "losses {loss[0]:.4f}, {loss[1]:.4f}, {loss[2]:.4f}, {loss[3]:.4f}, {loss[4]:.4f}."),
    (f"reference_tests {TESTS}=Ops/GradientCheck.*/layernorm_*", "", "1_by_hand/HANDOUT", "in f64, in {tests} cases."),
    (f"reference_tests {TESTS}=Ops/GradientCheck.*/attention_*", "", "1_by_hand/HANDOUT", "Check: {tests} cases of"),
    (f"unit_tests {TESTS}=TapeTest.*", "", "2_tape/model", "of {tests} tests fail"),
    (PEAK, "", "2_tape/HANDOUT 2_tape/model", "| as it is | {peak_memory_bytes} |"),
    (PEAK + " --recompute gelu", "", "2_tape/HANDOUT 2_tape/model", "| `--recompute gelu` | {peak_memory_bytes} |"),
    (PEAK + " --recompute block", "", "2_tape/HANDOUT 2_tape/model", "| `--recompute block` | {peak_memory_bytes} |"),
    (RANKS, "", "4_ranks/model", "{peak_memory_bytes:,} bytes at most in use on rank 0;"),
    (RANKS, "", "4_ranks/model", "({parameters:,} parameters.)"),
    (RANKS.replace("zero1", "flat"), "", "4_ranks/model", "`flat` {peak_memory_bytes:,}."),
    (LARGE, "", "4_ranks/model", "| {parameters:,} parameters, 105.0 MB;"),
    (ROWS, "layernorm_v1_kernel", "5_kernels/model", "| `layernorm_v1_kernel` | " + SECTORS),
    (ROWS, "layernorm_v2_kernel", "5_kernels/model", "| `layernorm_v2_kernel` | " + SECTORS),
    (ROWS, "layernorm_forward_kernel<float, 1>", "5_kernels/model", "(v3) | " + SECTORS),
    (ROWS, "layernorm_forward_kernel<float, 4>", "5_kernels/model", "(v4) | " + SECTORS),
    (TILES, "matmul_naive_kernel", "6_products/model", f"| `matmul_naive_kernel` | {REQUESTS} – | – | {KB}"),
    (TILES, "matmul_tiled_kernel", "6_products/model", f"| `matmul_tiled_kernel` | {REQUESTS} {WAVEFRONTS} {KB}"),
    (TILES, "matmul_vectorised_kernel", "6_products/model", f"| `matmul_vectorised_kernel` | {REQUESTS} {WAVEFRONTS} {KB}"),
    (TILES, "matmul_naive_kernel", "6_products/HANDOUT", f"| naive | {EFFICIENCY} – | – | {{kb_asked:.0f}} |"),
    (TILES, "matmul_tiled_kernel", "6_products/HANDOUT", f"| tiled | {EFFICIENCY} {CONFLICTS}"),
    (TILES, "matmul_vectorised_kernel", "6_products/HANDOUT", f"| vectorised | {EFFICIENCY} {CONFLICTS}"),
    (WAITS, "", "7_gpus/HANDOUT", "--comm per-tensor` | `device_work.waits` | {device_work[waits]} |"),
    (WAITS, "", "7_gpus/model", "`device_work.waits` {device_work[waits]} with"),
    (TREE, "", "7_gpus/HANDOUT", "--reproducible` | `peak_memory_bytes` | {peak_memory_bytes} |"),
    (TREE, "", "7_gpus/model", "`peak_memory_bytes` {peak_memory_bytes} with `--reproducible`"),
]


@functools.cache
def numbers(text: str) -> dict:
    """What a command prints as JSON, the number of tests that it lists, or the losses of a training."""
    command = Command.parse(text.split())
    words = [str(PROGRAMS / command.program), *command.flags]
    if command.ranks:
        words = ["mpirun", "-np", str(command.ranks), "--oversubscribe", "--bind-to", "none", *words]
    with tempfile.TemporaryDirectory() as folder:
        output = subprocess.run(words, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=True,
                                env=os.environ | ENVIRONMENT).stdout
        if command.program.endswith("train"):
            return {"loss": [json.loads(line)["loss"] for line in (Path(folder) / "run/metrics.jsonl").read_text().splitlines()]}
    return {"tests": output.count("\n  ")} if "--gtest_list_tests" in words else json.loads(output)


def of_kernel(found: dict) -> dict:
    return found | {"efficiency": 100 * found["sector_efficiency"], "kb_asked": found["bytes_asked"] / 1000,
                    "kb_least": found["bytes_least"] / 1000}


class Numbers(unittest.TestCase):
    def test_pages_state_what_commands_print(self):
        for command, kernel, pages, text in STATED:
            needed = command.split()[0].replace("emulated", "profiled") if kernel else command.split()[0]
            with self.subTest(command=command, kernel=kernel):
                if not (PROGRAMS / needed).is_file():
                    self.skipTest(f"{needed} is not built")
                found = of_kernel(numbers(command)["kernels"][kernel]) if kernel else numbers(command)
                for page in pages.split():
                    written = re.sub(r"\s+", " ", (ROOT / f"labs/{page}.md").read_text())
                    stated = text.format(**found)
                    self.assertTrue(stated in written, f"labs/{page}.md does not say: {stated}")


if __name__ == "__main__":
    unittest.main()
