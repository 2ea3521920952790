"""Forging of a block by a rigid die, from the shape of the die to the deformation over time.

    ρ ü = ∇·σ,    elastic and perfectly plastic, plane stress

The block is 50 mm × 15 mm and rests on rollers. The die moves 6 mm down in 20 frames. Its profile
is a random spline. The first axis of the 101 × 31 × 20 grid runs along the block, the second
through its height, the third is time. The answers are position and displacement of each node.

There is no generator yet: the data are the published ones.

No symmetries are listed. The mirror image of a forged block is one as well, but the published
positions are measured from one end of it, so mirroring them is more than a change of sign.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from lno.data.foreign import MAT
from lno.data.published import SAMPLES, Array, Layout
from lno.problems.numerics.grids import grid_cells, one_channel, unit_grid
from lno.problems.problem import Problem, Protocol

GRID = (101, 31, 20)


def from_published(
    die: Float[np.ndarray, "s n"], state: Float[np.ndarray, "s n m t 4"]
) -> dict[str, Any]:
    """Die profiles and states to the arguments of `Fields`; u at (i, j, t) is die[i].

    A picture or a mesh file shows the block at one time. The cells are those of the last: the final
    shape of the block.
    """
    s, *grid, channels = state.shape
    times = grid[-1]
    return {
        "x": unit_grid(grid),
        "u": one_channel(np.broadcast_to(die[:, :, None, None], (s, *grid))),
        "y": state.reshape(s, -1, channels),
        "grid": grid,
        "cells": grid_cells(grid[:2]) * times + times - 1,
        "geometry": {"y": ["x", "y"]},
        "names": {"x": ["xi", "eta", "t"], "u": ["die"], "y": ["x", "y", "u_x", "u_y"]},
        "units": {"u": ["mm"], "y": ["mm"] * 4},
        "frame": "reference grid",
    }


FILES = Layout(
    files=("plas_N987_T20.mat",),
    kind=MAT,
    arrays=(Array(0, "input", (SAMPLES, GRID[0])), Array(0, "output", (SAMPLES, *GRID, 4))),
    build=from_published,
    last=True,
)


@dataclass(frozen=True)
class Plasticity(Problem):
    """Positions and displacements of the nodes at 20 times; the profile of the die is the input."""

    name: ClassVar[str] = "plasticity"
    title: ClassVar[str] = "Plasticity"
    equation: ClassVar[str] = "ρ ü = ∇·σ, elastic and perfectly plastic, plane stress"
    protocols: ClassVar[Mapping[str, Protocol]] = {
        "standard": Protocol(900, 80),
        "reference": Protocol(900, 87),
    }
    published: ClassVar[Mapping[str, Layout]] = {"standard": FILES, "reference": FILES}
    picture: ClassVar[Mapping[str, tuple[str, ...]]] = {"u": ("die",), "y": ("u_x", "u_y")}
