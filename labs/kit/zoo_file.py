"""Files of the bug zoo: mistakes of other programs, as changes of this one, each with the test that catches it; and decoys,
which change no result.

A line begins with a keyword. A line whose first character is `#` is a comment.

    number   NUMBER                       what students call the bug
    title    TEXT                         the mistake; not for students
    lab      NUMBER...                    the labs that draw it
    symptom  TEXT                         what a user of the program sees; for students
    caught   TARGET[@RANKS] FILTER        the test program, and the GoogleTest filter of the tests that fail
    says     PATTERN                      a regular expression that their output matches
    also     FILTER                       tests of the same program that a fix must not break
    source   TEXT                         where the bug was seen: a repository, and an issue or a commit
    record   [NAME=VALUE...] PROGRAM[@RANKS] FLAGS...
                                          the run whose loss curve students get; may be repeated: then the runs
                                          follow each other in one run directory
    file     PATH                         a file of the tree, followed by its changes
    find                                  followed by a text that occurs once in the file; its lines are indented by
                                          four spaces, which do not count
    put                                   followed by the text that takes its place, or by nothing
    variant                               what follows is the same mistake in another form, as `file`, `find` and `put`

A file in labs/zoo/decoys has `file`, `find` and `put` only. Each pair of `find` and `put` is a decoy of its own.
"""

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from kit.lab_file import LabError

INDENTATION = "    "
BUDGET = 5  # lines that a fix may change


@dataclass(frozen=True)
class Edit:
    file: str  # from the root of the tree
    find: str
    put: str
    where: str  # file and line of `find`


@dataclass(frozen=True)
class Caught:
    target: str
    ranks: int | None  # None: without mpirun
    filter: str


@dataclass(frozen=True)
class Recorded:
    environment: dict[str, str]
    program: str
    ranks: int | None
    flags: list[str]

    def text(self) -> str:
        """The command as one types it."""
        mpirun = [f"mpirun -np {self.ranks}"] if self.ranks else []
        return " ".join([f"{name}={value}" for name, value in self.environment.items()] + mpirun
                        + [self.program, *self.flags])


@dataclass(frozen=True)
class Bug:
    name: str
    path: Path
    number: int = 0
    title: str = ""
    labs: list[int] = field(default_factory=list)
    symptom: str = ""
    caught: Caught | None = None
    says: str = ""
    also: str = ""
    source: str = ""
    record: list[Recorded] = field(default_factory=list)
    variants: list[list[Edit]] = field(default_factory=list)
    variant: int = 0  # the one that is planted

    @property
    def edits(self) -> list[Edit]:
        return self.variants[self.variant]

    def forms(self) -> list["Bug"]:
        """The bug in each of its variants."""
        return [replace(self, variant=i) for i in range(len(self.variants))]

    def files(self) -> list[str]:
        """The files that the bug changes, each once."""
        return list(dict.fromkeys(edit.file for edit in self.edits))


def applied(root: Path, edits: Iterable[Edit]) -> dict[str, str]:
    """The changed files. Raises LabError if a text to be found does not occur exactly once."""
    texts: dict[str, str] = {}
    for edit in edits:
        text = texts.get(edit.file)
        if text is None:
            text = _read(root / edit.file, edit.where)
        if (times := text.count(edit.find)) != 1:
            raise LabError(f"{edit.where}: the text to be found occurs {times} times in {edit.file}")
        texts[edit.file] = text.replace(edit.find, edit.put)
    return texts


def changed_lines(before: str, after: str) -> int:
    """The lines that a change touches: of a stretch that is replaced, the longer side counts."""
    matcher = difflib.SequenceMatcher(None, before.splitlines(), after.splitlines(), autojunk=False)
    return sum(max(i2 - i1, j2 - j1) for tag, i1, i2, j1, j2 in matcher.get_opcodes() if tag != "equal")


def load(path: Path) -> Bug:
    """Reads a file of the zoo. Raises LabError with file and line."""
    return _Parser(path).bug()


def decoys(root: Path) -> list[Edit]:
    """The decoys of a tree."""
    return [edit for path in sorted((root / "labs/zoo/decoys").glob("*")) for edit in _Parser(path).decoys()]


def all_bugs(root: Path) -> list[Bug]:
    """The bugs of a tree, by number."""
    bugs = [load(path) for path in sorted((root / "labs/zoo").iterdir()) if path.is_file() and path.suffix == ""]
    numbers = [bug.number for bug in bugs]
    for bug in bugs:
        if numbers.count(bug.number) > 1:
            raise LabError(f"{bug.path}: there are several bugs {bug.number}")
    return sorted(bugs, key=lambda bug: bug.number)


def named(root: Path, which: str) -> Bug:
    """The bug of this number or name."""
    for bug in all_bugs(root):
        if which in (str(bug.number), bug.name):
            return bug
    raise LabError(f"there is no bug '{which}' in the zoo; `lab zoo list` lists them")


def _read(path: Path, where: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LabError(f"{where}: {path}: {error}") from error


class _Parser:
    ONCE = ("number", "title", "lab", "symptom", "caught", "says", "also", "source")
    OPTIONAL = ("also",)

    def __init__(self, path: Path):
        self.path = path
        self.line = 0
        self.values: dict[str, object] = {}
        self.record: list[Recorded] = []
        self.variants: list[list[Edit]] = [[]]
        self.file: str | None = None
        self.find: tuple[str, int] | None = None
        self.read(_read(path, str(path)).splitlines())

    def error(self, *parts: object) -> LabError:
        return LabError(f"{self.path}:{self.line}: " + "".join(map(str, parts)))

    def read(self, lines: list[str]) -> None:
        while self.line < len(lines):
            line = lines[self.line]
            self.line += 1
            if not line.strip() or line.startswith("#"):
                continue
            keyword, _, rest = line.partition(" ")
            if keyword in ("find", "put"):
                if rest.strip():
                    raise self.error(f"the text of '{keyword}' begins on the next line")
                self.on_text(keyword, *self.block(lines))
            elif keyword == "variant":
                if self.find or not self.variants[-1]:
                    raise self.error("'variant' follows changes")
                self.variants.append([])
            elif keyword in (*self.ONCE, "record", "file"):
                if not rest.strip():
                    raise self.error(f"nothing follows '{keyword}'")
                self.on_value(keyword, rest.strip())
            else:
                raise self.error(f"'{keyword}' is no keyword")
        if self.find:
            raise self.error("'find' without 'put'")

    def decoys(self) -> list[Edit]:
        for keyword in [*self.values, *["record"] * bool(self.record), *["variant"] * (len(self.variants) - 1)]:
            raise LabError(f"{self.path}: decoys have no line '{keyword}'")
        return self.variants[0]

    def bug(self) -> Bug:
        for keyword in self.ONCE:
            if keyword not in self.values and keyword not in self.OPTIONAL:
                raise self.error(f"there is no line '{keyword}'")
        if not self.record or not self.variants[-1]:
            raise self.error("there is no line '", "put" if self.record else "record", "'")
        return Bug(self.path.name, self.path, record=self.record, variants=self.variants,
                   **{"labs" if key == "lab" else key: value for key, value in self.values.items()})

    def block(self, lines: list[str]) -> tuple[str, int]:
        """The indented lines that follow, without the indentation, and the line of the keyword before them. Empty lines at the end do
        not count."""
        begin = self.line
        while self.line < len(lines) and (lines[self.line].startswith(INDENTATION) or not lines[self.line].strip()):
            self.line += 1
        return "\n".join(line[len(INDENTATION):] for line in lines[begin:self.line]).rstrip(), begin

    def on_text(self, keyword: str, text: str, line: int) -> None:
        if self.file is None:
            raise self.error(f"'{keyword}' follows a line 'file'")
        if (keyword == "put") == (self.find is None):
            raise self.error("expected '", "find" if keyword == "put" else "put", f"', not '{keyword}'")
        if keyword == "find":
            if not text:
                raise self.error("there is no text to be found")
            self.find = text, line
            return
        find, line = self.find
        self.find = None
        if find == text:
            raise self.error("the text that is put is the one that is found")
        self.variants[-1].append(Edit(self.file, find, text, f"{self.path}:{line}"))

    def on_value(self, keyword: str, rest: str) -> None:
        if self.find:
            raise self.error(f"expected 'put', not '{keyword}'")
        if keyword == "file":
            pure = PurePosixPath(rest)
            if pure.is_absolute() or ".." in pure.parts or str(pure) != rest:
                raise self.error(f"'{rest}' is no plain path from the root of the tree")
            self.file = rest
        elif keyword == "record":
            self.record.append(self.recorded(rest.split()))
        elif keyword in self.values:
            raise self.error(f"there are two lines '{keyword}'")
        else:
            self.values[keyword] = getattr(self, f"parse_{keyword}", str)(rest)

    def parse_number(self, text: str) -> int:
        if not re.fullmatch(r"[1-9]\d{0,3}", text):
            raise self.error(f"'{text}' is no number")
        return int(text)

    def parse_lab(self, text: str) -> list[int]:
        if not re.fullmatch(r"\d+( \d+)*", text):
            raise self.error(f"expected numbers of labs, not '{text}'")
        return [int(number) for number in text.split()]

    def parse_caught(self, text: str) -> Caught:
        words = text.split()
        if len(words) != 2:
            raise self.error("expected: caught TARGET[@RANKS] FILTER")
        return Caught(*self.program(words[0]), words[1])

    def parse_says(self, text: str) -> str:
        try:
            re.compile(text)
        except re.error as error:
            raise self.error(f"'{text}' is no regular expression: {error}") from error
        return text

    def program(self, text: str) -> tuple[str, int | None]:
        match = re.fullmatch(r"(\w+)(?:@([1-9]|[1-5]\d|6[0-4]))?", text)
        if not match:
            raise self.error(f"'{text}' is no program, nor a program with a number of ranks, PROGRAM@RANKS")
        return match.group(1), int(match.group(2)) if match.group(2) else None

    def recorded(self, words: list[str]) -> Recorded:
        environment = {}
        while words and re.match(r"[A-Z_]+=", words[0]):
            name, _, value = words.pop(0).partition("=")
            environment[name] = value
        if not words:
            raise self.error("expected: record [NAME=VALUE...] PROGRAM[@RANKS] FLAGS...")
        program, ranks = self.program(words[0])
        return Recorded(environment, program, ranks, words[1:])
