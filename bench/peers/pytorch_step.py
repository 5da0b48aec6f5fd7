"""Times a training step of GPT-2 in PyTorch, on the CPU or on a GPU, to compare StageGPT with.

A step is zero_grad, forward, backward, clipping to norm 1 and AdamW, on one fixed batch of random
tokens. Prints one JSON object. Needs torch; --compile needs a C++ compiler as well.

On the CPU PyTorch is fastest with the defaults (fused AdamW) and tcmalloc, which avoids page faults when gradients and
logits are allocated again in each step:

    LD_PRELOAD=/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4 python3 pytorch_step.py

Measure with and without --compile: with tcmalloc they are within 3 % of each other (2 cores of
a Sapphire Rapids Xeon, torch 2.15.0).
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "golden"))
from gpt2_reference import GPT2, Config, decay_groups, initialize  # noqa: E402

# Environment variables that change the speed of PyTorch; reported with the result.
ENVIRONMENT = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY", "KMP_BLOCKTIME",
               "OMP_WAIT_POLICY", "THP_MEM_ALLOC_ENABLE", "GLIBC_TUNABLES", "LD_PRELOAD",
               "TORCHINDUCTOR_FREEZING", "TORCHINDUCTOR_CPP_WRAPPER")  # fmt: skip


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n-layer", type=int, default=12)
    parser.add_argument("--n-head", type=int, default=12)
    parser.add_argument("--n-embd", type=int, default=768)
    parser.add_argument("--vocab-size", type=int, default=50257, help="padded to a multiple of 128")
    parser.add_argument("--block-size", type=int, default=1024)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--seq-len", type=int, default=64)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--precision", choices=("f32", "tf32", "bf16"), default="f32",
                        help="of matrix products; bf16: autocast")  # fmt: skip
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--optimizer", choices=("foreach", "fused", "for-loop"), default="fused")
    parser.add_argument("--compile", action="store_true", help="torch.compile the model and loss")
    parser.add_argument("--compile-mode", default="default", help="torch.compile's mode")
    parser.add_argument("--keep-gradients", action="store_true",
                        help="zero gradients in place instead of freeing them")  # fmt: skip
    parser.add_argument("--flush-denormal", action="store_true")
    return parser.parse_args()


def make_step(args: argparse.Namespace) -> Callable[[], torch.Tensor]:
    """A function that does one training step and returns its loss."""
    config = Config(args.n_layer, args.n_head, args.n_embd, args.block_size, args.vocab_size)
    # As is usual in PyTorch, the padding rows are trained like the others.
    padded = Config(args.n_layer, args.n_head, args.n_embd, args.block_size,
                    config.padded_vocab_size)  # fmt: skip
    model = GPT2(padded, fused_attention=True)
    initialize(model, args.seed)
    model.to(args.device)
    tokens = torch.randint(config.vocab_size, (args.batch_size, args.seq_len + 1),
                           generator=torch.Generator().manual_seed(args.seed))  # fmt: skip
    x, y = tokens[:, :-1].contiguous().to(args.device), tokens[:, 1:].contiguous().to(args.device)
    kernels = {args.optimizer: True} if args.optimizer != "for-loop" else {"foreach": False}
    optimizer = torch.optim.AdamW(decay_groups(model, 0.1), lr=1e-4, betas=(0.9, 0.95), **kernels)
    loss_of = torch.compile(model.loss, mode=args.compile_mode) if args.compile else model.loss

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=not args.keep_gradients)
        with torch.autocast(args.device, torch.bfloat16, enabled=args.precision == "bf16"):
            loss = loss_of(x, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    return step


def main() -> None:
    args = parse_args()
    torch.set_num_threads(args.threads)
    torch.backends.cuda.matmul.allow_tf32 = args.precision == "tf32"
    torch.set_flush_denormal(args.flush_denormal)
    step = make_step(args)
    losses, milliseconds = [], []
    for index in range(args.warmup + args.steps):
        start = time.perf_counter()
        losses.append(step().item())
        if index >= args.warmup:
            milliseconds.append((time.perf_counter() - start) * 1e3)
    median = statistics.median(milliseconds)
    result = {
        "ms_per_step": {"median": round(median, 2), "min": round(min(milliseconds), 2),
                        "max": round(max(milliseconds), 2)},
        "tokens_per_second": round(args.batch_size * args.seq_len / median * 1e3, 2),
        "first_loss": losses[0],
        "last_loss": losses[-1],
        "torch": torch.__version__,
        "mkl": torch.backends.mkl.is_available(),
        "onednn": torch.backends.mkldnn.is_available(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "gpu": torch.cuda.get_device_name() if args.device == "cuda" else None,
        "peak_memory_bytes": torch.cuda.max_memory_allocated() if args.device == "cuda" else None,
        "options": vars(args),
        "environment": {name: os.environ[name] for name in ENVIRONMENT if name in os.environ},
    }  # fmt: skip
    print(json.dumps(result))


if __name__ == "__main__":
    main()
