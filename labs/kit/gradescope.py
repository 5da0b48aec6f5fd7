"""`lab gradescope N`: an autograder for Gradescope, as a zip archive: the tree, a secret, setup.sh and run_autograder."""

import argparse
import secrets
import zipfile
from pathlib import Path

from kit import lab_file, tree
from kit.lab_file import LabError

# Gradescope unpacks the archive to /autograder/source and runs setup.sh once, with a network, when it makes the image;
# it runs run_autograder for each submission. AUTOGRADER is another place than /autograder, for tests.
SETUP = """#!/usr/bin/env bash
# Installs what the tree needs, and builds the reference of lab {number}. No submission needs the network afterwards.
set -euo pipefail
top=${{AUTOGRADER:-/autograder}}
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install --yes --no-install-recommends -qq python3 openssh-client binutils >/dev/null
"$top/source/tree/scripts/setup.sh"
python3 "$top/source/tree/labs/lab" grade --prepare --lab {number} {options}
"""

RUN = """#!/usr/bin/env bash
# Grades the submission, each attempt with the same hidden runs. If the grader itself fails, the students see that, and the reason.
top=${{AUTOGRADER:-/autograder}}
rm -rf "$top/graded"
mkdir -p "$top/results" "$top/graded"
cp -p "$top/source/secret" "$top/graded/secret"
if python3 "$top/source/tree/labs/lab" grade "$top/submission" --one --lab {number} --out "$top/graded" {options} 2>"$top/log"
then
  cat "$top/log"
  cp "$top"/graded/submission/results.json "$top/results/results.json"
else
  cat "$top/log"
  python3 -c 'import json, sys; print(json.dumps({{"score": 0, "output": "The grader failed: " + sys.stdin.read()[-2000:]}}))' \\
    <"$top/log" >"$top/results/results.json"
fi
"""

# Gradescope's machines differ, so programs are compiled for what all of them have.
OPTIONS = '--work "$top/work" --cmake=-DSTAGEGPT_NATIVE=OFF --cmake=-DSTAGEGPT_ARCH={architecture}'

LEFT_OUT = ("docs/images/", "bench/peers/")  # the build and the tests need none of it


def add_verbs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("lab", type=int, metavar="N", help="the lab")
    parser.add_argument("--output", type=Path, metavar="FILE", help="the archive (default: lab_N_autograder.zip)")
    parser.add_argument("--architecture", default="x86-64-v3", metavar="NAME",
                        help="the processor to compile for, as -march names it (default: x86-64-v3)")
    parser.add_argument("--secret", metavar="TEXT", default=secrets.token_hex(16),
                        help="the hidden runs of all attempts follow from it (default: random)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace, root: Path) -> int:
    lab = lab_file.numbered(root, arguments.lab)
    target = arguments.output or Path(f"lab_{lab.number}_autograder.zip")
    try:
        files = write(root, lab.number, target, arguments.architecture, arguments.secret)
    except OSError as error:
        raise LabError(f"{error.filename or target}: {error.strerror}") from error
    print(f"{target}: {files} files, {target.stat().st_size / 1e6:.1f} MB")
    return 0


def write(root: Path, number: int, target: Path, architecture: str, secret: str) -> int:
    """Writes the archive. Returns the number of its files."""
    options = OPTIONS.format(architecture=architecture)
    scripts = {"setup.sh": SETUP, "run_autograder": RUN}
    names = [name for name in tree.files(root) if not name.startswith(LEFT_OUT)]
    unfinished = target.with_name(target.name + ".part")
    with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in scripts.items():
            add(archive, name, text.format(number=number, options=options).encode(), 0o755)
        add(archive, "secret", secret.encode(), 0o600)
        for name in names:
            add(archive, f"tree/{name}", (root / name).read_bytes(), (root / name).stat().st_mode & 0o777)
    unfinished.replace(target)
    return len(scripts) + 1 + len(names)


def add(archive: zipfile.ZipFile, name: str, content: bytes, mode: int) -> None:
    entry = zipfile.ZipInfo(name)  # without a time: the same tree and secret give the same archive
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = (0o100000 | mode) << 16
    archive.writestr(entry, content)
