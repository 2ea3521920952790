"""The precision of a training step.

- fp32: everything in float32.
- tf32: on GPUs, matrix products and convolutions read their inputs with 10-bit mantissas. The
  default there.
- mixed: tf32, and bfloat16 for hidden layers, attention and weighted sums. Positions, first and
  last layers, scores, softmaxes and the loss stay in float32, see `lno.models.lno.MLP`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

PRECISIONS = ("fp32", "tf32", "mixed")


def pick_precision(name: str, device: torch.device) -> str:
    """The precision called `name`; "auto" is tf32 on CUDA, fp32 elsewhere."""
    if name == "auto":
        return "tf32" if device.type == "cuda" else "fp32"
    if name not in PRECISIONS:
        raise ValueError(f"no precision {name!r}: expected auto, {', '.join(PRECISIONS)}")
    return name


@contextmanager
def matmul_precision(name: str) -> Iterator[None]:
    """Set the precision of float32 matrix products and convolutions while inside."""
    cudnn = torch.backends.cudnn
    before = torch.get_float32_matmul_precision(), cudnn.allow_tf32
    torch.set_float32_matmul_precision("highest" if name == "fp32" else "high")
    cudnn.allow_tf32 = name != "fp32"
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        cudnn.allow_tf32 = before[1]


def autocast(name: str, device: torch.device) -> torch.autocast:
    """The context of a forward pass: bfloat16 under "mixed", where the model allows it."""
    return torch.autocast(device.type, torch.bfloat16, enabled=name == "mixed")
