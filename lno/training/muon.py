"""Muon (Jordan et al., 2024): momentum whose matrices are made orthogonal before they are used.

torch has it for one matrix at a time. Here all matrices of one shape, of all members of a batched
run, go through the iteration together: a handful of launches a step instead of a thousand.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

ITERATION = (3.4445, -4.7750, 2.0315)  # odd quintic that pulls singular values to one; its authors'
STEPS = 5


class Muon(Optimizer):
    """Muon for parameters of shape (..., rows, columns), step for step `torch.optim.Muon`.

    Args:
        parameters: matrices, or stacks of them.
        lr: the size of an update, the same for matrices of every shape but tall ones, whose
            updates are √(rows / columns) larger.
        weight_decay: decoupled, a share lr · weight_decay of the weights.
        momentum: of the running mean of gradients, which is looked ahead of (Nesterov).

    >>> w = torch.nn.Parameter(torch.eye(32))
    >>> muon = Muon([w], lr=0.1)
    >>> w.grad = torch.rand(32, 32)
    >>> muon.step()
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        lr: float,
        weight_decay: float = 0.0,
        momentum: float = 0.95,
    ) -> None:
        defaults = {"lr": lr, "weight_decay": weight_decay, "momentum": momentum}
        super().__init__(parameters, defaults)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Take a step with the gradients that the parameters have."""
        for group in self.param_groups:
            by_shape: dict[tuple[int, ...], list[Tensor]] = {}
            for p in group["params"]:
                if p.grad is not None:
                    by_shape.setdefault(tuple(p.shape), []).append(p)
            for parameters in by_shape.values():
                self._update(parameters, group["lr"], group["weight_decay"], group["momentum"])

    def _update(
        self, parameters: list[Tensor], rate: float, weight_decay: float, momentum: float
    ) -> None:
        gradients = [p.grad for p in parameters if p.grad is not None]
        buffers = [
            self.state[p].setdefault("momentum_buffer", torch.zeros_like(p)) for p in parameters
        ]
        torch._foreach_lerp_(buffers, gradients, 1 - momentum)
        ahead = torch._foreach_lerp(gradients, buffers, momentum)
        updates = orthogonal(torch.stack(ahead)).unbind()
        rows, columns = parameters[0].shape[-2:]
        torch._foreach_mul_(parameters, 1 - rate * weight_decay)
        torch._foreach_add_(parameters, updates, alpha=-rate * math.sqrt(max(1, rows / columns)))


def orthogonal(matrices: Tensor) -> Tensor:
    """Approximately U Vᵀ of each matrix U Σ Vᵀ (..., rows, columns), by Newton–Schulz.

    In bfloat16 where the matrices are in single precision: the iteration forgives rounding.
    """
    a, b, c = ITERATION
    x = matrices.to(torch.bfloat16) if matrices.dtype == torch.float32 else matrices
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    shape = x.shape
    x = x.reshape(-1, *shape[-2:])
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    for _ in range(STEPS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    x = x.view(shape)
    return (x.mT if tall else x).to(matrices.dtype)
