"""What solvers promise on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from lno.problems import Problem

GPU = torch.device("cuda")


def assert_gpu_agrees(problem: Problem, inputs: Sequence[Any], tolerance: float) -> None:
    """Solutions are those of the CPU, and do not depend on the rest of the batch, bit for bit."""
    cpu, gpu = (np.stack(problem.solve([*inputs], on)) for on in (torch.device("cpu"), GPU))
    assert np.linalg.norm(gpu - cpu) < tolerance * np.linalg.norm(cpu)
    n = len(inputs)
    order = [n - 1, 0, n // 2, 1, 1, 2][:n]
    assert np.array_equal(problem.solve([inputs[k] for k in order], GPU), gpu[order])
