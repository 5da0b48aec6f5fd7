"""The picture of predicted steps on many ranks, from scaling_grids.py: for each number of ranks the best grid."""

from typing import NamedTuple

from .svg import Picture

PARTS = {"compute": "forward", "tensor": "communication", "streams": "stage2", "bubble": "other", "data": "backward",
         "optimizer": "optimizer"}  # -> colour
NAMES = {"compute": "compute", "tensor": "tensor ranks", "streams": "stages", "bubble": "bubble", "data": "data ranks",
         "optimizer": "AdamW"}


class Bar(NamedTuple):
    model: str
    step: object  # of grid_model.py
    efficiency: float


def draw(bars: list[Bar]) -> str:
    words = "; ".join(f"{bar.model} on {bar.step.grid.ranks:,} ranks, {bar.step.grid}: {100 * bar.efficiency:.0f} %"
                      for bar in bars)
    picture = Picture("Predicted steps on many ranks",
                      f"For each model and number of ranks the best grid, data ranks times tensor ranks times stages, and the share of "
                      f"the step that is useful computation. {words}. Predictions, not measurements.")
    picture.text(20, 38, "Where the time of a step goes, on the best grid", 22, bold=True)
    picture.text(20, 65, "data × tensor × stages; predicted for ranks like an H100", 18, "quiet")
    y, model = 84.0, ""
    for bar in bars:
        if bar.model != model:
            model = bar.model
            picture.text(20, y + 26, model, 19, bold=True)
            picture.text(700, y + 26, "useful", 17, "quiet", anchor="end")
            y += 38
        picture.text(80, y + 22, f"{bar.step.grid.ranks:,}", 18, anchor="end")
        picture.text(94, y + 22, str(bar.step.grid), 18, "quiet")
        x = 232.0
        for part, fill in PARTS.items():
            width = 390 * getattr(bar.step, part) / bar.step.seconds
            picture.rect(x, y, max(width - 0.6, 0.4), 30, fill, 0)
            x += width
        picture.text(700, y + 22, f"{100 * bar.efficiency:.0f} %", 18, anchor="end", bold=True)
        y += 36
    for i, (part, fill) in enumerate(PARTS.items()):
        x, row = 20 + 230 * (i % 3), y + 8 + 30 * (i // 3)
        picture.rect(x, row, 20, 20, fill, 4)
        picture.text(x + 28, row + 16, NAMES[part], 17)
    return picture.svg(y + 78)
