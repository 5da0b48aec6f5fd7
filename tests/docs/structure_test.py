#!/usr/bin/env python3
"""What the structure of the project promises: folders that form layers, files that stay short, and documentation that stays short."""
import pathlib
import re
import runpy
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# The most lines of files that everybody reads, header and source together.
MOST_LINES = {
    "common/model/gpt2_config": 120,
    "common/model/gpt2": 230,
    "common/train/trainer": 200,
    "common/train/training_run": 350,
    "common/app/train_main": 160,
    "stage0_serial/stage": 50,
}

MOST_WORDS = 36_000
GUIDES = ("README.md", "CONTRIBUTING.md", "docs/*.md", "stage*/README.md", "labs/README.md")
REFERENCES = ("docs/command_line.md", "docs/file_formats.md")  # not counted


def included_folders():
    """For each folder of common/, the others from which its files include something."""
    folders = {}
    for path in sorted((ROOT / "common").rglob("*")):
        if path.suffix not in (".h", ".cpp"):
            continue
        own = path.relative_to(ROOT / "common").parts[0]
        included = re.findall(r'#include "common/([a-z_]+)/', path.read_text(encoding="utf-8"))
        folders.setdefault(own, set()).update(set(included) - {own})
    return folders


class Structure(unittest.TestCase):
    def test_folders_of_common_form_layers(self):
        left = included_folders()
        self.assertGreater(len(left), 10)
        while left:
            lowest = [folder for folder, included in left.items() if not included & left.keys()]
            self.assertTrue(lowest, f"these folders include each other in circles: {left}")
            for folder in lowest:
                del left[folder]

    def test_files_that_everybody_reads_stay_short(self):
        for name, most in MOST_LINES.items():
            with self.subTest(name):
                files = [path for end in ("h", "cpp") if (path := ROOT / f"{name}.{end}").exists()]
                self.assertTrue(files)
                self.assertLessEqual(sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files), most)

    def test_the_guides_stay_short(self):
        pages = {page for pattern in GUIDES for page in ROOT.glob(pattern)} - {ROOT / page for page in REFERENCES}
        self.assertGreater(len(pages), 30)
        words = {page.relative_to(ROOT): len(page.read_text(encoding="utf-8").split()) for page in pages}
        self.assertLessEqual(sum(words.values()), MOST_WORDS, sorted(words.items(), key=lambda item: -item[1])[:8])

    def test_the_site_has_every_guide(self):
        runpy.run_path(str(ROOT / "scripts/site.py"))["menu"]()  # exits with the names of others


if __name__ == "__main__":
    unittest.main()
