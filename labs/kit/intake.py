"""Reads a submission that may be broken or hostile: a directory, or a tar or zip archive.

Nothing is unpacked. Only the files that the lab names are read, into memory and up to a limit; an archive with a link, a
device or a path out of its folder is refused. Every refusal is one line.
"""

import gzip
import hashlib
import io
import json
import lzma
import math
import os
import re
import stat
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from kit import submission
from kit.lab_file import Lab, LabError

MIB = 1 << 20
FILE_BYTES = 1 * MIB        # of one file: the longest source file of the tree has less than a tenth of it
ARCHIVE_BYTES = 32 * MIB    # of an archive
UNPACKED_BYTES = 128 * MIB  # of all that an archive holds
ENTRIES = 5000
ANSWERS, MANIFEST = "answers.md", "submission.json"


class Refused(LabError):
    """A submission that cannot be graded: one line."""


@dataclass(frozen=True)
class Submission:
    name: str
    files: dict[str, bytes]  # the lab's `write` files, by path from the root of the tree
    answers: str | None      # answers.md
    flags: list[str]         # what an instructor should look at
    student: str = ""        # as `lab submit` was told; empty if it was packed in another way

    @property
    def digest(self) -> str:
        """What was handed in, as a hash."""
        hashed = hashlib.sha256()
        for path, content in sorted(self.files.items()):
            hashed.update(f"{len(path)} {path} {len(content)} ".encode() + content)
        return hashed.hexdigest()

    def nameless_answers(self) -> str:
        """The answers without the line for the name, and without the ids."""
        # A short number is no id that a reader would know, and may be a measurement.
        ids = "|".join(re.escape(one) for one in self.student.split(",") if one and not (one.isdigit() and len(one) < 5))
        text = re.sub(r"^(Name and student id:).*", r"\1", self.answers, flags=re.MULTILINE)
        return re.sub(rf"(?<!\w)(?:{ids})(?!\w)", "…", text, flags=re.IGNORECASE) if ids else text

    @property
    def fingerprints(self) -> dict[str, str]:
        return {name: fingerprint(content.decode()) for name, content in self.files.items()}


def fingerprint(text: str) -> str:
    """The same for texts that differ in comments and white space only."""
    return hashlib.sha256(re.sub(r"//[^\n]*|/\*.*?(?:\*/|\Z)|\s+", "", text, flags=re.DOTALL).encode()).hexdigest()


def read(path: Path, lab: Lab, labs: list[Lab]) -> Submission:
    """Reads what was submitted for a lab. `labs` are all labs, to recognise a submission for another one."""
    wanted = paths(lab)
    known = dict.fromkeys(name for one in [lab, *labs] for name in paths(one))
    found = _find(_entries(path, [*known, ANSWERS, MANIFEST]), labs, lab)
    files = {name: _text(name, found[name]) for name in wanted}
    answers = _text(ANSWERS, found[ANSWERS]).decode() if ANSWERS in found else None
    flags, student = _check_manifest(found, lab) if MANIFEST in found else ([], "")
    return Submission(path.name, files, answers, flags, student)


def _check_manifest(found: dict[str, bytes], lab: Lab) -> tuple[list[str], str]:
    """What to look at in what `lab submit` has written about the files, and the student's id."""
    try:
        manifest = json.loads(found[MANIFEST])
        hashes = dict(manifest["sha256"])
        number, student = manifest["lab"], manifest.get("student")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return [f"{MANIFEST} is not readable"], ""
    if number != lab.number:
        raise Refused(f"is a submission of lab {number!s:.20}, not of lab {lab.number}")
    flags = [f"{name} was changed after it was packed" for name, content in found.items()
             if name != MANIFEST and hashes.get(name) != hashlib.sha256(content).hexdigest()]
    if not submission.is_student_id(student):
        return [*flags, f"{MANIFEST} has no student's id"], ""
    return flags, student


def late_days(path: Path, deadline: float | None) -> int:
    """Days begun after the deadline, by the time of the newest file that was handed in."""
    newest = max((os.lstat(file).st_mtime for file in [path, *path.rglob("*")] if not file.is_dir()), default=0)
    return 0 if deadline is None else max(0, math.ceil((newest - deadline) / 86400))


def paths(lab: Lab) -> list[str]:
    return [written.path for written in lab.write]


def submission_name(path: Path) -> str:
    """A name for a directory of results: without the ending of an archive, and without bytes that are no text."""
    name = os.fsencode(path.name).decode(errors="replace")
    for ending in (".tar.gz", ".tgz", ".tar.xz", ".tar", ".zip"):
        name = name.removesuffix(ending)
    return "".join("_" if unicodedata.category(c).startswith("C") or c == "\N{REPLACEMENT CHARACTER}" else c
                   for c in name)[:100] or "_"


def _entries(path: Path, wanted: list[str]) -> dict[str, bytes]:
    """The files of a submission that may be wanted, by their full path in it."""
    mode = os.lstat(path).st_mode
    if stat.S_ISLNK(mode):
        raise Refused("is a symbolic link")
    if stat.S_ISDIR(mode):
        inside = [entry for entry in os.scandir(path) if not entry.name.startswith(".")]
        if len(inside) == 1 and inside[0].is_file(follow_symlinks=False) and "." in inside[0].name and \
                inside[0].name not in wanted:
            return _archive(Path(inside[0].path), wanted)
        return _directory(path, wanted)
    if not stat.S_ISREG(mode):
        raise Refused("is neither a directory nor a file")
    return _archive(path, wanted)


def _directory(top: Path, wanted: list[str]) -> dict[str, bytes]:
    """Looks only at the wanted paths, below the directory or below its only subdirectory."""
    tops = [top, *(Path(entry.path) for entry in os.scandir(top)
                   if entry.is_dir(follow_symlinks=False) and not entry.name.startswith("."))]
    found = {}
    for above in tops if len(tops) <= 20 else [top]:
        for name in wanted:
            content = _read_below(above, name)
            if content is not None:
                found[str(PurePosixPath(os.path.relpath(above, top)) / name)] = content
    return found


def _read_below(top: Path, name: str) -> bytes | None:
    """The content of top/name, where no component below `top` may be a link."""
    handle = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    parts = PurePosixPath(name).parts
    for i, part in enumerate(parts):
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | (os.O_DIRECTORY if i + 1 < len(parts) else 0)
        try:
            if stat.S_ISLNK(os.lstat(part, dir_fd=handle).st_mode):
                raise Refused(f"{'/'.join(parts[:i + 1])} is a symbolic link")
            below = os.open(part, flags, dir_fd=handle)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise Refused(f"{name}: {error.strerror}") from error
        finally:
            os.close(handle)
        handle = below
    with open(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise Refused(f"{name} is not a regular file")
        return file.read(FILE_BYTES + 1)


def _archive(path: Path, wanted: list[str]) -> dict[str, bytes]:
    if path.stat().st_size > ARCHIVE_BYTES:
        raise Refused(f"has more than {ARCHIVE_BYTES // MIB} MiB")
    names = {PurePosixPath(name).name for name in wanted}
    found: dict[str, bytes] = {}
    try:
        with open(path, "rb") as file:
            reader = _zip_entries if zipfile.is_zipfile(file) else _tar_entries
            file.seek(0)
            for count, (name, content) in enumerate(reader(file)):
                if count >= ENTRIES:
                    raise Refused(f"has more than {ENTRIES} files")
                pure = PurePosixPath(name)
                if pure.is_absolute() or ".." in pure.parts:
                    raise Refused(f"'{_shown(name)}' is a path out of the submission")
                if content is None or pure.name not in names:
                    continue
                if str(pure) in found:
                    raise Refused(f"holds {_shown(str(pure))} twice")
                found[str(pure)] = content()
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, NotImplementedError, ValueError,
            RuntimeError, OSError) as error:
        raise Refused(f"is not a readable tar or zip archive: {_shown(str(error))}") from error
    return found


class _Bounded(io.RawIOBase):
    """A stream of unpacked bytes that refuses to become too long."""

    def __init__(self, stream: io.BufferedIOBase):
        self.stream, self.total = stream, 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        data = self.stream.read(min(size, MIB) if size >= 0 else MIB)
        self.total += len(data)
        if self.total > UNPACKED_BYTES:
            raise Refused(f"unpacks to more than {UNPACKED_BYTES // MIB} MiB")
        return data


# A file of an archive: its name, and how its content is read, or None for a directory.
ArchiveEntry = tuple[str, Callable[[], bytes] | None]


def _tar_entries(file: io.BufferedIOBase) -> Iterator[ArchiveEntry]:
    magic = file.read(6)
    file.seek(0)
    if magic.startswith(b"\x1f\x8b"):
        file = gzip.GzipFile(fileobj=file)
    elif magic == b"\xfd7zXZ\0":
        file = lzma.LZMAFile(file)
    with tarfile.open(fileobj=_Bounded(file), mode="r|") as archive:
        for member in archive:
            if member.islnk() or member.issym():
                raise Refused(f"'{_shown(member.name)}' is a link")
            if not member.isdir() and (not member.isreg() or member.issparse()):
                raise Refused(f"'{_shown(member.name)}' is not a regular file")
            if member.size > UNPACKED_BYTES:
                raise Refused(f"unpacks to more than {UNPACKED_BYTES // MIB} MiB")
            yield member.name, None if member.isdir() else lambda: archive.extractfile(member).read(FILE_BYTES + 1)


def _zip_entries(file: io.BufferedIOBase) -> Iterator[ArchiveEntry]:
    total = 0
    with zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            name = info.filename.replace("\\", "/")
            kind = stat.S_IFMT(info.external_attr >> 16)
            if kind == stat.S_IFLNK:
                raise Refused(f"'{_shown(name)}' is a link")
            if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise Refused(f"'{_shown(name)}' is not a regular file")
            if info.flag_bits & 1:
                raise Refused(f"'{_shown(name)}' is encrypted")
            total += info.file_size
            if total > UNPACKED_BYTES:
                raise Refused(f"unpacks to more than {UNPACKED_BYTES // MIB} MiB")
            yield name, None if info.is_dir() else lambda: _read_member(archive, info)


def _read_member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    with archive.open(info) as member:
        return member.read(FILE_BYTES + 1)  # whatever size the archive announces


def _find(entries: dict[str, bytes], labs: list[Lab], lab: Lab) -> dict[str, bytes]:
    """The lab's files by their path in the tree: the folder above them may have any name."""
    found, missing = _below_one_folder(entries, paths(lab))
    if not missing:
        return found
    for other in labs:
        if other.number != lab.number and not _below_one_folder(entries, paths(other))[1]:
            raise Refused(f"holds the files of lab {other.number}, not of lab {lab.number}")
    raise Refused(f"lacks {', '.join(missing)}, which lab {lab.number} asks for")


def _below_one_folder(entries: dict[str, bytes], wanted: list[str]) -> tuple[dict[str, bytes], list[str]]:
    """The wanted files, answers.md and the manifest, and the names of the wanted ones that are missing."""
    tops = sorted({path[:-len(name)] for name in wanted for path in entries if ("/" + path).endswith("/" + name)},
                  key=lambda top: (sum(top + name not in entries for name in wanted), len(top)))
    top = tops[0] if tops else ""
    found = {name: entries[top + name] for name in [*wanted, ANSWERS, MANIFEST] if top + name in entries}
    return found, [name for name in wanted if name not in found]


def _text(name: str, content: bytes) -> bytes:
    """The content if it is text. Windows' ends of lines become those of the tree."""
    if len(content) > FILE_BYTES:
        raise Refused(f"{name} has more than {FILE_BYTES // MIB} MiB")
    if b"\0" in content:
        raise Refused(f"{name} is not a text: it holds a zero byte")
    try:
        content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise Refused(f"{name}:{line}: byte 0x{content[error.start]:02x} is not UTF-8") from error
    return content.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n")


def _shown(name: str) -> str:
    return name.encode(errors="replace").decode(errors="replace")[:200].replace("\n", " ")
