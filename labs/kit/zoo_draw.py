"""What a student draws: a bug of a lab in one of its variants, and the decoys that are planted beside it. The ticket in the folder
names the bug, and the key that the others are drawn with."""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from kit.lab_file import LabError
from kit.submission import student_id
from kit.zoo_file import Bug, Edit, all_bugs, decoys, named

TICKET = ".lab_zoo"
DECOYS = 30          # beside a bug. No file has more than four, so they are in eight files or more
_BESIDE_THE_BUG = 2  # at least, in each file of the bug


@dataclass(frozen=True)
class Draw:
    bug: Bug
    key: str  # orders the decoys and chooses the variant; 16 hexadecimal digits

    def ticket(self) -> str:
        return f"bug {self.bug.number}\ndecoys {self.key}\n"

    def edits(self, root: Path) -> list[Edit]:
        """The changes of a folder. Decoys are in code that the bug's program may run: common/, and stages up to its own."""
        stage = max(_stage(command.program) for command in self.bug.record)
        near = sorted((decoy for decoy in decoys(root) if _stage(decoy.file) <= stage),
                      key=lambda decoy: _digest(self.key, decoy.file, decoy.find))
        own = [decoy for file in self.bug.files() for decoy in [one for one in near if one.file == file][:_BESIDE_THE_BUG]]
        return [*self.bug.edits, *(own + [decoy for decoy in near if decoy not in own])[:DECOYS]]


def of_number(root: Path, which: str) -> Draw:
    """A bug by its number or name, for no student: always in the same form."""
    bug = named(root, which)
    return _drawn(bug, _digest(bug.number))


def of_student(root: Path, lab: int, student: str, which: int = 1) -> Draw:
    """What a student draws in a lab; `which` counts from 1."""
    pool = {bug.name: bug for bug in all_bugs(root) if lab in bug.labs}
    if not pool:
        raise LabError(f"--lab: no bug belongs to lab {lab}")
    return _drawn(pool[drawn(list(pool), student, lab, which)], _digest(lab, _spelled(student), which))


def of_folder(root: Path, directory: Path) -> Draw:
    """What a folder's ticket says."""
    try:
        text = (directory / TICKET).read_text()
    except (OSError, UnicodeDecodeError):
        raise LabError(f"{directory} is no folder made by `lab zoo start`: it has no {TICKET}") from None
    match = re.fullmatch(r"bug (\d+)\ndecoys ([0-9a-f]{16})\n?", text)
    if not match:
        raise LabError(f"{directory / TICKET}: expected `bug NUMBER` and `decoys KEY`")
    return _drawn(named(root, match.group(1)), match.group(2))


def _drawn(bug: Bug, key: str) -> Draw:
    return Draw(bug.forms()[int(key, 16) % len(bug.variants)], key)


def drawn(names: list[str], student: str, lab: int, which: int = 1) -> str:
    """The bug of a student: the same each time, and of the first, second… draw another one each."""
    if not 1 <= which <= len(names):
        raise LabError(f"lab {lab} has {len(names)} bugs to draw, not {which}")
    return sorted(names, key=lambda name: _digest(lab, _spelled(student), name))[which - 1]


def _spelled(student: str) -> str:
    """In small letters, and the ids of a pair in order."""
    return ",".join(sorted(student_id(student.strip()).lower().split(",")))


def _digest(*words: object) -> str:
    return hashlib.sha256("/".join(map(str, words)).encode()).hexdigest()[:16]


def _stage(path: str) -> int:
    """The stage of a file or a program; 0 if it has none."""
    match = re.match(r"stage(\d)_", path)
    return int(match.group(1)) if match else 0
