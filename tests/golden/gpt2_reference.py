"""A short GPT-2 in PyTorch: the independent reference for StageGPT's numbers.

Parameters have the names of Hugging Face's GPT-2. Their orientation is that of nn.Linear, (out,in),
which is also that of llm.c's files. Dimensions: B batch, T time, C channels, NH heads,
HS = C/NH head size, V vocabulary, Vp padded vocabulary, L layers.
"""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

LAYERNORM_EPS = 1e-5
VOCAB_MULTIPLE = 128

MODEL_MAGIC, MODEL_VERSION_F32 = 20240326, 3
STATE_MAGIC, STATE_VERSION = 20240327, 2
HEADER_INTS = 256

# The order of the tensors in llm.c's files; "*" stands for all layers, stacked.
LLMC_ORDER = [
    "wte.weight", "wpe.weight",
    "h.*.ln_1.weight", "h.*.ln_1.bias",
    "h.*.attn.c_attn.weight", "h.*.attn.c_attn.bias",
    "h.*.attn.c_proj.weight", "h.*.attn.c_proj.bias",
    "h.*.ln_2.weight", "h.*.ln_2.bias",
    "h.*.mlp.c_fc.weight", "h.*.mlp.c_fc.bias",
    "h.*.mlp.c_proj.weight", "h.*.mlp.c_proj.bias",
    "ln_f.weight", "ln_f.bias",
]  # fmt: skip


@dataclass(frozen=True)
class Config:
    n_layer: int = 12
    n_head: int = 12
    n_embd: int = 768
    block_size: int = 1024
    vocab_size: int = 50257

    @property
    def padded_vocab_size(self) -> int:
        return -(-self.vocab_size // VOCAB_MULTIPLE) * VOCAB_MULTIPLE


class Attention(nn.Module):
    """Causal self-attention: softmax(q k^T / sqrt(HS), no key after its query) v, for each head."""

    def __init__(self, config: Config, fused: bool):
        super().__init__()
        self.n_head, self.fused = config.n_head, fused
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd)

    def forward(self, x: Tensor) -> Tensor:  # (B,T,C) -> (B,T,C)
        B, T, C = x.shape
        packed = self.c_attn(x).view(B, T, 3, self.n_head, C // self.n_head)  # (B,T,3,NH,HS)
        q, k, v = packed.permute(2, 0, 3, 1, 4)  # (B,NH,T,HS) each
        if self.fused:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.mT / math.sqrt(q.shape[-1])  # (B,NH,T,T)
            later = torch.ones(T, T, dtype=torch.bool, device=x.device).triu(diagonal=1)
            y = scores.masked_fill(later, -math.inf).softmax(dim=-1) @ v
        return self.c_proj(y.transpose(1, 2).reshape(B, T, C))


class Mlp(nn.Module):
    def __init__(self, config: Config):
        super().__init__()
        self.c_fc = nn.Linear(config.n_embd, 4 * config.n_embd)
        self.c_proj = nn.Linear(4 * config.n_embd, config.n_embd)

    def forward(self, x: Tensor) -> Tensor:  # (B,T,C) -> (B,T,C)
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, config: Config, fused: bool):
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.n_embd, eps=LAYERNORM_EPS)
        self.attn = Attention(config, fused)
        self.ln_2 = nn.LayerNorm(config.n_embd, eps=LAYERNORM_EPS)
        self.mlp = Mlp(config)

    def forward(self, x: Tensor) -> Tensor:  # (B,T,C) -> (B,T,C)
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT2(nn.Module):
    """`fused_attention` selects PyTorch's kernel. By default, attention is computed step by step."""

    def __init__(self, config: Config, fused_attention: bool = False):
        super().__init__()
        self.config = config
        self.wte = nn.Embedding(config.vocab_size, config.n_embd)
        self.wpe = nn.Embedding(config.block_size, config.n_embd)
        self.h = nn.ModuleList(Block(config, fused_attention) for _ in range(config.n_layer))
        self.ln_f = nn.LayerNorm(config.n_embd, eps=LAYERNORM_EPS)

    def forward(self, tokens: Tensor) -> Tensor:  # (B,T) -> logits (B,T,V)
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.wte(tokens) + self.wpe(positions)  # (B,T,C)
        for block in self.h:
            x = block(x)
        return F.linear(self.ln_f(x), self.wte.weight)  # lm_head is tied to wte

    def loss(self, tokens: Tensor, targets: Tensor) -> Tensor:  # (B,T), (B,T) -> scalar
        return mean_cross_entropy(self(tokens), targets)


def mean_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


@torch.no_grad()
def initialize(model: GPT2, seed: int, weight_std: float = 0.02, perturbation: float = 0.0) -> None:
    """GPT-2's initialisation, then `perturbation` * N(0,1) on every bias and layernorm weight.

    No bias is then zero and no layernorm weight is one, so that tests detect a kernel that ignores one of
    them. Values are drawn in f64 and rounded to f32, so that a file holds them exactly.
    """
    generator = torch.Generator().manual_seed(seed)
    residual_std = weight_std / math.sqrt(2 * model.config.n_layer)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        if parameter.dim() >= 2:
            value = noise * (residual_std if name.endswith("c_proj.weight") else weight_std)
        else:
            value = noise * perturbation + (1.0 if name.endswith("weight") else 0.0)
        parameter.copy_(value.float())


def decay_groups(model: GPT2, weight_decay: float) -> list[dict]:
    """Parameter groups for torch.optim: only tensors of two or more dimensions have weight decay."""
    parameters = list(model.parameters())
    return [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]


def layer_names(pattern: str, n_layer: int) -> list[str]:
    """The Hugging Face names of an entry of LLMC_ORDER."""
    if "*" not in pattern:
        return [pattern]
    return [pattern.replace("*", str(layer)) for layer in range(n_layer)]


def llmc_bytes(config: Config, tensors: dict[str, Tensor]) -> bytes:
    """All tensors as f32 in llm.c's order; wte is padded with zeros from V to Vp rows."""
    parts = []
    for pattern in LLMC_ORDER:
        for name in layer_names(pattern, config.n_layer):
            array = tensors[name].detach().numpy().astype("<f4")
            if name == "wte.weight":
                array = np.pad(array, [(0, config.padded_vocab_size - config.vocab_size), (0, 0)])
            parts.append(array.tobytes())
    return b"".join(parts)


def _header(*fields: int) -> bytes:
    header = np.zeros(HEADER_INTS, dtype="<i4")
    header[: len(fields)] = fields
    return header.tobytes()


def write_model(path: Path, config: Config, tensors: dict[str, Tensor]) -> None:
    """llm.c's model file, version 3 (f32)."""
    header = _header(
        MODEL_MAGIC, MODEL_VERSION_F32, config.block_size, config.vocab_size, config.n_layer,
        config.n_head, config.n_embd, config.padded_vocab_size,
    )  # fmt: skip
    path.write_bytes(header + llmc_bytes(config, tensors))


def write_debug_state(
    path: Path, config: Config, x: Tensor, y: Tensor, logits: Tensor, loss: Tensor,
    gradients: dict[str, Tensor],
) -> None:  # fmt: skip
    """llm.c's debug state: the batch, the logits of the V real columns, the loss, the gradients."""
    with path.open("wb") as file:
        file.write(_header(STATE_MAGIC, STATE_VERSION, *x.shape))
        for tokens in (x, y):
            file.write(tokens.numpy().astype("<i4").tobytes())
        for values in (logits, loss):
            file.write(values.detach().numpy().astype("<f4").tobytes())
        file.write(llmc_bytes(config, gradients))
