"""Writes tiny random GPT-2 models as `transformers` and other tools save them: fixtures for tests of the reader.

    pip install torch transformers safetensors
    python3 hugging_face_models.py             rewrites the committed fixtures in hugging_face/, next to this file

The fixtures were made with torch 2.15.0, transformers 5.23.0 and safetensors 0.8.0. README.md describes them.
scripts/check_hugging_face.py writes more variants, with the installed version of transformers.
"""

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel

STD = 0.15  # standard deviation of weights; with GPT-2's 0.02, meant for 768 channels, attention would be nearly uniform
PERTURBATION = 0.1  # added to biases and layernorm weights, so that tests detect a reader that skips one


def random_model(dtype: torch.dtype = torch.float32, **config) -> GPT2LMHeadModel:
    """A model in which every parameter affects the result, with weights that `dtype` represents exactly."""
    model = GPT2LMHeadModel(GPT2Config(**config)).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():  # without the tied head
            noise = torch.randn(parameter.shape, generator=generator)
            if name.endswith("bias") or ".ln_" in name:
                parameter += PERTURBATION * noise
            else:
                parameter.copy_(STD * noise)
    return model.to(dtype)


def save_sharded(model: GPT2LMHeadModel, directory: Path) -> None:
    model.save_pretrained(directory, max_shard_size="4KB")
    assert (directory / "model.safetensors.index.json").exists()


def base_tensors(model: GPT2LMHeadModel) -> dict[str, torch.Tensor]:
    """The tensors under names without the prefix "transformer."."""
    return {name: p.detach().clone() for name, p in model.transformer.named_parameters()}


def masks(model: GPT2LMHeadModel, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """The causal mask, which older versions save with the weights."""
    T = model.config.n_positions
    tensors = {}
    for layer in range(model.config.n_layer):
        triangle = torch.ones(T, T).tril().view(1, 1, T, T)
        tensors[f"h.{layer}.attn.bias"] = triangle.to(dtype)
        tensors[f"h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    return tensors


def write_tensors(
    model: GPT2LMHeadModel, directory: Path, tensors: dict[str, torch.Tensor], **config
) -> None:
    """Writes a directory with these tensors. `config` is added to the configuration of the model."""
    directory.mkdir(parents=True)
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    plain = json.loads(model.config.to_json_string()) | config
    (directory / "config.json").write_text(json.dumps(plain, indent=2) + "\n")


def save_base(model: GPT2LMHeadModel, directory: Path) -> None:
    model.transformer.save_pretrained(directory)


def save_bare(model: GPT2LMHeadModel, directory: Path) -> None:
    """Names without prefix, masks as numbers: like GPT-2 itself on Hugging Face's hub."""
    tensors = base_tensors(model) | masks(model, torch.float32)
    write_tensors(model, directory, tensors)


def save_bare_with_head(model: GPT2LMHeadModel, directory: Path) -> None:
    tensors = base_tensors(model) | masks(model, torch.bool)
    tensors["lm_head.weight"] = tensors["wte.weight"].clone()
    write_tensors(model, directory, tensors)


def save_prefixed_with_head(model: GPT2LMHeadModel, directory: Path) -> None:
    tensors = base_tensors(model) | masks(model, torch.bool)
    tensors = {f"transformer.{name}": tensor for name, tensor in tensors.items()}
    tensors["lm_head.weight"] = tensors["transformer.wte.weight"].clone()
    write_tensors(model, directory, tensors)


def save_with_hub_config(model: GPT2LMHeadModel, directory: Path) -> None:
    """With the same fields in config.json as GPT-2 on Hugging Face's hub."""
    model.save_pretrained(directory)
    shape = {name: getattr(model.config, name) for name in ("n_embd", "n_head", "n_layer", "vocab_size")}
    tokens = {name: model.config.eos_token_id for name in ("bos_token_id", "eos_token_id")}
    config = shape | tokens | {
        "activation_function": "gelu_new",
        "architectures": ["GPT2LMHeadModel"],
        "attn_pdrop": 0.1,
        "embd_pdrop": 0.1,
        "initializer_range": 0.02,
        "layer_norm_epsilon": 1e-05,
        "model_type": "gpt2",
        "n_ctx": model.config.n_positions,
        "n_positions": model.config.n_positions,
        "resid_pdrop": 0.1,
        "summary_activation": None,
        "summary_first_dropout": 0.1,
        "summary_proj_to_labels": True,
        "summary_type": "cls_index",
        "summary_use_proj": True,
        "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
    }  # fmt: skip
    (directory / "config.json").write_text(json.dumps(config, indent=2) + "\n")


@dataclass(frozen=True)
class Variant:
    name: str
    save: Callable[[GPT2LMHeadModel, Path], None] = GPT2LMHeadModel.save_pretrained
    dtype: torch.dtype = torch.float32
    config: dict = field(default_factory=dict)

    def model(self, **config) -> GPT2LMHeadModel:
        return random_model(self.dtype, **config, **self.config)


# The variants combine activations, dtypes and ways to save, so that a few files cover all of them.
FIXTURES = [
    Variant("plain"),
    Variant("sharded", save_sharded, torch.float16, {"activation_function": "gelu"}),
    Variant("bf16", dtype=torch.bfloat16, config={"activation_function": "relu"}),
    Variant("f16", save_base, torch.float16),
    Variant("masks_without_prefix", save_bare_with_head, torch.bfloat16),
    Variant(
        "untied",
        config={
            "tie_word_embeddings": False, "n_inner": 31, "layer_norm_epsilon": 1e-3, "scale_attn_by_inverse_layer_idx": True,
        },
    ),  # fmt: skip
    Variant("inner_and_epsilon", config={"n_inner": 31, "layer_norm_epsilon": 1e-3, "scale_attn_weights": False}),
]
# Unusual sizes on purpose: only the numbers of layers and heads are powers of two.
FIXTURE_CONFIG = dict(
    vocab_size=67, n_positions=15, n_embd=12, n_layer=2, n_head=2, bos_token_id=66, eos_token_id=66
)


def ten_digits(values: torch.Tensor) -> list[float]:
    return [float(f"{value:.10g}") for value in values.tolist()]


def write_gradients(model: GPT2LMHeadModel, ids: torch.Tensor, file: Path) -> float:
    """The gradients of the mean loss of all ids but the first, by the names without "transformer.". Returns the loss."""
    logits = model(ids).logits[0]  # in f64; the loss of `transformers` would round them to f32
    loss = torch.nn.functional.cross_entropy(logits[:-1], ids[0, 1:])
    loss.backward()
    gradients = {name.removeprefix("transformer."): p.grad.float() for name, p in model.named_parameters()}
    save_file(gradients, file.with_suffix(".safetensors"))
    return float(f"{loss.item():.10g}")


# A training on one sample, with parameters that are not trained.
STEPS = dict(freeze=["wte*", "h.0.*", "*.ln_2.bias"], steps=8, learning_rate=0.01, beta1=0.9, beta2=0.95, eps=1e-8,
             weight_decay=0.1, grad_clip=0.5)  # fmt: skip


def frozen_steps(model: GPT2LMHeadModel, ids: torch.Tensor) -> dict:
    """Losses before each update and gradient norms before clipping, of the parameters that are trained, in f64."""
    trained = []
    for name, parameter in model.named_parameters():
        is_frozen = any(fnmatchcase(name.removeprefix("transformer."), pattern) for pattern in STEPS["freeze"])
        parameter.requires_grad_(not is_frozen)
        trained += [] if is_frozen else [parameter]
    groups = [
        {"params": [p for p in trained if p.dim() >= 2], "weight_decay": STEPS["weight_decay"]},
        {"params": [p for p in trained if p.dim() < 2], "weight_decay": 0},
    ]
    optimizer = torch.optim.AdamW(
        groups, lr=STEPS["learning_rate"], betas=(STEPS["beta1"], STEPS["beta2"]), eps=STEPS["eps"]
    )
    losses, norms = [], []
    for _ in range(STEPS["steps"]):
        optimizer.zero_grad()
        logits = model(ids).logits[0]
        loss = torch.nn.functional.cross_entropy(logits[:-1], ids[0, 1:])
        loss.backward()
        losses.append(loss.detach())
        norms.append(torch.nn.utils.clip_grad_norm_(trained, STEPS["grad_clip"]))
        optimizer.step()
    return STEPS | {"losses": ten_digits(torch.stack(losses)), "gradient_norms": ten_digits(torch.stack(norms))}


def write_fixtures(output: Path) -> None:
    shutil.rmtree(output, ignore_errors=True)
    generator = torch.Generator().manual_seed(2)
    T, V = FIXTURE_CONFIG["n_positions"], FIXTURE_CONFIG["vocab_size"]
    ids = torch.randint(V, (1, T), generator=generator)
    expected = {"ids": ids[0].tolist(), "logits": {}, "losses": {}, "steps": {}}
    for variant in FIXTURES:
        model = variant.model(**FIXTURE_CONFIG)
        variant.save(model, output / variant.name)
        with torch.no_grad():
            logits = model.double()(ids).logits[0]  # (T,V), in f64, with exactly the saved weights
        expected["logits"][variant.name] = {"first": ten_digits(logits[0]), "last": ten_digits(logits[-1])}
        if not model.config.tie_word_embeddings:
            expected["losses"][variant.name] = write_gradients(model, ids, output / f"{variant.name}_gradients")
            expected["steps"][variant.name] = frozen_steps(model, ids)
        print(f"{variant.name}: logits up to {logits.abs().max().item():.3f}")
    (output / "logits.json").write_text(json.dumps(expected, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    torch.set_num_threads(1)  # the order of additions, and so the last digits, depend on the number of threads
    write_fixtures(Path(__file__).resolve().parent / "hugging_face")
