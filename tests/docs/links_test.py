"""Checks that relative links of the Markdown files lead to files, anchors to headings, and that paths in code exist."""

import re
import sys
from pathlib import Path

import markdown

PATH = re.compile(r"(common|stage[0-3]_\w+|tools|tests|scripts|docs|bench|cmake)/[\w./-]+\.(h|cpp|cu|cuh|py|sh|md|cmake|json|txt|sbatch)")


def broken_links(page: Path, text: str) -> list[str]:
    broken = []
    for line, target in markdown.links(text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path) if path else page
        if not file.exists():
            broken.append(f"line {line}: {target}: there is no {path}")
        elif anchor and anchor not in markdown.anchors(file.read_text(encoding="utf-8")):
            broken.append(f"line {line}: {target}: no heading has the anchor #{anchor}")
    return broken


def missing_files(text: str) -> list[str]:
    paths = [(line, code.split(" ")[0].removeprefix("./")) for line, code in markdown.code_spans(text)]
    return [f"line {line}: there is no {path}" for line, path in paths
            if PATH.fullmatch(path) and not (markdown.ROOT / path).exists()]


def main() -> int:
    problems, links = [], 0
    for page in markdown.pages():
        text = markdown.read(page)
        links += len(markdown.links(text))
        problems += [(page, problem) for problem in broken_links(page, text) + missing_files(text)]
    return markdown.report(problems, links, "links")


if __name__ == "__main__":
    sys.exit(main())
