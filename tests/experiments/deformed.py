"""Small samples with the geometry and the layout of the four problems on deformed meshes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import tiny

from lno import Fields
from lno.experiments import presets
from lno.mesh import grid_cells
from lno.problems.numerics.grids import mapped_grid, unit_grid


def airfoil(samples: int, grid: tuple[int, int] = (41, 11), radius: float = 40.0) -> Fields:
    """C-grids around thin bodies, with a fast flow above them."""
    random = np.random.default_rng(0)
    s, r = np.linspace(-1, 1, grid[0])[:, None], np.linspace(0, 1, grid[1]) ** 4
    wake = np.maximum(np.abs(s) - 0.5, 0) * 2  # 0 on the body, 1 at the end of the wake
    along = np.where(np.abs(s) < 0.5, 1 - np.cos(np.pi * np.abs(s)), 1 + (radius - 1) * wake**3)
    thick = random.uniform(0.08, 0.16, (samples, 1, 1))
    body = thick * np.sign(s) * np.sin(np.pi * np.clip(along, 0, 1)) * np.sqrt(np.clip(along, 0, 1))
    angle = np.pi * s * np.clip(1.2 - wake, 0.5, 1)
    x = (1 - r) * along + r * np.where(wake > 0, along, 0.5 - radius * np.cos(angle)) + 0 * body
    y = (1 - r) * body + r * radius * np.sin(np.clip(angle, -np.pi / 2, np.pi / 2))
    mach = 0.8 + 3 * thick * np.exp(-((x - 0.5) ** 2 + y**2) / 0.3)
    return _fields(mapped_grid(x, y, mach), ["x", "y"], ["Mach"], "airfoil")


def pipe(samples: int, grid: tuple[int, int] = (17, 9)) -> Fields:
    """Curved pipes with parabolic velocities."""
    random = np.random.default_rng(0)
    xi, eta = np.linspace(0, 10, grid[0])[:, None], np.linspace(-0.5, 0.5, grid[1])
    bend = random.uniform(-1, 1, (samples, 1, 1)) * np.sin(np.pi * xi / 5)
    u = (0.25 - eta**2) * (1 + 0.1 * bend)
    return _fields(mapped_grid(xi + 0 * bend + 0 * eta, bend + eta, u), ["x", "y"], ["u"], "pipe")


def elasticity(samples: int, grid: tuple[int, int] = (16, 4), cells: bool = True) -> Fields:
    """Rings of points around a hole in the unit square."""
    random = np.random.default_rng(0)
    angle, r = np.linspace(0, 2 * np.pi, grid[0], False)[:, None], np.linspace(0, 1, grid[1])
    hole = 0.25 + random.uniform(0, 0.1, (samples, 1, 1)) * np.cos(2 * angle)
    side = 0.5 / np.maximum(np.abs(np.cos(angle)), np.abs(np.sin(angle)))
    out = (1 - r) * hole + r * side
    x = np.stack((0.5 + out * np.cos(angle), 0.5 + out * np.sin(angle)), -1)
    sigma = 100 + 400 * (hole / out) ** 2 * np.cos(angle) ** 2
    ring = grid_cells((grid[0] + 1, grid[1])) % (grid[0] * grid[1])
    return Fields(
        x.reshape(samples, -1, 2),
        y=sigma.reshape(samples, -1, 1),
        cells=ring if cells else None,
        names={"x": ["x", "y"], "y": ["sigma"]},
        provenance={"problem": "elasticity"},
    )


def plasticity(samples: int, grid: tuple[int, int, int] = (11, 5, 4)) -> Fields:
    """Blocks that a die presses down in time."""
    random = np.random.default_rng(0)
    xi, eta, t = (v.reshape(grid) for v in unit_grid(grid).T)
    height = random.uniform(0, 7, (samples, 1, 1, 1))
    die = height * np.cos(2 * np.pi * xi) ** 2
    down = -t * (1 - eta) * np.maximum(6 - die, 0)
    side = 2 * t * (xi - 0.5) * (1 - eta) + 0 * die
    state = np.stack((0.35 - 50 * xi - side, 14.9 - 15 * eta + down, -side, down), -1)
    n, times = np.prod(grid), grid[-1]
    arguments = {
        "x": unit_grid(grid),
        "u": (die + 0 * t).reshape(samples, n, 1),
        "y": state.reshape(samples, n, 4),
        "grid": grid,
        "cells": grid_cells(grid[:2]) * times + times - 1,
        "geometry": {"y": ["x", "y"]},
    }
    names = {"x": ["xi", "eta", "t"], "u": ["die"], "y": ["x", "y", "u_x", "u_y"]}
    return Fields(**arguments, names=names, provenance={"problem": "plasticity"})


def _fields(arguments: dict[str, Any], u: list[str], y: list[str], problem: str) -> Fields:
    names = {"x": ["xi", "eta"], "u": u, "y": y}
    return Fields(**arguments, names=names, provenance={"problem": problem})


MAKE = {"airfoil": airfoil, "elasticity": elasticity, "pipe": pipe, "plasticity": plasticity}


def shrink_presets(patch: pytest.MonkeyPatch) -> None:
    """Tiny models of the same form in place of the paper's."""
    sizes = {
        "lno": tiny.LNO,
        "transolver": {"width": 16, "layers": 1, "heads": 2, "slices": 4, "mlp_ratio": 1},
    }
    for model, small in sizes.items():
        paper = presets.PRESETS[model]["paper"]
        for problem in MAKE:
            changed = replace(paper[problem], config=replace(paper[problem].config, **small))
            patch.setitem(paper, problem, changed)
    for name in ("fast", "paper"):  # where a problem has no preset of its own
        general = presets.GENERAL_CONFIGS["lno"]
        patch.setitem(general, name, replace(general[name], **sizes["lno"]))
