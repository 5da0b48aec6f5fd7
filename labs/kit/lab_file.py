"""Lab files: what a lab gives to students, what it cuts out of the source, and how it checks their work.

A line begins with a keyword. A line whose first character is `#` is a comment.

    title  TEXT
    give   FILE                          a file to read
    write  FILE                          a file that the student changes, followed by its cuts
      cut  SIGNATURE                     a function whose body is removed
           TEXT                          lines that are indented more than `cut`: the hint that replaces the body
    check  POINTS TARGET[@RANKS] FILTER  tests (a GoogleTest filter) of a test program, on 3 or on each of 1-4 ranks
    hint   TEXT                          shown when the check above fails; may be repeated
    count  POINTS COUNTER <= FACTOR of COMMAND...
    trace  POINTS PROGRAM [-np RANKS] [-- FLAGS...]
    time   POINTS PROGRAM [FLAGS...] FLOOR..TARGET
    bugs   POINTS NAME...                bugs of the zoo, of which each student gets one
"""

import re
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

ANSWER_POINTS = 10  # of answers.md, in each lab


class LabError(Exception):
    """A mistake in a lab file, in a submission or on the command line: one line, exit code 2."""


@dataclass(frozen=True)
class Cut:
    signature: str
    hint: str   # lines of text, without indentation
    label: str  # "4.1 Ring::sent"
    line: int


@dataclass(frozen=True)
class WrittenFile:
    path: str  # from the root of the tree
    cuts: list[Cut]
    line: int


@dataclass(frozen=True)
class Check:
    points: int
    target: str       # a test program of the build
    ranks: list[int]  # empty: without mpirun
    filter: str
    hint: str
    line: int

    def __str__(self) -> str:
        """As in the lab file: TARGET@RANKS FILTER."""
        ranks = self.ranks
        at = "" if not ranks else f"@{ranks[0]}" if len(ranks) == 1 else f"@{ranks[0]}-{ranks[-1]}"
        return f"{self.target}{at} {self.filter}"


@dataclass(frozen=True)
class Count:
    """A counter of the student's program may be at most `factor` times the reference's."""
    points: int
    counter: str
    factor: float
    command: list[str]  # that counts
    line: int


@dataclass(frozen=True)
class Trace:
    """The student's program trains on secret data, and its trace must equal the reference's."""
    points: int
    program: str
    ranks: int | None  # None: without mpirun
    flags: list[str]
    line: int


@dataclass(frozen=True)
class Time:
    """No points at `floor` times the reference's speed, all points at `target` times."""
    points: int
    program: str
    flags: list[str]
    floor: float
    target: float
    line: int


Measure = Count | Trace | Time


@dataclass(frozen=True)
class Lab:
    number: int
    name: str        # of the directory: "4_ranks"
    directory: Path
    title: str
    give: list[str] = field(default_factory=list)
    write: list[WrittenFile] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    measures: list[Measure] = field(default_factory=list)
    bugs: list[str] = field(default_factory=list)
    bug_points: int = 0

    @property
    def file(self) -> Path:
        return self.directory / "lab"

    @property
    def root(self) -> Path:
        """The tree that the lab's paths start from."""
        return self.directory.parent.parent

    def targets(self) -> list[str]:
        """The test programs of the checks, each once."""
        return list(dict.fromkeys(check.target for check in self.checks))


def load(directory: Path) -> Lab:
    """Reads DIRECTORY/lab. Raises LabError with file and line."""
    directory = Path(directory).resolve()
    number = re.fullmatch(r"(\d+)_\w+", directory.name)
    if not number:
        raise LabError(f"{directory}: the name of a lab's directory is NUMBER_NAME")
    try:
        text = (directory / "lab").read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise LabError(f"{directory / 'lab'}: {error}") from error
    return _Parser(directory, int(number.group(1))).parse(text)


def all_labs(root: Path) -> list[Lab]:
    """The labs of a tree, by number."""
    labs = [load(file.parent) for file in sorted(Path(root).glob("labs/[0-9]*_*/lab"))]
    numbers = [lab.number for lab in labs]
    for lab in labs:
        if numbers.count(lab.number) > 1:
            raise LabError(f"{lab.directory}: there are several labs {lab.number}")
    return sorted(labs, key=lambda lab: lab.number)


def numbered(root: Path, number: int) -> Lab:
    """The lab of this number."""
    labs = all_labs(root)
    for lab in labs:
        if lab.number == number:
            return lab
    known = ", ".join(str(lab.number) for lab in labs) or "none"
    raise LabError(f"there is no lab {number} in {root}/labs (there are: {known})")


def function_name(signature: str) -> str:
    """The name before the parameters, with the classes it is qualified with: Ring::sent. Empty if there is none."""
    match = re.search(r"(?:\w+::)*(?:operator(?:\s+\w+|\s*(?:\(\)|[^\s\w(]+))|~?\w+)(?=\s*\()", signature)
    return match.group() if match else ""


# What belongs to the grader only; a starter's lab file has no such lines.
_HIDDEN = ("trace", "bugs")


def public_text(text: str) -> str:
    """A lab file's text without the lines that students do not see."""
    return "".join(line for line in text.splitlines(keepends=True) if line.split()[:1] not in [[k] for k in _HIDDEN])


def _hinted(one: Cut | Check, text: str) -> Cut | Check:
    """With a line more in its hint."""
    return replace(one, hint=f"{one.hint}\n{text}" if one.hint else text)


class _Parser:
    def __init__(self, directory: Path, number: int):
        self.directory, self.number = directory, number
        self.line = 0
        self.title = ""
        self.give: list[str] = []
        self.write: list[WrittenFile] = []
        self.checks: list[Check] = []
        self.measures: list[Measure] = []
        self.bugs: list[str] = []
        self.bug_points = 0
        self.cut_column: int | None = None  # of the cut whose hint may follow
        self.cuts = 0

    def error(self, *parts: object) -> LabError:
        return LabError(f"{self.directory / 'lab'}:{self.line}: " + "".join(map(str, parts)))

    def parse(self, text: str) -> Lab:
        keywords = {"title": self.on_title, "give": self.on_give, "write": self.on_write, "cut": self.on_cut,
                    "check": self.on_check, "hint": self.on_hint, "count": self.on_count, "trace": self.on_trace,
                    "time": self.on_time, "bugs": self.on_bugs}
        for self.line, line in enumerate(text.splitlines(), 1):
            line = line.expandtabs()
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            column = len(line) - len(line.lstrip())
            if self.cut_column is not None and column > self.cut_column:
                self.add_to_cut(line.strip())
                continue
            self.cut_column = None
            keyword, _, rest = line.strip().partition(" ")
            if keyword not in keywords:
                raise self.error(f"'{keyword}' is no keyword (", ", ".join(keywords), ")")
            if not rest.strip():
                raise self.error(f"nothing follows '{keyword}'")
            if keyword == "cut":
                self.cut_column = column
            keywords[keyword](rest.strip())
        for missing, found in (("title", self.title), ("write", self.write), ("check", self.checks)):
            if not found:
                raise self.error(f"there is no line '{missing}'")
        return Lab(self.number, self.directory.name, self.directory, self.title, self.give, self.write, self.checks,
                   self.measures, self.bugs, self.bug_points)

    def on_title(self, rest: str) -> None:
        if self.title:
            raise self.error("a lab has one title")
        self.title = rest

    def on_give(self, rest: str) -> None:
        self.give.append(self.file(rest))

    def on_write(self, rest: str) -> None:
        self.write.append(WrittenFile(self.file(rest), [], self.line))

    def on_cut(self, rest: str) -> None:
        if not self.write:
            raise self.error("a cut follows a line 'write'")
        name = function_name(rest)
        if not name:
            raise self.error(f"'{rest}' is no signature of a function")
        if any(cut.signature == rest for cut in self.write[-1].cuts):
            raise self.error(f"'{rest}' is cut twice")
        self.cuts += 1
        self.write[-1].cuts.append(Cut(rest, "", f"{self.number}.{self.cuts} {name}", self.line))

    def add_to_cut(self, text: str) -> None:
        self.write[-1].cuts[-1] = _hinted(self.write[-1].cuts[-1], text)

    def on_check(self, rest: str) -> None:
        words = rest.split()
        if len(words) != 3:
            raise self.error("expected: check POINTS TARGET[@RANKS] FILTER")
        target, _, ranks = words[1].partition("@")
        if not re.fullmatch(r"\w+", target):
            raise self.error(f"'{target}' is no name of a test program")
        self.checks.append(Check(self.points(words[0]), target, self.ranks(ranks) if "@" in words[1] else [], words[2],
                                 "", self.line))

    def on_hint(self, rest: str) -> None:
        if not self.checks:
            raise self.error("a hint follows a line 'check'")
        self.checks[-1] = _hinted(self.checks[-1], rest)

    def on_count(self, rest: str) -> None:
        match = re.fullmatch(r"(\S+)\s+(\S+)\s*<=\s*(\S+)\s+of\s+(.+)", rest)
        if not match:
            raise self.error("expected: count POINTS COUNTER <= FACTOR of COMMAND...")
        points, counter, factor, command = match.groups()
        self.measures.append(Count(self.points(points), counter, self.number_of(factor), command.split(), self.line))

    def on_trace(self, rest: str) -> None:
        words, _, flags = rest.partition(" -- ")
        match = re.fullmatch(r"(\S+)\s+(\w+)(?:\s+-np\s+(\d+))?", words.strip())
        if not match:
            raise self.error("expected: trace POINTS PROGRAM [-np RANKS] [-- FLAGS...]")
        points, program, ranks = match.groups()
        self.measures.append(Trace(self.points(points), program, self.ranks(ranks)[0] if ranks else None, flags.split(),
                                   self.line))

    def on_time(self, rest: str) -> None:
        words = rest.split()
        bounds = re.fullmatch(r"(.+?)\.\.(.+)", words[-1])
        if len(words) < 3 or not bounds:
            raise self.error("expected: time POINTS PROGRAM [FLAGS...] FLOOR..TARGET")
        floor, target = self.number_of(bounds.group(1)), self.number_of(bounds.group(2))
        if floor >= target:
            raise self.error(f"the floor {floor} is not below the target {target}")
        self.measures.append(Time(self.points(words[0]), words[1], words[2:-1], floor, target, self.line))

    def on_bugs(self, rest: str) -> None:
        points, *names = rest.split()
        if self.bugs or not names:
            raise self.error("expected once: bugs POINTS NAME...")
        self.bug_points, self.bugs = self.points(points), names

    def file(self, path: str) -> str:
        """A path of the tree that was not named before."""
        pure = PurePosixPath(path)
        if pure.is_absolute() or ".." in pure.parts or str(pure) != path:
            raise self.error(f"'{path}' is no plain path from the root of the tree")
        if not (self.directory.parent.parent / path).is_file():
            raise self.error(f"there is no file {path}")
        if path in self.give or path in [written.path for written in self.write]:
            raise self.error(f"{path} is named twice")
        return path

    def points(self, text: str) -> int:
        if not re.fullmatch(r"\d+", text) or not 1 <= int(text) <= 1000:
            raise self.error(f"'{text}' is no number of points, from 1 to 1000")
        return int(text)

    def number_of(self, text: str) -> float:
        if not re.fullmatch(r"\d+(\.\d+)?", text) or float(text) == 0:
            raise self.error(f"'{text}' is no positive number")
        return float(text)

    def ranks(self, text: str) -> list[int]:
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", text)
        first = int(match.group(1)) if match else 0
        last = int(match.group(2) or first) if match else 0
        if not 1 <= first <= last <= 64:
            raise self.error(f"'{text}' is no number of ranks, nor a range such as 1-4")
        return list(range(first, last + 1))
