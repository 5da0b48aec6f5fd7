"""What a rank of a grid of data ranks, tensor ranks and stages holds, computes and sends: the formulas of bench/notes/scaling.md behind
scaling_grids.py and cluster/measure.py. Sizes are in elements and times in seconds if the name has no other unit."""

from dataclasses import dataclass
from math import ceil, floor, log2

from scaling_model import ADAMW_BYTES, ALIGNMENT, NORM_BYTES, Network, bf16_time, ring_time, small_time

VOCABULARY_PADDING = 128  # as in common/parallel/parts.cpp


@dataclass(frozen=True)
class Gpt:
    """The sizes of a model."""
    name: str
    layers: int
    channels: int
    heads: int
    vocabulary: int = 50257
    context: int = 1024

    @property
    def block(self):
        """Parameters of a block: four matrices, and its vectors."""
        return 12 * self.channels**2 + 13 * self.channels

    @property
    def parameters(self):
        return self.layers * self.block + (self.vocabulary + self.context + 2) * self.channels


@dataclass(frozen=True)
class Precision:
    """Bytes of a number that is kept or sent in the forward and backward, and of a weight with its copy for ops."""
    number: int
    weight: int


F32, BF16 = Precision(4, 4), Precision(2, 6)


@dataclass(frozen=True)
class Grid:
    data: int
    tensor: int = 1
    stages: int = 1

    @property
    def ranks(self):
        return self.data * self.tensor * self.stages

    def __str__(self):
        return f"{self.data:,} × {self.tensor} × {self.stages}"


@dataclass(frozen=True)
class Rank:
    """What a rank computes in a second, its memory, and its networks: within a node of so many ranks, and across nodes."""
    flops: float
    memory: float       # bytes
    memory_rate: float  # bytes a second
    ranks_per_node: int
    within_node: Network
    across_nodes: Network

    def network(self, neighbours):
        """Between the ranks of a group that takes so many neighbouring ranks."""
        return self.within_node if neighbours <= self.ranks_per_node else self.across_nodes


def allocated(size):
    """Bytes of a block of memory for so many: eighths of a power of two, as the allocator rounds them."""
    unit = 2 ** max(0, floor(log2(size)) - 3) if size > 0 else 1
    return ceil(size / unit) * unit


@dataclass(frozen=True)
class Part:
    """What one of several tensor ranks has of stage `stage`."""
    gpt: Gpt
    grid: Grid
    stage: int = 0

    @property
    def layers(self):
        L, S = self.gpt.layers, self.grid.stages
        return L * (self.stage + 1) // S - L * self.stage // S

    @property
    def is_first(self):
        return self.stage == 0

    @property
    def is_last(self):
        return self.stage + 1 == self.grid.stages

    @property
    def norms(self):
        """Bytes of the layernorms' parameters."""
        return 4 * self.gpt.channels * (4 * self.layers + 2 * self.is_last)

    @property
    def shared(self):
        """What all tensor ranks have: positions, layernorms, and in each block the biases of two products."""
        return self.gpt.channels * (self.gpt.context * self.is_first + 2 * self.is_last + 6 * self.layers)

    @property
    def embedding(self):
        """The matrix of the embedding and of the head, which the first and the last stage have."""
        rows = ceil(self.gpt.vocabulary / self.grid.tensor)
        padded = ceil(rows / VOCABULARY_PADDING) * VOCABULARY_PADDING
        return padded * self.gpt.channels if self.is_first or self.is_last else 0

    def arena(self, ranks=1):
        """Bytes of the parameters in f32, which divide among so many data ranks."""
        divided = self.layers * (self.gpt.block - 6 * self.gpt.channels) / self.grid.tensor
        unit = ALIGNMENT * ranks
        return 4 * unit * ceil((self.shared + self.embedding + divided) / unit)

    def state(self, precision):
        """Bytes of weights, gradients, and moments, which are divided among the data ranks."""
        numbers = self.arena(self.grid.data) / 4
        copy = allocated((precision.weight - 4) * numbers)
        return 2 * allocated(4 * numbers) + copy + 2 * allocated(4 * numbers / self.grid.data)

    def in_flight(self, micro_steps):
        """The micro-batches whose activations 1F1B keeps at a time."""
        return min(self.grid.stages - self.stage, micro_steps)

    def flops(self, rows, recompute=False):
        """Operations of a micro-step: 6 a parameter and row, for a matrix product forward and two backward, and attention;
        a recomputation is a further forward of the blocks."""
        C, T = self.gpt.channels, self.gpt.context
        blocks = (8 if recompute else 6) * self.layers * (self.gpt.block + C * T)
        head = 6 * (self.gpt.vocabulary + 2) * C if self.is_last else 0
        return rows * (blocks + head) / self.grid.tensor

    def activations(self, rows, micro_steps, recompute=False):
        """At the peak of a step whose micro-steps have `rows` tokens: what is kept of each micro-batch in flight, with the streams
        that were sent and received, and what the backward of one needs in addition. Fitted to --dry-run: bench/notes/scaling.md."""
        C, R = self.gpt.channels, self.grid.tensor
        block, stream = C * (2 + 14 / R), C / R
        kept = self.layers * (2 * stream if recompute else block) + stream * ((not self.is_last) + (not self.is_first))
        logits = self.gpt.vocabulary / R if self.is_last else 2 * stream
        backward = max(block, C * (2 + 4 / R) + logits) if recompute else (0.5 * block if self.is_last else 0) + logits
        return rows * (self.in_flight(micro_steps) * kept + backward)

    def memory(self, rows, micro_steps, recompute, precision):
        """Bytes."""
        return self.state(precision) + precision.number * self.activations(rows, micro_steps, recompute)

    def tensor_seconds(self, rows, network, recompute, precision):
        """The messages between tensor ranks in a micro-step: two gathers and two scatters of each block, one of the embedding and
        one of the head, in the forward, and the opposite in the backward. Sums are in f32."""
        R = self.grid.tensor
        if R == 1:
            return 0.0
        count = 2 * (3 if recompute else 2) * self.layers + self.is_first + self.is_last
        part = rows * self.gpt.channels / R
        gather = network.alpha + part * precision.number * network.beta
        scatter = network.alpha + part * 4 * (network.beta + network.gamma)
        loss = network.alpha + 8 * rows * network.beta if self.is_last else 0
        return (R - 1) * (count * (gather + scatter) + loss)

    def shared_seconds(self, network):
        """The sum over tensor ranks of the gradients of what all have, once in a step."""
        return ring_time(4 * self.shared / self.grid.data, self.grid.tensor, network) if self.grid.tensor > 1 else 0.0

    def data_seconds(self, network, precision):
        """zero1, once in a step."""
        if self.grid.data == 1:
            return 0.0
        if precision is BF16:
            return bf16_time(self, self.grid.data, network)
        return ring_time(self.arena(self.grid.data), self.grid.data, network)

    def optimizer_seconds(self, rank):
        return self.arena() / 4 * (ADAMW_BYTES + NORM_BYTES + 2) / self.grid.data / rank.memory_rate


def transfers(stages, micro_steps):
    """How many transfers between stages a step of 1F1B waits for. In the schedule of pipeline.h each transfer holds both its stages,
    and two that are one exchange take the time of one."""
    if stages == 1:
        return 0
    repeated = (micro_steps - 1) * (1 if stages == 2 else 2)
    return 2 * (stages - 1) + repeated - (stages > 2 and micro_steps > 1)


@dataclass(frozen=True)
class Step:
    grid: Grid
    micro_batch: int  # sequences of a data rank
    micro_steps: int
    recompute: bool
    memory: float     # bytes of the rank that needs most
    compute: float    # seconds of the slowest stage, as the following
    tensor: float     # messages between tensor ranks
    streams: float    # messages between stages
    bubble: float     # waiting for the other stages' forwards and backwards
    data: float       # messages between data ranks
    optimizer: float
    needed: float     # operations of all ranks, none of them repeated

    @property
    def seconds(self):
        return self.compute + self.tensor + self.streams + self.bubble + self.data + self.optimizer


def step_of(gpt, grid, micro_batch, micro_steps, rank, recompute=False, precision=BF16):
    """The prediction. Nothing overlaps but the work of different stages; the slowest stage sets their pace."""
    rows = micro_batch * gpt.context
    parts = [Part(gpt, grid, stage) for stage in range(grid.stages)]
    of_tensor, of_data = rank.network(grid.tensor), rank.network(grid.tensor * grid.data)
    of_stages = rank.network(grid.ranks)
    compute = [part.flops(rows, recompute) / rank.flops for part in parts]
    tensor = [part.tensor_seconds(rows, of_tensor, recompute, precision) for part in parts]
    passes = [sum(both) for both in zip(compute, tensor)]
    slowest = passes.index(max(passes))
    stream = of_stages.alpha + rows * gpt.channels / grid.tensor * precision.number * of_stages.beta
    matrix = 2 * of_stages.alpha + parts[0].embedding * (precision.number + 4) * of_stages.beta
    return Step(grid, micro_batch, micro_steps, recompute,
                memory=max(part.memory(rows, micro_steps, recompute, precision) for part in parts),
                compute=micro_steps * compute[slowest],
                tensor=micro_steps * tensor[slowest] + max(part.shared_seconds(of_tensor) for part in parts),
                streams=transfers(grid.stages, micro_steps) * stream + (matrix if grid.stages > 1 else 0),
                bubble=sum(passes) - passes[slowest],
                data=max(part.data_seconds(of_data, precision) for part in parts) + 3 * small_time(grid.ranks, of_stages),
                optimizer=max(part.optimizer_seconds(rank) for part in parts),
                needed=grid.data * grid.tensor * micro_steps * sum(part.flops(rows) for part in parts))


def efficiency(step, rank):
    """The share of all ranks' rates that goes into needed operations."""
    return step.needed / (step.grid.ranks * rank.flops * step.seconds)
