"""Starts StageGPT's programs and reads their runs, with the standard library alone.

    import stagegpt

    run = stagegpt.train(data="data/dummy.txt", steps=200, run_dir="runs/mine")
    steps, losses = run.curve("validation_loss")
    print(stagegpt.generate(run.latest, "The owl", max_new_tokens=50)[0])

The keywords are the flags of the programs (docs/command_line.md): batch_size=8 is --batch-size 8, resume=True is --resume, False and
None leave a flag out, and a list repeats it. `stage` (0 to 3), `emulated` (stages 2 and 3 without a GPU) and `ranks` (stages 1 and 3)
choose the program. What a program reports appears in the notebook, unless `quiet`; its errors are raised as stagegpt.Error. An interrupt
of the notebook ends a training as Ctrl-C does: it saves a checkpoint.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

__all__ = ["Error", "Run", "bench", "command", "evaluate", "generate", "load_run", "train"]


class Error(Exception):
    """What a program wrote before it failed, or why a file cannot be read."""


def _program(name):
    """The path of a program: in STAGEGPT_BIN, in PATH, in a build below this folder, a folder above it or the source tree, or where the
    programs are installed with this package."""
    above = Path(__file__).resolve().parents
    folders = [folder / "build/release/bin" for folder in [Path.cwd(), *Path.cwd().parents, above[2]]] + [above[min(4, len(above) - 1)] / "bin"]
    places = [os.environ.get("STAGEGPT_BIN", ""), os.environ.get("PATH", ""), *map(str, folders)]
    found = shutil.which(name, path=os.pathsep.join(filter(None, places)))
    if not found:
        raise Error(f"{name} was not found. Build it with `cmake --preset release && cmake --build --preset release`, "
                    "or set STAGEGPT_BIN to the folder of the programs")
    return found


def command(job, *, stage=0, emulated=False, ranks=1, **flags):
    """The command line of a job (train, generate, evaluate or bench) as a list of words."""
    words = [_program(f"stage{stage}_{job}{'_emulated' if emulated else ''}")]
    if stage in (1, 3):
        words = ["mpirun", "-np", str(ranks), "--oversubscribe", *words]
    elif ranks != 1:
        raise Error(f"stage {stage} has one process; stages 1 and 3 have several")
    for name, value in flags.items():
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if one is not None and one is not False:
                words += ["--" + name.replace("_", "-")] + ([] if one is True else [str(one)])
    return words


def _call(job, quiet, flags):
    """Runs a job with --json. Returns the object that it prints."""
    environment = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", **os.environ}  # as in Colab
    told, interrupted = [], False
    words = command(job, json=True, **flags)
    with tempfile.TemporaryFile("w+", encoding="utf-8") as output, subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.PIPE, encoding="utf-8", errors="replace", env=environment,
            start_new_session=True) as child:

        def follow():
            for line in child.stderr:
                told.append(line)
                if not quiet:
                    sys.stderr.write(line)

        try:
            try:
                follow()
            except KeyboardInterrupt:
                interrupted = True
                # mpirun would end its ranks a second after SIGINT. It passes SIGUSR1 on, and they save.
                child.send_signal(signal.SIGUSR1 if words[0] == "mpirun" else signal.SIGINT)
                follow()
            child.wait()
        except BaseException:
            child.kill()
            raise
        if child.returncode != 0 and not (interrupted and os.fstat(output.fileno()).st_size > 0):
            raise Error("".join(told[-5:]).strip() or f"{job} ended with {child.returncode}")
        output.seek(0)
        return json.load(output)


class Run:
    """The directory of a training (docs/file_formats.md). Its files are read when they are asked for, also during the training."""

    def __init__(self, path, result=None):
        self.path = Path(path)
        self.result = result or {}  # what stageN_train --json printed
        if not (self.path / "run.json").is_file():
            raise Error(f"{path} is no run: it has no run.json")

    def __repr__(self):
        return f"stagegpt.load_run({str(self.path)!r})"

    @property
    def settings(self):
        """All settings, by their flags' names with _ for -."""
        return json.loads((self.path / "run.json").read_text(encoding="utf-8"))

    @property
    def metrics(self):
        """A dictionary for each step, without a last line that is still being written."""
        text = (self.path / "metrics.jsonl").read_text(encoding="utf-8")
        return [json.loads(line) for line in text[:text.rfind("\n") + 1].splitlines()]

    def curve(self, field):
        """Two lists: the steps that have a field of the metrics, such as "loss", and its values."""
        lines = [line for line in self.metrics if line.get(field) is not None]
        return [line["step"] for line in lines], [line[field] for line in lines]

    @property
    def checkpoints(self):
        """The paths of all checkpoints, the oldest first."""
        return sorted(path for path in (self.path / "checkpoints").glob("step_*") if path.name[5:].isdigit())

    @property
    def latest(self):
        return self.path / "latest"

    @property
    def best(self):
        """The checkpoint with the lowest validation loss."""
        return self.path / "best"

    def trace(self, step):
        """The tensors of a step of train(trace_steps=…), by name: memory of float32 in the tensor's shape, for numpy.asarray()."""
        data = memoryview((self.path / "traces" / f"step_{step:08}.safetensors").read_bytes())
        begin = 8 + int.from_bytes(data[:8], "little")
        header = json.loads(bytes(data[8:begin]))
        header.pop("__metadata__", None)
        return {name: data[begin + entry["data_offsets"][0]:begin + entry["data_offsets"][1]].cast("f", entry["shape"])
                for name, entry in header.items()}


def load_run(path):
    """The run in this directory."""
    return Run(path)


def train(*, quiet=False, **flags):
    """Trains with stageN_train, and returns the run, whose `result` is the object that the program prints with --json."""
    result = _call("train", quiet, flags)
    return Run(result["run_dir"], result)


def generate(model, prompt="", *, quiet=True, **flags):
    """Continues a prompt with stageN_generate. Returns the texts, without the prompt: one, or num_samples."""
    result = _call("generate", quiet, {"model": model, "prompt": prompt, **flags})
    return [sample["text"] for sample in result["samples"]]


def evaluate(model, *, quiet=True, **flags):
    """Loss and accuracy of a model on data=…, or of a task, as stageN_evaluate --json prints them."""
    return _call("evaluate", quiet, {"model": model, **flags})


def bench(*, quiet=True, **flags):
    """Speed of training or, with generate=True, of writing, as stageN_bench --json prints it."""
    return _call("bench", quiet, flags)
