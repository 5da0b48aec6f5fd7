"""Submissions that are broken or hostile: each is refused with one line, or read whatever surrounds it."""

import gzip
import hashlib
import io
import json
import os
import shutil
import sys
import tarfile
import tempfile
import tracemalloc
import unittest
import zipfile
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "labs"))

from kit import intake  # noqa: E402
from kit.intake import Refused  # noqa: E402
from kit.lab_file import Lab, WrittenFile  # noqa: E402

RING, SYNC, OTHER = "stage1/ring.cpp", "stage1/sync.h", "common/tape.cpp"
RING_LAB = Lab(4, "4_ranks", Path("labs/4_ranks"), "Ranks", write=[WrittenFile(RING, [], 1), WrittenFile(SYNC, [], 2)])
TAPE_LAB = Lab(2, "2_tape", Path("labs/2_tape"), "Tape", write=[WrittenFile(OTHER, [], 1)])
GOOD = {RING: b"int ring;\n", SYNC: b"int sync;\n"}


class IntakeTest(unittest.TestCase):
    def setUp(self) -> None:
        self.top = Path(tempfile.mkdtemp(prefix="intake-test-"))
        self.addCleanup(shutil.rmtree, self.top)

    def read(self, path: Path) -> intake.Submission:
        return intake.read(path, RING_LAB, [TAPE_LAB, RING_LAB])

    def folder(self, files: dict[str, bytes], name: str = "alice") -> Path:
        for path, content in files.items():
            file = self.top / name / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        return self.top / name

    def tar(self, files: dict[str, bytes], change: Callable[[tarfile.TarFile], None] = lambda archive: None) -> Path:
        path = self.top / "alice.tar.gz"
        with tarfile.open(path, "w:gz") as archive:
            change(archive)
            for name, content in files.items():
                add(archive, name, content)
        return path

    def zip(self, files: dict[str, bytes]) -> Path:
        path = self.top / "alice.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in files.items():
                archive.writestr(name, content)
        return path

    def expect_refused(self, path: Path, message: str) -> None:
        with self.assertRaises(Refused) as refused:
            self.read(path)
        self.assertEqual(str(refused.exception), message)

    # What is read.

    def test_folders_and_archives(self) -> None:
        below = {f"my lab 4/{name}": content for name, content in GOOD.items()}
        for path in (self.folder(GOOD), self.tar(GOOD), self.zip(GOOD), self.folder(below, "bob"), self.tar(below),
                     self.zip(below), self.zip({name.replace("/", "\\"): content for name, content in GOOD.items()})):
            self.assertEqual(self.read(path).files, GOOD, path)

    def test_an_archive_in_a_folder(self) -> None:
        """As Gradescope hands over what a student has uploaded."""
        packed = self.tar(GOOD).read_bytes()
        self.assertEqual(self.read(self.folder({"submission.tar.gz": packed})).files, GOOD)

    def test_other_files_are_left_out(self) -> None:
        work = {**GOOD, "tests/ring_test.cpp": b"int main() {}", "CMakeLists.txt": b"evil()", "a b\n.txt": b"x"}
        for path in (self.folder(work), self.tar(work), self.zip(work)):
            self.assertEqual(self.read(path).files, GOOD)

    def test_ends_of_lines_and_answers(self) -> None:
        work = self.read(self.folder({**GOOD, RING: b"\xef\xbb\xbfint a;\r\nint b;\r\n", "answers.md": b"because"}))
        self.assertEqual(work.files[RING], b"int a;\nint b;\n")
        self.assertEqual(work.answers, "because")

    def test_a_manifest(self) -> None:
        hashes = {name: hashlib.sha256(content).hexdigest() for name, content in GOOD.items()}
        manifest = {"lab": 4, "student": "ada", "sha256": hashes}
        packed = {**GOOD, "submission.json": json.dumps(manifest).encode()}
        work = self.read(self.tar(packed))
        self.assertEqual((work.flags, work.student), ([], "ada"))
        for student in (None, "", '=cmd|"x"', ["ada"]):
            work = self.read(self.tar({**GOOD, "submission.json": json.dumps({**manifest, "student": student}).encode()}))
            self.assertEqual((work.flags, work.student), (["submission.json has no student's id"], ""))
        self.assertEqual(self.read(self.tar({**packed, RING: b"int later;\n"})).flags,
                         [f"{RING} was changed after it was packed"])
        self.assertEqual(self.read(self.tar({**packed, "submission.json": b"[" * 100_000})).flags,
                         ["submission.json is not readable"])

    # What is refused.

    def test_links_out_of_the_folder(self) -> None:
        path = self.folder({SYNC: b""})
        (path / RING).symlink_to("/etc/passwd")
        self.expect_refused(path, f"{RING} is a symbolic link")
        shutil.rmtree(path / "stage1")
        (path / "stage1").symlink_to("/etc")
        self.expect_refused(path, "stage1 is a symbolic link")
        (self.top / "link").symlink_to(path)
        self.expect_refused(self.top / "link", "is a symbolic link")

    def test_links_in_archives(self) -> None:
        def link(kind: bytes) -> Callable[[tarfile.TarFile], None]:
            def add_link(archive: tarfile.TarFile) -> None:
                entry = tarfile.TarInfo("stage1")
                entry.type, entry.linkname = kind, "/etc"
                archive.addfile(entry)
            return add_link

        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
            self.expect_refused(self.tar(GOOD, link(kind)), "'stage1' is a link")
        info = zipfile.ZipInfo("stage1")
        info.external_attr = 0o120777 << 16
        path = self.zip(GOOD)
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr(info, "/etc")
        self.expect_refused(path, "'stage1' is a link")

    def test_paths_out_of_the_archive(self) -> None:
        for name in ("../../etc/cron.d/evil", "/etc/passwd", "a/../../evil"):
            for make in (self.tar, self.zip):
                self.expect_refused(make({**GOOD, name: b"x"}), f"'{name}' is a path out of the submission")

    def test_devices(self) -> None:
        def device(archive: tarfile.TarFile) -> None:
            entry = tarfile.TarInfo("stage1/ring.cpp")
            entry.type, entry.devmajor, entry.devminor = tarfile.CHRTYPE, 1, 5
            archive.addfile(entry)

        self.expect_refused(self.tar({SYNC: b""}, device), "'stage1/ring.cpp' is not a regular file")
        path = self.folder({SYNC: b""})
        os.mkfifo(path / RING)
        self.expect_refused(path, f"{RING} is not a regular file")

    def test_archives_that_unpack_without_end(self) -> None:
        """The reader's memory stays small."""
        bomb = self.top / "bomb.tar.gz"
        with gzip.open(bomb, "wb", compresslevel=1) as file:
            entry = tarfile.TarInfo("zeros")
            entry.size = 1 << 40
            file.write(entry.tobuf())
            for _ in range(140):
                file.write(bytes(1 << 20))
        packed = self.zip({f"zeros{i}": bytes(33 << 20) for i in range(4)})
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        self.expect_refused(bomb, "unpacks to more than 128 MiB")
        self.expect_refused(packed, "unpacks to more than 128 MiB")
        self.assertLess(tracemalloc.get_traced_memory()[1], 16 << 20)

    def test_a_size_that_is_announced_only(self) -> None:
        """Skipping a terabyte that is not there would take hours."""
        path = self.top / "short.tar"
        entry = tarfile.TarInfo("zeros")
        entry.size = 1 << 40
        path.write_bytes(entry.tobuf() + bytes(1024))
        self.expect_refused(path, "unpacks to more than 128 MiB")

    def test_archives_of_many_files(self) -> None:
        self.expect_refused(self.tar({f"file{i}": b"" for i in range(5001)}), "has more than 5000 files")

    def test_large_files(self) -> None:
        large = {**GOOD, RING: b" " * (1 << 20) + b" "}
        for path in (self.folder(large), self.tar(large), self.zip(large)):
            self.expect_refused(path, f"{RING} has more than 1 MiB")
        path = self.top / "large.zip"
        with open(path, "wb") as file:
            file.truncate(33 << 20)
        self.expect_refused(path, "has more than 32 MiB")

    def test_text_that_is_none(self) -> None:
        self.expect_refused(self.folder({**GOOD, RING: b"int a;\nint b\xff;\n"}), f"{RING}:2: byte 0xff is not UTF-8")
        self.expect_refused(self.folder({**GOOD, RING: b"int a;\0"}), f"{RING} is not a text: it holds a zero byte")

    def test_missing_files(self) -> None:
        for path in (self.folder({RING: b"", "readme": b""}), self.tar({RING: b""})):
            self.expect_refused(path, f"lacks {SYNC}, which lab 4 asks for")
        (self.top / "empty").mkdir()
        self.expect_refused(self.top / "empty", f"lacks {RING}, {SYNC}, which lab 4 asks for")

    def test_another_lab(self) -> None:
        self.expect_refused(self.tar({OTHER: b""}), "holds the files of lab 2, not of lab 4")
        packed = {**GOOD, "submission.json": b'{"lab": 2, "sha256": {}}'}
        self.expect_refused(self.tar(packed), "is a submission of lab 2, not of lab 4")

    def test_files_that_are_no_archives(self) -> None:
        path = self.top / "essay.pdf"
        for content in (b"", b"%PDF-1.4 hello", os.urandom(5000), b"\x1f\x8b" + bytes(600), self.tar(GOOD).read_bytes()[:60],
                        self.zip(GOOD).read_bytes()[:-30]):
            path.write_bytes(content)
            with self.assertRaises(Refused) as refused:
                self.read(path)
            self.assertRegex(str(refused.exception), "^(is not a readable tar or zip archive: |lacks ).+$")
            self.assertNotIn("\n", str(refused.exception))

    def test_a_file_that_is_there_twice(self) -> None:
        self.expect_refused(self.tar(GOOD, lambda archive: add(archive, RING, b"other")), f"holds {RING} twice")

    def test_names_of_results(self) -> None:
        self.assertEqual(intake.submission_name(Path("/x/alice smith.tar.gz")), "alice smith")
        self.assertEqual(intake.submission_name(Path(os.fsdecode(b"/x/a\xff\nb.zip"))), "a__b")


def add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(content)
    archive.addfile(entry, io.BytesIO(content))


if __name__ == "__main__":
    unittest.main()
