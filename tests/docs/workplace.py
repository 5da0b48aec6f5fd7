"""A directory in which the commands of the guides can run, with the texts, questions, runs and models that they use, all tiny."""

import gzip
import json
import shutil
from collections.abc import Callable
from pathlib import Path

TEXTS = ["my.txt", "a.txt", "b.txt", "plays/one.txt", "data/tinyshakespeare.txt"]
RUNS = ["runs/mine", "runs/fox", "runs/tuned"]  # copies of runs/nano
TINY = ["--n-layer", "1", "--n-head", "2", "--n-embd", "16", "--block-size", "256", "--max-new-tokens", "4"]
LETTERS = 20_000  # the length of each text, in characters of the corpus


def make(directory: Path, corpus: Path, run: Callable[[str, list[str], Path], object]) -> None:
    """Fills a directory. `run` is called with a program, its arguments and its working directory."""
    text = corpus.read_text(encoding="utf-8")[:LETTERS]
    for name in TEXTS:
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text(text, encoding="utf-8")
    question = {"context": text[:20], "endings": [text[20:30], text[40:50]], "label": 0}
    (directory / "questions.jsonl").write_text(json.dumps(question), encoding="utf-8")
    with gzip.open(directory / "pages_1.jsonl.gz", "wt", encoding="utf-8") as pages:
        pages.write(json.dumps({"text": text}) + "\n")
    run("stage0_train", ["--data", "my.txt", "--steps", "4", "--stop-after", "2", "--eval-every", "1", "--run-dir", "runs/nano", *TINY], directory)
    for name in RUNS:
        shutil.copytree(directory / "runs/nano", directory / name, symlinks=True)
    run("convert_checkpoint", ["--input", "runs/nano", "--output", "gpt2.bin"], directory)
    shutil.copytree(directory / "runs/nano/latest", directory / "data/gpt2")
