"""Parses the project's Markdown files and notebooks: headings, links, blocks of commands, and inline code."""

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# The places of the project's pages. Other folders contain builds, runs and downloads, which may have pages of
# other projects.
PATTERNS = ["*.md", "bench/**/*.md", "common/**/*.md", "data/README.md", "docs/**/*.md", "docs/*.ipynb", "labs/**/*.md", "scripts/**/*.md", "stage*/**/*.md",
            "tests/**/*.md"]


def pages(root: Path = ROOT) -> list[Path]:
    """All Markdown files and notebooks of the repository."""
    return sorted(page for pattern in PATTERNS for page in root.glob(pattern))


def guides(root: Path = ROOT) -> list[Path]:
    """The pages whose commands a user copies: README files and docs/."""
    return [page for page in pages(root) if "tests" not in page.relative_to(root).parts]


def read(page: Path) -> str:
    """A page's text. That of a notebook is its text, and its shell commands as blocks of code."""
    text = page.read_text(encoding="utf-8")
    if page.suffix != ".ipynb":
        return text
    parts = []
    for cell in json.loads(text)["cells"]:
        lines = "".join(cell["source"]).splitlines()
        commands = [line.strip()[1:] for line in lines if line.strip().startswith("!")]
        parts += lines if cell["cell_type"] == "markdown" else ["```", *commands, "```"] if commands else []
    return "\n".join(parts)


def split(text: str) -> tuple[str, list[tuple[int, str, str]]]:
    """The text with its code blocks blanked, and the blocks: number of the first line, language, content."""
    outside, blocks, block = [], [], None
    for number, line in enumerate(text.splitlines(), 1):
        fence = line.strip().startswith("```")
        if fence and block is None:
            block = (number + 1, line.strip()[3:], [])
        elif fence:
            blocks.append((block[0], block[1], "\n".join(block[2])))
            block = None
        elif block is not None:
            block[2].append(line)
        outside.append("" if fence or block is not None else line)
    if block is not None:
        raise ValueError(f"the block of code that begins at line {block[0] - 1} does not end")
    return "\n".join(outside), blocks


def anchors(text: str) -> set[str]:
    """The anchors that GitHub gives to the headings."""
    found: set[str] = set()
    for heading in re.findall(r"^#{1,6} +(.*?)\s*$", split(text)[0], re.MULTILINE):
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        numbered = slug
        count = 0
        while numbered in found:
            count += 1
            numbered = f"{slug}-{count}"
        found.add(numbered)
    return found


def links(text: str) -> list[tuple[int, str]]:
    """The line and target of each link and image outside code."""
    outside = re.sub(r"`[^`]*`", lambda code: re.sub(r"[^\n]", "x", code.group()), split(text)[0])
    return [
        (outside.count("\n", 0, match.start()) + 1, match.group(1))
        for match in re.finditer(r"\]\(([^)\s]+)\)", outside)
    ]


def code_spans(text: str) -> list[tuple[int, str]]:
    """The line and content of each piece of inline code."""
    outside = split(text)[0]
    return [
        (outside.count("\n", 0, match.start()) + 1, match.group(1).replace("\n", " "))
        for match in re.finditer(r"`([^`]+)`", outside)
    ]


def report(problems: list[tuple[Path, str]], checked: int, what: str) -> int:
    """Prints the problems of each page and the number of checks. Returns the exit code of the test."""
    for page, problem in problems:
        print(f"{page.relative_to(ROOT)}, {problem}")
    print(f"{checked} {what}, {len(problems)} problems")
    return 1 if problems or not checked else 0
