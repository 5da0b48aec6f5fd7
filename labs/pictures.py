#!/usr/bin/env python3
"""Draws the pictures of the hand-outs of labs 0, 1, 4 and 5.

    labs/pictures.py            writes labs/*/pictures/*.svg
    labs/pictures.py --check    exits with 1 if a file is not what this script draws
"""

import argparse
import math
import sys
from collections.abc import Callable
from html import escape
from pathlib import Path

LABS = Path(__file__).resolve().parent
BLUE, ORANGE, GREEN, GREY, RED = "#3f7fbf", "#e08a2e", "#4d9a5b", "#d5d9de", "#c0453b"
PALE = {BLUE: "#d9e7f5", ORANGE: "#fae5cc", GREEN: "#dcefdf", GREY: "#f1f3f5", RED: "#f6dcd9"}
INK = "#222222"
RANKS = [BLUE, ORANGE, GREEN, RED]


class Picture:
    """An SVG with a white ground."""

    def __init__(self, width: int, height: int, title: str):
        self.width, self.height, self.title = width, height, title
        self.parts: list[str] = []

    def rect(self, x: float, y: float, w: float, h: float, fill: str = GREY, stroke: str = INK, text: str = "",
             size: int = 12, dashed: bool = False) -> None:
        dash = ' stroke-dasharray="4 3"' if dashed else ""
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{w:g}" height="{h:g}" fill="{fill}" stroke="{stroke}"{dash}/>')
        if text:
            self.text(x + w / 2, y + h / 2 + size * 0.35, text, size, "middle")

    def text(self, x: float, y: float, text: str, size: int = 12, anchor: str = "start", bold: bool = False,
             colour: str = INK) -> None:
        weight = ' font-weight="bold"' if bold else ""
        self.parts.append(f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}" fill="{colour}"{weight}>'
                          f"{escape(text)}</text>")

    def line(self, points: list[tuple[float, float]], colour: str = INK, width: float = 1.5, arrow: bool = False,
             dashed: bool = False) -> None:
        path = " ".join(f"{x:.6g},{y:.6g}" for x, y in points)
        extra = (' marker-end="url(#arrow)"' if arrow else "") + (' stroke-dasharray="4 3"' if dashed else "")
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width:g}"{extra}/>')

    def svg(self) -> str:
        body = "\n".join(self.parts)
        return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" width="{self.width}" \
height="{self.height}" font-family="sans-serif" role="img">
<title>{escape(self.title)}</title>
<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse">\
<path d="M0,0 L8,4 L0,8 z" fill="{INK}"/></marker></defs>
<rect width="100%" height="100%" fill="white"/>
{body}
</svg>
"""


# ---- Lab 0 ----


def schedule() -> Picture:
    """The rates that tests/stages/lr_schedule_test.cpp expects: peak 1, floor 0.2, W = 4, horizon 14."""
    picture = Picture(640, 300, "The learning rate of each step: linear warm-up, then cosine, linear or no decay")
    warmup, horizon, floor, last = 4, 14, 0.2, 17

    def at(step: int, shape: Callable[[float], float]) -> float:
        if step < warmup:
            return (step + 1) / warmup
        return floor + (1 - floor) * shape(min(1, (step - warmup) / (horizon - warmup)))

    def x(step: float) -> float:
        return 60 + step * 32

    def y(rate: float) -> float:
        return 250 - rate * 200

    picture.line([(60, 250), (620, 250)], arrow=True)
    picture.line([(60, 250), (60, 25)], arrow=True)
    for step in range(last + 1):
        picture.text(x(step), 266, str(step), 10, "middle")
    picture.text(330, 290, "step", 12, "middle")
    for rate, name in ((1.0, "peak"), (floor, "min_lr")):
        picture.line([(56, y(rate)), (620, y(rate))], GREY, 1, dashed=True)
        picture.text(52, y(rate) + 4, name, 11, "end")
    for step, name in ((warmup, "W"), (horizon, "horizon")):
        picture.line([(x(step), 250), (x(step), 30)], GREY, 1, dashed=True)
        picture.text(x(step), 22, name, 11, "middle")
    curves = ((GREEN, "constant", lambda progress: 1.0), (ORANGE, "linear", lambda progress: 1 - progress),
              (BLUE, "cosine", lambda progress: (1 + math.cos(math.pi * progress)) / 2))
    for colour, name, decay in curves:
        points = [(x(step), y(at(step, decay))) for step in range(last + 1)]
        picture.line(points, colour, 2)
        for px, py in points:
            picture.parts.append(f'<circle cx="{px:g}" cy="{py:g}" r="3" fill="{colour}"/>')
    for i, (colour, name, _) in enumerate(curves):
        picture.text(470, 75 + 18 * i, name, 13, bold=True, colour=colour)
    return picture


# ---- Lab 1 ----


def layernorm() -> Picture:
    picture = Picture(640, 300, "Layernorm: statistics are sums along a row, gradients of parameters are sums along a column")
    size, left, top, rows, columns = 30, 120, 60, 5, 8
    for n in range(rows):
        for c in range(columns):
            fill = PALE[BLUE] if n == 1 else PALE[ORANGE] if c == 5 else "white"
            picture.rect(left + c * size, top + n * size, size, size, fill)
    picture.rect(left + 5 * size, top + size, size, size, PALE[GREEN])
    picture.text(left + 4 * size, top - 32, "C channels", 13, "middle")
    picture.text(left - 10, top + 2.6 * size, "N rows", 13, "end")
    picture.line([(left + columns * size, top + 1.5 * size), (left + columns * size + 40, top + 1.5 * size)], arrow=True)
    picture.text(left + columns * size + 48, top + 1.5 * size - 4, "mean[n], rstd[n]", 13, colour=BLUE, bold=True)
    picture.text(left + columns * size + 48, top + 1.5 * size + 14, "Σd̂, Σ(d̂·x̂): one row", 13, colour=BLUE)
    picture.line([(left + 5.5 * size, top + rows * size), (left + 5.5 * size, top + rows * size + 35)], arrow=True)
    picture.text(left + 5.5 * size, top + rows * size + 52, "dw[c], dbias[c]: all rows", 13, "middle", True, ORANGE)
    picture.text(left + columns * size + 48, top + 4 * size, "out[n][c] and dx[n][c]", 13, colour=GREEN, bold=True)
    picture.text(left + columns * size + 48, top + 4 * size + 18, "are one element each", 13, colour=GREEN)
    return picture


def qkv() -> Picture:
    picture = Picture(700, 350, "A row of qkv, and the scores of one head")
    left, top, cell = 60, 60, 28
    picture.text(left, 24, "One token's row of qkv: 3C numbers. Here C = 6, NH = 2 heads of HS = 3.", 13, bold=True)
    for i in range(18):
        part, head = i // 6, i % 6 // 3
        colour = (BLUE, ORANGE, GREEN)[part]
        picture.rect(left + i * cell, top, cell, cell, PALE[colour] if head == 0 else colour)
    for part, name in enumerate(("queries, 0 … C-1", "keys, C … 2C-1", "values, 2C … 3C-1")):
        picture.text(left + (6 * part + 3) * cell, top - 8, name, 12, "middle")
        for head in range(2):
            picture.text(left + (6 * part + 3 * head + 1.5) * cell, top + cell + 16, f"head {head}", 11, "middle")
    picture.text(left, top + cell + 42, "The next token's row begins 3C further, not C: s.row(), not s.channels(). Rows of out are C apart.", 12)
    top, size, T = 185, 26, 5
    picture.text(left, top - 24, "Scores of one head, T = 5", 13, bold=True)
    for t in range(T):
        picture.text(left - 8, top + (t + 0.65) * size, f"t={t}", 11, "end")
        for u in range(T):
            picture.rect(left + u * size, top + t * size, size, size, PALE[BLUE] if u <= t else "white",
                         text="" if u <= t else "–")
    for u in range(T):
        picture.text(left + (u + 0.5) * size, top - 5, f"u={u}", 11, "middle")
    x = left + T * size + 40
    for i, line in enumerate(("Row t: softmax over the keys u ≤ t. It gives out[t], and lse[t] for the backward.",
                              "Column u: query t ≥ u adds to dk[u] and to dv[u].",
                              "Row t adds to dq[t].",
                              "Keys after t do not exist for query t: not in the maximum,",
                              "not in the sum, not in the gradient.")):
        picture.text(x, top + 18 + 24 * i, line, 12)
    return picture


def logits() -> Picture:
    picture = Picture(640, 190, "A row of logits: V columns of the vocabulary, then padding up to Vp")
    left, top, cell, V, Vp = 60, 70, 36, 9, 13
    for v in range(Vp):
        picture.rect(left + v * cell, top, cell, cell, PALE[BLUE] if v < V else PALE[GREY], dashed=v >= V,
                     text="t" if v == 4 else "")
    picture.text(left + V * cell / 2, top - 28, "V columns: maximum, sum of exponentials, gradient", 13, "middle", colour=BLUE)
    picture.text(left + (V + Vp) * cell / 2, top - 28, "padding", 13, "middle")
    picture.text(left + (V + Vp) * cell / 2, top - 10, "never read", 12, "middle")
    picture.text(left + (V + Vp) * cell / 2, top + cell + 18, "gradient 0", 12, "middle")
    picture.text(left + 4.5 * cell, top + cell + 18, "target: scale·(p - 1)", 12, "middle")
    picture.text(left, top + cell + 50, "The next row begins Vp further, not V. Here V = 9, Vp = 13.", 12)
    return picture


# ---- Lab 4 ----


def ring() -> Picture:
    """Which ranks' numbers each slice holds, after each step of a reduce-scatter among three ranks."""
    ranks, size = 3, 34
    picture = Picture(720, 330, "Reduce-scatter on a ring of three ranks: what each slice of each rank holds after each step")
    held = [[{rank} for _ in range(ranks)] for rank in range(ranks)]
    picture.text(20, 24, "Reduce-scatter, N = 3. A cell names the ranks whose numbers it holds.", 13, bold=True)
    for step in range(ranks):
        left = 60 + step * 225
        picture.text(left + 1.5 * size, 52, "before" if step == 0 else f"after step {step - 1}", 12, "middle", True)
        for item in range(ranks):
            picture.text(left + (item + 0.5) * size, 72, f"slice {item}" if item == 0 else str(item), 10, "middle")
        for rank in range(ranks):
            top = 80 + rank * 70
            picture.text(left - 6, top + 22, f"r{rank}", 12, "end", True, RANKS[rank])
            for item in range(ranks):
                done = len(held[rank][item]) == ranks
                picture.rect(left + item * size, top, size, size, PALE[GREEN] if done else "white",
                             text="".join(map(str, sorted(held[rank][item]))))
        if step == ranks - 1:
            break
        messages = [(rank, (rank - 1 - step) % ranks) for rank in range(ranks)]
        contents = [set(held[rank][item]) for rank, item in messages]
        for (rank, item), content in zip(messages, contents, strict=True):
            held[(rank + 1) % ranks][item] |= content
            top = 80 + rank * 70
            picture.text(left + 3 * size + 12, top + 14, f"sends {item}", 11, colour=RANKS[rank])
            picture.text(left + 3 * size + 12, top + 30, f"to r{(rank + 1) % ranks}", 11, colour=RANKS[rank])
    picture.text(20, 300, "Step s: rank r sends slice r-1-s (modulo N) to rank r+1, and adds what arrives to slice r-2-s.", 12)
    picture.text(20, 320, "After N-1 steps, slice r of rank r is complete (green). The all-gather then passes complete slices on.", 12)
    return picture


def overlap() -> Picture:
    picture = Picture(700, 300, "Communication after backward, and overlapped with it")
    left, unit, backward, buckets, each = 130, 5, 60, 4, 12

    def axis(top: float) -> None:
        picture.line([(left, top), (680, top)], arrow=True)
        picture.text(680, top + 16, "time", 11, "end")

    def bar(top: float, begin: float, length: float, colour: str, text: str) -> None:
        picture.rect(left + begin * unit, top, length * unit, 26, PALE[colour], text=text, size=11)

    picture.text(20, 26, "bucketed", 14, bold=True)
    for row, name in ((40, "backward"), (72, "network")):
        picture.text(left - 10, row + 18, name, 12, "end")
    bar(40, 0, backward, BLUE, "backward")
    for b in range(buckets):
        bar(72, backward + b * each, each, ORANGE, f"bucket {b}")
    axis(112)
    picture.text(20, 156, "overlapped", 14, bold=True)
    for row, name in ((170, "backward"), (202, "network")):
        picture.text(left - 10, row + 18, name, 12, "end")
    end = 0.0
    for b in range(buckets):
        length = backward / buckets
        bar(170, b * length, length, BLUE, f"completes {b}")
        end = max(end, (b + 1) * length) + each
        bar(202, end - each, each, ORANGE, f"bucket {b}")
    axis(242)
    picture.line([(left + end * unit, 165), (left + end * unit, 250)], RED, 1.5, dashed=True)
    picture.text(left + end * unit + 6, 184, f"hidden: {buckets - 1} of {buckets}", 12, colour=RED)
    picture.text(20, 284, "Bucket 0 is the end of the arena: backward completes the last layer first. The last bucket has nothing to hide behind.", 12)
    return picture


def zero1() -> Picture:
    picture = Picture(700, 330, "zero1: each rank updates its slice of the arena")
    left, width, height = 150, 440, 26
    part = width / 3

    def arena(top: float, name: str, fills: list[str], texts: list[str]) -> None:
        picture.text(left - 10, top + 18, name, 12, "end")
        for i, (fill, text) in enumerate(zip(fills, texts, strict=True)):
            picture.rect(left + i * part, top, part, height, fill, text=text, size=11)

    colours = RANKS[:3]
    for i in range(3):
        picture.text(left + (i + 0.5) * part, 24, f"slice {i}: rank {i}", 12, "middle", True, colours[i])
    picture.text(20, 60, "Rank 1, in each step:", 13, bold=True)
    arena(72, "gradients", [PALE[ORANGE]] * 3, ["own"] * 3)
    picture.text(left + width + 12, 90, "after backward", 11)
    arena(122, "gradients", ["white", PALE[GREEN], "white"], ["", "sum over all ranks", ""])
    picture.text(left + width + 12, 140, "reduce-scatter", 11)
    arena(172, "m and v", ["white", PALE[BLUE], "white"], ["no memory", "updated", "no memory"])
    arena(202, "weights", ["white", PALE[BLUE], "white"], ["old", "updated", "old"])
    picture.text(left + width + 12, 205, "AdamW", 11)
    arena(252, "weights", [PALE[BLUE]] * 3, ["from rank 0", "own", "from rank 2"])
    picture.text(left + width + 12, 270, "all-gather", 11)
    picture.text(20, 312, "Clipping needs the norm over all slices: each rank has Σg² of its slice, so the ranks exchange these N numbers and add them.", 12)
    return picture


# ---- Lab 5 ----


def butterfly() -> Picture:
    lanes, cell = 8, 62
    picture = Picture(680, 330, "A butterfly of shuffles: after log2(lanes) exchanges every lane has the sum")
    left, top, step = 130, 70, 70
    picture.text(20, 24, "warp_sum with 8 lanes: each lane adds the value of the lane whose number differs in one bit.", 13, bold=True)
    held = [{lane} for lane in range(lanes)]
    for level in range(4):
        y = top + level * step
        distance = lanes >> level
        label = "value" if level == 0 else f"distance {distance}"
        picture.text(left - 14, y + 18, label, 12, "end")
        if level:
            before = [set(group) for group in held]
            for lane in range(lanes):
                held[lane] = before[lane] | before[lane ^ distance]
                x = left + lane * cell + 24
                other = left + (lane ^ distance) * cell + 24
                picture.line([(other, y - step + 28), (x, y - 2)], PALE_INK, 1)
                picture.line([(x, y - step + 28), (x, y - 2)], INK, 1)
        for lane in range(lanes):
            text = str(lane) if level == 0 else f"{len(held[lane])} lanes"
            picture.rect(left + lane * cell, y, 48, 26, PALE[GREEN] if len(held[lane]) == lanes else PALE[BLUE], text=text, size=11)
    picture.text(20, 322, "No barrier and no shared memory: the lanes of a warp exchange registers. With 32 lanes there are five exchanges.", 12)
    return picture


PALE_INK = "#9aa3ad"


def coalescing() -> Picture:
    """Which elements of a row-major (N,C) tensor the lanes of a warp read with one instruction."""
    picture = Picture(740, 380, "The elements that the lanes of a warp read with one instruction, in v1, v3 and v4")
    columns, cell = 32, 18

    def grid(top: float, title: str, rows: int, touched: Callable[[int, int], bool], note: str) -> None:
        picture.text(60, top - 8, title, 13, bold=True)
        for n in range(rows):
            picture.text(52, top + (n + 0.75) * cell, f"row {n}", 10, "end")
            for c in range(columns):
                picture.rect(60 + c * cell, top + n * cell, cell, cell, BLUE if touched(n, c) else "white", PALE_INK)
            for c in range(0, columns + 1, 8):  # sectors of 32 bytes
                picture.line([(60 + c * cell, top + n * cell), (60 + c * cell, top + (n + 1) * cell)], ORANGE, 2)
        picture.text(60, top + rows * cell + 17, note, 12)

    grid(40, "v1, one thread per row: lane n reads x[n][c]", 4, lambda n, c: c == 0,
         "Each lane touches another sector (orange lines: 32 bytes). 32 lanes, 32 sectors, 4 of 32 bytes used.")
    grid(170, "v3, one warp per row: lane i reads x[n][i]", 2, lambda n, c: n == 0,
         "32 lanes, 128 bytes, 4 sectors: every byte that is fetched is used.")
    grid(265, "v4, four floats at a time: lane i reads x[n][4i … 4i+3]", 2, lambda n, c: n == 0,
         "One instruction of the warp reads 512 bytes in 16 sectors (the first 32 elements are shown): a quarter of the instructions.")
    picture.text(60, 365, "Shown: the first 32 columns of a row-major tensor.", 11)
    return picture


def tree() -> Picture:
    threads, cell = 8, 60
    picture = Picture(640, 320, "A sum by a tree in shared memory, with a barrier before each level")
    left, top, step = 110, 60, 62
    picture.text(20, 24, "tree_sum with 8 threads: one array in shared memory, half as many additions at each level.", 13, bold=True)
    half = threads
    for level in range(4):
        y = top + level * step
        picture.text(left - 12, y + 18, "written" if level == 0 else f"half = {half}", 12, "end")
        for i in range(threads):
            active = i < half or level == 0
            picture.rect(left + i * cell, y, 48, 26, PALE[BLUE] if active else "white", PALE_INK if not active else INK,
                         text=f"sums[{i}]" if active else "", size=10)
        if level < 3:
            half //= 2
            picture.line([(left - 90, y + 36), (left + threads * cell, y + 36)], RED, 1.5, dashed=True)
            picture.text(left + threads * cell - 10, y + 50, "__syncthreads()", 11, "end", colour=RED)
            for i in range(half):
                picture.line([(left + (i + half) * cell + 24, y + 26), (left + i * cell + 24, y + step - 2)], PALE_INK, 1)
                picture.line([(left + i * cell + 24, y + 26), (left + i * cell + 24, y + step - 2)], INK, 1)
    picture.text(20, 306, "One more barrier: all threads read sums[0], which thread 0 has written at the last level.", 12, colour=RED)
    return picture


PICTURES = {
    "0_run/schedule": schedule,
    "1_by_hand/layernorm": layernorm, "1_by_hand/qkv": qkv, "1_by_hand/logits": logits,
    "4_ranks/ring": ring, "4_ranks/overlap": overlap, "4_ranks/zero1": zero1,
    "5_kernels/butterfly": butterfly, "5_kernels/coalescing": coalescing, "5_kernels/tree": tree,
}


def main(pictures: dict, script: str, description: str) -> int:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--check", action="store_true", help="compare the files instead of writing them")
    check, different = parser.parse_args().check, []
    for name, draw in pictures.items():
        lab, _, picture = name.partition("/")
        path = LABS / lab / "pictures" / f"{picture}.svg"
        text = draw().svg()
        if not check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            different.append(path)
    for path in different:
        print(f"{path.relative_to(LABS.parent)} is not what labs/{script} draws: run it")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main(PICTURES, "pictures.py", __doc__.splitlines()[0]))
