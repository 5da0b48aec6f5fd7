"""The picture of the architecture: what is written once, the seams, and which stage adds what at each seam.

Everything in it is read from the tree: classes and what they derive from, what a stage's stage.cpp includes, lines.
"""

import re
from pathlib import Path

from .svg import Picture

# The parts of a training step, in their order: name, folder, what it does. The trainer calls them.
ROOMS = [
    ("data", "common/data", "next batch"),
    ("model", "common/model", "forward"),
    ("tape", "common/autograd", "backward"),
    ("optimizer", "common/optim", "AdamW"),
]
TRAINER = "common/train"
# The interfaces that a stage implements, the headers that declare them, and what they are for.
SEAMS = [
    ("Backend", "common/backend/backend.h", "computes ops"),
    ("GradientSync", "common/comm/gradient_sync.h", "adds up gradients"),
    ("Communicator", "common/comm/communicator.h", "sends tensors"),
]
# The implementations that the picture shows, in its words, in its order.
SHOWN = {
    "CpuBackend": "CPU kernels",
    "CudaBackend": "CUDA kernels",
    "FlatSync": "flat",
    "BucketedSync": "buckets",
    "OverlappedSync": "overlap",
    "Zero1Sync": "ZeRO-1",
    "MpiCommunicator": "MPI",
    "HostStagedCommunicator": "host memory",
    "NcclCommunicator": "NCCL",
}
# A line below these, and the CMake targets that it stands for.
TARGETS = {"stage2_cuda": ("GPU or emulator", ["stage2_cuda", "stage2_emulated"])}
STAGES = [("stage0_serial", "serial"), ("stage1_mpi", "MPI"), ("stage2_cuda", "CUDA"), ("stage3_mpi_cuda", "MPI+CUDA")]
SUFFIXES = {".h", ".cpp", ".cu", ".cuh"}


def sources(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.suffix in SUFFIXES)


def lines(folder: Path) -> int:
    return sum(path.read_text(encoding="utf-8").count("\n") for path in sources(folder))


def bases_of(folder: Path) -> dict[str, str]:
    """Class -> its first base, of all classes in a folder."""
    pattern = re.compile(r"^class (\w+)(?: final)? : public (?:\w+::)*(\w+)", re.MULTILINE)
    return {name: base for path in sources(folder) for name, base in pattern.findall(path.read_text(encoding="utf-8"))}


def extract(root: Path) -> dict:
    """Reads the tree. A stage's cell at a seam: the classes, and the folder that they are from."""
    common = bases_of(root / "common")
    bases, folders = dict(common), {name: "common" for name in common}
    for folder, _ in STAGES:
        for name, base in bases_of(root / folder).items():
            bases[name], folders[name] = base, folder

    def implements(name: str, seam: str) -> bool:
        while name in bases:
            name = bases[name]
            if name == seam:
                return True
        return False

    def classes(folder: str, seam: str) -> list[str]:
        return [name for name in SHOWN if folders[name] == folder and implements(name, seam)]

    missing = SHOWN.keys() - bases.keys()
    if missing:
        raise ValueError(f"no class {', '.join(sorted(missing))} in the tree")
    for folder, (_, targets) in TARGETS.items():
        text = (root / folder / "CMakeLists.txt").read_text(encoding="utf-8")
        for target in targets:
            if f"add_library({target} " not in text:
                raise ValueError(f"{folder}/CMakeLists.txt: no target {target}")

    stages = []
    for folder, _ in STAGES:
        text = (root / folder / "stage.cpp").read_text(encoding="utf-8")
        included = sorted(set(re.findall(r'#include "(stage\d_\w+)/', text)) - {folder})
        cells = {}
        for seam, _, _ in SEAMS:
            origins = [origin for origin in [folder, *included] if classes(origin, seam)]
            named = [name for name in common if implements(name, seam) and re.search(rf"make_unique<{name}>", text)]
            if not origins and not named:
                raise ValueError(f"{folder}/stage.cpp: no implementation of {seam} found")
            origin, shown = (origins[0], classes(origins[0], seam)) if origins else ("common", named)
            cells[seam] = {"from": origin, "classes": shown}
        stages.append({"folder": folder, "lines": lines(root / folder), "cells": cells})
    seams = [{"class": name, "header": header} for name, header, _ in SEAMS]
    for seam in seams:
        if f"class {seam['class']} " not in (root / seam["header"]).read_text(encoding="utf-8"):
            raise ValueError(f"{seam['header']} does not declare {seam['class']}")
    rooms = {folder: lines(root / folder) for folder in [*(room[1] for room in ROOMS), TRAINER]}
    return {"common_lines": lines(root / "common"), "rooms": rooms, "seams": seams, "stages": stages}


def rounded(count: int) -> str:
    return f"{round(count, -2):,}"


def cell_lines(cell: dict) -> list[str]:
    """The text of a cell that is new at a stage: two short names in a line."""
    names = [SHOWN[name] for name in cell["classes"]]
    if "CudaBackend" in cell["classes"]:
        return [*names, TARGETS[cell["from"]][0]]
    if len(names) < 3:
        return names
    return [", ".join(names[i : i + 2]) + ("," if i + 2 < len(names) else "") for i in range(0, len(names), 2)]


def in_words(stage: dict, seam: str) -> str:
    cell = stage["cells"][seam]
    if cell["from"] == "common":
        return "none"
    return " ".join(cell_lines(cell)) if cell["from"] == stage["folder"] else f"of stage {origin(cell)}"


def draw(found: dict) -> str:
    rows = [
        f"stage {i}, {STAGES[i][1]}: " + ", ".join(f"{seam} {in_words(stage, seam)}" for seam, _, _ in SEAMS)
        for i, stage in enumerate(found["stages"])
    ]
    picture = Picture(
        "Four stages behind three interfaces",
        "Data, model, tape, optimizer and trainer are written once, in common, and call three interfaces: Backend, "
        f"GradientSync and Communicator. What implements these: {'; '.join(rows)}.",
    )
    draw_common(picture, found)
    left, column, gap = 130, 182, 12
    xs = [left + i * (column + gap) for i in range(3)]
    for x, (seam, _, purpose) in zip(xs, SEAMS):
        picture.arrow_down(x + column / 2, 223, 243)
        picture.text(x + column / 2, 268, seam, 19, anchor="middle", bold=True, code=True)
        picture.text(x + column / 2, 291, purpose, 18, "quiet", "middle")
    y = 306
    for i, stage in enumerate(found["stages"]):
        height = 74
        picture.text(20, y + height / 2 - 14, f"stage {i}", 19, f"stage{i}", bold=True)
        picture.text(20, y + height / 2 + 8, STAGES[i][1], 18)
        picture.text(20, y + height / 2 + 29, f"{rounded(stage['lines'])} lines", 17, "quiet")
        for x, (seam, _, _) in zip(xs, SEAMS):
            draw_cell(picture, x, y, column, height, i, stage["cells"][seam], stage["folder"])
        y += height + gap
    picture.rect(20, y + 8, 26, 18, "quiet", 4)
    picture.text(54, y + 23, "written in this stage", 17, "quiet")
    picture.frame(262, y + 8, 26, 18, "quiet")
    picture.text(296, y + 23, "taken from an earlier stage, unchanged", 17, "quiet")
    return picture.svg(y + 46)


def origin(cell: dict) -> int:
    return [folder for folder, _ in STAGES].index(cell["from"])


def draw_common(picture: Picture, found: dict) -> None:
    picture.text(20, 38, "Written once, in common/", 22, bold=True)
    picture.text(700, 38, f"{rounded(found['common_lines'])} lines, the same at every stage", 16, "quiet", "end")
    picture.rect(20, 54, 680, 164, "soft", 12)
    width, gap = 148, 22
    for i, (name, folder, purpose) in enumerate(ROOMS):
        x = 31 + i * (width + gap)
        picture.frame(x, 66, width, 92, "rule", "paper")
        picture.text(x + width / 2, 94, name, 19, anchor="middle", bold=True)
        picture.text(x + width / 2, 118, purpose, 18, anchor="middle")
        picture.text(x + width / 2, 143, f"{rounded(found['rooms'][folder])} lines", 17, "quiet", "middle")
        if i < len(ROOMS) - 1:
            picture.arrow(x + width + 4, x + width + gap - 4, 112)
    picture.text(
        360, 183, f"The trainer ({rounded(found['rooms'][TRAINER])} lines) runs this step.", 18, anchor="middle"
    )
    picture.text(360, 206, "No MPI and no CUDA here: only calls of three interfaces.", 18, anchor="middle")


def draw_cell(
    picture: Picture, x: float, y: float, width: float, height: float, number: int, cell: dict, folder: str
) -> None:
    middle = y + height / 2 + 6
    if cell["from"] == folder:
        texts = cell_lines(cell)
        picture.rect(x, y, width, height, f"stage{number}")
        for i, text in enumerate(texts):
            picture.text(x + width / 2, middle + 24 * (i - (len(texts) - 1) / 2), text, 18, "on", "middle", True)
    elif cell["from"] == "common":
        picture.rect(x, y, width, height, "soft")
        picture.text(x + width / 2, middle, "none: one process", 17, "quiet", "middle")
    else:
        picture.frame(x, y, width, height, f"stage{origin(cell)}")
        picture.text(x + width / 2, middle, f"of stage {origin(cell)}", 18, f"stage{origin(cell)}", "middle", True)
