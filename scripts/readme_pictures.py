#!/usr/bin/env python3
"""Draws the pictures of README.md and docs/compare.md from the source tree and from recorded timelines.

    scripts/readme_pictures.py                              # reads the tree again, and draws both pictures
    scripts/readme_pictures.py --record build/release/bin   # also measures: runs a short training at every stage
    scripts/readme_pictures.py --check                      # exits with 1 if a picture is out of date

The pictures are docs/images/architecture.svg and step_of_each_stage.svg; the .json files beside them hold what they
show. Measure on a machine without other work.
"""

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from pictures import architecture, step  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs/images"
ARCHITECTURE, STEP = "architecture", "step_of_each_stage"
LINES_MAY_DIFFER = 0.2  # between the picture and the tree; more than this is out of date


def read(name: str) -> dict:
    return json.loads((IMAGES / f"{name}.json").read_text(encoding="utf-8"))


def text_of(data: dict) -> str:
    """JSON with one span, or one simple list, a line."""
    return (
        json.dumps(data, indent=None, separators=(",", ":")).replace('],["', '],\n["').replace('},{"', '},\n{"') + "\n"
    )


def counts_of(found: dict) -> dict[str, int]:
    return {
        "common": found["common_lines"],
        **found["rooms"],
        **{stage["folder"]: stage["lines"] for stage in found["stages"]},
    }


def without_counts(found: dict) -> dict:
    return {
        "seams": found["seams"],
        "stages": [{"folder": stage["folder"], "cells": stage["cells"]} for stage in found["stages"]],
    }


def problems() -> list[str]:
    """What makes a committed picture untrue."""
    wrong = []
    shown = read(ARCHITECTURE)
    try:
        found = architecture.extract(ROOT)
    except ValueError as error:
        return [str(error)]
    if without_counts(found) != without_counts(shown):
        wrong.append("architecture.json: the classes or the interfaces of a stage have changed")
    now, then = counts_of(found), counts_of(shown)
    for folder in sorted(now.keys() | then.keys()):
        if abs(now.get(folder, 0) - then.get(folder, 0)) > LINES_MAY_DIFFER * now.get(folder, 0):
            wrong.append(f"architecture.json: {folder} has {now.get(folder, 0)} lines, not {then.get(folder, 0)}")
    drawn = {ARCHITECTURE: architecture.draw(shown), STEP: step.draw(read(STEP))}
    for name, svg in drawn.items():
        if (IMAGES / f"{name}.svg").read_text(encoding="utf-8") != svg:
            wrong.append(f"{name}.svg is not what {name}.json gives")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a picture is out of date")
    parser.add_argument(
        "--record", type=Path, metavar="DIR", help="the directory of the programs: record the timelines again"
    )
    arguments = parser.parse_args()
    if arguments.check:
        wrong = problems()
        for line in wrong:
            print(line, file=sys.stderr)
        if wrong:
            print("run scripts/readme_pictures.py", file=sys.stderr)
        return 1 if wrong else 0
    (IMAGES / f"{ARCHITECTURE}.json").write_text(text_of(architecture.extract(ROOT)), encoding="utf-8")
    if arguments.record:
        (IMAGES / f"{STEP}.json").write_text(text_of(step.record(ROOT, arguments.record)), encoding="utf-8")
    (IMAGES / f"{ARCHITECTURE}.svg").write_text(architecture.draw(read(ARCHITECTURE)), encoding="utf-8")
    (IMAGES / f"{STEP}.svg").write_text(step.draw(read(STEP)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
