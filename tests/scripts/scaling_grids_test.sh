#!/usr/bin/env bash
# Properties of scripts/grid_model.py and scripts/scaling_grids.py.
set -euo pipefail
root=$(realpath "$(dirname "$0")/../..")

PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$root/scripts:$root/scripts/cluster:$root/tests/scripts python3 - <<'END_OF_PYTHON'
from math import inf, isclose

from grid_model import BF16, F32, Gpt, Grid, Part, Rank, efficiency, step_of, transfers
from measure import GPT, ROOT, Link, predict
from one_forward_one_backward import seconds_of_schedule
from scaling_grids import H100, MODELS, SEQUENCES, best, best_of, grids, steps
from scaling_model import Model, Network

gpt2, xl, large = MODELS["gpt2"], MODELS["gpt2-xl"], MODELS["gpt-8b"]
N = 3 * 1024                                    # rows of a micro-batch of 3 sequences
bytes_only, latency_only = Network("", 0, 1e-9, 0), Network("", 1e-6, 0, 0)


def on(network):
    """A rank that computes in no time, each in a node of its own."""
    return Rank(inf, inf, inf, 1, network, network)


# The memory that `stage1_train --dry-run --batch-size DATA --block-size 1024 --grad-accumulation 8` plans for a rank with GPT-2's
# tokenizer, in MiB, by model, data ranks, tensor ranks, stages and --recompute block: state, and activations.
planned = {("gpt2", 1, 1, 1, False): (1920.0, 793.8), ("gpt2", 1, 1, 1, True): (1920.0, 286.0),
           ("gpt2", 1, 4, 1, False): (512.0, 257.0), ("gpt2", 1, 4, 1, True): (512.0, 76.0),
           ("gpt2", 2, 1, 1, False): (1440.0, 793.8), ("gpt2", 2, 1, 1, True): (1440.0, 286.0),
           ("gpt2", 1, 1, 2, False): (1280.0, 585.8), ("gpt2", 1, 1, 2, True): (1280.0, 253.0),
           ("gpt2", 2, 1, 2, False): (960.0, 585.8), ("gpt2", 2, 1, 2, True): (960.0, 253.0),
           ("gpt2", 1, 2, 2, False): (640.0, 333.4), ("gpt2", 1, 2, 2, True): (640.0, 129.5),
           ("gpt2", 2, 2, 2, False): (480.0, 333.4), ("gpt2", 2, 2, 2, True): (480.0, 129.5),
           ("gpt2", 1, 1, 4, False): (960.0, 591.8), ("gpt2", 1, 1, 4, True): (960.0, 235.0),
           ("gpt2", 1, 2, 4, False): (480.0, 336.4), ("gpt2", 1, 2, 4, True): (480.0, 120.5),
           ("gpt2", 1, 1, 8, False): (768.0, 411.6), ("gpt2", 1, 1, 8, True): (832.0, 229.0),
           ("gpt2-medium", 1, 2, 1, False): (2816.0, 979.0), ("gpt2-medium", 1, 2, 1, True): (2816.0, 208.0),
           ("gpt2-medium", 1, 1, 2, False): (3328.0, 1549.9), ("gpt2-medium", 1, 1, 2, True): (3328.0, 316.0),
           ("gpt2-medium", 1, 1, 4, False): (2048.0, 1557.9), ("gpt2-medium", 1, 1, 4, True): (2048.0, 280.2),
           ("gpt2-medium", 1, 2, 4, False): (1024.0, 881.0), ("gpt2-medium", 1, 2, 4, True): (1024.0, 152.1),
           ("gpt2-medium", 1, 4, 2, False): (832.0, 536.5), ("gpt2-medium", 1, 4, 2, True): (832.0, 85.0),
           ("gpt2-medium", 1, 1, 8, False): (1408.0, 1574.0), ("gpt2-medium", 1, 1, 8, True): (1408.0, 296.2),
           ("gpt2-medium", 2, 1, 2, False): (2496.0, 1549.9), ("gpt2-medium", 2, 1, 2, True): (2496.0, 316.0),
           ("gpt2-medium", 2, 2, 2, False): (1248.0, 877.0), ("gpt2-medium", 2, 2, 2, True): (1248.0, 162.0)}
# The same of `stage3_train_emulated --precision bf16`, with micro-steps of 4 sequences: all in all.
in_bf16 = {("gpt2", 1, 1, 1, False): 3749, ("gpt2", 1, 4, 1, False): 1090, ("gpt2", 1, 2, 1, True): 1372, ("gpt2", 2, 1, 2, False): 2293,
           ("gpt2", 1, 2, 2, False): 1403, ("gpt2", 1, 1, 4, True): 1550, ("gpt2", 1, 2, 4, False): 1229,
           ("gpt2-medium", 1, 4, 2, True): 1112, ("gpt2-medium", 2, 2, 2, False): 3232}
for case, mebibytes in [*planned.items(), *in_bf16.items()]:
    name, data, tensor, stages, recompute = case
    precision, rows = (F32, 1024) if isinstance(mebibytes, tuple) else (BF16, 4096)
    parts = [Part(MODELS[name], Grid(data, tensor, stages), stage) for stage in range(stages)]
    largest = max(parts, key=lambda part: part.memory(rows, 8, recompute, precision))
    if precision is F32:
        assert isclose(largest.state(F32) / 2**20, mebibytes[0], rel_tol=1e-4), case
        mebibytes = sum(mebibytes)
    assert isclose(largest.memory(rows, 8, recompute, precision) / 2**20, mebibytes, rel_tol=0.02), (precision, case)

for gpt in (gpt2, xl):
    assert gpt.parameters == Model(gpt.name).parameters
    assert Part(gpt, Grid(1)).arena() == Model(gpt.name).arena() and Part(gpt, Grid(1)).norms == Model(gpt.name).norms
for tensor in (1, 2, 4):
    # The parts of all tensor ranks are the model and once more, for each further rank, what all have.
    part = Part(gpt2, Grid(1, tensor))
    assert isclose(tensor * part.arena(), Part(gpt2, Grid(1)).arena() + 4 * (tensor - 1) * part.shared, rel_tol=3e-3)
    # All stages have all layers and operations once, but the matrix of the embedding twice.
    for stages in (2, 4, 5):
        parts = [Part(gpt2, Grid(1, tensor, stages), stage) for stage in range(stages)]
        assert sum(part.layers for part in parts) == 12
        assert sum(part.arena() for part in parts) == Part(gpt2, Grid(1, tensor)).arena() + 4 * parts[0].embedding
        assert isclose(sum(part.flops(N) for part in parts), Part(gpt2, Grid(1, tensor)).flops(N))

# The numbers that tests count in the calls of MPI (docs/parallelism.md), for L = 12 layers, C = 768 channels, in a network where
# each rank sends a byte in a nanosecond and receives another one at the same time.
for tensor in (2, 4):
    step = step_of(gpt2, Grid(1, tensor), 3, 5, on(bytes_only), precision=F32)
    activations = 5 * 4 * 25 * (tensor - 1) / tensor * N * 768
    shared = 2 * (tensor - 1) / tensor * Part(gpt2, Grid(1, tensor)).shared
    assert isclose(step.tensor, 4e-9 * (activations + 5 * (tensor - 1) * 2 * N + shared))
    # In bf16, the gathers send half of the bytes: those of half of the activations.
    saved = step.tensor - step_of(gpt2, Grid(1, tensor), 3, 5, on(bytes_only), precision=BF16).tensor
    assert isclose(saved, 1e-9 * activations)
    # --recompute block sends each block's two gathers and two scatters of the forward once more.
    more = step_of(gpt2, Grid(1, tensor), 3, 5, on(bytes_only), recompute=True, precision=F32).tensor - step.tensor
    assert isclose(more, 5 * 4e-9 * 4 * 12 * (tensor - 1) / tensor * N * 768)
    assert isclose(step_of(gpt2, Grid(1, tensor), 3, 1, on(latency_only)).tensor, 1e-6 * (tensor - 1) * (100 + 1 + 2))
# A transfer between stages is the stream, of which each tensor rank sends its rows; and twice the matrix of the embedding.
for tensor in (1, 2):
    step = step_of(gpt2, Grid(1, tensor, 2), 3, 5, on(bytes_only), precision=F32)
    assert isclose(step.streams, 4e-9 * (6 * N * 768 / tensor + 2 * Part(gpt2, Grid(1, tensor)).embedding))

# The transfers that a step waits for, and its bubble, in a simulation of the schedule.
for stages in range(1, 9):
    for micro_steps in (1, 2, 3, 8, 20):
        simulated = seconds_of_schedule([1.0] * stages, [2.0] * stages, 0.25, micro_steps)
        assert isclose(simulated, 3 * (micro_steps + stages - 1) + 0.25 * transfers(stages, micro_steps)), (stages, micro_steps)
uneven = [1.0, 1.5, 1.0, 2.5]  # of the forward; the last one has the head
for micro_steps in (1, 2, 8):
    assert isclose(seconds_of_schedule(uneven, [2 * each for each in uneven], 0, micro_steps), (micro_steps - 1) * 7.5 + 3 * sum(uneven))

# The bubble of even stages is (S-1)/(M+S-1) of the time, here without a head and embeddings.
blocks = Gpt("blocks", 64, 256, 1, vocabulary=1, context=1)
for stages in (2, 4, 8):
    step = step_of(blocks, Grid(1, 1, stages), 1, 6, Rank(1e9, inf, inf, 1, bytes_only, bytes_only))
    assert isclose(step.bubble / (step.bubble + step.compute), (stages - 1) / (6 + stages - 1), rel_tol=1e-3)

# A single rank only computes, at its full rate; 6 operations a parameter and token, of which the embedding's count once.
alone = best(gpt2, Grid(1), H100)
assert alone.tensor == alone.data == alone.streams == alone.bubble == 0 and not alone.recompute
assert alone.micro_steps * alone.micro_batch == SEQUENCES
assert isclose(alone.needed, SEQUENCES * 1024 * 6 * (gpt2.parameters - 1024 * 768 + 12 * 768 * 1024))
assert isclose(alone.compute, alone.needed / H100.flops) and 0.99 < efficiency(alone, H100) < 1

# All that is shown fits; recomputation takes less memory and more time; no grid has more data ranks than sequences.
for gpt in (gpt2, large):
    for ranks in (8, 64, 1024, 10000):
        for grid in grids(gpt, ranks):
            assert grid.ranks == ranks
            found = list(steps(gpt, grid, H100))
            assert (grid.data <= SEQUENCES) or not found
            for step in found:
                assert step.memory <= H100.memory and step.grid.data * step.micro_steps * step.micro_batch <= SEQUENCES
                for other in found:
                    if step.micro_batch == other.micro_batch and step.recompute and not other.recompute:
                        assert step.memory < other.memory and other.compute < step.compute <= 4 / 3 * other.compute
                        assert step.needed == other.needed
assert [grid.tensor for grid in grids(xl, 1000) if grid.stages == 1] == [1, 5]
assert not [grid for grid in grids(gpt2, 12) if grid.stages == 8]
assert not [grid for grid in grids(Gpt("four layers", 4, 768, 12), 64) if grid.stages == 8]
assert best(large, Grid(8), H100) is None  # 8 billion parameters, 20 bytes each

# The prediction for a measured step: one rank computes all the time; two stages wait for each other in a fifth of it.
link = Link(gigabits=1, microseconds=0).network(alpha=0, gamma=0)
assert predict(Grid(1), link, alone=300) == (300, 0)
assert predict(Grid(1, 1, 2), link, alone=300)[0] >= 300 * 5 / 8
assert isclose(predict(Grid(2), link, 300)[1], 1e3 * Part(GPT, Grid(2)).arena() * 8e-9 * 1514 / 1448, rel_tol=1e-3)

# The table of the best grids in docs/scaling.md.
page = (ROOT / "docs/scaling.md").read_text(encoding="utf-8").splitlines()
for gpt in (gpt2, xl, large):
    for ranks in (8, 64, 1024, 10000):
        step = best_of(gpt, grids(gpt, ranks), H100)
        row = (f"| {gpt.name} | {ranks:,} | {step.grid} | {step.memory / 2**30:.1f} | {1e3 * step.seconds:,.0f} | "
               f"{100 * efficiency(step, H100):.0f} |")
        assert row in page, f"docs/scaling.md has not: {row}"
END_OF_PYTHON

fail() { echo "FAILED: $*" >&2; exit 1; }
picture=$(mktemp)
trap 'rm -f "$picture"' EXIT
"$root/scripts/scaling_grids.py" --picture "$picture"
cmp "$picture" "$root/docs/images/scaling_grids.svg" || fail "docs/images/scaling_grids.svg is not what the script draws"
note=bench/notes/scaling.md
"$root/scripts/scaling_grids.py" --model gpt2-xl --model gpt-8b | while read -r line; do
  [ -z "$line" ] || grep -qxF -- "$line" "$root/$note" || fail "$note has not: $line"
done
if "$root/scripts/scaling_grids.py" --ranks 0 >/dev/null 2>&1; then fail "accepts 0 ranks"; fi
echo passed
