"""Tests the Python package against the programs.

    package_test.py DIR        with the directory of the programs
"""

import io
import json
import os
import re
import struct
import sys
import tempfile
import threading
import time
import unittest
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))
os.environ["STAGEGPT_BIN"] = sys.argv.pop(1)

import stagegpt  # noqa: E402

TINY = {"n_layer": 1, "n_head": 2, "n_embd": 16, "block_size": 32, "batch_size": 2, "threads": 1}


def train(**flags):
    with redirect_stderr(io.StringIO()) as told:
        run = stagegpt.train(**{"data": ROOT / "data/dummy.txt", "eval_tokens": 256, **TINY, **flags})
    return run, told.getvalue()


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = Path(scratch.name)
        cls.run_, cls.told = train(steps=4, eval_every=2, trace_steps=2, checkpoint_every=2, run_dir=cls.folder / "run")

    def test_reads_what_a_training_wrote(self):
        lines = [json.loads(line) for line in (self.folder / "run/metrics.jsonl").read_text().splitlines()]
        self.assertEqual(self.run_.metrics, lines)
        self.assertEqual(self.run_.curve("loss"), ([1, 2, 3, 4], [line["loss"] for line in lines]))
        self.assertEqual(self.run_.curve("validation_loss")[0], [2, 4])
        self.assertEqual(self.run_.result["validation_loss"], lines[-1]["validation_loss"])
        self.assertEqual(self.run_.settings["block_size"], 32)
        self.assertEqual([path.name for path in self.run_.checkpoints], ["step_00000002", "step_00000004"])
        self.assertIn("step 4/4", self.told)

    def test_leaves_out_a_line_that_is_being_written(self):
        run = self.folder / "live"
        run.mkdir()
        (run / "run.json").write_text("{}")
        (run / "metrics.jsonl").write_text('{"step": 1, "loss": 2.5}\n{"step": 2, "lo')
        self.assertEqual(stagegpt.load_run(run).metrics, [{"step": 1, "loss": 2.5}])
        with self.assertRaisesRegex(stagegpt.Error, "is no run"):
            stagegpt.load_run(self.folder)

    def test_gives_the_tensors_of_a_step(self):
        tensors = self.run_.trace(2)
        name = next(name for name in tensors if name.endswith("the weight ln_f.weight"))
        file = (self.folder / "run/checkpoints/step_00000002/model.safetensors").read_bytes()
        begin = 8 + struct.unpack("<Q", file[:8])[0]
        at = json.loads(file[8:begin])["ln_f.weight"]["data_offsets"]
        self.assertEqual(tensors[name].tolist(), list(struct.unpack("<16f", file[begin + at[0]:begin + at[1]])))
        logits = next(tensors[name] for name in tensors if "wte (embedding)" in name)
        self.assertEqual(logits.shape, (2, 32, 16))

    def test_writes_and_evaluates(self):
        texts = stagegpt.generate(self.run_.latest, "The owl", num_samples=2, max_new_tokens=5, seed=3, temperature=0)
        self.assertEqual(len(texts), 2)
        self.assertEqual(texts[0], texts[1])  # the most probable text
        scores = stagegpt.evaluate(self.run_.latest, data=ROOT / "data/dummy.txt", val_fraction=0.1)
        self.assertGreater(scores["bits_per_byte"], 0)
        self.assertLess(abs(scores["loss"] - self.run_.result["validation_loss"]), 0.1)  # that of a part of these tokens

    def test_resumes_on_ranks(self):
        run, _ = train(steps=2, run_dir=self.folder / "ranks")
        with redirect_stderr(io.StringIO()):
            again = stagegpt.train(stage=1, ranks=2, resume=run.path, steps=3)
        self.assertEqual(again.path, run.path)
        self.assertEqual([line["step"] for line in again.metrics], [1, 2, 3])
        self.assertEqual(again.metrics[2]["ranks"]["size"], 2)

    def test_raises_what_the_program_says(self):
        for flags, text in [({"steps": "many"}, "--steps: expected a whole number"), ({"no_such_flag": 1}, "--no-such-flag")]:
            with self.assertRaisesRegex(stagegpt.Error, text):
                train(run_dir=self.folder / "refused", **flags)
        with self.assertRaisesRegex(stagegpt.Error, "stage 0 has one process"):
            train(ranks=2)
        with self.assertRaisesRegex(stagegpt.Error, "stage0_dance was not found"):
            stagegpt.command("dance")

    def test_an_interrupt_saves_the_run(self):
        def interrupt_when(path):
            while not path.exists():
                time.sleep(0.01)
            os.kill(os.getpid(), 2)

        for stage in (0, 1):
            path = self.folder / f"stopped_{stage}"
            threading.Thread(target=interrupt_when, args=[path / "metrics.jsonl"], daemon=True).start()
            run, _ = train(stage=stage, ranks=stage + 1, steps=1_000_000, run_dir=path)
            self.assertEqual(run.result["steps"], run.metrics[-1]["step"])
            self.assertTrue((run.latest / "manifest.json").exists())

    def test_the_notebook_runs(self):
        cells = json.loads((ROOT / "docs/colab.ipynb").read_text())["cells"]
        scope, told, here = {}, io.StringIO(), os.getcwd()
        plain = stagegpt.command
        self.addCleanup(lambda: (os.chdir(here), setattr(stagegpt, "command", plain)))

        def small(job, **flags):
            return plain(job, **{**flags, **({**TINY, "steps": 2, "eval_tokens": 256} if job == "train" else {"max_new_tokens": 3})})

        stagegpt.command = small
        os.chdir(self.folder)
        (self.folder / "data").symlink_to(ROOT / "data")
        for cell in cells:
            source = "".join(cell["source"])
            if cell["cell_type"] == "code" and not re.search(r"pyplot|^!|REPOSITORY", source, re.MULTILINE):
                with redirect_stderr(told), redirect_stdout(told):
                    exec(source, scope)  # noqa: S102
        self.assertEqual(scope["run"].curve("loss")[0], [1, 2])
        self.assertIn("step 2: stage 0 ", told.getvalue())

    def test_spells_flags(self):
        words = stagegpt.command("train", stage=1, ranks=3, batch_size=8, resume=True, json=False, config=None, init=["a", "b"])
        self.assertEqual(words[:4], ["mpirun", "-np", "3", "--oversubscribe"])
        self.assertEqual(words[5:], ["--batch-size", "8", "--resume", "--init", "a", "--init", "b"])


if __name__ == "__main__":
    unittest.main()
