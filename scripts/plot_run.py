#!/usr/bin/env python3
"""Plots the curves of one or more runs, as PNG or SVG.

    ./scripts/plot_run.py runs/nano
    ./scripts/plot_run.py runs/nano runs/nano-2 --output compared.svg

Reads RUN/metrics.jsonl (docs/file_formats.md), also during a run. Needs matplotlib (Debian package
python3-matplotlib, or `pip install matplotlib`).
"""

import argparse
import json
import sys
from pathlib import Path

# Title and unit of a panel, and its curves: field, style, and what the legend adds to the name of a run.
PANELS = [
    ("Loss", "nats per token", [("loss", "-", ""), ("validation_loss", "o--", ", validation")]),
    ("Validation accuracy", "share of tokens that are right", [("validation_accuracy", "o--", "")]),
    ("Validation, comparable between tokenizers", "bits per byte", [("bits_per_byte", "o--", "")]),
    ("Learning rate", "learning rate", [("learning_rate", "-", "")]),
    ("Gradient norm", "norm before clipping", [("grad_norm", "-", "")]),
    ("Speed", "tokens per second", [("tokens_per_second", "-", "")]),
]
FIELDS = [field for _, _, curves in PANELS for field, _, _ in curves]
COLUMNS = 3


class BadInput(Exception):
    """An error that a user can correct."""


def number(value) -> float | None:
    """The value of a field, which must be a number: matplotlib draws nothing for a list, and categories for text."""
    if value is not None and not isinstance(value, (int, float)):
        raise TypeError
    return None if value is None else float(value)


def read_metrics(run: Path) -> list[dict]:
    """The lines of a run's metrics, without a last line that is still being written."""
    path = run if run.is_file() else run / "metrics.jsonl"
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    lines = []
    for count, line in enumerate(text.split("\n")[:-1], 1):
        try:
            values = json.loads(line)
            numbers = {field: number(values[field]) for field in FIELDS if field in values}
            lines.append({**numbers, "step": int(values["step"])})
        except (ValueError, TypeError, KeyError, OverflowError) as error:
            raise BadInput(f"{path}:{count} is no line of metrics, an object of numbers with a step") from error
    if not lines:
        raise BadInput(f"{path} has no steps yet")
    return lines


def curve(lines: list[dict], field: str) -> tuple[list[int], list]:
    """Steps and values of a field. Numbers that are not finite (null in the file) become None, a gap in the curve."""
    points = [(line["step"], line[field]) for line in lines if field in line]
    return [step for step, _ in points], [value for _, value in points]


def names_of(runs: list[Path]) -> list[str]:
    """The names of runs in the legend: the last part of each path, or the whole path if two runs have the same."""
    short = [run.resolve().name for run in runs]
    return short if len(set(short)) == len(short) else [str(run) for run in runs]


def label(name: str) -> str:
    """A legend text that shows a name unchanged. matplotlib omits names that begin with _, and parses $ as a formula."""
    return (" " if name.startswith("_") else "") + name.replace("$", r"\$")


def draw(runs: dict[str, list[dict]], output: Path) -> None:
    try:
        import matplotlib
    except ImportError as error:
        raise BadInput(f"{sys.executable} has no matplotlib: install Debian's python3-matplotlib and use "
                       "/usr/bin/python3, or pip install matplotlib") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = -(-len(PANELS) // COLUMNS)
    figure, axes = pyplot.subplots(rows, COLUMNS, figsize=(5 * COLUMNS, 3.5 * rows), squeeze=False)
    for axis, (title, unit, curves) in zip(axes.flat, PANELS):
        for color, (name, lines) in enumerate(runs.items()):
            for field, style, suffix in curves:
                steps, values = curve(lines, field)
                if steps:
                    every_step = style == "-"  # noisy: in the background, and paler
                    axis.plot(steps, values, style, color=f"C{color % 10}", label=label(name) + suffix, markersize=3,
                              linewidth=0.8 if every_step else 1.5, alpha=0.4 if every_step else 1,
                              zorder=2 if every_step else 3)
        axis.set(title=title, xlabel="step", ylabel=unit)
        axis.grid(alpha=0.3)
        if axis.has_data():
            for line in axis.legend(fontsize="small", loc="best").get_lines():
                line.set_alpha(1)
    figure.tight_layout()
    try:
        figure.savefig(output, dpi=110)
    except OSError as error:
        raise BadInput(f"--output: cannot write {output}: {error.strerror}") from error


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN",
                        help="a run's directory, or its metrics.jsonl")
    parser.add_argument("--output", type=Path, default=Path("run.png"), metavar="FILE",
                        help="what to write: .png or .svg (default: run.png)")
    arguments = parser.parse_args()
    try:
        if arguments.output.suffix not in (".png", ".svg"):
            raise BadInput(f"--output: expected a name that ends in .png or .svg, got {arguments.output}")
        metrics = [read_metrics(run) for run in arguments.runs]
        draw(dict(zip(names_of(arguments.runs), metrics)), arguments.output)
    except BadInput as error:
        print(f"plot_run.py: {error}", file=sys.stderr)
        return 2
    print(arguments.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
