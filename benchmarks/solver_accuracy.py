"""Errors of the solvers against independent or finer solutions.

    python benchmarks/solver_accuracy.py [PROBLEM ...] [--samples 8] [--device auto]

Writes results/benchmarks/solver_accuracy.json. Of Darcy, Burgers and NS2d it has relative L2
errors, the largest of all samples; of the problems on deformed meshes, the rows of
benchmarks/accuracy, which run on the CPU.
"""

from __future__ import annotations

import argparse
import importlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from scipy.sparse.linalg import spsolve

from lno.files import write_json
from lno.problems import Burgers, Darcy, NS2d, ns2d
from lno.problems.burgers import etdrk4, initial_value
from lno.problems.darcy import solve_diffusion
from lno.problems.make import generator
from lno.training.device import hardware, pick_solver_device

RESULT = Path(__file__).parents[1] / "results" / "benchmarks" / "solver_accuracy.json"


def difference(a: torch.Tensor, b: torch.Tensor) -> float:
    a, b = (v.double().cpu().flatten(1) for v in (a, b))
    return float(((a - b).norm(dim=1) / b.norm(dim=1)).max())


def darcy(samples: int, device: torch.device) -> dict[str, Any]:
    """Against SciPy's sparse direct solver; iterations on grids of three sizes."""
    rows: dict[str, Any] = {}
    for grid in (85, 141, 421):
        problem = Darcy(grid=grid, every=1)
        drawn = np.stack([problem.draw(generator(0, k)) for k in range(samples)])
        a = torch.where(torch.from_numpy(drawn), 12.0, 3.0).double()
        u, iterations = solve_diffusion(a.to(device))
        rows[f"iterations {grid}"] = [int(iterations.min()), int(iterations.max())]
        if grid != 141:
            exact = direct_solution(a[0].numpy())
            rows[f"direct {grid}"] = difference(u[:1], torch.from_numpy(exact)[None])
    return rows


def direct_solution(a: np.ndarray) -> np.ndarray:
    """The five-point scheme as a sparse matrix, solved directly; shares no code with the solver."""
    n = a.shape[0] - 2
    index = np.arange(n * n).reshape(n, n)
    diagonal, entries = np.zeros((n, n)), []
    for i, j in ((1, 0), (-1, 0), (0, 1), (0, -1)):
        face = (a[1:-1, 1:-1] + a[1 + i : n + 1 + i, 1 + j : n + 1 + j]) / 2
        diagonal += face
        inside = np.zeros((n, n), bool)
        inside[max(0, -i) : n - max(0, i), max(0, -j) : n - max(0, j)] = True
        other = np.roll(index, (-i, -j), (0, 1))
        entries.append((index[inside], other[inside], -face[inside]))
    entries.append((index.ravel(), index.ravel(), diagonal.ravel()))
    rows, columns, values = (np.concatenate(part) for part in zip(*entries, strict=True))
    matrix = sp.csc_matrix((values, (rows, columns)))
    u = np.zeros(a.shape)
    u[1:-1, 1:-1] = spsolve(matrix, np.full(n * n, 1 / (n + 1) ** 2)).reshape(n, n)
    return u


def navier_stokes(samples: int, device: torch.device) -> dict[str, Any]:
    """Single precision, halved steps, and twice the resolution, at t = 1, 10 and 20."""
    problem, fine = NS2d(), NS2d(grid=512, every=8)
    drawn = np.stack([problem.draw(generator(0, k)) for k in range(samples)])
    start = torch.from_numpy(drawn).to(device)

    def solve(problem: NS2d, initial: torch.Tensor) -> torch.Tensor:
        solved = problem.solve(list(initial.cpu().numpy()), device)
        return torch.from_numpy(np.stack(solved))

    # The same initial values on the finer grid: the modes that both grids resolve.
    flow, finer = (
        ns2d.Flow(start.new_empty(0).double(), p.grid, 0.0, 0.0) for p in (problem, fine)
    )
    modes = flow.modes(start.double())
    half = problem.grid // 2
    wide = modes.new_zeros(samples, fine.grid, fine.grid // 2 + 1)
    wide[:, :half, : half + 1], wide[:, -half:, : half + 1] = modes[:, :half], modes[:, -half:]
    smooth, on_fine = flow.values(modes), finer.values(wide)
    reference = solve(problem, smooth)
    rows = {"single precision": solve(problem, smooth.float()), "512 points": solve(fine, on_fine)}
    safety, ns2d.SAFETY = ns2d.SAFETY, ns2d.SAFETY / 2
    try:
        rows["half steps"] = solve(problem, smooth)
    finally:
        ns2d.SAFETY = safety
    return {
        name: [difference(reference[..., t], solved[..., t]) for t in (0, 9, 19)]
        for name, solved in rows.items()
    }


def burgers(samples: int, device: torch.device) -> dict[str, Any]:
    """Halved steps, and twice the points. The tests compare with the Cole–Hopf solution."""
    problem = Burgers()
    drawn = torch.from_numpy(np.stack([problem.draw(generator(0, k)) for k in range(samples)]))
    drawn = drawn.to(device)

    def solve(points: int, substeps: int) -> torch.Tensor:
        x = torch.arange(points, dtype=torch.float64, device=device) / points
        return etdrk4(initial_value(drawn, x), 0.01, 128, substeps)[..., :: points // 128]

    used = solve(512, 12)
    return {
        "half steps": difference(used, solve(512, 24)),
        "1024 points": difference(used, solve(1024, 12)),
    }


GRIDS = {"darcy": darcy, "burgers": burgers, "ns2d": navier_stokes}
MESHES = ("elasticity", "pipe", "plasticity", "airfoil")


def main() -> None:
    parser = argparse.ArgumentParser()
    names = [*GRIDS, *MESHES]
    parser.add_argument("problems", nargs="*", default=names, metavar="PROBLEM")
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    if unknown := set(options.problems) - set(names):
        parser.error(f"expected problems among {', '.join(names)}, got {', '.join(unknown)}")
    device = pick_solver_device(options.device)
    content = json.loads(options.out.read_text()) if options.out.exists() else {"rows": {}}
    for name in options.problems:
        if name in GRIDS:
            content["rows"][name] = GRIDS[name](options.samples, device)
            content |= {"samples": options.samples, "hardware": hardware(device)}
        else:
            content["rows"][name] = importlib.import_module(f"accuracy.{name}").measure()
        print(name, content["rows"][name], flush=True)
        write_json(options.out, content)


if __name__ == "__main__":
    main()
