"""Making data sets: sample k of a seed is the same however it is made.

A problem is a frozen dataclass whose fields are its physics and resolution. Its `draw` makes the
random input of one sample from (seed, index) alone, on the CPU; `solve` takes a batch of inputs;
`fields` gives inputs and solutions their meaning. Batches have one fixed size, padded at the end,
so that no result depends on how many samples were asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from lno.config import require_count, to_dict
from lno.data import Fields


class Problem(Protocol):
    """What a problem offers to be made into data."""

    name: ClassVar[str]
    batch: ClassVar[int]  # how many samples are solved at once

    def draw(self, random: np.random.Generator) -> np.ndarray:
        """The random input of one sample."""

    def solve(self, inputs: Tensor) -> Tensor:
        """Solutions of a batch of inputs."""

    def fields(
        self, inputs: np.ndarray, solutions: np.ndarray, provenance: dict[str, Any]
    ) -> Fields:
        """Inputs and solutions of all samples as data."""


def generator(seed: int, index: int) -> np.random.Generator:
    """The random numbers of sample `index` of data set `seed`."""
    return np.random.default_rng([seed, index])


def make(
    problem: Problem,
    samples: int,
    seed: int = 0,
    device: str = "cpu",
    progress: Callable[[int], None] = lambda done: None,
) -> Fields:
    """Draw and solve samples 0..samples of `seed`; `progress` hears how many are done."""
    require_count("samples", samples, 10**9)
    require_count("seed + 1", seed + 1, 2**32)
    inputs, solutions = [], []
    for start in range(0, samples, problem.batch):
        drawn = np.stack([problem.draw(generator(seed, start + k)) for k in range(problem.batch)])
        solved = problem.solve(torch.from_numpy(drawn).to(device)).cpu().numpy()
        inputs.append(drawn[: samples - start])
        solutions.append(solved[: samples - start])
        progress(min(start + problem.batch, samples))
    provenance = {"problem": problem.name, "seed": seed, "parameters": to_dict(problem)}
    return problem.fields(np.concatenate(inputs), np.concatenate(solutions), provenance)
