"""Optimisers, and schedules as functions of the step: a run that resumes has nothing to restore."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from lno.training.members import leading_axes
from lno.training.muon import Muon

MUON_RATE = 10.0  # Muon's updates have unit size, so its rate is larger than AdamW's


class Pace(NamedTuple):
    """What a schedule says of a step: a factor of the peak rate, and the first beta if it moves."""

    rate: float
    beta: float | None = None


def onecycle(step: int, steps: int, epochs: int) -> Pace:
    """Up from 1e-4 of the peak in a fifth of the steps, then down to 1e-8; beta 0.95 → 0.85 → 0.95.

    Smith & Topin's policy with the numbers of the paper's code, step for step that of torch.

    >>> [f"{onecycle(k, 100, 1).rate:.2g}" for k in (0, 19, 99)]
    ['0.0001', '1', '1e-08']
    """
    top, last = 0.2 * steps - 1, steps - 1
    if step <= top and top > 0:
        return Pace(_cosine(1e-4, 1.0, step / top), _cosine(0.95, 0.85, step / top))
    share = (step - max(top, 0)) / max(last - max(top, 0), 1)
    return Pace(_cosine(1.0, 1e-8, share), _cosine(0.85, 0.95, share))


def step_decay(step: int, steps: int, epochs: int) -> Pace:
    """×0.7 every 50 epochs, the paper's for inverse problems.

    >>> [step_decay(k, 100, 100).rate for k in (0, 49, 50)]
    [1.0, 1.0, 0.7]
    """
    return Pace(0.7 ** (step * epochs // steps // 50))


def cosine(step: int, steps: int, epochs: int) -> Pace:
    """A linear warm-up over a twentieth of the steps, then half a cosine down to zero.

    >>> [round(cosine(k, 100, 1).rate, 3) for k in (0, 4, 99)]
    [0.2, 1.0, 0.0]
    """
    warm = max(1, steps // 20)
    if step < warm:
        return Pace((step + 1) / warm)
    return Pace(_cosine(1.0, 0.0, (step - warm + 1) / (steps - warm)))


def constant(step: int, steps: int, epochs: int) -> Pace:
    """The peak rate, always."""
    return Pace(1.0)


SCHEDULES: dict[str, Callable[[int, int, int], Pace]] = {
    "onecycle": onecycle,
    "step": step_decay,
    "cosine": cosine,
    "constant": constant,
}


def adamw(model: nn.Module, rate: float, weight_decay: float, decay_all: bool) -> list[Optimizer]:
    """AdamW with the betas of the paper's code."""
    groups = _groups(model.parameters(), weight_decay, decay_all, leading_axes(model))
    return [torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.99), fused=True)]


def adam(model: nn.Module, rate: float, weight_decay: float, decay_all: bool) -> list[Optimizer]:
    """Adam, its weight decay a part of the gradient."""
    groups = _groups(model.parameters(), weight_decay, decay_all, leading_axes(model))
    return [torch.optim.Adam(groups, lr=rate, fused=True)]


def muon(model: nn.Module, rate: float, weight_decay: float, decay_all: bool) -> list[Optimizer]:
    """Muon for matrices with more than 16 rows and columns, AdamW for all else."""
    lead = leading_axes(model)
    matrices = [p for p in model.parameters() if p.ndim == lead + 2 and min(p.shape[lead:]) > 16]
    chosen = {id(p) for p in matrices}
    others = [p for p in model.parameters() if id(p) not in chosen]
    rest = _groups(others, weight_decay, decay_all, lead)
    optimizers: list[Optimizer] = [torch.optim.AdamW(rest, lr=rate, betas=(0.9, 0.99), fused=True)]
    if matrices:
        optimizers.append(Muon(matrices, MUON_RATE * rate, weight_decay))
    return optimizers


OPTIMIZERS: dict[str, Callable[[nn.Module, float, float, bool], list[Optimizer]]] = {
    "adamw": adamw,
    "adam": adam,
    "muon": muon,
}


def set_pace(optimizers: list[Optimizer], rate: float, pace: Pace) -> None:
    """Set rate and beta of all groups for the step to come."""
    for optimizer in optimizers:
        factor = MUON_RATE if isinstance(optimizer, Muon) else 1.0
        for group in optimizer.param_groups:
            group["lr"] = rate * pace.rate * factor
            if pace.beta is not None and "betas" in group:
                group["betas"] = (pace.beta, group["betas"][1])


def _groups(
    parameters: Iterable[Tensor], weight_decay: float, decay_all: bool, lead: int
) -> list[dict]:
    """Parameters with and without decay: norms and biases have one axis after the leading ones."""
    given = list(parameters)
    if decay_all:
        return [{"params": given, "weight_decay": weight_decay}]
    flat = [p for p in given if p.ndim < lead + 2]
    return [
        {"params": [p for p in given if p.ndim >= lead + 2], "weight_decay": weight_decay},
        {"params": flat, "weight_decay": 0.0},
    ]


def _cosine(start: float, end: float, share: float) -> float:
    return end + (start - end) * (1 + math.cos(math.pi * share)) / 2
