#!/usr/bin/env python3
"""Builds the documentation as a static site that can be searched: every guide, the labs, and the sources that they link to.

    scripts/site.py                        # to build/site
    scripts/site.py --output DIR
    python3 -m http.server -d build/site   # and open http://localhost:8000

Needs Debian's packages mkdocs-material, for the pages, and libjs-katex, for the formulas. The site loads nothing from
elsewhere. Exit code 1 if a link or an anchor leads nowhere.
"""

import argparse
import html
import html.parser
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.parse
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KATEX = Path("/usr/share/javascript/katex")
# The menu. A page's title is its first heading.
SECTIONS = {
    "Start": ["README.md", "docs/install.md", "docs/doctor.md", "docs/troubleshooting.md", "CHANGELOG.md"],
    "Train": ["docs/training.md", "docs/python.md", "docs/data.md", "docs/finetuning.md", "docs/generation.md", "docs/evaluation.md",
              "docs/checkpoints.md", "docs/inspect.md", "docs/profiling.md"],
    "Processes and GPUs": ["docs/mpi.md", "docs/parallelism.md", "docs/cluster.md", "docs/gpu.md", "docs/hopper.md", "docs/emulator.md"],
    "Numbers": ["docs/performance.md", "docs/scaling.md", "docs/compare.md", "bench/notes/*.md"],
    "Code": ["docs/code.md", "stage*/README.md", "docs/derivations.md", "docs/testing.md", "tests/*/README.md", "CONTRIBUTING.md"],
    "Course": ["labs/README.md", "labs/*/HANDOUT.md", "labs/zoo/README.md", "labs/AGENTS.md", "docs/teaching.md", "docs/grading.md"],
    "Reference": ["docs/command_line.md", "docs/file_formats.md"],
}
CONFIGURATION = """
site_name: StageGPT
docs_dir: pages
site_dir: site
use_directory_urls: false
theme: {name: material, font: false, icon: {logo: material/stairs-up}, features: [navigation.top, toc.integrate], palette: [
  {scheme: default, primary: indigo, media: "(prefers-color-scheme: light)", toggle: {icon: material/weather-night, name: dark}},
  {scheme: slate, primary: indigo, media: "(prefers-color-scheme: dark)", toggle: {icon: material/weather-sunny, name: light}}]}
extra: {generator: false}
extra_css: [katex/katex.min.css]
extra_javascript: [katex/katex.min.js, katex/auto-render.js, katex/start.js]
plugins: [search]
markdown_extensions:
  - tables
  - attr_list
  - toc: {permalink: true, slugify: !!python/object/apply:pymdownx.slugs.slugify {kwds: {case: lower}}}
  - pymdownx.highlight: {use_pygments: true}
  - pymdownx.arithmatex: {generic: true}
  - pymdownx.superfences: {custom_fences: [{name: math, class: arithmatex, format: !!python/name:pymdownx.arithmatex.fence_generic_format }]}
"""
START_KATEX = 'document.addEventListener("DOMContentLoaded", () => renderMathInElement(document.body));\n'
BACKSLASH_BAR = r"\|"
# What is code, a formula or a link.
SPECIAL = re.compile(r"^(?P<indent> *)```.*?^(?P=indent)```|\$`(?P<formula>[^`]+)`\$|`(?P<span>[^`]+)`|\]\((?P<target>[^)\s]+)\)",
                     re.MULTILINE | re.DOTALL)


def menu() -> dict[str, list[str]]:
    """The sections with their pages. Each guide must be in one."""
    found = {title: [str(page.relative_to(ROOT)) for pattern in patterns for page in sorted(ROOT.glob(pattern))]
             for title, patterns in SECTIONS.items()}
    listed = {page for pages in found.values() for page in pages}
    missing = sorted({str(page.relative_to(ROOT)) for page in ROOT.glob("docs/*.md")} - listed)
    if missing:
        sys.exit(f"site.py: not in the menu: {', '.join(missing)}")
    return found


def converted(text: str, link) -> str:
    """The text with GitHub's $`formula`$ as Arithmatex has it, and with `link` applied to each link outside code."""
    def change(match: re.Match) -> str:
        if match["formula"]:
            return rf"\({match['formula']}\)"
        if match["span"] and BACKSLASH_BAR in match["span"]:  # in a table, where MkDocs would show the backslash
            return f"<code>{html.escape(match['span'].replace(BACKSLASH_BAR, '|')).replace('|', '&#124;')}</code>"
        return link(match) if match["target"] else match[0]

    return SPECIAL.sub(change, text)


class Pages:
    """The folder of the pages that MkDocs reads."""

    def __init__(self, folder: Path):
        self.folder = folder

    def add(self, name: str, listed: set[str]) -> None:
        """Adds a page, and the files that it links to."""
        def link(match: re.Match) -> str:
            path, hash_sign, anchor = match["target"].partition("#")
            if not path or re.match(r"[a-z]+:", path):
                return match[0]
            file = Path(os.path.normpath((ROOT / name).parent / path))
            if not file.is_relative_to(ROOT) or not file.exists():  # a broken link is named later
                return match[0]
            return f"]({path}{self.linked(file.relative_to(ROOT), listed)}{hash_sign}{anchor})"

        self.write(name, converted((ROOT / name).read_text(encoding="utf-8"), link))

    def linked(self, file: Path, listed: set[str]) -> str:
        """Copies the target of a link. Returns what the link needs at its end."""
        if str(file) in listed:
            return ""
        if (ROOT / file).is_dir():
            return self.code(file / "index", "\n".join(sorted(path.name for path in (ROOT / file).iterdir())), "/index.md")
        if file.suffix in {".svg", ".png"}:
            (self.folder / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / file, self.folder / file)
            return ""
        return self.code(file, (ROOT / file).read_text(encoding="utf-8"), ".md")

    def code(self, file: Path, text: str, ending: str) -> str:
        language = {".h": "cpp", ".cpp": "cpp", ".cu": "cuda", ".cuh": "cuda", ".py": "python", ".sh": "bash"}.get(file.suffix, "text")
        self.write(f"{file}.md", f"# {file}\n\n~~~~~~~~ {language}\n{text.rstrip()}\n~~~~~~~~\n")
        return ending

    def write(self, name: str, text: str) -> None:
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_text(text, encoding="utf-8")


class Targets(html.parser.HTMLParser):
    """The links and the anchors of a page of the site."""

    def __init__(self, page: Path):
        super().__init__()
        self.links: list[str] = []
        self.ids: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name == "id":
                self.ids.add(value)
            elif (name == "href" or name == "src") and value:
                self.links.append(value)


def broken(site: Path) -> list[str]:
    pages = {page.resolve(): Targets(page) for page in site.rglob("*.html") if page.name != "404.html"}
    found = []
    for page, targets in pages.items():
        for link in targets.links:
            url = urllib.parse.urlparse(link)
            if url.scheme or url.netloc or not link.strip("#"):
                continue
            file = (page.parent / urllib.parse.unquote(url.path)).resolve() if url.path else page
            if file.is_dir():
                file /= "index.html"
            anchor = urllib.parse.unquote(url.fragment)
            if not file.is_file() or (anchor and file in pages and anchor not in pages[file].ids):
                found.append(f"{page.relative_to(site.resolve())}: {link}")
    return found


def forget_sources(index: Path, listed: set[str]) -> None:
    """Leaves the pages of sources out of the search."""
    kept = {re.sub(r"(README)?\.md$", "", name) for name in listed}
    data = json.loads(index.read_text(encoding="utf-8"))
    data["docs"] = [entry for entry in data["docs"]
                    if re.sub(r"(index)?\.html(#.*)?$", "", entry["location"]) in kept]
    index.write_text(json.dumps(data), encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=ROOT / "build/site", help="folder of the site (default: build/site)")
    output = parser.parse_args().output
    if output.exists() and not (output / "search/search_index.json").exists():
        sys.exit(f"site.py: {output} exists, and is no site; name a new folder")
    if not shutil.which("mkdocs") or not KATEX.exists():
        sys.exit("site.py: MkDocs or KaTeX is missing; install Debian's packages mkdocs-material and libjs-katex")
    sections = menu()
    listed = {page for pages in sections.values() for page in pages}
    with tempfile.TemporaryDirectory() as scratch:
        pages = Pages(Path(scratch) / "pages")
        for page in sorted(listed):
            pages.add(page, listed)
        katex = pages.folder / "katex"
        shutil.copytree(KATEX / "fonts", katex / "fonts")
        for name in ("katex.min.css", "katex.min.js", "contrib/auto-render.js"):
            shutil.copy(KATEX / name, katex)
        (katex / "start.js").write_text(START_KATEX, encoding="utf-8")
        nav = [{title: names} for title, names in sections.items()]
        (Path(scratch) / "mkdocs.yml").write_text(CONFIGURATION + "nav: " + json.dumps(nav) + "\n", encoding="utf-8")
        if subprocess.run(["mkdocs", "build", "--quiet"], cwd=scratch, check=False).returncode:
            return 1
        site = Path(scratch) / "site"
        forget_sources(site / "search/search_index.json", listed)
        problems = broken(site)
        print("\n".join(problems), file=sys.stderr, end="\n" if problems else "")
        shutil.rmtree(output, ignore_errors=True)
        shutil.copytree(site, output)
    print(f"{len(listed)} pages in {output}, {len(problems)} broken links")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
