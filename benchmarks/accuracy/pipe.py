"""Errors of the flow through a pipe, and statistics of its data; see `solver_accuracy.py`.

    python benchmarks/accuracy/pipe.py

prints the errors. They are relative L2 errors of the horizontal velocity unless said otherwise.
"""

from __future__ import annotations

import math
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lno.data import Fields
from lno.problems import Pipe
from lno.problems.make import generator
from lno.problems.numerics.taylor_hood import TaylorHood
from lno.problems.pipe import GRAD_DIV, steady_flow

SAMPLES = 4  # of the standard grid


def velocity(problem: Pipe, nodes: np.ndarray, grad_div: float = GRAD_DIV) -> np.ndarray:
    """Velocities (m, m, 2) in double precision."""
    equations = TaylorHood(torch.from_numpy(nodes)[None], problem.viscosity, grad_div)
    flow, converged = steady_flow(equations, problem.inflow())
    if not converged.all():
        raise RuntimeError("the flow has not converged: expected one that does")
    return flow.velocity[0].numpy()


def difference(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


def station_flux(u: np.ndarray) -> np.ndarray:
    """The flux through each line of nodes over that of the inflow, by Simpson's rule."""
    weights = np.ones(u.shape[1])
    weights[1::2], weights[2:-1:2] = 4, 2
    return u @ weights / (u.shape[1] // 2)


def smooth_order() -> float:
    """The order of convergence from 8, 16 and 32 elements in a pipe without joints or corners."""
    flows = []
    for n in (8, 16, 32):
        problem = Pipe(elements=n, viscosity=0.02)
        nodes = problem.mesh(np.zeros((2, 5)))
        nodes[..., 1] += 0.5 * np.tanh((nodes[..., 0] - 5) / 1.2)
        flows.append(velocity(problem, nodes)[:: n // 8, :: n // 8])
    coarse, fine = (float(np.linalg.norm(a - b)) for a, b in pairwise(flows))
    return math.log2(coarse / fine)


def by_triangles(problem: Pipe, nodes: np.ndarray) -> np.ndarray:
    """Horizontal velocities by scikit-fem; shares no code with the solver."""
    sys.path.append(str(Path(__file__).parents[2] / "tests" / "problems"))
    from pipe_reference import reference_flow

    return reference_flow(problem, nodes, "triangles")[0]


def measure() -> list[dict[str, Any]]:
    """The errors, in about 90 seconds on one core."""
    problem = Pipe()
    straight = velocity(problem, problem.mesh(np.zeros((2, 5))))[..., 0]
    drawn = [problem.draw(generator(0, k)) for k in range(SAMPLES)]
    flows = [velocity(problem, problem.mesh(d))[..., 0] for d in drawn]
    coarse, finer = (
        velocity(other, other.mesh(drawn[0]))[..., 0]
        for other in (replace(problem, elements=n) for n in (32, 96))
    )
    without = velocity(problem, problem.mesh(drawn[0]), grad_div=0.0)[..., 0]
    flux = np.stack([station_flux(u) for u in flows]) - 1
    rows: dict[str, float] = {
        "straight pipe against Poiseuille flow, largest error": np.abs(
            straight - (0.25 - problem.across() ** 2)
        ).max(),
        "order of convergence in a smooth pipe (expected: 3)": smooth_order(),
        "32 elements against 64": difference(coarse, flows[0][::2, ::2]),
        "64 elements against 96": difference(flows[0][::2, ::2], finer[::3, ::3]),
        "the same without the term −γ ∇(∇·u)": difference(without[::2, ::2], finer[::3, ::3]),
        "64 elements against P2–P1 triangles of scikit-fem": difference(
            flows[0], by_triangles(problem, problem.mesh(drawn[0]))
        ),
        "flux at the outlet, largest relative error": np.abs(flux[:, -1]).max(),
        "flux through all stations, root mean square": np.sqrt(np.mean(flux**2)),
        "flux through all stations, largest relative error": np.abs(flux).max(),
    }
    return [{"check": check, "value": float(value)} for check, value in rows.items()]


def statistics(samples: Fields) -> list[dict[str, Any]]:
    """What is known of the published data, beside ours."""
    n, m = samples.grid or (0, 0)
    u = np.asarray(samples.y).reshape(-1, n, m)
    joints = np.asarray(samples.u)[..., 1].reshape(-1, n, m)[:, :: (n - 1) // 4, m // 2]
    largest = u.max(axis=(1, 2))
    rows = [
        ("peak of the inflow", u[:, 0].max(), 0.25),
        ("largest height of a joint of the centreline", np.abs(joints).max(), 1.0),
        ("largest velocity of a sample, mean", largest.mean(), None),
        ("largest velocity of a sample, largest", largest.max(), None),
        ("share of nodes with reverse flow", (u < 0).mean(), None),
    ]
    return [
        {"statistic": name, "ours": float(ours), "published": published}
        for name, ours, published in rows
    ]


if __name__ == "__main__":
    torch.set_num_threads(1)
    for row in measure():
        print(f"{row['value']:.2e}  {row['check']}")
