"""The picture of one training step at every stage, from compare_stages: phases, and in them ops and waiting."""

import json
import os
import subprocess
import tempfile
from pathlib import Path

from .svg import Picture, text_width

PHASES = {
    "data": "other",
    "forward": "forward",
    "backward": "backward",
    "communication": "communication",
    "optimizer": "optimizer",
}  # -> colour
STAGES = ["one process, 2 threads", "2 ranks, one thread each", "one process, 2 threads", "2 ranks, one thread each"]


# ---- Recording ----


def record(root: Path, programs: Path) -> dict:
    """Compares the stages with the default experiment, and returns what the picture needs of the report."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report"
        flags = ["--emulated", "--ranks", "2", "--cores", "2", "--repeats", "1", "--no-reproducible-pass"]
        # Each rank or thread has its own core.
        spread = {"OMP_PLACES": "threads", "OMP_PROC_BIND": "spread"}
        subprocess.run(
            [programs.resolve() / "compare_stages", "--output", report, "--mpirun", "mpirun --bind-to core", *flags],
            cwd=root,
            check=True,
            env=os.environ | spread,
            stdout=subprocess.DEVNULL,
        )
        results = json.loads((report / "results.json").read_text(encoding="utf-8"))
    provenance, settings = results["provenance"], results["experiment"]["settings"]
    return {
        "machine": (provenance["machine"]["processor"] or "unknown").split(" (")[0],
        "date": provenance["date"][:10],
        "commit": (provenance["source"]["commit"] or "unknown")[:7],
        "flags": {f"--{key.replace('_', '-')}": settings[key] for key in ("n_layer", "n_embd", "block_size", "batch_size")},
        "stages": [step_of(contestant["timeline"]) for contestant in results["contestants"]],
    }


def step_of(timeline: dict) -> list[dict]:
    """Of each rank, the phases and what ran in them: [name, begin, length] in µs from the step's first begin."""
    if timeline["failure"]:
        raise ValueError(timeline["failure"])

    def microseconds(spans: list[list]) -> list[list]:
        return [[name, round(1000 * begin, 1), round(1000 * length, 1)] for name, begin, length in spans]

    return [
        {"phases": microseconds(rank["phases"]), "spans": microseconds(rank["host"])} for rank in timeline["ranks"]
    ]


# ---- Drawing ----


def length(stage: list[dict]) -> float:
    return max(begin + dur for rank in stage for _, begin, dur in rank["phases"])


def milliseconds(microseconds: float) -> str:
    return f"{microseconds / 1000:.{1 if microseconds < 10000 else 0}f} ms"


def share(stage: list[dict], phase: str) -> str:
    """Of rank 0's step, in percent."""
    return f"{100 * sum(dur for name, _, dur in stage[0]['phases'] if name == phase) / length(stage):.0f} %"


def draw(recorded: dict) -> str:
    flags, stages = recorded["flags"], recorded["stages"]
    shares = "; ".join(
        f"stage {i}: {milliseconds(length(stage))}, "
        + ", ".join(f"{phase} {share(stage, phase)}" for phase in ("forward", "backward", "communication"))
        for i, stage in enumerate(stages)
    )
    picture = Picture(
        "One training step at every stage",
        f"Bars from left to right in time, with forward, backward, communication and optimizer. {shares}. "
        "Stages 2 and 3 ran on the emulator, on a CPU: this is the shape of a step, not its speed.",
    )
    picture.text(20, 38, "One training step, at every stage", 22, bold=True)
    picture.text(
        20,
        65,
        f"GPT-2 of {flags['--n-layer']} layers and {flags['--n-embd']} channels, {flags['--batch-size']} × "
        f"{flags['--block-size']} tokens, f32",
        18,
        "quiet",
    )
    picture.text(
        20, 89, f"2 cores of an {recorded['machine']}, {recorded['date']}, commit {recorded['commit']}", 18, "quiet"
    )
    y = 110.0
    for first, note in ((0, ""), (2, "Emulated, on a CPU: the shape of a step, not its speed")):
        if note:
            picture.rect(20, y, 680, 36, "soft", 8)
            picture.text(360, y + 24, note, 18, anchor="middle", bold=True)
            y += 48
        scale = 616 / max(length(stage) for stage in stages[first : first + 2])
        for number in (first, first + 1):
            y = draw_stage(picture, y, number, stages[number], scale)
    draw_legend(picture, y + 8)
    return picture.svg(y + 46)


def draw_stage(picture: Picture, y: float, number: int, stage: list[dict], scale: float) -> float:
    """Returns where the next one begins."""
    picture.text(20, y + 18, f"stage {number}", 19, f"stage{number}", bold=True)
    picture.text(108, y + 18, f"{STAGES[number]}", 18, "quiet")
    picture.text(700, y + 18, milliseconds(length(stage)), 19, anchor="end", bold=True)
    y += 30
    for rank, spans in enumerate(stage):
        if len(stage) > 1:
            picture.text(20, y + 27, f"rank {rank}", 18, "quiet")
        draw_rank(picture, 84, y, spans, scale)
        y += 48
    return y + 14


def draw_rank(picture: Picture, left: float, y: float, rank: dict, scale: float) -> None:
    """Phases as pale bars; on them, ops and waiting in full colour. What remains pale is neither."""
    for name, begin, dur in rank["phases"]:
        picture.rect(left + begin * scale, y, max(dur * scale, 0.5), 40, PHASES[name], 0, opacity=0.35)
    for name, begin, dur in rank["spans"]:
        phase = next((phase for phase, from_, long in rank["phases"] if from_ <= begin < from_ + long), "data")
        is_message = "wait" in name or "gather" in name or "scatter" in name
        width = dur * scale
        if width >= 0.4:
            fill = "communication" if is_message else PHASES[phase]
            picture.rect(left + begin * scale, y, max(width - 0.6, 0.4), 40, fill, 0)
    for name, begin, dur in rank["phases"]:
        if text_width(name, 18) < dur * scale - 12:
            x = left + (begin + dur / 2) * scale
            picture.text(x, y + 26, name, 18, f"on-{PHASES[name]}", "middle", True, halo=PHASES[name])


def draw_legend(picture: Picture, y: float) -> None:
    x = 20.0
    for text, name in (
        ("forward", "forward"),
        ("backward", "backward"),
        ("communication", "communication"),
        ("optimizer", "optimizer"),
        ("data", "other"),
    ):
        picture.rect(x, y, 18, 18, name, 4)
        picture.text(x + 25, y + 15, text, 18, "quiet")
        x += 25 + 0.6 * 18 * len(text) + 14
