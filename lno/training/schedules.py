"""Learning-rate schedules as functions of the step, so a resumed run has nothing to restore."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple


class Pace(NamedTuple):
    """One step of a schedule: a factor of the peak learning rate, and beta1 if it is cycled."""

    factor: float
    beta1: float | None = None


def onecycle(step: int, total_steps: int) -> Pace:
    """Warm up from 1e-4 of the peak over a fifth of the steps, then decay to 1e-8 of it.

    beta1 goes 0.95 → 0.85 → 0.95. Smith & Topin's policy with the paper's numbers; equal to
    `torch.optim.lr_scheduler.OneCycleLR` step by step.

    >>> [f"{onecycle(k, 100).factor:.2g}" for k in (0, 19, 99)]
    ['0.0001', '1', '1e-08']
    """
    return _onecycle(step, total_steps, warmup=0.2, start=1e-4, end=1e-8)


def onecycle_torch(step: int, total_steps: int) -> Pace:
    """The one-cycle policy with torch's defaults: 30 % warm-up from 1/25, decay to 4e-6.

    >>> [f"{onecycle_torch(k, 100).factor:.2g}" for k in (0, 29, 99)]
    ['0.04', '1', '4e-06']
    """
    return _onecycle(step, total_steps, warmup=0.3, start=1 / 25, end=1 / 25 / 1e4)


def step_decay(step: int, total_steps: int) -> Pace:
    """×0.7 after each tenth of the run, as in the paper's inverse problem (50 of 500 epochs).

    >>> [f"{step_decay(k, 100).factor:.2g}" for k in (0, 9, 10, 99)]
    ['1', '1', '0.7', '0.04']
    """
    return Pace(0.7 ** (10 * step // total_steps))


def halve_fifths(step: int, total_steps: int) -> Pace:
    """×0.5 after each fifth of the run: `StepLR(100, 0.5)` over the usual 500 epochs.

    >>> [halve_fifths(k, 100).factor for k in (0, 19, 20, 99)]
    [1.0, 1.0, 0.5, 0.0625]
    """
    return Pace(0.5 ** (5 * step // total_steps))


def halve_tenths(step: int, total_steps: int) -> Pace:
    """×0.5 after each tenth of the run: `StepLR(50, 0.5)` over the usual 500 epochs.

    >>> [halve_tenths(k, 100).factor for k in (0, 9, 10, 99)]
    [1.0, 1.0, 0.5, 0.001953125]
    """
    return Pace(0.5 ** (10 * step // total_steps))


def cosine(step: int, total_steps: int) -> Pace:
    """Linear warm-up over a twentieth of the steps, then half a cosine down to zero.

    >>> [round(cosine(k, 100).factor, 3) for k in (0, 4, 99)]
    [0.2, 1.0, 0.0]
    """
    warmup = max(1, total_steps // 20)
    if step < warmup:
        return Pace((step + 1) / warmup)
    return Pace(_cosine(1.0, 0.0, (step - warmup + 1) / (total_steps - warmup)))


def linear(step: int, total_steps: int) -> Pace:
    """Linear warm-up over a twentieth of the steps, then a linear decay that would reach zero next.

    >>> [round(linear(k, 100).factor, 3) for k in (0, 4, 5, 52, 99)]
    [0.2, 1.0, 1.0, 0.505, 0.011]
    """
    warmup = max(1, total_steps // 20)
    if step < warmup:
        return Pace((step + 1) / warmup)
    return Pace((total_steps - step) / (total_steps - warmup))


def cosine_torch(step: int, total_steps: int) -> Pace:
    """Half a cosine from the peak down to zero, without a warm-up.

    `torch.optim.lr_scheduler.CosineAnnealingLR` over all epochs, here changed at every step: they
    are equal at the first step of every epoch.

    >>> [round(cosine_torch(k, 100).factor, 3) for k in (0, 50, 99)]
    [1.0, 0.5, 0.0]
    """
    return Pace(_cosine(1.0, 0.0, step / total_steps))


def constant(step: int, total_steps: int) -> Pace:
    """Always the peak learning rate."""
    return Pace(1.0)


SCHEDULES: dict[str, Callable[[int, int], Pace]] = {
    "onecycle": onecycle,
    "onecycle_torch": onecycle_torch,
    "step": step_decay,
    "halve_fifths": halve_fifths,
    "halve_tenths": halve_tenths,
    "linear": linear,
    "cosine": cosine,
    "cosine_torch": cosine_torch,
    "constant": constant,
}


def _onecycle(step: int, total_steps: int, warmup: float, start: float, end: float) -> Pace:
    top, last = warmup * total_steps - 1, total_steps - 1
    if step <= top and top > 0:
        return Pace(_cosine(start, 1.0, step / top), _cosine(0.95, 0.85, step / top))
    progress = (step - max(top, 0)) / max(last - max(top, 0), 1)
    return Pace(_cosine(1.0, end, progress), _cosine(0.85, 0.95, progress))


def _cosine(start: float, end: float, progress: float) -> float:
    return end + (start - end) * (1 + math.cos(math.pi * progress)) / 2
