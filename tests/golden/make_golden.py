"""Writes golden files of a tiny GPT-2: model, debug state, ten optimizer steps.

    python3 make_golden.py                             the committed fixtures, next to this file
    python3 make_golden.py --name NAME --output DIR …  a state of another shape

The committed fixtures were made with torch 2.15.0 and numpy 2.4.6. README.md describes the files.
"""

import argparse
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from gpt2_reference import (
    GPT2, HEADER_INTS, LLMC_ORDER, Config, decay_groups, initialize, layer_names,
    mean_cross_entropy, write_debug_state, write_model,
)  # fmt: skip

STEPS = 10
PERTURBATION = 0.1  # standard deviation added to biases and layernorm weights
CLIPS = (1.0, 0.25, 0.1, 0.025)  # tried in this order until clipping is active
DTYPES = {"f64": torch.float64, "f32": torch.float32}


@dataclass(frozen=True)
class Optimizer:
    learning_rate: float
    beta1: float
    beta2: float
    eps: float
    weight_decay: float
    grad_clip: float  # 0 = off


def optimizers(gradient_norm: float) -> list[Optimizer]:
    """llm.c's test settings, then two with clipping that is active at `gradient_norm`."""

    def active_clip(largest: float) -> float:
        return next(clip for clip in CLIPS if clip <= largest and clip < gradient_norm)

    return [
        Optimizer(1e-4, 0.9, 0.999, 1e-8, weight_decay=0.01, grad_clip=0.0),
        Optimizer(1e-3, 0.9, 0.95, 1e-8, weight_decay=0.1, grad_clip=active_clip(1.0)),
        Optimizer(3e-3, 0.8, 0.99, 1e-6, weight_decay=0.5, grad_clip=active_clip(0.1)),
    ]


def weight_std(config: Config) -> float:
    """The standard deviation that gives a narrow model the activations of GPT-2 124M.

    GPT-2's own 0.02 is meant for C=768. At C=48 it makes attention nearly uniform: the gradients of
    queries and keys are then a hundredth of those of values, and tests would hardly detect a wrong one.
    """
    return 0.02 * math.sqrt(768 / config.n_embd)


def make_model(config: Config, seed: int, dtype: torch.dtype) -> GPT2:
    model = GPT2(config)
    initialize(model, seed, weight_std(config), PERTURBATION)
    return model.to(dtype)


def make_batch(config: Config, batch_size: int, seq_len: int, seed: int) -> tuple[Tensor, Tensor]:
    """Random tokens x (B,T) and the targets y (B,T), which are shifted by one position."""
    generator = torch.Generator().manual_seed(seed + 1)
    tokens = torch.randint(config.vocab_size, (batch_size, seq_len + 1), generator=generator)
    return tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()


def run_steps(model: GPT2, x: Tensor, y: Tensor, settings: Optimizer) -> dict:
    """Runs STEPS steps on one batch. Losses are those before the update, gradient norms those before clipping."""
    optimizer = torch.optim.AdamW(
        decay_groups(model, settings.weight_decay), lr=settings.learning_rate,
        betas=(settings.beta1, settings.beta2), eps=settings.eps, foreach=False,
    )  # fmt: skip
    losses, gradient_norms = [], []
    for _ in range(STEPS):
        optimizer.zero_grad(set_to_none=True)
        loss = model.loss(x, y)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), settings.grad_clip or math.inf)
        optimizer.step()
        losses.append(loss.item())
        gradient_norms.append(norm.item())
    if settings.grad_clip:
        assert gradient_norms[0] > settings.grad_clip, "clipping is not active"
    norms = {name: p.norm().item() for name, p in model.named_parameters()}
    return asdict(settings) | {
        "losses": losses,
        "gradient_norms": gradient_norms,
        "parameter_norms": norms,
        "attention_bias_norms": attention_bias_norms(model),
    }


def attention_bias_norms(model: GPT2) -> dict[str, float]:
    """Norms of the query and value thirds of each c_attn.bias.

    The loss does not depend on the key third, because softmax does not change when a constant is added to a row.
    So the gradient of that third is rounding noise, and its AdamW steps have random signs. The other two are stable.
    """
    norms = {}
    for layer, block in enumerate(model.h):
        query, _, value = block.attn.c_attn.bias.chunk(3)
        norms[f"h.{layer}.attn.c_attn.bias/query"] = query.norm().item()
        norms[f"h.{layer}.attn.c_attn.bias/value"] = value.norm().item()
    return norms


def ten_digits(value):
    """A copy of `value` in which all floats, at any depth, are rounded to ten significant digits."""
    if isinstance(value, float):
        return float(f"{value:.10g}")
    if isinstance(value, dict):
        return {key: ten_digits(item) for key, item in value.items()}
    return [ten_digits(item) for item in value] if isinstance(value, list) else value


def read_tensors(path: Path, skip_bytes: int, model: GPT2) -> dict[str, np.ndarray]:
    """The tensors of an llm.c file by Hugging Face name; checks its length and wte's padding."""
    config, shapes = model.config, {name: p.shape for name, p in model.named_parameters()}
    values = np.frombuffer(path.read_bytes()[HEADER_INTS * 4 + skip_bytes :], dtype="<f4")
    tensors, offset = {}, 0
    for pattern in LLMC_ORDER:
        for name in layer_names(pattern, config.n_layer):
            shape = tuple(shapes[name])
            if name == "wte.weight":
                shape = (config.padded_vocab_size, config.n_embd)
            tensors[name] = values[offset : offset + math.prod(shape)].reshape(shape)
            offset += math.prod(shape)
    assert offset == values.size, f"{path}: {values.size} values, the layout has {offset}"
    assert not tensors["wte.weight"][config.vocab_size :].any(), f"{path}: padding is not zero"
    tensors["wte.weight"] = tensors["wte.weight"][: config.vocab_size]
    return tensors


@torch.no_grad()
def check_gradients(
    model: GPT2, x: Tensor, y: Tensor, gradients: dict[str, np.ndarray], limit: float
) -> float:
    """Compares stored gradients with central differences in f64, for four entries of each tensor: the one with the
    largest gradient, and three random ones. Returns the largest error, relative to the tensor."""
    choose, step, worst = np.random.default_rng(0), 1e-5, 0.0
    for name, parameter in model.named_parameters():
        flat, gradient = parameter.view(-1), gradients[name].reshape(-1)
        entries = [int(np.abs(gradient).argmax()), *choose.integers(gradient.size, size=3).tolist()]
        for entry in entries:
            value = flat[entry].item()
            flat[entry] = value + step
            above = model.loss(x, y).item()
            flat[entry] = value - step
            below = model.loss(x, y).item()
            flat[entry] = value
            error = abs((above - below) / (2 * step) - float(gradient[entry]))
            scale = float(np.abs(gradient).max())
            if error > 1e-9:  # smaller errors are rounding errors of the difference
                worst = max(worst, error / scale if scale else math.inf)
            assert worst <= limit, f"{name}[{entry}]: stored {gradient[entry]}, off by {error}"
    return worst


def make(
    output: Path, name: str, config: Config, batch_size: int, seq_len: int, seed: int, dtype: str
) -> None:
    """Writes and checks NAME.bin, NAME_debug_state.bin and NAME.json."""
    output.mkdir(parents=True, exist_ok=True)
    model_path, state_path = output / f"{name}.bin", output / f"{name}_debug_state.bin"
    x, y = make_batch(config, batch_size, seq_len, seed)

    model = make_model(config, seed, DTYPES[dtype])
    logits = model(x)
    loss = mean_cross_entropy(logits, y)
    loss.backward()
    gradients = {key: p.grad for key, p in model.named_parameters()}
    gradient_norm = torch.nn.utils.get_total_norm(gradients.values()).item()
    write_model(model_path, config, dict(model.named_parameters()))
    write_debug_state(state_path, config, x, y, logits, loss, gradients)

    reference = make_model(config, seed, torch.float64)
    weights = read_tensors(model_path, 0, reference)
    for key, parameter in reference.named_parameters():
        assert np.array_equal(weights[key], parameter.detach().numpy()), f"{key}: rounded on disk"
    before_gradients = 4 * (x.numel() + y.numel() + logits.numel() + 1)
    stored = read_tensors(state_path, before_gradients, reference)
    error = check_gradients(reference, x, y, stored, limit=1e-6 if dtype == "f64" else 1e-4)

    runs = []
    for settings in optimizers(gradient_norm):
        runs.append(run_steps(make_model(config, seed, DTYPES[dtype]), x, y, settings))
        assert set(runs[-1]["parameter_norms"]) == set(weights)
    description = {
        "comment": f"made by make_golden.py with torch {torch.__version__.split('+')[0]}",
        "name": name,
        **asdict(config),
        "padded_vocab_size": config.padded_vocab_size,
        "batch_size": batch_size,
        "seq_len": seq_len,
        "seed": seed,
        "dtype": dtype,
        "runs": runs,
    }
    compact = json.dumps(ten_digits(description), separators=(",", ":"))
    (output / f"{name}.json").write_text(compact + "\n")
    print(f"{name}: loss {loss.item():.6f}, gradient norm {gradient_norm:.6f}, "
          f"clips {[run['grad_clip'] for run in runs]}, "
          f"central differences within {error:.1e}")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description="Writes golden states of a tiny GPT-2.")
    parser.add_argument("--name", help="without it the committed fixtures are written")
    parser.add_argument("--output", type=Path, default=Path(__file__).resolve().parent)
    parser.add_argument("--n-layer", type=int, default=2)
    parser.add_argument("--n-head", type=int, default=3)
    parser.add_argument("--n-embd", type=int, default=48)
    parser.add_argument("--block-size", type=int, default=20)
    parser.add_argument("--vocab-size", type=int, default=101)
    parser.add_argument("--batch-size", type=int, default=2)
    parser.add_argument("--seq-len", type=int, default=17)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dtype", choices=DTYPES, default="f64")
    args = parser.parse_args()
    torch.set_num_threads(1)  # the order of additions, and so the bytes, depend on the number of threads
    if args.name is None:
        make(args.output, "tiny", Config(2, 3, 48, 20, 101), 2, 17, args.seed, args.dtype)
        make(args.output, "one", Config(1, 1, 20, 7, 37), 1, 5, args.seed, args.dtype)
        return
    config = Config(args.n_layer, args.n_head, args.n_embd, args.block_size, args.vocab_size)
    make(args.output, args.name, config, args.batch_size, args.seq_len, args.seed, args.dtype)


if __name__ == "__main__":
    main()
