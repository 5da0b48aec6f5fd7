"""The loss curves of the zoo: recorded by running a bug's commands with and without the bug, kept in labs/zoo/curves."""

import json
import os
import platform
import re
import tempfile
import time
from pathlib import Path

from kit import commands, curve
from kit.lab_file import LabError
from kit.zoo_file import Bug
from kit.zoo_tree import Copy


def file_of(root: Path, bug: Bug) -> Path:
    return root / "labs/zoo/curves" / f"{bug.name}.json"


def recorded(root: Path, bug: Bug) -> dict[str, curve.Curve]:
    """The curves of a bug, by the names in curve.COLOURS; none if they have not been recorded."""
    path = file_of(root, bug)
    if not path.is_file():
        return {}
    runs = json.loads(path.read_text())["runs"]
    return {name: curve.from_json(runs[key]) for name, key in zip(curve.COLOURS, ("healthy", key_of(bug)))}


def key_of(bug: Bug) -> str:
    """The name of a bug's run in its file: each variant has one."""
    return f"with the bug, variant {bug.variant + 1}" if bug.variant else "with the bug"


def record(root: Path, directory: Path, bugs: list[Bug]) -> None:
    """Records the curves of bugs in one build tree; each command runs once without a bug. Prints a line for each bug."""
    copy = Copy(root, directory)
    copy.plant(None)
    copy.build(command.program for bug in bugs for command in bug.record)
    healthy: dict[str, curve.Curve] = {}
    for bug in bugs:
        if (key := texts(bug)) not in healthy:
            healthy[key] = run(copy, bug)
        if healthy[key].end:
            raise LabError(f"{bug.path}: without the bug its run {healthy[key].end}")
    for bug in bugs:
        curves = {"healthy": healthy[texts(bug)]}
        for form in bug.forms():
            begin = time.monotonic()
            copy.plant(form)
            copy.build(command.program for command in bug.record)
            curves[key_of(form)] = sick = run(copy, form)
            print(f"{bug.name}: last loss {last(healthy[texts(bug)])}, {key_of(form)} {last(sick)} {sick.end}, "
                  f"{time.monotonic() - begin:.0f} s", flush=True)
        write(file_of(root, bug), bug, curves)
    copy.plant(None)


def texts(bug: Bug) -> str:
    return "\n".join(command.text() for command in bug.record)


def last(recorded_curve: curve.Curve) -> float | None:
    losses = recorded_curve.values["loss"]
    return losses[-1][1] if losses else None


def run(copy: Copy, bug: Bug) -> curve.Curve:
    """Runs the commands of a bug in the copy as it is now."""
    with tempfile.TemporaryDirectory(prefix="lab_zoo_") as scratch:
        directory = Path(scratch) / "run"
        end = ""
        for index, command in enumerate(bug.record):
            end = how_it_ended(copy.run(command, [str(directory)] if index else ["--run-dir", str(directory)]))
            if end:
                break
        curve_of_run = curve.read(directory)
        curve_of_run.end = end
        return curve_of_run


def how_it_ended(ended: commands.Ended) -> str:
    """Empty if a program ended well."""
    if ended.stopped:
        return f"is not done after {ended.seconds:.0f} s"
    if ended.signal:
        return f"ends with signal {ended.signal}"
    return f"ends with exit code {ended.exit_code}" if ended.exit_code else ""


def write(path: Path, bug: Bug, curves: dict[str, curve.Curve]) -> None:
    path.parent.mkdir(exist_ok=True)
    data = {"record": [command.text() for command in bug.record], "machine": machine(),
            "runs": {name: curve.to_json(of_run) for name, of_run in curves.items()}}
    # A line for each point would make a long file.
    path.write_text(re.sub(r"\[\s+(\d+),\s+([-\d.e+]+|null)\s+\],\s+(?=\[)", r"[\1, \2], ", json.dumps(data, indent=1)) + "\n")


def machine() -> str:
    """The processor, for those who compare curves."""
    cpuinfo = Path("/proc/cpuinfo")
    models = re.findall(r"^model name\s*:\s*(.+)$", cpuinfo.read_text(), re.MULTILINE) if cpuinfo.is_file() else []
    return f"{models[0] if models else platform.machine()}, {os.cpu_count()} processors"
