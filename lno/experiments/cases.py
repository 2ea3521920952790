"""The sizes of the forward problems' data, and which models can be trained on them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import prod

import numpy as np
import torch

from lno.data import Fields, Spec
from lno.experiments.presets import preset
from lno.models import Demand, build_model, require_capable
from lno.tasks import Rollout, Task
from lno.training.inputs import model_config


@dataclass(frozen=True)
class Case:
    """The sizes of a problem's data under the standard protocol.

    Args:
        grid: of the points; of a cloud, their number.
        inputs: channels of u; without any, positions differ in every sample.
        outputs: channels of y.
    """

    grid: tuple[int, ...]
    inputs: int
    outputs: int

    def model_spec(self, task: Task) -> Spec:
        """What a model reads and predicts; a cloud is one of points in the plane.

        >>> CASES["ns2d"].model_spec(Rollout(10)).in_channels
        10
        """
        outputs = self.outputs // (task.frames if isinstance(task, Rollout) else 1)
        if self.inputs == 0:
            return task.model_spec(Spec(2, 0, outputs))
        return task.model_spec(Spec(len(self.grid), self.inputs, outputs, self.grid))

    def points_read(self, task: Task) -> int:
        """Points of a sample in one training step."""
        if task.time_as_input:
            return prod(self.grid[:-1])
        return prod(self.grid) * (task.frames if isinstance(task, Rollout) else 1)

    def data(self, samples: int) -> Fields:
        """Random numbers in place of the data."""
        random, n = np.random.default_rng(0), prod(self.grid)
        y = random.normal(size=(samples, n, self.outputs)).astype(np.float32)
        if self.inputs == 0:
            return Fields(random.uniform(size=(samples, n, 2)).astype(np.float32), y=y)
        axes = np.meshgrid(*(np.linspace(0, 1, side) for side in self.grid), indexing="ij")
        x = np.stack(axes, -1).reshape(n, -1)
        u = random.normal(size=(samples, n, self.inputs)).astype(np.float32)
        return Fields(x, u, y=y, grid=self.grid)


CASES: dict[str, Case] = {
    "darcy": Case((85, 85), 1, 1),
    "ns2d": Case((64, 64), 10, 10),
    "airfoil": Case((221, 51), 2, 1),
    "elasticity": Case((972,), 0, 1),
    "plasticity": Case((101, 31, 20), 1, 4),
    "pipe": Case((129, 129), 2, 1),
}


@cache
def obstacle(problem: str, model: str) -> str | None:
    """Why a model cannot be trained on a problem as its preset "paper" says; None: it can.

    >>> obstacle("elasticity", "transolver") is None
    True
    """
    chosen = preset(problem, "paper", model)
    spec = CASES[problem].model_spec(chosen.task)
    try:
        with torch.device("meta"):  # no memory, no time
            built = build_model(model, model_config(model, chosen.config, spec, chosen.task), spec)
        subset = chosen.recipe.queries is not None
        require_capable(built, model, Demand(spec, chosen.task.queries_elsewhere, subset=subset))
    except ValueError as error:
        return str(error)
    return None
