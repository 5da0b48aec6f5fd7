#!/usr/bin/env bash
# Properties of scripts/scaling_grids.py. Exit code 77 means "skipped": no Python.
set -euo pipefail
root=$(realpath "$(dirname "$0")/../..")
command -v python3 >/dev/null || { echo "no python3"; exit 77; }

PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$root/scripts python3 - <<'END_OF_PYTHON'
from math import isclose

from scaling_grids import LENGTH, SEQUENCES, Part, Rank, best, efficiency, grids, steps, tensor_time
from scaling_model import Model, Network

gpt2, medium, large = Model("gpt2"), Model("gpt2-medium"), Model("gpt-8b")
rank = Rank()

# The activations that `stage1_train --dry-run --batch-size 4` plans for 1,024 tokens a sequence, in MiB, by model, tensor
# ranks and --recompute block.
planned = {(gpt2, 1, False): 3175.1, (gpt2, 2, False): 1743.6, (gpt2, 4, False): 1027.8,
           (gpt2, 1, True): 1144.1, (gpt2, 2, True): 584.1, (gpt2, 4, True): 304.1,
           (medium, 1, False): 7031.6, (medium, 2, False): 3915.9, (medium, 4, False): 2358.0,
           (medium, 1, True): 1632.1, (medium, 2, True): 832.1, (medium, 4, True): 432.1}
for (model, tensor_ranks, recompute), mebibytes in planned.items():
    elements = Part(model, tensor_ranks).activations(4 * LENGTH, recompute)
    assert isclose(4 * elements / 2**20, mebibytes, rel_tol=0.02), (model.name, tensor_ranks, recompute)

# The parts of all tensor ranks are the model and once more, for each further rank, what all have.
for tensor_ranks in (1, 2, 4):
    part = Part(gpt2, tensor_ranks)
    assert isclose(tensor_ranks * part.arena(), gpt2.arena() + 4 * (tensor_ranks - 1) * part.shared, rel_tol=1e-5)

# With R tensor ranks, L layers, N rows of C channels: 4(2L+1)·(R-1)/R·N·C numbers, half of them in bf16, half in f32.
rows = 3 * LENGTH
for tensor_ranks in (1, 2, 4):
    numbers = 4 * (2 * 12 + 1) * (tensor_ranks - 1) / tensor_ranks * rows * 768
    assert isclose(tensor_time(gpt2, rows, tensor_ranks, Network("", 0, 1e-9, 0)), 3e-9 * numbers)
    assert isclose(tensor_time(gpt2, rows, tensor_ranks, Network("", 1e-6, 0, 0)), 100e-6 * (tensor_ranks - 1))

# A single rank only computes, at its full rate; 6 operations a parameter and token, of which the embedding's count once.
alone = best(gpt2, 1, 1, rank)
assert alone.tensor == alone.data == 0 and not alone.recompute and alone.sequences == SEQUENCES
flops = SEQUENCES * LENGTH * 6 * (gpt2.parameters - 1024 * 768 + 12 * 768 * 1024)
assert isclose(alone.compute, flops / rank.flops)
assert 0.99 < efficiency(alone, gpt2, rank) < 1

# All that is shown fits; recomputation takes less memory and a third more time; no grid has more data ranks than sequences.
for model in (gpt2, large):
    for ranks in (8, 64, 1024, 10000):
        for tensor_ranks in grids(model, ranks):
            found = list(steps(model, tensor_ranks, ranks // tensor_ranks, rank))
            assert all(step.memory <= rank.memory for step in found)
            assert all(step.sequences <= SEQUENCES for step in found)
            assert (ranks // tensor_ranks <= SEQUENCES) or not found
            for step in found:
                for other in found:
                    if step.micro_batch == other.micro_batch and step.recompute and not other.recompute:
                        assert step.memory < other.memory and isclose(step.compute, 4 / 3 * other.compute)
assert grids(Model("gpt2-xl"), 1000) == [1, 5]
assert best(large, 1, 8, rank) is None  # 8 billion parameters, 20 bytes each
END_OF_PYTHON

fail() { echo "FAILED: $*" >&2; exit 1; }
picture=$(mktemp)
trap 'rm -f "$picture"' EXIT
"$root/scripts/scaling_grids.py" --picture "$picture"
cmp "$picture" "$root/docs/images/scaling_grids.svg" || fail "docs/images/scaling_grids.svg is not what the script draws"
"$root/scripts/scaling_grids.py" | while read -r line; do
  [ -z "$line" ] || grep -qxF -- "$line" "$root/docs/scaling.md" || fail "docs/scaling.md has not: $line"
done
if "$root/scripts/scaling_grids.py" --ranks 0 >/dev/null 2>&1; then fail "accepts 0 ranks"; fi
echo passed
