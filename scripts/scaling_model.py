#!/usr/bin/env python3
"""Predicts the time of a step on many ranks: the model of docs/scaling.md, and tables.

    ./scripts/scaling_model.py                                            # four networks: docs/scaling.md, bench/notes/scaling.md
    ./scripts/scaling_model.py --alpha 3 --bandwidth 200 --ranks 16 256   # another network
    ./scripts/scaling_model.py --bandwidth 100 --step-ms 220 --adamw-ms 25 --model gpt2-medium

A message takes alpha + bytes * beta, and adding received data takes gamma per byte. Times are in seconds if the
name has no other unit. Needs only the standard library.
"""

import argparse
from dataclasses import dataclass
from functools import cache
from math import ceil, inf, log2

CHUNK = 1 << 18         # bytes of a chunk of the ring, and of an exchange of --reproducible
LONG_SLICE = 64         # chunks: of a slice with no more, all are in flight
UNDER_WAY = 4           # chunks in flight of a longer slice, and of an exchange of --reproducible
BUCKET = 25 << 20       # size at which a bucket is complete, in bytes
ALIGNMENT = 64          # alignment of a parameter, in elements
SUB_BATCHES = 8         # sub-batches of --reproducible, for up to as many ranks
MOST_SUB_BATCHES = 64   # the most with --sub-batches
ADAMW_BYTES, NORM_BYTES = 28, 4  # bytes per parameter that the update and the norm move
TREE_BYTES = 20         # bytes moved by an addition and a copy in the tree of --reproducible
FRAME = 1538 / 1448     # bytes that pass an Ethernet cable, and those of data among them, in packets of 1,500 bytes over TCP
LENGTH = 64             # tokens per sequence, as measured
SEQUENCES = 4           # sequences per micro-step, as measured
GLOBAL_BATCH = 4096     # sequences per step, for strong scaling
MANY_MICRO_STEPS = 16   # micro-steps, for weak scaling

SYNCS = ["per-tensor", "flat", "bucketed", "overlapped", "zero1", "zero1-overlapped"]
DIVIDED = ["zero1", "zero1-overlapped", "zero1, bf16", "reproducible"]  # each rank updates its part of the weights
IN_BF16 = "zero1, bf16"  # --comm zero1 --precision bf16
PRESETS = {"gpt2": (12, 768), "gpt2-medium": (24, 1024), "gpt2-large": (36, 1280), "gpt2-xl": (48, 1600)}


@dataclass(frozen=True)
class Network:
    name: str
    alpha: float  # seconds
    beta: float   # seconds a byte
    gamma: float  # seconds a byte
    hides: bool = True  # whether the network moves data while the processor computes


class Model:
    """The sizes of a preset's parameters in the order of the arena, multiplied by `factor`."""

    def __init__(self, name, factor=1.0):
        self.name = name
        self.layers, self.channels = layers, C = PRESETS[name]
        vocabulary, padded, context = 50257, 50304, 1024
        block = [C, C, 3 * C * C, 3 * C, C * C, C, C, C, 4 * C * C, 4 * C, 4 * C * C, C]
        self.parameters = round(factor * ((vocabulary + context) * C + layers * sum(block) + 2 * C))
        sizes = [padded * C, context * C] + layers * block + [C, C]
        self.sizes = [4 * ALIGNMENT * ceil(factor * n / ALIGNMENT) for n in sizes]  # in bytes
        self.norms = (4 * layers + 2) * self.sizes[-1]  # bytes of all layernorms
        self.head = sizes[0] / (sum(sizes) - sizes[1])  # share of the head in the matrix products

    def arena(self, ranks=1):
        unit = 4 * ALIGNMENT * ranks
        return ceil(sum(self.sizes) / unit) * unit

    def buckets(self):
        """The bytes and the number of parameters of each bucket, from the end of the arena."""
        buckets, is_open = [], False
        for size in reversed(self.sizes):
            if not is_open:
                buckets.append([0, 0])
            buckets[-1][0] += size
            buckets[-1][1] += 1
            is_open = buckets[-1][0] < BUCKET
        return buckets

    def divisible_buckets(self, ranks):
        """The same for zero1-overlapped, whose buckets may cut parameters and divide evenly among the ranks."""
        unit, end = 4 * ALIGNMENT * ranks, self.arena(ranks)
        buckets = []
        while end > 0:
            begin = max(0, end - ceil(BUCKET / unit) * unit)
            offset, parameters = 0, 0
            for size in self.sizes:
                parameters += offset < end and begin < offset + size
                offset += size
            buckets.append([end - begin, parameters])
            end = begin
        return buckets

    def flops(self):
        return 6 * self.parameters + 6 * self.layers * self.channels * LENGTH


def ring_items(size, ranks, chunk=CHUNK):
    """The number of chunks in one step of a ring, and their mean size in bytes."""
    slice_size = size / ranks
    chunks = max(1, ceil(slice_size / chunk))
    return chunks, slice_size / chunks


def in_flight(chunks):
    """The chunks in flight of a slice with so many."""
    return chunks if chunks <= LONG_SLICE else UNDER_WAY


def item_time(network, window, size, adds):
    """The time from the end of a chunk to the end of the next. It is limited by bandwidth, or by latency if few chunks
    are in flight."""
    busy = size * (network.beta + (network.gamma if adds else 0))
    return max(busy, (network.alpha + busy) / window)


def ring_time(size, ranks, network):
    """The time of an all-reduce, or of a reduce-scatter and an all-gather."""
    chunks, chunk = ring_items(size, ranks)
    return (ranks - 1) * chunks * sum(item_time(network, in_flight(chunks), chunk, adds) for adds in (True, False))


def halving_time(size, ranks, network):
    """The time of recursive halving, in chunks, and of recursive doubling, one message at each level."""
    time = 0.0
    for _ in range(round(log2(ranks))):
        size /= 2
        chunks = max(1, ceil(size / CHUNK))
        time += chunks * item_time(network, min(UNDER_WAY, chunks), size / chunks, adds=True)
        time += network.alpha + size * network.beta
    return time


def together(rings, network):
    """The time of several rings that advance in turn: that of all their bytes, or the latencies of the longest ring.

    A ring is (chunks, bytes of a chunk, items that are added, items that are passed on).
    """
    busy = [(adding * (network.beta + network.gamma) + passing * network.beta) * chunk
            for chunks, chunk, adding, passing in rings]
    alone = [adding * item_time(network, in_flight(chunks), chunk, True) +
             passing * item_time(network, in_flight(chunks), chunk, False)
             for chunks, chunk, adding, passing in rings]
    return max(sum(busy), max(alone, default=0.0))


def bf16_time(model, ranks, network):
    """The time of zero1 in bf16: a reduce-scatter of the gradients, then an all-gather of the weights, whose chunks have
    as many elements, together with an all-reduce of the layernorms."""
    steps, size = ranks - 1, model.arena(ranks)
    chunks, chunk = ring_items(size, ranks)
    norm_chunks, norm_chunk = ring_items(model.norms, ranks)
    return steps * chunks * item_time(network, in_flight(chunks), chunk, adds=True) + together(
        [(chunks, chunk / 2, 0, steps * chunks),
         (norm_chunks, norm_chunk, steps * norm_chunks, steps * norm_chunks)], network)


def small_time(ranks, network):
    """The time of an all-gather of a few bytes."""
    return ceil(log2(ranks)) * network.alpha


@cache
def overlapped_time(model, ranks, network, backward, divided=False):
    """The time of communication that backward does not hide; with `divided`, that of zero1-overlapped: reduce-scatters
    that overlap, and all-gathers that do not.

    Each time a gradient is complete, the ring of a bucket processes what has arrived: at most the chunks in flight,
    and no more than the network has moved since the last time. Gradients are complete in the order of the arena,
    from its end, at times in proportion to their matrix products. The products of the head are the first, but its
    gradient, shared with the embedding, is the last.
    """
    rings, end = [], model.arena(ranks) if divided else sum(model.sizes)
    for size, parameters in model.divisible_buckets(ranks) if divided else model.buckets():
        chunks, chunk = ring_items(size, ranks)
        passed = 0 if divided else (ranks - 1) * chunks
        rings.append({"begin": end - size, "end": end, "missing": parameters, "left": (ranks - 1) * chunks + passed,
                      "passed": passed, "chunks": chunks, "chunk": chunk})
        end -= size
    offset = sum(model.sizes)
    products = sum(model.sizes[2:])
    exposed, current = 0.0, 0
    for index in reversed(range(len(model.sizes))):
        budget = backward * (1 - model.head) * model.sizes[index] / products if index >= 2 else 0.0
        for ring in rings[:current]:
            fits = int(budget / (ring["chunk"] * network.beta)) if ring["chunk"] * network.beta > 0 else ring["left"]
            done = min(ring["left"], in_flight(ring["chunks"]), fits) if network.hides else 0
            budget -= done * ring["chunk"] * network.beta
            added = max(0, ring["left"] - ring["passed"]) - max(0, ring["left"] - done - ring["passed"])
            exposed += added * ring["chunk"] * network.gamma
            ring["left"] -= done
        offset -= model.sizes[index]
        for ring in rings:
            ring["missing"] -= offset < ring["end"] and ring["begin"] < offset + model.sizes[index]
        while current < len(rings) and rings[current]["missing"] == 0:
            current += 1
    left = []
    for ring in rings:
        adding = max(0, ring["left"] - ring["passed"])
        left.append((ring["chunks"], ring["chunk"], adding, ring["left"] - adding))
    gathers = [(ring["chunks"], ring["chunk"], 0, (ranks - 1) * ring["chunks"]) for ring in rings if divided]
    return exposed + together(left, network) + together(gathers, network)


def communication(sync, model, ranks, network, backward=0.0):
    """Seconds of a step in which a rank only communicates."""
    if ranks == 1:
        return 0.0
    small = (3 if sync in DIVIDED else 2) * small_time(ranks, network)
    size = model.arena(ranks)
    if sync == "per-tensor":
        return small + sum(ring_time(tensor, ranks, network) for tensor in model.sizes)
    if sync == "bucketed":
        rings = [ring_items(bucket, ranks) for bucket, _ in model.buckets()]
        half = ranks - 1
        return small + together([(n, chunk, half * n, half * n) for n, chunk in rings], network)
    if sync == "overlapped":
        return small + overlapped_time(model, ranks, network, backward)
    if sync == "zero1-overlapped":
        return small + overlapped_time(model, ranks, network, backward, divided=True)
    if sync == IN_BF16:
        return small + bf16_time(model, ranks, network)
    if sync == "flat, mpi":  # a binomial tree over the whole arena, then a broadcast
        return small + ceil(log2(ranks)) * (2 * network.alpha + size * (2 * network.beta + network.gamma))
    if sync == "reproducible":
        return small + halving_time(size, ranks, network)
    return small + ring_time(size, ranks, network)  # flat, zero1


def bytes_sent(sync, model, ranks):
    """The bytes that each rank sends in a step."""
    size = model.arena(ranks)
    if sync == "flat, mpi":  # by the rank that sends most
        return ceil(log2(ranks)) * size
    if sync == IN_BF16:
        return (ranks - 1) / ranks * (size + size / 2 + 2 * model.norms)
    return 2 * (ranks - 1) / ranks * size


def messages_sent(sync, model, ranks):
    sizes = {"per-tensor": model.sizes, "bucketed": [size for size, _ in model.buckets()]}
    sizes["overlapped"] = sizes["bucketed"]
    sizes[IN_BF16] = [model.arena(ranks), model.norms]
    sizes["zero1-overlapped"] = [size for size, _ in model.divisible_buckets(ranks)]
    if sync == "reproducible":
        return sum(ceil(model.arena(ranks) / 2**level / CHUNK) + 1 for level in range(1, round(log2(ranks)) + 1))
    return sum(2 * (ranks - 1) * ring_items(size, ranks)[0] for size in sizes.get(sync, [model.arena(ranks)]))


@dataclass
class Machine:
    """The seconds on one rank for gpt2: forward and backward of a micro-step; norm and update."""
    compute: float
    optimizer: float

    def of(self, model):
        gpt2 = Model("gpt2")
        return Machine(self.compute * model.flops() / gpt2.flops(), self.optimizer * model.arena() / gpt2.arena())


def step_time(sync, model, ranks, network, machine, micro_steps=1):
    optimizer = machine.optimizer / (ranks if sync in DIVIDED else 1)
    if sync == "reproducible":  # a rank adds the gradients of its sub-batches
        own = max(1, SUB_BATCHES // ranks)
        optimizer += machine.optimizer * TREE_BYTES / (ADAMW_BYTES + NORM_BYTES) * (own - 1)
    backward = machine.compute * 2 / 3
    return micro_steps * machine.compute + optimizer + communication(sync, model, ranks, network, backward)


def best_sync(model, ranks, network, machine, micro_steps=1):
    return min(SYNCS, key=lambda sync: step_time(sync, model, ranks, network, machine, micro_steps))


def efficiency(sync, model, ranks, network, machine, alone, micro_steps):
    """The efficiency of `ranks` ranks with `micro_steps` each, compared with one rank with `alone` micro-steps."""
    one = alone * machine.compute + machine.optimizer
    share = ranks * micro_steps / alone
    return one * share / (ranks * step_time(sync, model, ranks, network, machine, micro_steps))


def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|---" + "|---:" * (len(header) - 1) + "|"]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def milliseconds(seconds):
    return f"{1e3 * seconds:,.0f}"


def volume_table(model, all_ranks):
    rows = []
    for sync in SYNCS + [IN_BF16]:
        row = [f"`{sync}`"]
        for ranks in all_ranks:
            row += [f"{bytes_sent(sync, model, ranks) / 1e6:,.0f}", f"{messages_sent(sync, model, ranks):,}"]
        rows.append(row)
    header = ["`--comm`"] + [text for n in all_ranks for text in (f"{n:,} ranks: MB", "messages")]
    return table(header, rows)


def is_tree(ranks):
    """Whether --reproducible can have so many ranks."""
    return ranks & (ranks - 1) == 0 and ranks <= MOST_SUB_BATCHES


def communication_table(model, all_ranks, networks, machine):
    columns = SYNCS + [IN_BF16, "flat, mpi", "reproducible"]
    rows = []
    for network in networks:
        for ranks in all_ranks:
            backward = machine.compute * 2 / 3
            times = [milliseconds(communication(sync, model, ranks, network, backward))
                     if sync != "reproducible" or is_tree(ranks) else "" for sync in columns]
            rows.append([f"{network.name}, {ranks:,}"] + times + [best_sync(model, ranks, network, machine)])
    return table(["network, ranks"] + columns + ["shortest step"], rows)


def efficiency_table(model, all_ranks, networks, machine):
    rows = []
    total = GLOBAL_BATCH // SEQUENCES
    for network in networks:
        for ranks in all_ranks:
            row = [f"{network.name}, {ranks:,}"]
            for micro_steps, alone in ((1, 1), (MANY_MICRO_STEPS, MANY_MICRO_STEPS), (total / ranks, total)):
                for sync in ("flat", best_sync(model, ranks, network, machine, micro_steps)):
                    value = efficiency(sync, model, ranks, network, machine, alone, micro_steps)
                    row.append(f"{100 * value:.0f}")
            rows.append(row)
    header = ["network, ranks"]
    for title in ("weak, 1 micro-step", f"weak, {MANY_MICRO_STEPS}", "strong"):
        header += [f"{title}: flat", "best"]
    return table(header, rows)


def memory_table(models, all_ranks):
    rows = []
    for model in models:
        arena = model.arena() / 1e9
        rows.append([model.name, f"{arena:.2f}", f"{4 * arena:.2f}"] +
                    [f"{(2 + 2 / ranks) * arena:.2f}" for ranks in all_ranks])
    return table(["model", "arena", "not divided"] + [f"zero1, {n:,} ranks" for n in all_ranks], rows)


def positive(text):
    value = float(text)
    if not 0 < value < inf:
        raise ValueError
    return value


def at_least_zero(text):
    return 0.0 if float(text) == 0 else positive(text)


def number_of_ranks(text):
    return int(positive(str(int(text))))


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--alpha", type=at_least_zero, help="latency of a message, in microseconds (default: 5)")
    parser.add_argument("--bandwidth", type=positive, help="of a rank each way, in Gb/s: prints this network alone")
    parser.add_argument("--gamma", type=at_least_zero, default=0.08, help="addition, in ns a byte (default: %(default)s)")
    parser.add_argument("--no-overlap", action="store_true", help="data move only while the processor copies them")
    parser.add_argument("--step-ms", type=positive, default=583, help="gpt2's step of 4 x 64 tokens on one rank")
    parser.add_argument("--adamw-ms", type=positive, default=60, help="of which AdamW")
    parser.add_argument("--model", choices=PRESETS, action="append", help="default: gpt2 and gpt2-xl")
    parser.add_argument("--parameters", type=positive, help="the model's tensors, scaled to so many parameters")
    parser.add_argument("--ranks", type=number_of_ranks, nargs="+", default=[8, 64, 1024])
    return parser.parse_args()


def main():
    arguments = parse()
    gamma = arguments.gamma * 1e-9

    def network(name, alpha_us, gigabits):
        return Network(name, alpha_us * 1e-6, 8e-9 / gigabits, gamma, not arguments.no_overlap)

    networks = [network("10 GbE", 50, 10 / FRAME), network("25 GbE", 40, 25 / FRAME), network("EDR", 5, 100), network("NDR", 4, 400)]
    if arguments.bandwidth is not None or arguments.alpha is not None:
        alpha = 5.0 if arguments.alpha is None else arguments.alpha
        gigabits = arguments.bandwidth or 100.0
        networks = [network(f"{gigabits:g} Gb/s", alpha, gigabits)]
    models = [Model(name) for name in arguments.model or ["gpt2", "gpt2-xl"]]
    if arguments.parameters:
        models = [Model(model.name, arguments.parameters / model.parameters) for model in models]
    if arguments.adamw_ms * (1 + NORM_BYTES / ADAMW_BYTES) >= arguments.step_ms:
        raise SystemExit("scaling_model.py: --adamw-ms: more than --step-ms has room for")
    optimizer = arguments.adamw_ms * (1 + NORM_BYTES / ADAMW_BYTES) * 1e-3
    machine = Machine(arguments.step_ms * 1e-3 - optimizer, optimizer)

    print(f"## Memory of weights, gradients and moments, in GB\n\n{memory_table(models, arguments.ranks)}")
    for model in models:
        own = machine.of(model)
        print(f"\n## {model.name}: {model.parameters:,} parameters, arena {model.arena():,} bytes, "
              f"{len(model.sizes)} tensors, {len(model.buckets())} buckets\n\n"
              f"One rank: forward and backward {1e3 * own.compute:,.0f} ms a micro-step of {SEQUENCES} x {LENGTH} "
              f"tokens, norm and AdamW {1e3 * own.optimizer:,.0f} ms\n\n"
              f"Each rank sends, a step:\n\n{volume_table(model, arguments.ranks)}\n\n"
              f"Exposed communication, ms, with 1 micro-step:\n\n"
              f"{communication_table(model, arguments.ranks, networks, own)}\n\n"
              f"Efficiency, %:\n\n{efficiency_table(model, arguments.ranks, networks, own)}")


if __name__ == "__main__":
    main()
