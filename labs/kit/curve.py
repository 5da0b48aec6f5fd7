"""Curves of training runs: read from metrics.jsonl, thinned out, and drawn as SVG beside each other."""

import json
import math
from dataclasses import dataclass, field
from pathlib import Path

MOST_POINTS = 100
FIELDS = {"loss": "training loss, nats per token", "validation_loss": "validation loss, nats per token",
          "grad_norm": "gradient norm before clipping"}


@dataclass
class Curve:
    """The numbers of a run, each as pairs of a step and a value; null for what is not finite."""
    values: dict[str, list[tuple[int, float | None]]] = field(default_factory=dict)
    end: str = ""  # how the run ended, if it was not well


def read(run_directory: Path) -> Curve:
    """The curve of a run directory; an empty one if it has no metrics."""
    curve = Curve({name: [] for name in FIELDS})
    path = run_directory / "metrics.jsonl"
    for line in path.read_text().splitlines() if path.is_file() else []:
        row = json.loads(line)
        for name in FIELDS:
            if name in row:
                value = row[name]
                finite = isinstance(value, (int, float)) and math.isfinite(value)
                curve.values[name].append((row["step"], float(f"{value:.5g}") if finite else None))
    for name, points in curve.values.items():
        stride = -(-len(points) // MOST_POINTS)
        curve.values[name] = points[::stride] if stride > 1 else points
    return curve


def to_json(curve: Curve) -> dict:
    return {"values": {name: [list(point) for point in points] for name, points in curve.values.items()},
            "end": curve.end}


def from_json(data: dict) -> Curve:
    return Curve({name: [(step, value) for step, value in points] for name, points in data["values"].items()},
                 data["end"])


WIDTH, HEIGHT, LEFT, TOP, GAP = 640, 240, 60, 30, 60
COLOURS = {"healthy": "#4a6fa5", "with the bug": "#c0392b"}


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers between two others."""
    step = 10 ** math.floor(math.log10((high - low) / count))
    step *= next((factor for factor in (1, 2, 5) if (high - low) / (step * factor) <= count), 10)
    first = math.ceil(low / step)
    return [step * i for i in range(first, math.floor(high / step) + 1)]


def svg(title: str, curves: dict[str, Curve]) -> str:
    """Panels one below the other, a colour for each run; a cross at the bottom is a value that is not finite."""
    panels = [name for name in FIELDS if any(curve.values.get(name) for curve in curves.values())]
    height = TOP + (HEIGHT + GAP) * max(1, len(panels)) + 20
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 20} {height}" '
           'font-family="sans-serif" font-size="12">', '<rect width="100%" height="100%" fill="white"/>',
           f'<text x="{LEFT}" y="18" font-size="14">{escape(title)}</text>']
    for index, name in enumerate(panels):
        out += panel(name, curves, TOP + 10 + index * (HEIGHT + GAP))
    x = LEFT
    for run, colour in COLOURS.items():
        if run in curves:
            note = f"{run}: {curves[run].end}" if curves[run].end else run
            out.append(f'<text x="{x}" y="{height - 8}" fill="{colour}">{escape(note)}</text>')
            x += 160
    return "\n".join([*out, "</svg>"]) + "\n"


def panel(name: str, curves: dict[str, Curve], top: float) -> list[str]:
    points = [point for curve in curves.values() for point in curve.values.get(name, [])]
    finite = [value for _, value in points if value is not None] or [0.0]
    last = max(step for step, _ in points)
    low, high = min(finite), max(finite)
    # One spike must not flatten everything else.
    high = min(high, 3 * sorted(finite)[len(finite) * 9 // 10] + 1e-9) if low >= 0 else high
    high = high if high > low else low + 1

    def place(step: int, value: float) -> tuple[float, float]:
        share = min(1.0, max(0.0, (value - low) / (high - low)))
        return LEFT + WIDTH * step / last, top + HEIGHT * (1 - share)

    out = [f'<rect x="{LEFT}" y="{top}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#999"/>',
           f'<text x="{LEFT}" y="{top + HEIGHT + 32}">{FIELDS[name]}, by step</text>']
    for tick in ticks(low, high):
        y = place(0, tick)[1]
        out.append(f'<path d="M{LEFT} {y:.1f}h{WIDTH}" stroke="#eee"/>'
                   f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>')
    for tick in ticks(0, last):
        x = place(int(tick), low)[0]
        out.append(f'<text x="{x:.1f}" y="{top + HEIGHT + 16}" text-anchor="middle">{tick:g}</text>')
    for run, curve in curves.items():
        out += line(curve.values.get(name, []), place, COLOURS[run], top + HEIGHT)
    return out


def line(points: list[tuple[int, float | None]], place, colour: str, bottom: float) -> list[str]:
    out, path, pen = [], "", "M"
    for step, value in points:
        if value is None:
            x = place(step, 0)[0]
            out.append(f'<path d="M{x - 3:.1f} {bottom - 3}l6 6m0-6l-6 6" stroke="{colour}"/>')
            pen = "M"
            continue
        x, y = place(step, value)
        path += f"{pen}{x:.1f} {y:.1f}"
        pen = "L"
    if path:
        out.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
    return out


def escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
