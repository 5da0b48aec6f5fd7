"""The picture of predicted steps on many ranks, from scaling_grids.py: for each number of ranks the best grid."""

from typing import NamedTuple

from .svg import Picture

PARTS = {"compute": "forward", "tensor": "communication", "data": "backward", "optimizer": "optimizer"}  # -> colour
NAMES = {"compute": "compute", "tensor": "tensor ranks", "data": "data ranks", "optimizer": "AdamW"}


class Bar(NamedTuple):
    model: str
    ranks: int
    step: object  # of scaling_grids.py
    efficiency: float


def label(bar: Bar) -> str:
    return f"{bar.step.data_ranks:,} × {bar.step.tensor_ranks}"


def draw(bars: list[Bar]) -> str:
    words = "; ".join(f"{bar.model} on {bar.ranks:,} ranks, {label(bar)}: {100 * bar.efficiency:.0f} %" for bar in bars)
    picture = Picture("Predicted steps on many ranks",
                      f"For each model and number of ranks the best grid, data ranks times tensor ranks, and the share of the "
                      f"step that is useful computation. {words}. Predictions, not measurements.")
    picture.text(20, 38, "Where the time of a step goes, on the best grid", 22, bold=True)
    picture.text(20, 65, "Predictions for ranks like an H100, not measurements", 18, "quiet")
    y, model = 84.0, ""
    for bar in bars:
        if bar.model != model:
            model = bar.model
            picture.text(20, y + 26, model, 19, bold=True)
            picture.text(700, y + 26, "useful", 17, "quiet", anchor="end")
            y += 38
        picture.text(20, y + 22, f"{bar.ranks:,}", 18)
        picture.text(96, y + 22, label(bar), 18, "quiet")
        x = 212.0
        for part, fill in PARTS.items():
            width = 416 * getattr(bar.step, part) / bar.step.seconds
            picture.rect(x, y, max(width - 0.6, 0.4), 30, fill, 0)
            x += width
        picture.text(700, y + 22, f"{100 * bar.efficiency:.0f} %", 18, anchor="end", bold=True)
        y += 36
    y += 8
    x = 20.0
    for part, fill in PARTS.items():
        picture.rect(x, y, 20, 20, fill, 4)
        picture.text(x + 28, y + 16, NAMES[part], 17)
        x += 170
    return picture.svg(y + 40)
