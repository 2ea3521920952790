"""Early stopping: the weights of each model at its lowest validation error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from lno.training.state import Point

# Points of the learning curve, of about 25. The error of a run is seldom monotone while the
# learning rate is high, and falls again at the end of the schedule.
PATIENCE = 8


class Best:
    """Copies of the weights of several models, part of the checkpoints of a run.

    >>> from lno.training.state import Point
    >>> model = nn.Linear(1, 1)
    >>> best, curve = Best([model]), []
    >>> for step, error in enumerate((0.3, 0.1, 0.2), start=1):
    ...     nn.init.constant_(model.weight, error)
    ...     curve.append(Point(step, 0.0, [1.0], [error]))
    ...     best.keep([model], curve)
    Parameter...
    >>> best.put_back([model])
    >>> round(model.weight.item(), 3), best_steps(curve)
    (0.1, [2])
    """

    def __init__(self, models: Sequence[nn.Module]) -> None:
        self.states = [{n: v.detach().clone() for n, v in m.state_dict().items()} for m in models]

    def keep(self, models: Sequence[nn.Module], curve: Sequence[Point]) -> None:
        """Copy the models whose error at the last point of the curve is their lowest."""
        for step, model, state in zip(best_steps(curve), models, self.states, strict=True):
            if step == curve[-1].step:
                for name, value in model.state_dict().items():
                    state[name].copy_(value)

    def put_back(self, models: Sequence[nn.Module]) -> None:
        """Give the models their best weights."""
        for model, state in zip(models, self.states, strict=True):
            model.load_state_dict(state)

    def tensors(self) -> dict[str, Tensor]:
        """By name, for checkpoints."""
        return {f"best.{k}.{n}": v for k, own in enumerate(self.states) for n, v in own.items()}

    def set_tensors(self, tensors: dict[str, Tensor]) -> None:
        """Copy what `tensors` gave, in place."""
        with torch.no_grad():
            for name, value in self.tensors().items():
                value.copy_(tensors[name])


def best_steps(curve: Sequence[Point]) -> list[int]:
    """The step at which each member had its lowest validation error, the first if there are two."""
    rows = [(point.step, point.errors) for point in curve if point.errors is not None]
    members = len(rows[0][1]) if rows else 0
    return [min(rows, key=lambda row: row[1][k])[0] for k in range(members)]


def exhausted(curve: Sequence[Point]) -> bool:
    """Whether no member has come below its lowest validation error for PATIENCE points."""
    steps = [point.step for point in curve]
    return bool(curve) and all(
        len(steps) - 1 - steps.index(step) >= PATIENCE for step in best_steps(curve)
    )
