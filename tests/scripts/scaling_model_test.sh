#!/usr/bin/env bash
# Properties of scripts/scaling_model.py that hold for any constants.
set -euo pipefail
scripts=$(realpath "$(dirname "$0")/../../scripts")

PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$scripts python3 - <<'END_OF_PYTHON'
from math import isclose, log2

from scaling_model import (IN_BF16, SYNCS, Machine, Model, Network, bytes_sent, communication, efficiency,
                           halving_time, messages_sent, ring_time, step_time)

gpt2 = Model("gpt2")
machine = Machine(compute=0.5, optimizer=0.07)
ethernet = Network("10 GbE", alpha=50e-6, beta=0.8e-9, gamma=0.06e-9)
assert (gpt2.parameters, gpt2.arena(), len(gpt2.sizes)) == (124439808, 497903616, 148)
buckets = gpt2.buckets()
assert sum(size for size, _ in buckets) == sum(gpt2.sizes) and sum(n for _, n in buckets) == 148
assert all(size >= 25 << 20 for size, _ in buckets[:-1])

# One rank sends nothing.
for sync in SYNCS + [IN_BF16]:
    assert communication(sync, gpt2, 1, ethernet) == bytes_sent(sync, gpt2, 1) == messages_sent(sync, gpt2, 1) == 0
    assert isclose(efficiency(sync, gpt2, 1, ethernet, machine, 16, 16), 1)

for ranks in (2, 3, 8, 64, 1000):
    # All synchronisations of the ladder send the same number of bytes, apart from padding. It is the minimum.
    for sync in SYNCS:
        assert bytes_sent(sync, gpt2, ranks) == 2 * (ranks - 1) / ranks * gpt2.arena(ranks)
    # In bf16, zero1 sends the weights in half the bytes, and the layernorms (two in each of 12 blocks, and one at the
    # end, of 2 x 768 numbers) in f32.
    saved = bytes_sent("zero1", gpt2, ranks) - bytes_sent(IN_BF16, gpt2, ranks)
    assert isclose(saved, (ranks - 1) / ranks * (gpt2.arena(ranks) / 2 - 2 * 25 * 2 * 768 * 4))
    assert messages_sent(IN_BF16, gpt2, ranks) == messages_sent("zero1", gpt2, ranks) + 2 * (ranks - 1)
    saved = communication("zero1", gpt2, ranks, Network("", 0, 1e-9, 0)) - \
        communication(IN_BF16, gpt2, ranks, Network("", 0, 1e-9, 0))
    assert isclose(saved, (ranks - 1) / ranks * (gpt2.arena(ranks) / 2 - 2 * gpt2.norms) * 1e-9)
    # The time of a ring depends only on its bytes if the latency is 0, and only on its steps if the bandwidth
    # is infinite.
    bandwidth, latency = Network("", 0, 1e-9, 0), Network("", 1e-6, 0, 0)
    assert isclose(ring_time(4e8, ranks, bandwidth), 2 * (ranks - 1) / ranks * 0.4)
    assert isclose(ring_time(1000, ranks, latency), 2 * (ranks - 1) * 1e-6)
    # Half of the steps include additions.
    assert isclose(ring_time(4e8, ranks, Network("", 0, 0, 1e-9)), (ranks - 1) / ranks * 0.4)
    times = {sync: communication(sync, gpt2, ranks, ethernet, backward=0.34) for sync in SYNCS}
    # Buckets overlap, so they are not slower than one ring over all gradients, nor than one tensor after the
    # other.
    assert times["bucketed"] < 1.001 * times["flat"] < 1.002 * times["per-tensor"]
    # The backward pass hides some of the communication, unless data are not transferred meanwhile
    # (hides=False).
    assert times["overlapped"] < times["bucketed"]
    copying = Network("", 50e-6, 0.8e-9, 0.06e-9, hides=False)
    assert isclose(communication("overlapped", gpt2, ranks, copying, 0.34), times["bucketed"])
    # zero1 divides the work of AdamW, and gathers one more number.
    saved = step_time("flat", gpt2, ranks, ethernet, machine) - step_time("zero1", gpt2, ranks, ethernet, machine)
    assert 0 < machine.optimizer * (1 - 1 / ranks) - saved < 1e-3
    assert efficiency("flat", gpt2, ranks, ethernet, machine, 1, 1) < 1
    # zero1-overlapped hides a part of the gradients, and no weights. Its buckets are as many bytes as the arena.
    assert times["zero1"] / 2 < times["zero1-overlapped"] < times["zero1"]
    assert sum(size for size, _ in gpt2.divisible_buckets(ranks)) == gpt2.arena(ranks)
    # At least one parameter in each bucket, and each parameter in at least one.
    counts = [parameters for _, parameters in gpt2.divisible_buckets(ranks)]
    assert min(counts) >= 1 and sum(counts) >= 148
    assert isclose(communication("zero1-overlapped", gpt2, ranks, copying, 0.34),
                   communication("zero1", gpt2, ranks, copying), rel_tol=2e-3)

# Recursive halving and doubling: the least bytes, and 2·log2 N latencies.
for ranks in (2, 4, 8, 64):
    assert bytes_sent("reproducible", gpt2, ranks) == 2 * (ranks - 1) / ranks * gpt2.arena(ranks)
    assert isclose(halving_time(1000, ranks, Network("", 1e-6, 0, 0)), 2 * log2(ranks) * 1e-6)
    assert isclose(halving_time(4e8, ranks, Network("", 0, 1e-9, 2e-9)), (ranks - 1) / ranks * 0.4 * 4)
END_OF_PYTHON

fail() { echo "FAILED: $*" >&2; exit 1; }
"$scripts/scaling_model.py" --alpha 3 --bandwidth 200 --model gpt2 --ranks 1 16 | grep '^| 200 Gb/s, 16 |' >/dev/null ||
  fail "no row for a network of one's own"
for wrong in "--bandwidth 0" "--ranks 0" "--alpha -1" "--step-ms nan" "--adamw-ms 600" "--model gpt3"; do
  # shellcheck disable=SC2086
  if "$scripts/scaling_model.py" $wrong >/dev/null 2>&1; then fail "accepts $wrong"; fi
done
echo passed
