"""Making data sets: sample k of a seed is the same however it is made.

A problem is a frozen dataclass whose fields are its physics and resolution. Its `draw` makes the
random input of one sample from (seed, index) alone, on the CPU; `solve` takes any number of inputs
and gives each the same solution whatever its companions; `fields` gives both their meaning.
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
    batch: ClassVar[int]  # how many samples a GPU solves at once

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
    require_count("seed", seed, 2**32, least=0)
    inputs, solutions = [], []
    step = problem.batch if torch.device(device).type == "cuda" else min(32, problem.batch)
    for start in range(0, samples, step):
        stop = min(start + step, samples)
        drawn = np.stack([problem.draw(generator(seed, k)) for k in range(start, stop)])
        inputs.append(drawn)
        solutions.append(problem.solve(torch.from_numpy(drawn).to(device)).cpu().numpy())
        progress(stop)
    provenance = {"problem": problem.name, "seed": seed, "parameters": to_dict(problem)}
    return problem.fields(np.concatenate(inputs), np.concatenate(solutions), provenance)
