"""`lab start`: makes the folder in which a student works, a git repository with the lab's functions cut out."""

import glob
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from kit import cutter, report, tree
from kit.lab_file import Lab, LabError, load, numbered, public_text

MARK = ".lab"  # a JSON object at the top of a starter

# What labs/lab needs in a starter. The others belong to instructors.
_KIT = {"__init__.py", "building.py", "checks.py", "commands.py", "cpp.py", "cutter.py", "lab_file.py", "report.py",
        "starter.py", "submission.py", "test_output.py", "todo.h", "tree.py"}

_OF_MAINTAINERS = (".github/", ".ci/")  # a push of a student's repository runs no workflow

# A folder whose files quote solutions. Its CMakeLists.txt stays, empty, because tests/CMakeLists.txt names it.
HIDDEN_TESTS = "tests/labs/"
STUB = "# This tree has none of these tests.\n"
_IGNORED = "\n/first\n/report/\n/submission.tar.gz\n"

_LAB_SCRIPT = """#!/bin/sh
# ./lab check, report, submit: see HANDOUT.md and ./lab --help.
exec python3 "$(dirname "$0")/labs/lab" "$@"
"""

# No setting of git on this machine is read: neither a student's settings nor their absence may matter.
_COMMAND = ["git", "-c", "user.name=StageGPT labs", "-c", "user.email=labs@localhost", "-c", "init.defaultBranch=main"]
_WITHOUT_SETTINGS = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
_INTERRUPTS = {signal.SIGINT, signal.SIGTERM}


@dataclass(frozen=True)
class Mark:
    """What a starter knows of itself."""
    lab: int
    student: str | None
    source: str  # the tree that it was made from
    state: str   # of that tree: see tree.state()
    report: list[str] = field(default_factory=list)  # arguments of compare_stages


def start(root: Path, lab: Lab, target: Path, student: str | None = None) -> Path:
    """Makes a starter in `target`, which must not exist."""
    return make(root, target, f"Lab {lab.number}: {lab.title}", lambda folder: fill(root, lab, folder, student))


def make(root: Path, target: Path, message: str, filled: Callable[[Path], None]) -> Path:
    """Makes `target`, which must not exist, a git repository with one commit of what `filled` writes into the folder that
    it gets. If it is interrupted, there is no `target`."""
    target = Path(os.path.abspath(target))
    if os.path.lexists(target):
        raise LabError(f"{target} exists already; nothing was changed (--dir names another folder)")
    if target.is_relative_to(root.resolve()):
        raise LabError(f"{target} lies inside of the source tree {root}; choose a folder outside")
    if not shutil.which("git"):
        raise LabError("git is not installed: a student's folder is a git repository")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_interrupted(target)
        unfinished = Path(tempfile.mkdtemp(prefix=f".{target.name}.{os.getpid()}.", dir=target.parent))
    except OSError as error:
        raise LabError(f"{error.filename}: {error.strerror}") from error
    try:
        unfinished.chmod(0o755)
        filled(unfinished)
        for arguments in (["init", "--quiet", "--template="], ["add", "--all", "--force"],
                          ["commit", "--quiet", "--no-verify", "-m", message]):
            _git(unfinished, arguments)
        unfinished.rename(target)
    except OSError as error:
        raise LabError(f"{error.filename}: {error.strerror}") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return target


def mark_of(directory: Path) -> Mark | None:
    """The mark of a starter; None if the directory is none."""
    file = directory / MARK
    if not file.is_file():
        return None
    try:
        return Mark(**json.loads(file.read_text()))
    except (OSError, ValueError, TypeError) as error:
        raise LabError(f"{file}: {error}") from error


def lab_of(directory: Path, number: int | None) -> Lab:
    """The lab of a starter; in the source tree, the one of this number."""
    mark = mark_of(directory)
    if mark and number is not None and number != mark.lab:
        raise LabError(f"this folder is of lab {mark.lab}, not {number}")
    if not mark and number is None:
        raise LabError("name the lab: this is the source tree, not a folder made by `lab start`")
    return numbered(directory, mark.lab if mark else number)


def students_files(lab: Lab) -> dict[str, str]:
    """The text of each written file with its functions cut out."""
    return {written.path: cutter.cut((lab.root / written.path).read_text(), written.cuts, written.path)
            for written in lab.write}


def fill(root: Path, lab: Lab, target: Path, student: str | None = None) -> None:
    """Writes the files of a starter."""
    for path in tree.files(root):
        place = placed(lab, path)
        if place is None:
            continue
        (target / place).parent.mkdir(parents=True, exist_ok=True)
        if path.startswith(HIDDEN_TESTS):
            (target / place).write_text(STUB)
        else:
            shutil.copy2(root / path, target / place, follow_symlinks=False)
    for path, text in students_files(lab).items():
        (target / path).write_text(text)
    (target / "labs" / lab.name / "lab").write_text(public_text(lab.file.read_text()))
    for name in ("HANDOUT.md", "answers.md"):
        if (target / name).is_file():
            (target / name).write_text(_moved_to_top((target / name).read_text(), lab))
    mark = Mark(lab.number, student, str(root.resolve()), tree.state(root), report.arguments(lab))
    (target / MARK).write_text(json.dumps(mark.__dict__, indent=2) + "\n")
    (target / "lab").write_text(_LAB_SCRIPT)
    (target / "lab").chmod(0o755)
    with (target / ".gitignore").open("a") as ignored:
        ignored.write(_IGNORED)
    load(target / "labs" / lab.name)  # what students get can be read


def placed(lab: Lab, path: str) -> str | None:
    """Where a file of the tree is in a starter; None if it is not there."""
    own = f"labs/{lab.name}/"
    if path in (own + "HANDOUT.md", own + "answers.md"):
        return path.removeprefix(own)
    if path == "labs/AGENTS.md":  # where programs look for it
        return "AGENTS.md"
    if path.startswith("labs/kit/"):
        return path if path.removeprefix("labs/kit/") in _KIT or path.startswith("labs/kit/verbs/") else None
    if path.startswith("labs/"):
        is_public = path in (own + "lab", own + "first.cpp", "labs/lab") or path.startswith(own + "pictures/")
        return path if is_public else None
    if path.startswith(HIDDEN_TESTS):
        return path if path.endswith("/CMakeLists.txt") else None
    return None if path.startswith(_OF_MAINTAINERS) else path


def _moved_to_top(text: str, lab: Lab) -> str:
    """A text of the lab's directory with its links as they are from the top of the tree."""
    def moved(match: re.Match) -> str:
        before, link = match.groups()
        file = link.split("#")[0]
        if re.match(r"[a-z]+:|#|/", link) or file in ("HANDOUT.md", "answers.md") or not (lab.directory / file).exists():
            return match.group()
        return before + os.path.normpath(f"labs/{lab.name}/{link}")
    return re.sub(r'(\]\(|(?:src|href)=")([^)\s"]+)', moved, text)


def _git(target: Path, arguments: list[str]) -> None:
    """Runs git. When this program is interrupted, git ends first: it would go on to write what is removed then."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")} | _WITHOUT_SETTINGS
    process = None
    try:
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _INTERRUPTS)
        try:
            process = subprocess.Popen([*_COMMAND, *arguments], cwd=target, env=environment, stdin=subprocess.DEVNULL,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                       preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, before))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        errors = process.communicate()[1]
    finally:
        if process:
            process.kill()
            process.wait()
    if process.returncode != 0:
        raise LabError(f"git {arguments[0]}: {' '.join(errors.split())[:300]}")


def _remove_interrupted(target: Path) -> None:
    """Removes what a start of the same folder left behind that was killed."""
    for left in target.parent.glob(f".{glob.escape(target.name)}.*.*"):
        owner = left.name.removeprefix(f".{target.name}.").split(".")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists():
            shutil.rmtree(left, ignore_errors=True)
