#!/usr/bin/env python3
"""Draws the pictures of the hand-outs of labs 2, 3, 6 and 7.

    labs/pictures_2367.py            writes labs/*/pictures/*.svg
    labs/pictures_2367.py --check    exits with 1 if a file is not what this script draws
"""

import sys
from pathlib import Path

sys.dont_write_bytecode = True

from pictures import BLUE, GREEN, GREY, INK, ORANGE, PALE, RANKS, RED, Picture, main  # noqa: E402


def arrow(picture: Picture, x0: float, y0: float, x1: float, y1: float, colour: str = INK, dashed: bool = False) -> None:
    picture.line([(x0, y0), (x1, y1)], colour, 1.5, arrow=True, dashed=dashed)


# ---- Lab 2 ----


def tape() -> Picture:
    picture = Picture(760, 330, "The tape: forward appends nodes, backward takes them from the end; a tied weight has two users")
    names = ["embedding", "layernorm", "linear", "residual +\nlayernorm", "linear (head)", "cross-entropy"]
    width, gap, left, top = 96, 20, 30, 110
    centres = []
    for i, name in enumerate(names):
        x = left + i * (width + gap)
        picture.rect(x, top, width, 56, PALE[BLUE])
        for j, line in enumerate(name.split("\n")):
            picture.text(x + width / 2, top + (33 if "\n" not in name else 25 + 17 * j), line, 12, "middle")
        centres.append(x + width / 2)
    for a, b in zip(centres, centres[1:]):
        arrow(picture, a + width / 2, top + 18, b - width / 2, top + 18)
        picture.line([(b - width / 2, top + 40), (a + width / 2, top + 40)], ORANGE, 1.5, arrow=True)
    picture.text(left, 24, "The list of nodes. Forward appends at the right; backward takes from the right.", 13, bold=True)
    picture.text(left, 48, "→ values, in the order of the program", 12)
    picture.text(left + 330, 48, "← gradients: dout arrives complete, because all users are further right", 12, colour=ORANGE)
    y = 240
    for centre, name in ((centres[1], "ln.w, ln.b"), (centres[2], "w, b"), (centres[3], "ln.w, ln.b")):
        picture.rect(centre - 38, y, 76, 26, PALE[GREEN], text=name, size=11)
        picture.line([(centre, top + 56), (centre, y)], GREEN, 1.5, arrow=True)
    picture.rect(centres[0] - 38, y, 76, 26, PALE[RED], text="wte (leaf)", size=11)
    picture.line([(centres[0], top + 56), (centres[0], y)], RED, 1.5, arrow=True)
    picture.line([(centres[4], top + 56), (centres[4], y + 60), (centres[0], y + 60), (centres[0], y + 27)], RED, 1.5, arrow=True)
    picture.text((centres[0] + centres[4]) / 2, y + 55, "first contribution: overwrites; one consumer is left", 12, "middle", colour=RED)
    picture.text(centres[0] + 8, top + 84, "second: adds;", 12, colour=RED)
    picture.text(centres[0] + 8, top + 100, "complete", 12, colour=RED)
    return picture


def slot() -> Picture:
    picture = Picture(760, 250, "The life of a gradient: nothing, overwritten by the first contribution, added to by the others")
    boxes = [(30, "written = false", "memory: whatever it held", GREY), (290, "written = true", "Σ of the contributions so far", BLUE),
             (560, "moved out", "dout of the op that made x", ORANGE)]
    for x, first, second, colour in boxes:
        picture.rect(x, 90, 180, 62, PALE[colour])
        picture.text(x + 90, 116, first, 13, "middle", bold=True)
        picture.text(x + 90, 137, second, 11, "middle")
    arrow(picture, 210, 121, 288, 121)
    picture.text(249, 108, "overwrite", 12, "middle", colour=BLUE)
    arrow(picture, 470, 121, 558, 121)
    picture.text(514, 108, "exchange", 12, "middle", colour=ORANGE)
    picture.line([(340, 90), (340, 55), (420, 55), (420, 88)], BLUE, 1.5, arrow=True)
    picture.text(380, 46, "accumulate", 12, "middle", colour=BLUE)
    picture.line([(630, 152), (630, 190), (120, 190), (120, 154)], INK, 1.5, arrow=True, dashed=True)
    picture.text(375, 208, "written = false again: for the next tape", 12, "middle")
    picture.text(30, 24, "One GradSlot. A leaf stays in the middle until its owner clears it; others are moved out when their op's turn comes.", 13, bold=True)
    picture.text(30, 236, "Nobody wants it: the slot is null, and every mode is `skip`.", 12)
    return picture


def residual() -> Picture:
    picture = Picture(760, 300, "Two ways back to the sum: through the layernorm, and from later ops")
    picture.text(30, 24, "residual_layernorm: one op, two outputs", 13, bold=True)
    picture.rect(250, 50, 250, 190, "white", INK, dashed=True)
    for y, name in ((80, "x"), (180, "residual")):
        picture.rect(60, y, 100, 34, PALE[GREY], text=name)
        arrow(picture, 160, y + 10, 288, 128 if y == 80 else 142)
        picture.line([(288, 140 if y == 80 else 154), (160, y + 26)], ORANGE, 1.5, arrow=True)
    picture.rect(290, 120, 60, 40, PALE[BLUE], text="+", size=18)
    picture.rect(400, 180, 90, 40, PALE[BLUE], text="layernorm")
    arrow(picture, 350, 132, 598, 92)
    picture.line([(598, 110), (350, 148)], ORANGE, 1.5, arrow=True)
    arrow(picture, 345, 160, 398, 192)
    picture.line([(400, 212), (330, 162)], ORANGE, 1.5, arrow=True)
    picture.rect(600, 80, 120, 40, PALE[GREY], text="sum: the stream")
    picture.rect(600, 180, 120, 40, PALE[GREY], text="out: the branch")
    arrow(picture, 490, 194, 598, 194)
    picture.line([(598, 210), (490, 210)], ORANGE, 1.5, arrow=True)
    picture.text(610, 138, "douts[0]", 12, colour=ORANGE)
    picture.text(610, 238, "douts[1]", 12, colour=ORANGE)
    picture.text(375, 268, "At the + both gradients meet: their sum is the gradient of sum, and the same tensor goes to x and to residual.", 12, "middle",
                 colour=ORANGE)
    return picture


# ---- Lab 3 ----


def tile() -> Picture:
    picture = Picture(760, 360, "One step of k of a register tile: a column of a times a row of b, added to the sums")
    size, left, top, rows, columns = 26, 190, 100, 6, 8
    picture.text(20, 24, "One step of k, for 6 × 2 vectors of 4 lanes: 12 multiply-adds, for 2 loads of b and 6 of a.", 13, bold=True)
    for c in range(columns):
        picture.rect(left + c * size, top - 44, size, size, PALE[ORANGE if c < 4 else GREEN])
    picture.text(left + columns * size + 12, top - 26, "row k of b: 2 vectors, from L1", 12)
    for r in range(rows):
        picture.rect(left - 60, top + r * size, size, size, PALE[RED])
        for c in range(columns):
            picture.rect(left + c * size, top + r * size, size, size, PALE[BLUE])
    picture.text(left - 72, top + rows * size / 2, "column k of a:", 12, "end")
    picture.text(left - 72, top + rows * size / 2 + 16, "each element in", 12, "end")
    picture.text(left - 72, top + rows * size / 2 + 32, "all lanes, in turn", 12, "end")
    picture.text(left + columns * size + 12, top + 60, "12 sums: they stay in registers", 12, colour=BLUE, bold=True)
    picture.text(left + columns * size + 12, top + 78, "for all steps of k", 12, colour=BLUE)
    arrow(picture, left - 30, top + 13, left - 4, top + 13, RED)
    for c in (2, 6):
        arrow(picture, left + c * size, top - 16, left + c * size, top - 3, ORANGE if c == 2 else GREEN)
    y = 292
    picture.text(20, y, "registers:   sums 6·2 = 12   +   row of b 2   +   element of a 1   =   15 of 16   (AVX2)", 12)
    picture.text(20, y + 20, "             sums 12·2 = 24   +   row of b 2   +   element of a 1   =   27 of 32   (AVX-512)", 12)
    picture.text(20, y + 44, "After the last k each sum is written to c once.", 12)
    return picture


def blocks() -> Picture:
    picture = Picture(760, 330, "The tiled product: threads divide columns, a block of b is packed, all rows of a are multiplied with it")
    picture.text(20, 24, "tiled::matmul, one thread", 13, bold=True)
    ax, bx, cx, top = 40, 300, 560, 70
    picture.rect(ax, top + 40, 180, 150, "white")
    picture.text(ax + 90, top + 30, "a (M,K)", 12, "middle")
    picture.rect(ax + 60, top + 40, 60, 150, PALE[RED])
    picture.text(ax + 90, top + 120, "k0…k1", 11, "middle")
    for r in range(1, 4):
        picture.line([(ax + 60, top + 40 + r * 37), (ax + 120, top + 40 + r * 37)], RED, 1)
    picture.rect(bx, top, 160, 190, "white")
    picture.text(bx + 80, top - 10, "b (K,N)", 12, "middle")
    picture.rect(bx + 40, top, 50, 190, PALE[GREY])
    picture.rect(bx + 40, top + 60, 50, 60, PALE[ORANGE])
    picture.text(bx + 65, top + 95, "block", 11, "middle")
    picture.text(bx + 65, top + 206, "n0…n1: this thread", 11, "middle")
    picture.rect(cx, top + 40, 160, 150, "white")
    picture.text(cx + 80, top + 30, "c (M,N)", 12, "middle")
    picture.rect(cx + 40, top + 40, 50, 150, PALE[BLUE])
    for r in range(1, 4):
        picture.line([(cx + 40, top + 40 + r * 37), (cx + 90, top + 40 + r * 37)], BLUE, 1)
    picture.text(cx + 65, top + 206, "+= for each block", 11, "middle")
    picture.rect(bx + 210 - 170, 285, 120, 26, PALE[ORANGE], text="packed: 128 KiB", size=11)
    picture.line([(bx + 65, top + 122), (bx + 65, top + 150)], ORANGE, 1.5)
    picture.text(bx + 175, 303, "rows without gaps, whatever the layout of b", 11)
    picture.text(240, top + 115, "·", 24, "middle")
    picture.text(510, top + 115, "=", 20, "middle")
    return picture


def levels() -> Picture:
    picture = Picture(760, 330, "Four levels of blocks in the packed product, and the memory that holds each")
    picture.text(20, 24, "The packed product with AVX-512: what stays where", 13, bold=True)
    rows = [("part of c", "one thread", "memory", 620, BLUE), ("packed rows of a: 1024 × 384 floats, 1.5 MiB", "for all panels of b", "L2, L3", 500, RED),
            ("panel of b: 384 × 48 floats, 72 KiB", "for all tiles of the packed rows", "L2", 380, ORANGE),
            ("strip of 8 rows of a: 8 × 384 floats, 12 KiB", "for one tile", "L1", 270, GREEN),
            ("tile of c: 8 × 48 sums", "for all steps of k", "registers", 160, BLUE)]
    for i, (what, how_long, where, width, colour) in enumerate(rows):
        y = 48 + i * 52
        picture.rect(40, y, width, 40, PALE[colour])
        inside = width > 300
        picture.text(50 if inside else 50 + width, y + 17, what, 12, bold=True)
        picture.text(50 if inside else 50 + width, y + 33, f"stays {how_long}" if i else how_long, 11)
        picture.text(740, y + 25, where, 12, "end", colour=colour, bold=True)
    picture.text(40, 322, "A level is used again each time the level below it is replaced.", 12)
    return picture


# ---- Lab 6 ----


def tiles() -> Picture:
    picture = Picture(760, 350, "A block of threads computes a tile of c; tiles of a and b walk along k through shared memory")
    ax, bx, cx, top, size = 40, 300, 520, 150, 40
    picture.text(20, 24, "One block: a 16 × 16 tile of c. In each step one tile of a and one of b pass through shared memory.", 13, bold=True)
    for i in range(5):
        picture.rect(ax + i * size, top + 40, size, size, PALE[RED] if i == 2 else "white", RED)
    picture.text(ax + 100, top + 30, "16 rows of a, K columns", 12, "middle")
    arrow(picture, ax + 10, top + 100, ax + 190, top + 100, RED)
    picture.text(ax + 100, top + 118, "k0 = 0, 16, 32, …", 12, "middle", colour=RED)
    for i in range(4):
        picture.rect(bx + 40, top - 90 + i * size, size, size, PALE[ORANGE] if i == 1 else "white", ORANGE)
    arrow(picture, bx + 100, top - 80, bx + 100, top + 60, ORANGE)
    picture.text(bx + 110, top - 20, "K rows of b,", 12)
    picture.text(bx + 110, top - 4, "16 columns", 12)
    picture.rect(cx, top - 60, 200, 74, PALE[GREY])
    picture.text(cx + 100, top - 68, "shared memory of the block", 12, "middle")
    picture.rect(cx + 20, top - 46, 50, 46, PALE[RED], text="tile_a", size=11)
    picture.rect(cx + 120, top - 46, 50, 46, PALE[ORANGE], text="tile_b", size=11)
    picture.rect(cx + 60, top + 70, 80, 80, PALE[BLUE], text="tile of c", size=12)
    arrow(picture, cx + 100, top + 16, cx + 100, top + 66, BLUE)
    picture.text(cx + 108, top + 46, "16 products a thread", 11)
    picture.text(40, 312, "copy, barrier (the tiles are complete), 16 products, barrier (all have read), next step", 12, bold=True)
    picture.text(40, 334, "An element of a is read from global memory once for 16 columns of c: N/16 times, not N times.", 12)
    return picture


def registers() -> Picture:
    picture = Picture(760, 340, "A thread has 4 × 4 sums in registers: 8 floats from shared memory give 16 products")
    picture.text(20, 24, "One k of the vectorised kernel: 8 floats from shared memory, 16 multiply-adds", 13, bold=True)
    left, top, size = 150, 110, 34
    for j in range(4):
        picture.rect(left + j * size, top - 50, size, size, PALE[ORANGE], text=f"b{j}", size=11)
        picture.rect(left - 60, top + j * size, size, size, PALE[RED], text=f"a{j}", size=11)
        for i in range(4):
            picture.rect(left + i * size, top + j * size, size, size, PALE[BLUE])
    picture.text(left + 68, top - 60, "load4: tile_b[k][x…x+3]", 12, "middle")
    picture.text(left - 70, top + 60, "load4:", 12, "end")
    picture.text(left - 70, top + 76, "tile_a[k]", 12, "end")
    picture.text(left - 70, top + 92, "[y…y+3]", 12, "end")
    picture.text(left + 68, top + 160, "sums[4][4], registers", 12, "middle", colour=BLUE, bold=True)
    gx, gy, cell = 430, 60, 14
    for row in range(16):
        for column in range(16):
            own = row == 5 and column == 9
            warp = row in (4, 5)
            picture.rect(gx + column * cell, gy + row * cell, cell, cell, BLUE if own else PALE[GREEN] if warp else "white", "#999999")
    picture.text(gx + 112, gy - 10, "the block's 64 × 64 tile: 16 × 16 threads", 12, "middle")
    picture.text(gx + 112, gy + 242, "green: the 32 threads of one warp; blue: one thread", 12, "middle")
    picture.text(20, 326, "A warp reads 2 different groups of a (the same for 16 lanes) and 16 of b: 2 + 16 times 16 bytes.", 12)
    return picture


def online() -> Picture:
    picture = Picture(760, 300, "Softmax online: when a larger score comes, what was added so far is scaled down")
    picture.text(20, 24, "Scores of one query, key after key. m is the maximum so far; l and o always refer to it.", 13, bold=True)
    scores = [1.0, 0.4, 2.2, 1.5, 0.9, 2.9, 1.1, 2.0]
    left, base, width, scale = 80, 210, 68, 50
    highest = float("-inf")
    for i, score in enumerate(scores):
        x = left + i * width
        new = score > highest
        picture.rect(x, base - score * scale, 34, score * scale, PALE[ORANGE if new else BLUE], text="", size=11)
        picture.text(x + 17, base - score * scale - 6, f"{score:g}", 11, "middle")
        picture.text(x + 17, base + 16, f"u = {i}", 11, "middle")
        if new:
            kept = "0" if highest == float("-inf") else f"e^({highest:g} − {score:g})"
            picture.text(x + 17, base + 38, f"· {kept}", 11, "middle", colour=ORANGE, bold=True)
        highest = max(highest, score)
        picture.line([(x - 16, base - highest * scale), (x + width - 18, base - highest * scale)], RED, 2)
    picture.line([(left - 20, base), (left + 8 * width, base)])
    picture.text(left + 8 * width + 6, base - highest * scale + 4, "m", 13, colour=RED, bold=True)
    picture.text(20, base + 66, "orange: a new maximum; l and o are multiplied by the factor below, then the key is added with weight 1.", 12, colour=ORANGE)
    picture.text(20, base + 84, "blue: only e^(s − m) is added.", 12, colour=BLUE)
    return picture


# ---- Lab 7 ----


def transfer() -> Picture:
    picture = Picture(760, 330, "One transfer over time: compute stream, copy stream, host and network")
    picture.text(20, 24, "One all-reduce through the host. Time runs to the right.", 13, bold=True)
    lanes = [("stream compute", 70), ("stream copies", 130), ("host thread", 190), ("network (MPI)", 250)]
    for name, y in lanes:
        picture.text(120, y + 20, name, 12, "end")
        picture.line([(130, y + 34), (745, y + 34)], GREY, 1)
    picture.rect(140, 70, 120, 28, PALE[BLUE], text="writes the tensor", size=10)
    picture.rect(265, 70, 330, 28, "white", BLUE, text="goes on with backward", size=10)
    picture.rect(264, 130, 90, 28, PALE[ORANGE], text="to host", size=10)
    picture.rect(385, 250, 190, 28, PALE[GREEN], text="ring", size=10)
    picture.rect(605, 130, 90, 28, PALE[ORANGE], text="to device", size=10)
    picture.rect(140, 190, 60, 28, PALE[GREY], text="constructor", size=9)
    picture.rect(365, 190, 50, 28, PALE[GREY], text="start", size=9)
    picture.rect(580, 190, 60, 28, PALE[GREY], text="copy_back", size=9)
    picture.rect(655, 190, 85, 28, PALE[GREY], text="wait() returns", size=9)
    picture.line([(260, 98), (264, 130)], RED, 1.5, arrow=True)
    picture.text(300, 118, "event 1: copies waits for compute", 11, colour=RED)
    picture.line([(354, 158), (372, 188)], RED, 1.5, arrow=True)
    picture.text(378, 176, "event 2: is_done?", 11, colour=RED)
    picture.line([(410, 218), (410, 248)], INK, 1.5, arrow=True)
    picture.line([(575, 250), (590, 220)], INK, 1.5, arrow=True)
    picture.line([(620, 188), (625, 160)], INK, 1.5, arrow=True)
    picture.line([(695, 158), (700, 188)], RED, 1.5, arrow=True)
    picture.text(690, 176, "event 3", 11, "end", colour=RED)
    picture.text(20, 316, "Without event 1 the copy takes old numbers; without event 2 the ring sends them; without event 3 the optimizer reads them.", 12, bold=True)
    return picture


def gradient_tree() -> Picture:
    picture = Picture(760, 340, "The tree of eight sub-batches, and which part of it each of four ranks computes")
    picture.text(20, 24, "Eight sub-batches on four ranks. The same tree, and so the same bits, on 1, 2, 4 and 8.", 13, bold=True)
    left, width = 120, 78
    x = [left + i * width for i in range(8)]
    levels_y = [260, 195, 130, 65]
    nodes = [x]
    for level in range(1, 4):
        below = nodes[-1]
        nodes.append([(below[2 * i] + below[2 * i + 1]) / 2 for i in range(len(below) // 2)])
        for i, centre in enumerate(nodes[-1]):
            for child in (below[2 * i], below[2 * i + 1]):
                picture.line([(child, levels_y[level - 1] - 14), (centre, levels_y[level] + 14)], INK if level == 1 else RED, 1.5)
    for i, centre in enumerate(x):
        picture.rect(centre - 20, levels_y[0] - 14, 40, 28, PALE[RANKS[i // 2]], text=f"g{i}")
    for level in range(1, 4):
        for i, centre in enumerate(nodes[level]):
            fill = PALE[RANKS[i]] if level == 1 else "white"
            picture.rect(centre - 16, levels_y[level] - 14, 32, 28, fill, RED if level > 1 else INK, text="+")
    for rank in range(4):
        picture.text(nodes[1][rank], 298, f"rank {rank}", 12, "middle", bold=True)
    picture.text(60, levels_y[1] + 4, "GradientTree", 11, "middle")
    picture.text(60, levels_y[2] + 4, "distance 1", 11, "middle", colour=RED)
    picture.text(60, levels_y[3] + 4, "distance 2", 11, "middle", colour=RED)
    picture.text(20, 326, "Red: between ranks. Each partner adds one half of what both have: in the end each rank has a quarter of the result.", 12)
    return picture


PICTURES = {
    "2_tape/tape": tape, "2_tape/slot": slot, "2_tape/residual": residual,
    "3_processor/tile": tile, "3_processor/blocks": blocks, "3_processor/levels": levels,
    "6_products/tiles": tiles, "6_products/registers": registers, "6_products/online": online,
    "7_gpus/transfer": transfer, "7_gpus/gradient_tree": gradient_tree,
}


if __name__ == "__main__":
    sys.exit(main(PICTURES, "pictures_2367.py", __doc__.splitlines()[0]))
