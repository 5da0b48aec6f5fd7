"""The first checks of labs 2, 4 and 5: the commands of their hand-outs, on the tree and on a starter. Each compiles one file."""

import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "labs"))

from kit import lab_file, starter  # noqa: E402

# The exercise of lab 5, solved.
LAUNCH = """  copy_to_device(device_in, in, bytes, nullptr);
  launch<sums_of_warps>(blocks(n, 64), 64, 0, nullptr, device_out, static_cast<const float*>(device_in), n);
  copy_to_host(out, device_out, bytes, nullptr);
"""


class FirstChecks(unittest.TestCase):
    def run_first(self, number, exercise="", cut=False):
        """What the check of a lab says."""
        lab = lab_file.numbered(ROOT, number)
        command = re.search(r"^(g\+\+ .* labs/\S+/first.cpp.*) -o first && ./first$", (lab.directory / "HANDOUT.md").read_text(),
                            re.MULTILINE).group(1)
        with tempfile.TemporaryDirectory() as folder:
            for path, text in (starter.students_files(lab) if cut else {}).items():
                Path(folder, path).parent.mkdir(parents=True, exist_ok=True)
                Path(folder, path).write_text(text)
            source, program = Path(folder, "first.cpp"), Path(folder, "first")
            text = (lab.directory / "first.cpp").read_text()
            source.write_text(text.replace("  deallocate(device_in);", exercise + "  deallocate(device_in);"))
            words = command.replace("-I.", f"-I{folder} -I.").split()
            words = [str(source) if word.endswith("/first.cpp") else word for word in words]
            subprocess.run([*words, "-o", program], cwd=ROOT, check=True)
            ended = subprocess.run([program], capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False)
            return ended.returncode, ended.stdout.strip()

    def test_pass_on_the_tree_only(self):
        for number, right, label in [(2, "right: adamw_elements", "2.6 adamw_elements"), (4, "right: divisible_ranges", "4.10 divisible_ranges"),
                                     (5, "right: the launch, both copies, and warp_sum", "5.1 warp_sum")]:
            with self.subTest(lab=number):
                self.assertEqual(self.run_first(number, LAUNCH), (0, right))
                code, said = self.run_first(number, LAUNCH, cut=True)
                self.assertEqual(code, 1)
                self.assertIn(f"{label} is yours to write", said)

    def test_the_exercise_of_lab_5_is_open(self):
        """And says what is missing."""
        for exercise, said in [("", "element 0 is -1, not 32: the host's memory was not written"),
                               (LAUNCH.replace("blocks(n, 64)", "n / 64"), "element 64 is nan, not 32: no thread has written it")]:
            with self.subTest(said=said):
                code, found = self.run_first(5, exercise)
                self.assertEqual(code, 1)
                self.assertIn(said, found.replace("-nan", "nan"))


if __name__ == "__main__":
    unittest.main()
