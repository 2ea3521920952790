"""Errors of the forging solver against exact and finer solutions, and statistics of its data.

The errors take about a minute on one core. A full-size block is solved twice, with the usual time
step and with half of it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from lno.data import Fields
from lno.problems.make import generator
from lno.problems.numerics.forging import forge
from lno.problems.numerics.forging_cpu import forge_one
from lno.problems.plasticity import (
    HEIGHT,
    LENGTH,
    SAFETY,
    TOP,
    Plasticity,
    areas,
    die_pieces,
    die_profile,
)

FLAT = np.zeros((8, 4))


def measure() -> list[dict[str, Any]]:
    """One row for each check."""
    return [*flat_die(), *elastic_limit(), *two_implementations(), *full_size()]


def flat_die() -> list[dict[str, Any]]:
    """Uniaxial stress σ_Y, and L/L0 = (H/H0)^{-1/2}, after 8 % of compression in 0.42 ms."""
    problem = Plasticity(length_nodes=21, height_nodes=7, frames=6, duration=0.5)
    u, imbalance, stress = forge_one(problem.press(), FLAT)
    height = 1 + (u[-1, 1, :, 0] - u[-1, 1, :, -1]).mean() / HEIGHT
    length = 1 + (u[-1, 0, 0] - u[-1, 0, -1]).mean() / LENGTH
    return [
        {"check": "flat die: stretch, solved", "value": float(length)},
        {"check": "flat die: stretch, exact", "value": float(height**-0.5)},
        {"check": "flat die: mean vertical stress, exact −70", "value": float(stress[1].mean())},
        {"check": "flat die: energy imbalance", "value": imbalance},
    ]


def elastic_limit() -> list[dict[str, Any]]:
    """A slow press to a third of the yield stress: E and ν, as the block shows them."""
    problem = Plasticity(length_nodes=21, height_nodes=7, frames=6, duration=0.6, speed=0.003)
    u, _, stress = forge_one(problem.press(), FLAT)
    strain = -problem.speed * 0.5 / HEIGHT
    lateral = (u[-1, 0, 0] - u[-1, 0, -1]).mean() / LENGTH
    modulus = stress[1].mean() / strain
    return [
        {"check": "elastic: Young's modulus, exact 200000", "value": float(modulus), "unit": "MPa"},
        {"check": "elastic: Poisson's ratio, exact 0.3", "value": float(-lateral / strain)},
    ]


def two_implementations() -> list[dict[str, Any]]:
    """The solver of GPUs (torch) in both precisions against that of CPUs (numba), 0.3 ms."""
    problem = Plasticity(length_nodes=21, height_nodes=7, frames=3, duration=0.45)
    die = die_pieces(problem.draw(generator(0, 0)))
    u, _, stress = forge_one(problem.press(), die)
    double = forge(problem.press(), torch.from_numpy(die)[None])
    single = forge(problem.press(), torch.from_numpy(die)[None].float())
    return [
        {
            "check": "torch against numba, both on the CPU: stress",
            "value": difference(double.stress[0].numpy(), stress),
        },
        {
            "check": "torch in single precision against numba: displacement",
            "value": difference(single.u[0].numpy(), u),
        },
    ]


def full_size() -> list[dict[str, Any]]:
    """Sample 0 of seed 0: time step, mesh, energy, penetration, area."""
    problem = Plasticity()
    die = die_pieces(problem.draw(generator(0, 0)))
    u, imbalance, _ = forge_one(problem.press(), die)
    x = u + problem.nodes().transpose(2, 0, 1)
    half, *_ = forge_one(problem.press(SAFETY / 2), die)
    coarse_problem = replace(problem, length_nodes=51, height_nodes=16)
    coarse, *_ = forge_one(coarse_problem.press(), die)
    every = x[..., ::2, ::2], u[..., ::2, ::2]
    on_coarse = coarse + coarse_problem.nodes().transpose(2, 0, 1), coarse

    times = np.arange(problem.frames) * problem.duration / problem.frames
    top = x[:, :, :, 0]
    depth = top[:, 1] - (TOP + die_profile(die, top[:, 0]) - problem.speed * times[:, None])
    area = areas(x).sum((1, 2))
    return [
        {"check": "full size: energy imbalance", "value": imbalance},
        {"check": "full size: deepest node in the die", "value": float(depth.max()), "unit": "mm"},
        {"check": "full size: half time steps, displacement", "value": difference(half, u)},
        {
            "check": "full size: half time steps, all channels",
            "value": difference(
                np.stack((half + problem.nodes().transpose(2, 0, 1), half)), np.stack((x, u))
            ),
        },
        {
            "check": "full size against 51 × 16 nodes, all channels",
            "value": difference(np.stack(on_coarse), np.stack(every)),
        },
        {
            "check": "full size: area lost",
            "value": 100 * float(1 - area[-1] / area[0]),
            "unit": "%",
        },
    ]


def statistics(samples: Fields) -> list[dict[str, Any]]:
    """Of a data set; the published numbers are measured from figures of the published data."""
    grid = samples.grid
    assert grid is not None
    state = samples.y.reshape(len(samples), *grid, 4)
    x = np.moveaxis(state[..., :2], (3, 4), (1, 2))
    area = areas(x[:, [0, -1]]).sum((2, 3))
    lost = 100 * (1 - area[:, 1] / area[:, 0])
    along, across = (abs(state[..., -1, k]).max((1, 2)) for k in (2, 3))

    def spread(values: np.ndarray, digits: int = 1) -> str:
        low, high = np.quantile(values, (0.05, 0.95))
        return f"{values.mean():.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"

    return [
        {"statistic": "area lost at the last frame, %", "ours": spread(lost), "published": "6.5"},
        {"statistic": "largest |u_x|, mm", "ours": spread(along, 2), "published": None},
        {"statistic": "largest |u_y|, mm", "ours": spread(across, 2), "published": None},
    ]


def difference(a: np.ndarray, b: np.ndarray) -> float:
    """The relative L2 difference."""
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


if __name__ == "__main__":
    for row in measure():
        print(row["check"], row["value"], row.get("unit", ""))
