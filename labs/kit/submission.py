"""`lab submit`: packs a student's work."""

import gzip
import hashlib
import io
import json
import re
import tarfile
from dataclasses import dataclass
from pathlib import Path

from kit import cutter
from kit.lab_file import Lab, LabError

MANIFEST = "submission.json"
_FILE_LIMIT = 1 << 20  # bytes of a file: the grader reads no longer ones


@dataclass(frozen=True)
class Submission:
    lab: int
    student: str
    state: str               # of the tree that the starter was made from
    files: dict[str, bytes]  # the written files and answers.md
    unchanged: list[str]     # labels of functions that still call lab::todo()


def is_student_id(text: object) -> bool:
    """Whether it can stand in a table of points: an id of the university, a login or an address, without white space; of a
    pair, both, with a comma between."""
    return isinstance(text, str) and re.fullmatch(r"\w[\w.@+-]{0,63}(,\w[\w.@+-]{0,63})?", text) is not None


def student_id(text: str) -> str:
    if not is_student_id(text):
        raise LabError(f"--student: '{text}' is no id: a letter or digit, then at most 63 letters, digits and . _ @ + - "
                       "(of a pair: ID,ID)")
    return text


def names(lab: Lab) -> list[str]:
    """What a submission may hold."""
    return [*(written.path for written in lab.write), "answers.md"]


def collect(directory: Path, lab: Lab, student: str, state: str) -> Submission:
    """Reads a student's work from a starter. A link out of the folder is refused."""
    files, unchanged = {}, []
    for name in names(lab):
        file = directory / name
        if name == "answers.md" and not file.exists():
            continue
        if not file.is_file() or not file.resolve().is_relative_to(directory.resolve()):
            raise LabError(f"{name} is no file of this folder")
        if file.stat().st_size > _FILE_LIMIT:
            raise LabError(f"{name} has {file.stat().st_size} bytes; a submission's files have at most {_FILE_LIMIT}")
        files[name] = file.read_bytes()
    for written in lab.write:
        text = files[written.path].decode(errors="replace")
        unchanged += [cut.label for cut in written.cuts if _is_cut(text, cut, written.path)]
    return Submission(lab.number, student, state, files, unchanged)


def _is_cut(text: str, cut, file: str) -> bool:
    """A function that the student has renamed or changed in its signature is none that is still cut."""
    try:
        return cutter.is_cut(text, cut, file)
    except LabError:
        return f'lab::todo("{cut.label}")' in text


def write(submission: Submission, target: Path) -> None:
    """Writes a .tar.gz. The same work gives the same bytes."""
    manifest = {"lab": submission.lab, "student": submission.student, "state": submission.state,
                "unchanged": submission.unchanged,
                "sha256": {name: hashlib.sha256(content).hexdigest() for name, content in submission.files.items()}}
    text = io.BytesIO()
    with tarfile.open(fileobj=text, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        content = {MANIFEST: (json.dumps(manifest, indent=2, sort_keys=True) + "\n").encode(), **submission.files}
        for name in sorted(content):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content[name]), 0o644
            archive.addfile(entry, io.BytesIO(content[name]))
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", fileobj=packed, mode="wb", mtime=0) as out:
        out.write(text.getvalue())
    unfinished = target.with_name(target.name + ".part")
    try:
        unfinished.write_bytes(packed.getvalue())
        unfinished.replace(target)
    except OSError as error:
        raise LabError(f"{error.filename}: {error.strerror}") from error
