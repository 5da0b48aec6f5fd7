"""What pages of the course show: `labs/lab` and `labs/prove` know their commands, and no picture clips a text. Nothing is run."""

import contextlib
import io
import re
import runpy
import shlex
import sys
import unittest
import xml.etree.ElementTree as xml
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "labs"), str(ROOT / "tests/docs")]

import markdown  # noqa: E402

COMMAND = re.compile(r"(?:^|[\s;(])((?:\./)?labs/lab|\./lab|lab|(?:\./)?labs/prove)(?= [a-z0-9-]|$)([^;|&\n]*)")
STANDS_FOR = {"N": "4"}  # a number in the text


def commands(page: Path) -> list[tuple[int, list[str]]]:
    """The line and the words of each command, of blocks and of code in the text."""
    text = page.read_text(encoding="utf-8")
    pieces = [(first + i, line) for first, _, block in markdown.split(text)[1] for i, line in enumerate(block.splitlines())]
    found = []
    for line, code in pieces + markdown.code_spans(text):
        for match in COMMAND.finditer(re.sub(r"(^|\s)#.*", "", code)):
            words = shlex.split(match.group(2))
            if words and not re.search(r"[\[\]…]", match.group(2)):
                found.append((line, [match.group(1), *(STANDS_FOR.get(word, word) for word in words)]))
    return found


def complaint(words: list[str], lab: dict, prove: dict) -> str:
    """What the program says of the words of a command; empty if it understands them. A text may name a verb alone."""
    if not words[0].endswith("prove") and words[1] not in lab["VERBS"]:
        return "" if words[0] == "lab" else f"there is no verb {words[1]}"
    parser = prove["parser"]() if words[0].endswith("prove") else lab["parser_for"](words[1])
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        try:
            parser.parse_args(words[1:])
        except SystemExit as end:
            last = (said.getvalue().splitlines() or [""])[-1]
            return last if end.code and not (len(words) < 4 and "arguments are required" in last) else ""
    return ""


def width(text: xml.Element) -> float:
    """Of a text of a picture in DejaVu Sans, Debian's default font, to a few percent."""
    ems = sum(0.35 if letter in " .,:;'|!ijlrtf()[]I" else 0.9 if letter in "mwMW…→←" else 0.62 for letter in text.text)
    return ems * float(text.get("font-size")) * (1.12 if text.get("font-weight") == "bold" else 1)


class Docs(unittest.TestCase):
    maxDiff = None

    def test_commands_of_labs_are_understood(self):
        lab = runpy.run_path(str(ROOT / "labs/lab"), run_name="not_main")
        prove = runpy.run_path(str(ROOT / "labs/prove"), run_name="not_main")
        count, wrong = 0, []
        for page in markdown.guides():
            for line, words in commands(page):
                count += 1
                if why := complaint(words, lab, prove):
                    wrong.append(f"{page.relative_to(ROOT)}:{line}: {' '.join(words)}: {why}")
        self.assertEqual(wrong, [])
        self.assertGreater(count, 60)

    def test_texts_are_not_wider_than_their_pictures(self):
        for file in ROOT.glob("labs/*/pictures/*.svg"):
            picture = xml.parse(file).getroot()
            for text in picture.iter("{http://www.w3.org/2000/svg}text"):
                left = float(text.get("x")) - width(text) * {"start": 0, "middle": 0.5, "end": 1}[text.get("text-anchor")]
                with self.subTest(picture=file.name, text=text.text):
                    self.assertGreater(left, 0)
                    self.assertLess(left + width(text), float(picture.get("width")))


if __name__ == "__main__":
    unittest.main()
