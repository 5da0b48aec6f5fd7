#!/usr/bin/env python3
"""Checks with `transformers` that checkpoints are valid Hugging Face GPT-2 directories, in both directions.

    pip install torch transformers safetensors
    cmake --build --preset release --target all model_probe
    ./scripts/check_hugging_face.py [--gpt2 DIR] [--bin build/release/bin]

StageGPT to transformers, for each tokenizer: trains a small model for a few steps and opens RUN/latest with AutoTokenizer
and AutoModelForCausalLM. There must be no warning and no missing or unexpected key. Ids, decoded text, logits and
generated text must be equal, and the validation loss must be equal to the one that the run reported.
transformers to StageGPT: models saved by `transformers`, some in the format of older versions, are read by model_probe
and trained by stage0_train, and the result is opened by `transformers` again. Some are trained for 20 steps, also with
--freeze, and by PyTorch on the same samples: losses, weights and generated text must agree. Prints a table; exits with 1
if a row fails. Takes about a minute. --gpt2: the directory with GPT-2's encoder.json and vocab.bpe (scripts/download_gpt2.sh);
without it that tokenizer is skipped. Passes with transformers 4.57 and 5.23.
"""

import argparse
import copy
import json
import logging
import re
import shutil
import subprocess
import sys
import tempfile
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/golden"))
from hugging_face_models import (  # noqa: E402
    FIXTURES, Variant, save_bare, save_prefixed_with_head, save_with_hub_config,
)  # fmt: skip
from make_random import sample_start  # noqa: E402

LOGITS_LIMIT = 1e-4  # largest absolute difference; logits are of the order of 1
LOSS_LIMIT = 1e-5  # of a validation loss, in nats
STEPS_LIMIT = 5e-6  # of the loss of a step, in nats
WEIGHTS_LIMIT = 3e-4  # of the change of a parameter in all steps, relative
VAL_FRACTION = 0.1  # stage0_train's default
NEW_TOKENS = 24
SHAPE = {"--n-layer": 2, "--n-head": 3, "--n-embd": 48, "--block-size": 96}
TRAINING = {"--steps": 30, "--batch-size": 4, "--learning-rate": 0.003, "--max-new-tokens": 0, "--eval-tokens": 0}
SPECIAL_TOKENS = {"word": ["[EOS]", "[UNK]", "[PAD]"]}  # of all others:
END_OF_TEXT = ["<|endoftext|>"]

MULTILINGUAL = "Größe: 3,5 m — «où ça?»\tमाँ और 中文, e\u0301\u00a0👩‍🚀!\r\n"
# All tokenizers that were learnt from the default corpus and MULTILINGUAL can encode these texts.
TEXTS = [
    "Mia the mouse",
    "\n",
    " ",
    "  Two  spaces ,and . strange   marks !?\n\n\nThen \"a line\" , Leo ' s .",
    "she didn 't , we 'll n't do not I 'm we 've",  # a clean-up of spaces would change this text
    MULTILINGUAL,
    "où\n\n\n\n 中文\t\t m\r\n",
]
# Only byte-level tokenizers can encode these texts; `word` gives [UNK].
OTHER_TEXTS = [
    "Ünïcødé żółć 日本語 русский\u200b\u3000x 😀",
    "12345 x=1;\t\tif (a<b) {\\n}",
    "it's [UNK] <s> [PAD]",
]

UNTIED = Variant("untied head", config={"tie_word_embeddings": False})
INNER = Variant("n_inner 100", config={"n_inner": 100})
EPSILON = Variant("epsilon 1e-3", config={"layer_norm_epsilon": 1e-3})
SCALED = Variant("attention scaled by layer", config={"scale_attn_by_inverse_layer_idx": True})
UNUSUAL = Variant(
    "untied head, n_inner, epsilon, scale",
    config={
        "tie_word_embeddings": False, "n_inner": 50, "layer_norm_epsilon": 1e-3, "scale_attn_by_inverse_layer_idx": True,
    },
)  # fmt: skip
VARIANTS = FIXTURES + [
    Variant("f32, prefix, masks, head", save_prefixed_with_head),
    Variant("f32, masks, no prefix", save_bare),
    Variant("config.json of GPT-2's", save_with_hub_config),
    Variant("gelu", config={"activation_function": "gelu"}),
    Variant("relu", config={"activation_function": "relu"}),
    Variant("gelu_pytorch_tanh", config={"activation_function": "gelu_pytorch_tanh"}),
    Variant("gelu_fast", config={"activation_function": "gelu_fast"}),
    Variant("epsilon 1e-6", config={"layer_norm_epsilon": 1e-6}),
    EPSILON,
    INNER,
    UNTIED,
    SCALED,
    Variant("attention not scaled", config={"scale_attn_weights": False}),
    Variant("reordered attention", config={"reorder_and_upcast_attn": True}),
    UNUSUAL,
    Variant("even positions, one head", config={"n_positions": 96, "n_head": 1}),
]
STEPS = {"--steps": 20, "--batch-size": 4, "--learning-rate": 0.001, "--lr-schedule": "constant", "--warmup-steps": 0,
         "--weight-decay": 0.1, "--beta1": 0.9, "--beta2": 0.95, "--eps": 1e-8, "--grad-clip": 1.0, "--seed": 1337}  # fmt: skip


class CheckFailed(Exception):
    pass


def expect(condition: bool, message: str) -> None:
    if not condition:
        raise CheckFailed(message)


def run(*command) -> str:
    """Runs a program, which must succeed. Returns its standard output."""
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    expect(result.returncode == 0, f"{Path(command[0]).name}: exit {result.returncode}: {result.stderr[-300:]}")
    return result.stdout


@contextmanager
def no_warnings():
    """A context in which a warning of `transformers` or Python is a failure."""
    messages = []

    class Collect(logging.Handler):
        def emit(self, record):
            messages.append(record.getMessage())

    handler = Collect(logging.WARNING)
    loggers = [logging.getLogger(), logging.getLogger("transformers")]  # the second logger does not propagate
    for logger in loggers:
        logger.addHandler(handler)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
    messages += [f"{w.category.__name__}: {w.message}" for w in caught]
    expect(not messages, f"warns: {'; '.join(messages)[:600]}")


@dataclass
class Theirs:
    """A directory, and the model and tokenizer that `transformers` loads from it."""

    path: Path
    tokenizer: transformers.PreTrainedTokenizerBase
    model: transformers.GPT2LMHeadModel

    @classmethod
    def load(cls, path: Path) -> "Theirs":
        with no_warnings():
            tokenizer = AutoTokenizer.from_pretrained(path)
            model, info = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, output_loading_info=True)
        problems = {what: found for what, found in info.items() if found}
        expect(not problems, f"loading_info: {problems}")
        expect(type(model).__name__ == "GPT2LMHeadModel", f"is a {type(model).__name__}")
        return cls(path, tokenizer, model.eval())

    def logits(self, ids: list[int]) -> torch.Tensor:  # (V)
        with torch.no_grad():
            return self.model(torch.tensor([ids])).logits[0, -1]

    def mean_loss(self, ids: list[int]) -> tuple[float, int]:
        """The loss over all whole windows of the context's length, and the number of their tokens."""
        length = self.model.config.n_positions
        losses = []
        with torch.no_grad():
            for begin in range(0, len(ids) - length, length):
                window = torch.tensor([ids[begin : begin + length + 1]])
                logits = self.model(window[:, :-1]).logits[0].double()
                losses.append(torch.nn.functional.cross_entropy(logits, window[0, 1:]))
        return torch.stack(losses).mean().item(), len(losses) * length

    def greedy(self, ids: list[int], count: int) -> list[int]:
        prompt = torch.tensor([ids])
        with no_warnings():
            out = self.model.generate(
                prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=count,
                pad_token_id=self.model.config.eos_token_id,
            )  # fmt: skip
        return out[0, len(ids) :].tolist()


@dataclass
class Worst:
    texts: int = 0
    logits: float = 0
    greedy: int = 0

    def __str__(self):
        return f"{self.texts} texts, logits within {self.logits:.1e}, {self.greedy} greedy tokens"


def without_broken(text: str) -> str:
    """Merges replacement characters: programs disagree on their number for one broken character."""
    return re.sub("\ufffd+", "\ufffd", text)


def compare(probe: Path, theirs: Theirs, text: str, worst: Worst) -> None:
    """Compares both programs on one text: ids, decoded text, logits, generated text."""
    with no_warnings():
        ids = theirs.tokenizer(text)["input_ids"]
    block = theirs.model.config.n_positions
    expect(len(ids) < block, f"{text!r} has {len(ids)} tokens, too many for this check")
    count = min(NEW_TOKENS, block - len(ids))
    ours = json.loads(run(probe, theirs.path, "--prompt", text, "--new-tokens", count))
    expect(ours["ids"] == ids, f"{text!r}: ids {ours['ids']}, theirs {ids}")
    if theirs.tokenizer.unk_token_id not in ids:
        for skip in False, True:
            back = theirs.tokenizer.decode(ids, skip_special_tokens=skip)
            expect(back == text, f"{text!r} comes back as {back!r}")

    logits = torch.tensor(ours["logits"])
    expected = theirs.logits(ids)
    expect(logits.shape == expected.shape, f"logits {logits.shape}, theirs {expected.shape}")
    difference = (logits - expected).abs().max().item()
    expect(difference <= LOGITS_LIMIT, f"{text!r}: logits differ by {difference:.2e}")

    greedy = theirs.greedy(ids, count)  # ends with the end of text
    followed = ours["greedy_ids"]
    expect(followed[: len(greedy)] == greedy, f"{text!r}: goes on with {followed}, theirs {greedy}")
    ended = bool(greedy) and greedy[-1] == theirs.tokenizer.eos_token_id
    expect(ended or len(greedy) == count, f"{len(greedy)} new tokens instead of {count}")
    if not ended:
        decoded = theirs.tokenizer.decode(greedy)
        expect(
            without_broken(decoded) == without_broken(ours["greedy_text"]),
            f"{text!r}: goes on with {ours['greedy_text']!r}, theirs {decoded!r}",
        )
    worst.texts += 1
    worst.logits = max(worst.logits, difference)
    worst.greedy += len(greedy)


def check_special_tokens(kind: str, theirs: Theirs) -> None:
    tokenizer, config = theirs.tokenizer, theirs.model.config
    special = SPECIAL_TOKENS.get(kind, END_OF_TEXT)
    expect(
        sorted(tokenizer.all_special_tokens) == sorted(special),
        f"special tokens {tokenizer.all_special_tokens}, expected {special}",
    )
    expect(tokenizer.is_fast, "the tokenizer is not a fast one")
    expect(len(tokenizer) == config.vocab_size, f"{len(tokenizer)} tokens, the model has {config.vocab_size}")
    expect(tokenizer.model_max_length == config.n_positions, f"model_max_length {tokenizer.model_max_length}")
    end = tokenizer.eos_token
    expect(end == ("[EOS]" if kind == "word" else END_OF_TEXT[0]), f"eos_token {end}")
    ids = {tokenizer.eos_token_id, config.eos_token_id, theirs.model.generation_config.eos_token_id}
    ids |= set(tokenizer(end)["input_ids"])
    expect(len(ids) == 1, f"several ids for the end of text: {ids}")


def flags(*groups: dict) -> list:
    return [part for group in groups for item in group.items() for part in item]


class Checks:
    def __init__(self, programs: Path, gpt2: Path | None, scratch: Path):
        self.train, self.probe = programs / "stage0_train", programs / "model_probe"
        self.gpt2, self.scratch, self.failures = gpt2, scratch, 0
        self.corpus = scratch / "corpus.txt"
        default = (ROOT / "data/dummy.txt").read_text(encoding="utf-8")
        texts = "\n".join(TEXTS) + "\n"
        self.corpus.write_text(3 * texts + default, encoding="utf-8", newline="")

    def row(self, name: str, check) -> None:
        try:
            verdict, details = "ok", check()
        except CheckFailed as failure:
            verdict, details = "FAILED", failure
        except Exception as error:  # an exception of `transformers` is a failure of this row
            verdict, details = "FAILED", f"{type(error).__name__}: {str(error)[:600]}"
        self.failures += verdict != "ok"
        print(f"{name:<46} {verdict:<7} {details}", flush=True)

    def ours(self, kind: str) -> str:
        """Opens a run of StageGPT with `transformers`, without conversion."""
        directory = self.scratch / f"run_{kind}"
        tokenizer = ["--tokenizer", kind] + (["--tokenizer-path", self.gpt2] if kind == "gpt2" else [])
        run(self.train, "--data", self.corpus, "--run-dir", directory, *tokenizer, *flags(SHAPE, TRAINING))
        theirs = Theirs.load(directory / "latest")
        check_special_tokens(kind, theirs)
        if kind == "char":
            unseen = theirs.tokenizer("µ")["input_ids"]
            expect(unseen == [theirs.tokenizer.eos_token_id], f"a character that was not seen is {unseen}")
        worst = Worst()
        for text in TEXTS + (OTHER_TEXTS[:2] if kind == "word" else [] if kind == "char" else OTHER_TEXTS):
            compare(self.probe, theirs, text, worst)
        return worst

    def validation(self, kind: str) -> str:
        """Compares the last validation of that run, which uses the end of its text."""
        directory = self.scratch / f"run_{kind}"
        theirs = Theirs.load(directory / "latest")
        text = self.corpus.read_bytes()
        begin = len(text) - int(VAL_FRACTION * len(text))
        while text[begin] & 0xC0 == 0x80:  # inside a UTF-8 character, which begins earlier
            begin -= 1
        loss, tokens = theirs.mean_loss(theirs.tokenizer(text[begin:].decode(), verbose=False)["input_ids"])
        last = json.loads((directory / "metrics.jsonl").read_text().splitlines()[-1])
        expect(last["validation_tokens"] == tokens, f"{last['validation_tokens']} tokens, theirs {tokens}")
        difference = abs(last["validation_loss"] - loss)
        expect(difference <= LOSS_LIMIT, f"loss {last['validation_loss']}, theirs {loss}")
        return f"{tokens} tokens, loss within {difference:.1e}"

    def saved_again(self, kind: str) -> str:
        """Loads and saves that run with `transformers`, and reads the result with StageGPT."""
        theirs, directory = Theirs.load(self.scratch / f"run_{kind}/latest"), self.scratch / f"again_{kind}"
        theirs.model.save_pretrained(directory)
        theirs.tokenizer.save_pretrained(directory)
        again, worst = Theirs.load(directory), Worst()
        for text in TEXTS:
            compare(self.probe, again, text, worst)
        return worst

    def made(self, variant: Variant) -> Theirs:
        """A directory that `transformers` wrote, with the tokenizer of the bpe run."""
        run_directory = self.scratch / "run_bpe/latest"
        config = json.loads((run_directory / "config.json").read_text())
        directory = self.scratch / f"variant_{len(list(self.scratch.glob('variant_*')))}"
        names = "vocab_size", "bos_token_id", "eos_token_id"
        shape = dict(n_positions=97, n_embd=30, n_layer=2, n_head=3) | {name: config[name] for name in names}
        model = Variant(variant.name, variant.save, variant.dtype, shape | variant.config).model()
        variant.save(model, directory)
        for name in "tokenizer.json", "tokenizer_config.json":
            shutil.copy(run_directory / name, directory)
        # Not the model as loaded: `transformers` warns about some files that its older versions saved.
        return Theirs(directory, AutoTokenizer.from_pretrained(directory), model.float())

    def theirs(self, variant: Variant) -> str:
        """Reads a model of `transformers` with StageGPT, and trains it for a step."""
        theirs, worst = self.made(variant), Worst()
        for text in TEXTS[:4]:
            compare(self.probe, theirs, text, worst)
        self.trained_from(theirs.path, theirs)
        return f"{worst}, trained from"

    def steps(self, variant: Variant, freeze: str) -> str:
        """Trains a model of `transformers` with StageGPT and with PyTorch."""
        theirs = self.made(variant)
        run(
            self.train, "--model", theirs.path, "--tokenizer-path", theirs.path / "tokenizer.json", "--data", self.corpus,
            "--run-dir", theirs.path / "run", "--val-fraction", 0, "--max-new-tokens", 0, "--freeze", freeze, *flags(STEPS),
        )  # fmt: skip
        lines = (theirs.path / "run/metrics.jsonl").read_text().splitlines()
        losses = [line["loss"] for line in map(json.loads, lines) if "loss" in line]
        trained = copy.deepcopy(theirs.model).double()
        expected = self.steps_of_pytorch(trained, theirs.tokenizer, freeze)
        expect(len(losses) == len(expected), f"{len(losses)} losses")
        worst = max(abs(a - b) for a, b in zip(losses, expected, strict=True))
        expect(worst <= STEPS_LIMIT, f"losses {losses}, PyTorch's {expected}")
        after = Theirs.load(theirs.path / "run/latest")
        changed = self.compare_changes(theirs.model, after.model, trained)
        text, reference = Worst(), Theirs(theirs.path, theirs.tokenizer, trained)
        for prompt in TEXTS[:2]:
            compare(self.probe, after, prompt, text)
            ids = after.tokenizer(prompt)["input_ids"]
            expect(after.greedy(ids, NEW_TOKENS) == reference.greedy(ids, NEW_TOKENS), f"{prompt!r} goes on otherwise")
        return f"loss {expected[0]:.2f} to {expected[-1]:.2f} within {worst:.1e}; {changed}; {text}"

    def steps_of_pytorch(self, model: transformers.GPT2LMHeadModel, tokenizer, freeze: str) -> list[float]:
        ids = tokenizer(self.corpus.read_bytes().decode(), verbose=False)["input_ids"]
        T, B, steps = model.config.n_positions, STEPS["--batch-size"], STEPS["--steps"]
        for name, parameter in model.named_parameters():
            name = name.removeprefix("transformer.")
            parameter.requires_grad_(not any(fnmatchcase(name, pattern) for pattern in freeze.split(",")))
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        optimizer = torch.optim.AdamW(
            [
                {"params": [p for p in trained if p.dim() >= 2], "weight_decay": STEPS["--weight-decay"]},
                {"params": [p for p in trained if p.dim() < 2], "weight_decay": 0},
            ],
            lr=STEPS["--learning-rate"], betas=(STEPS["--beta1"], STEPS["--beta2"]), eps=STEPS["--eps"],
        )  # fmt: skip
        losses = []
        for step in range(steps):
            starts = [sample_start(STEPS["--seed"], len(ids), T, step * B + b) for b in range(B)]
            batch = torch.tensor([ids[start : start + T + 1] for start in starts])
            optimizer.zero_grad()
            logits = model(batch[:, :-1]).logits
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
            loss.backward()
            torch.nn.utils.clip_grad_norm_(trained, STEPS["--grad-clip"])
            optimizer.step()
            losses.append(loss.item())
        return losses

    def compare_changes(self, before, ours, theirs) -> str:
        """How each parameter has changed, here and there."""
        worst, moved, parameters = 0.0, 0, list(before.named_parameters())
        for name, parameter in parameters:
            change = ours.get_parameter(name).double() - parameter
            reference = theirs.get_parameter(name) - parameter
            if not reference.any():
                expect(not change.any(), f"{name} is frozen, and changes")
                continue
            moved += 1
            if name.endswith("c_attn.bias"):  # the gradient of keys' biases is 0: Adam amplifies its rounding
                C = before.config.n_embd
                change[C : 2 * C] = reference[C : 2 * C] = 0
            worst = max(worst, ((change - reference).norm() / reference.norm()).item())
        expect(worst <= WEIGHTS_LIMIT, f"a change of weights differs by {worst:.1e}")
        return f"{moved} of {len(parameters)} parameters changed, within {worst:.1e}"

    def trained_from(self, directory: Path, before: Theirs) -> None:
        """Trains for one step with a tiny learning rate. The run holds the same model, and `transformers` opens it."""
        to = directory / "run"
        run(
            self.train, "--model", directory, "--tokenizer-path", directory / "tokenizer.json", "--data", self.corpus,
            "--run-dir", to, "--steps", 1, "--batch-size", 1, "--learning-rate", 1e-9, "--max-new-tokens", 0,
        )  # fmt: skip
        after = Theirs.load(to / "latest")
        for name, parameter in before.model.named_parameters():
            difference = (after.model.get_parameter(name) - parameter).abs().max().item()
            expect(difference <= 1e-6, f"{name} differs by {difference:.2e} after a step that changes nothing")
        compare(self.probe, after, TEXTS[0], Worst())

    def all(self) -> None:
        kinds = ["char", "word", "bpe"] + (["gpt2"] if self.gpt2 else [])
        for kind in kinds:
            self.row(f"ours -> theirs: {kind}", lambda kind=kind: self.ours(kind))
        for kind in kinds:
            self.row(f"ours -> theirs, validation loss: {kind}", lambda kind=kind: self.validation(kind))
        for kind in kinds:
            self.row(f"ours -> theirs, saved again -> ours: {kind}", lambda kind=kind: self.saved_again(kind))
        for variant in VARIANTS:
            self.row(f"theirs -> ours: {variant.name}", lambda variant=variant: self.theirs(variant))
        for variant in Variant("plain"), UNTIED, INNER, EPSILON, SCALED, UNUSUAL:
            self.row(f"20 steps: {variant.name}", lambda variant=variant: self.steps(variant, ""))
        for variant in Variant("plain"), UNUSUAL:
            freeze = "wte*,h.0.*,*.ln_2.bias"
            self.row(f"20 steps: {variant.name} --freeze '{freeze}'", lambda variant=variant: self.steps(variant, freeze))
        if not self.gpt2:
            print("ours -> theirs: gpt2                           LEFT OUT: no --gpt2")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=Path, default=ROOT / "build/release/bin", help="where the programs are")
    parser.add_argument("--gpt2", type=Path, help="directory with GPT-2's encoder.json and vocab.bpe")
    arguments = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(1)
    print(f"transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}")
    with tempfile.TemporaryDirectory() as scratch:
        checks = Checks(arguments.bin, arguments.gpt2, Path(scratch))
        checks.all()
    print(f"{checks.failures} failed" if checks.failures else "all passed")
    return 1 if checks.failures else 0


if __name__ == "__main__":
    sys.exit(main())
