"""The archive for Gradescope: its scripts, run on a small tree in place of /autograder."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT / "labs"), str(Path(__file__).resolve().parent)]

import fake_tree  # noqa: E402
from kit import gradescope  # noqa: E402


class GradescopeTest(unittest.TestCase):
    def setUp(self) -> None:
        self.top = Path(tempfile.mkdtemp(prefix="gradescope-test-"))
        self.top.chmod(0o755)
        self.addCleanup(shutil.rmtree, self.top)
        root = self.top / "root"
        fake_tree.make(root)
        shutil.copytree(ROOT / "labs/kit", root / "labs/kit", dirs_exist_ok=True,
                        ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "labs/lab", root / "labs/lab")
        gradescope.write(root, 4, self.top / "autograder.zip", "x86-64", "a secret")
        self.autograder = self.top / "autograder"
        with zipfile.ZipFile(self.top / "autograder.zip") as archive:
            archive.extractall(self.autograder / "source")
            self.modes = {info.filename: info.external_attr >> 16 & 0o777 for info in archive.infolist()}

    def run_autograder(self, source: str) -> dict:
        submitted = self.autograder / "submission/stage1/ring.cpp"
        submitted.parent.mkdir(parents=True, exist_ok=True)
        submitted.write_text(source)
        submitted.with_name("empty.cpp").write_text(fake_tree.EMPTY)
        subprocess.run(["bash", str(self.autograder / "source/run_autograder")], check=True, stdout=subprocess.DEVNULL,
                       env={**os.environ, "AUTOGRADER": str(self.autograder)})
        return json.loads((self.autograder / "results/results.json").read_text())

    def test_results_of_a_submission(self) -> None:
        self.assertEqual([self.modes[name] for name in ("setup.sh", "run_autograder", "secret")], [0o755, 0o755, 0o600])
        self.assertEqual(self.run_autograder(fake_tree.SOLUTION)["score"], 20)
        self.assertEqual(self.run_autograder(fake_tree.with_body("return 5;"))["score"], 6)
        self.assertEqual((self.autograder / "graded/secret").read_text(), "a secret")

    def test_a_grader_that_fails(self) -> None:
        (self.autograder / "source/tree/labs/4_ring/lab").write_text("title  A ring\nfoo\n")
        results = self.run_autograder(fake_tree.SOLUTION)
        self.assertEqual(results["score"], 0)
        self.assertRegex(results["output"], "^The grader failed: lab: .*")


if __name__ == "__main__":
    unittest.main()
