"""Schedules as functions of the step: a run that resumes has nothing to restore."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple


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
    return _onecycle(step, steps, 0.2, 1e-4, 1e-8)


def onecycle_torch(step: int, steps: int, epochs: int) -> Pace:
    """The same policy with torch's default numbers: 30 % up from 1/25, down to 4e-6.

    >>> [f"{onecycle_torch(k, 100, 1).rate:.2g}" for k in (0, 29, 99)]
    ['0.04', '1', '4e-06']
    """
    return _onecycle(step, steps, 0.3, 1 / 25, 1 / 25 / 1e4)


def step_decay(step: int, steps: int, epochs: int) -> Pace:
    """×0.7 after each tenth of the steps: the paper's for inverse problems, every 50 of 500 epochs.

    >>> [f"{step_decay(k, 100, 1).rate:.2g}" for k in (0, 9, 10, 99)]
    ['1', '1', '0.7', '0.04']
    """
    return Pace(0.7 ** (10 * step // steps))


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
    "onecycle_torch": onecycle_torch,
    "step": step_decay,
    "cosine": cosine,
    "constant": constant,
}


def _onecycle(step: int, steps: int, warm: float, start: float, end: float) -> Pace:
    top, last = warm * steps - 1, steps - 1
    if step <= top and top > 0:
        return Pace(_cosine(start, 1.0, step / top), _cosine(0.95, 0.85, step / top))
    share = (step - max(top, 0)) / max(last - max(top, 0), 1)
    return Pace(_cosine(1.0, end, share), _cosine(0.85, 0.95, share))


def _cosine(start: float, end: float, share: float) -> float:
    return end + (start - end) * (1 + math.cos(math.pi * share)) / 2
