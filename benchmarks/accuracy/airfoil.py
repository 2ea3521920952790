"""What the airfoil solver was checked for: exact properties, NACA-0012 at Mach 0.8, convergence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from lno.data import Fields
from lno.problems import Airfoil
from lno.problems.airfoil import USUAL
from lno.problems.make import generator
from lno.problems.numerics.dual_mesh import build_mesh
from lno.problems.numerics.euler import GAMMA, Relaxation, free_stream, mach_number, primitive
from lno.problems.numerics.steady_flow import relaxation, steady_flow, uniform

CPU = torch.device("cpu")


def measure() -> list[dict[str, Any]]:
    """Rows of checks; about four minutes on one core, most of them on the finer grid."""
    finer = Airfoil(surface=240, wake=100, normal=100)
    return [
        *profile(Airfoil(), "221 × 51"),
        *profile(finer, "441 × 101"),
        agreement(),
        convergence(),
    ]


def profile(problem: Airfoil, grid: str) -> list[dict[str, Any]]:
    """NACA-0012: shock, pressure coefficients, drag and symmetry."""
    points = problem.grid(np.zeros(8))
    stream = free_stream(problem.mach, problem.angle)
    w, converged = steady_flow(points[None], problem.wake, stream, USUAL, CPU)
    assert converged.all()
    mirrored = w.flip(2) * torch.tensor([1, 1, -1, 1])[:, None, None, None]
    surface = slice(problem.wake, problem.wake + problem.surface + 1)
    head = GAMMA / 2 * problem.mach**2
    cp = (primitive(w.unbind())[3][0, surface, 0].numpy() - 1) / head
    wall = build_mesh(points[None], problem.wake).wall[0, 0, surface].numpy()
    half = problem.surface // 2
    exact = ((1 + (GAMMA - 1) / 2 * problem.mach**2) ** (GAMMA / (GAMMA - 1)) - 1) / head
    values = {
        "shock position (middle of the pressure jump), chords": shock(
            points[surface, 0, 0][half::-1], cp[half::-1]
        ),
        "smallest pressure coefficient": cp.min(),
        "pressure coefficient at the nose": cp.max(),
        "the same, exact": exact,
        "drag coefficient (wave drag and numerical entropy)": -(cp * wall).sum(),
        "asymmetry of the flow": float((w - mirrored).abs().max()),
    }
    return [
        {"check": f"NACA-0012, {grid}: {name}", "value": float(value)}
        for name, value in values.items()
    ]


def shock(x: np.ndarray, cp: np.ndarray) -> float:
    """Where the pressure passes the mean of its values before and behind the shock."""
    peak = int(cp.argmin())
    middle = (cp[peak] + cp[peak : peak + len(x) // 7].max()) / 2
    k = peak + int((cp[peak:] > middle).argmax()) - 1
    return float(x[k] + (middle - cp[k]) / (cp[k + 1] - cp[k]) * (x[k + 1] - x[k]))


def agreement() -> dict[str, Any]:
    """The solver of GPUs (torch) and that of CPUs (numba), both on the CPU."""
    problem, flows = Airfoil(surface=40, wake=16, normal=16), []
    points = problem.grid(problem.draw(generator(0, 0)))[None]
    mesh, stream = build_mesh(points, problem.wake), free_stream(problem.mach, problem.angle)
    for path in (Relaxation, relaxation):
        flows.append(uniform(points, stream))
        path(mesh, stream, flows[-1]).advance(100, torch.tensor([1.1], dtype=torch.float64))
    difference = float((flows[0] - flows[1]).abs().max())
    return {"check": "torch against numba, both on the CPU, 100 iterations", "value": difference}


def convergence() -> dict[str, Any]:
    """Mach numbers of a sample against those with a residual that is a thousandth of the usual."""
    problem = Airfoil()
    points = problem.grid(problem.draw(generator(0, 0)))[None]
    stream = free_stream(problem.mach, problem.angle)
    strict = replace(USUAL, residual=1e-3 * USUAL.residual, change=1e-3 * USUAL.change)
    strict = replace(strict, iterations=4 * USUAL.iterations)
    a, b = (
        mach_number(steady_flow(points, problem.wake, stream, schedule, CPU)[0])
        for schedule in (USUAL, strict)
    )
    error = float((a - b).norm() / b.norm())
    return {"check": "a sample against its converged flow, relative L2 of Mach", "value": error}


def statistics(samples: Fields) -> list[dict[str, Any]]:
    """Mach numbers of a data set. No statistics of the published data are known."""
    mach = np.asarray(samples.y)[..., 0]
    each = {"mean": mach.mean(1), "largest": mach.max(1), "smallest": mach.min(1)}
    return [
        {
            "statistic": f"{name} Mach number of a sample",
            "ours": f"{value.mean():.3f} ± {value.std():.3f}",
            "published": "not known",
        }
        for name, value in each.items()
    ]
