"""The files of a source tree, and a name for their state."""

import hashlib
import os
import subprocess
from pathlib import Path

from kit.lab_file import LabError

_LEFT_OUT = {".git", "build", "runs", "__pycache__", "gpu_bundle", "gpu_check"}
_NOT_IN_PROGRAMS = ("labs/", "docs/", "tests/", ".")  # no program depends on these


def files(root: Path) -> list[str]:
    """Paths of all source files, from the root: what git tracks or would track; without git, all but build output."""
    try:
        ended = subprocess.run(["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                               capture_output=True, check=False)
        listed = ended.stdout.decode(errors="surrogateescape").split("\0") if ended.returncode == 0 else []
        paths = [path for path in listed if path and os.path.lexists(root / path)]
    except FileNotFoundError:
        paths = []
    if not paths:
        paths = walk(root)
    if "CMakeLists.txt" not in paths:
        raise LabError(f"{root} is no source tree of StageGPT: it has no CMakeLists.txt")
    return sorted(set(paths))


def walk(root: Path) -> list[str]:
    """Paths of all files below a directory, from there, without build output."""
    paths = []
    for directory, names, found in os.walk(root):
        names[:] = [name for name in names if name not in _LEFT_OUT]
        paths += [str((Path(directory) / name).relative_to(root)) for name in found if not name.endswith(".pyc")]
    return paths


def state(root: Path) -> str:
    """A hash of all files that programs are built from."""
    digest = hashlib.sha256()
    for path in files(root):
        if path.startswith(_NOT_IN_PROGRAMS) or path.endswith(".md"):
            continue
        digest.update(path.encode(errors="surrogateescape") + b"\0")
        file = root / path
        digest.update(hashlib.sha256(os.readlink(file).encode() if file.is_symlink() else file.read_bytes()).digest())
    return digest.hexdigest()[:16]
