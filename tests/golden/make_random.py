"""Writes random.json: the values of StageGPT's random numbers, computed independently of StageGPT.

    python3 make_random.py

Needs only the standard library. Philox4x32-10 is implemented here from the paper (J. Salmon et al., "Parallel
Random Numbers: As Easy as 1, 2, 3", SC 2011), and checked against its published known answers. README.md
describes the file.
"""

import json
import math
import struct
from pathlib import Path

MASK32 = 0xFFFFFFFF
# The streams of common/random/philox.h.
INIT, SHUFFLE, SAMPLE, DROPOUT_EMBEDDING, DROPOUT_ATTENTION, DROPOUT_RESIDUAL = range(6)


def philox_block(counter: tuple, key: tuple) -> tuple:
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (p1 >> 32) ^ c1 ^ k0, p1 & MASK32, (p0 >> 32) ^ c3 ^ k1, p0 & MASK32
        k0, k1 = (k0 + 0x9E3779B9) & MASK32, (k1 + 0xBB67AE85) & MASK32
    return c0, c1, c2, c3


# kat_vectors of the Random123 distribution.
assert philox_block((0,) * 4, (0,) * 2) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
assert philox_block((MASK32,) * 4, (MASK32,) * 2) == (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)


class Sequence:
    """The random numbers of one key: a seed, a stream and a step."""

    def __init__(self, seed: int, stream: int, step: int, index: int = 0):
        self.key = seed & MASK32, seed >> 32
        self.high = step, stream | index << 8
        self.block_number, self.block = -1, ()

    def word(self, element: int) -> int:
        if element // 4 != self.block_number:
            self.block_number = element // 4
            counter = self.block_number & MASK32, self.block_number >> 32, *self.high
            self.block = philox_block(counter, self.key)
        return self.block[element % 4]

    def uniform(self, element: int) -> float:
        return (self.word(element) >> 8) * 2.0**-24

    def normal(self, element: int) -> float:
        """The Box-Muller transform: each pair of words gives a pair of normal numbers."""
        first = element // 2 * 2
        radius = math.sqrt(-2 * math.log((self.word(first) + 0.5) * 2.0**-32))
        angle = 2 * math.pi * self.word(first + 1) * 2.0**-32
        return radius * (math.sin(angle) if element % 2 else math.cos(angle))


def pattern(i: int) -> float:
    """A factor for element i. All factors differ, so a weighted sum depends on the order of the elements."""
    return (i * 2654435761 % 2**32) * 2.0**-32 - 0.5


def weights() -> list:
    """Parameters of a table, drawn with two seeds. The first has more than 2^20 elements."""
    table = [("large", [4099, 259], 0.0, 0.5), ("scale", [7], 1.0, 0.0), ("next", [5, 3], 0.25, 2.0)]
    drawn = []
    for seed in (1337, 2**40 + 5):
        for row, (name, shape, mean, std) in enumerate(table):
            n = math.prod(shape)
            sequence = Sequence(seed, INIT, row)
            values = [mean + std * sequence.normal(i) if std else mean for i in range(n)]
            some = sorted({i for i in (0, 1, 2, 3, 4, 5, 65535, 65536, 2**18, 2**20 + 1, n - 1) if i < n})
            drawn.append(
                {
                    "seed": seed,
                    "name": name,
                    "shape": shape,
                    "mean": mean,
                    "std": std,
                    "elements": [[i, values[i]] for i in some],
                    "sum": math.fsum(values),
                    "pattern_sum": math.fsum(pattern(i) * value for i, value in enumerate(values)),
                }
            )
    return drawn


def hexadecimal(bits: list) -> str:
    """Bits as hexadecimal digits. Bit 0 is the highest bit of the first digit."""
    padded = bits + [0] * (-len(bits) % 4)
    return "".join(f"{int(''.join(map(str, padded[i : i + 4])), 2):x}" for i in range(0, len(padded), 4))


def masks() -> list:
    """The dropout masks (1: kept) in the first steps of a training, in the order of the ops."""
    seed, B, T, C, heads, layers = 1337, 3, 17, 48, 3, 2
    p = struct.unpack("f", struct.pack("f", 0.3))[0]
    steps = []
    for step in range(2):

        def mask(stream: int, index: int, elements: int, visible) -> str:
            sequence = Sequence(seed, stream, step, index)
            kept = [int(sequence.uniform(i) >= p and visible(i)) for i in range(B * elements)]
            return hexadecimal(kept)

        def of_stream(stream: int, index: int) -> dict:
            return {"op": "dropout", "kept": mask(stream, index, T * C, lambda i: True)}

        def of_attention(index: int) -> dict:
            # Element (b, head, query, key); a key after the query is not visible.
            visible = lambda i: i % T <= i // T % T
            return {"op": "attention", "kept": mask(DROPOUT_ATTENTION, index, heads * T * T, visible)}

        ops = [of_stream(DROPOUT_EMBEDDING, 0)]
        for layer in range(layers):
            ops.append(of_attention(layer))
            ops += [of_stream(DROPOUT_RESIDUAL, 2 * layer + branch) for branch in range(2)]
        steps.append(ops)
    return steps


def permuted(sequence: Sequence, i: int, n: int) -> int:
    """A permutation of [0, n): four Feistel rounds on the smallest power of four that is at least n, repeated until the
    result is below n."""
    half = 1
    while 4**half < n:
        half += 1
    while True:
        left, right = i >> half, i & (1 << half) - 1
        for number in range(4):
            mixed = sequence.word(4 * (number << 32 | right)) & (1 << half) - 1
            left, right = right, left ^ mixed
        i = left << half | right
        if i < n:
            return i


def sample_start(seed: int, tokens: int, T: int, sample: int) -> int:
    """Where a sample of T tokens begins in a text of so many tokens."""
    windows = max(1, (tokens - 1) // T - 1)
    sequence = Sequence(seed, SHUFFLE, sample // windows)
    offset = sequence.word(2**64 - 1) % (tokens - windows * T)
    return offset + T * permuted(sequence, sample % windows, windows)


def order() -> list:
    """The offsets of samples in a text of this number of tokens."""
    listed = []
    # The last text has 64 windows, a power of four.
    for seed, tokens, T in ((1337, 1003, 10), (7, 70000, 1), (2**33 + 1, 64, 9), (1, 11, 10), (3, 196, 3)):
        windows = max(1, (tokens - 1) // T - 1)
        samples = [*range(8), windows - 1, windows, windows + 1, 7 * windows, 100 * windows + windows // 2]
        starts = [sample_start(seed, tokens, T, sample) for sample in samples]
        listed.append({"seed": seed, "tokens": tokens, "seq_len": T, "samples": samples, "starts": starts})
    return listed


def draws() -> list:
    """Tokens drawn from a uniform distribution over a vocabulary."""
    vocabulary = 37
    return [
        {
            "seed": seed,
            "sample": sample,
            "tokens": [int(Sequence(seed, SAMPLE, sample).uniform(i) * vocabulary) for i in range(12)],
        }
        for seed in (1337, 2**33 + 1)
        for sample in (0, 1, 70000)
    ]


def main() -> None:
    golden = {"weights": weights(), "masks": masks(), "order": order(), "draws": draws()}
    # One entry per line.
    parts = []
    for name, entries in golden.items():
        lines = entries if isinstance(entries, list) else [entries]
        parts.append(f'"{name}": [\n' + ",\n".join(json.dumps(line) for line in lines) + "\n]")
    path = Path(__file__).with_name("random.json")
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n")


if __name__ == "__main__":
    main()
