"""What a training step is computed in.

- fp32: everything in single precision.
- tf32: matrix products and convolutions of GPUs read their factors with 10 bits; the default there.
- mixed: besides, hidden layers, attention and weighted sums in bfloat16. Positions, first and last
  layers, scores, softmaxes and the loss stay in single precision, see `lno.models.lno.MLP`.
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
def matrix_products(name: str) -> Iterator[None]:
    """While inside, products and convolutions in single precision read their factors as named."""
    convolutions = torch.backends.cudnn
    before = torch.get_float32_matmul_precision(), convolutions.allow_tf32
    torch.set_float32_matmul_precision("highest" if name == "fp32" else "high")
    convolutions.allow_tf32 = name != "fp32"
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        convolutions.allow_tf32 = before[1]


def half_where_free(name: str, device: torch.device) -> torch.autocast:
    """The context of a forward pass: bfloat16 where the model allows it, under "mixed"."""
    return torch.autocast(device.type, torch.bfloat16, enabled=name == "mixed")
