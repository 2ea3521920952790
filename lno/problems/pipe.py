"""Steady flow through a curved pipe, from its shape to the horizontal velocity.

    (u·∇)u − ν Δu + ∇p = 0,  ∇·u = 0,    ν = 0.005

The pipe has length 10 and width 1. Its centreline consists of four cubic pieces with random heights
and slopes. The inflow is a parabola, the walls are no-slip, the outlet is free. The first axis of
the 129 × 129 grid runs along the pipe, the second from wall to wall.

There is no generator yet: the data are the published ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from lno.data.foreign import NPY
from lno.data.published import SAMPLES, Array, Layout
from lno.data.symmetry import Symmetry
from lno.problems.numerics.grids import mapped_grid
from lno.problems.problem import Problem, Protocol

NODES = (129, 129)


def mirror_symmetries() -> tuple[Symmetry, ...]:
    """The identity and the reflection y → −y, which swaps the walls.

    The reflection reverses the second axis of the grid and the sign of the nodes' y. The horizontal
    velocity keeps its sign. Equation, inflow, walls and outlet stay the same. Heights and slopes of
    the centreline are uniform in intervals that are symmetric about 0, so a pipe and its mirror
    image have the same distribution.
    """
    return (
        Symmetry("identity", ((1, 0), (0, 1)), (0, 0)),
        Symmetry("reflect y", ((1, 0), (0, -1)), (0, 1), channel_signs={"u": (1, -1), "y": (1,)}),
    )


def from_published(
    x: Float[np.ndarray, "s n m"], y: Float[np.ndarray, "s n m"], u: Float[np.ndarray, "s n m"]
) -> dict[str, Any]:
    """Node coordinates and horizontal velocities to the arguments of `Fields`."""
    names = {"x": ["xi", "eta"], "u": ["x", "y"], "y": ["u"]}
    return {**mapped_grid(x, y, u), "names": names, "units": {"u": ["width", "width"]}}


FILES = Layout(
    files=("Pipe_X.npy", "Pipe_Y.npy", "Pipe_Q.npy"),
    kind=NPY,
    arrays=(
        Array(0, "", (SAMPLES, *NODES)),
        Array(1, "", (SAMPLES, *NODES)),
        Array(2, "", (SAMPLES, 3, *NODES), (0,)),  # velocity (2), pressure
    ),
    build=from_published,
)


@dataclass(frozen=True)
class Pipe(Problem):
    """Horizontal velocity at the nodes of a mapped grid; the nodes' positions are the input."""

    name: ClassVar[str] = "pipe"
    title: ClassVar[str] = "Pipe"
    equation: ClassVar[str] = "(u·∇)u − 0.005 Δu + ∇p = 0, ∇·u = 0"
    protocols: ClassVar[Mapping[str, Protocol]] = {
        "standard": Protocol(1000, 200),
        "reference": Protocol(1000, 200),
    }
    # The files hold more samples than are used: the reference code tests on the last ones.
    published: ClassVar[Mapping[str, Layout]] = {
        "standard": FILES,
        "reference": replace(FILES, last=True),
    }
    symmetries: ClassVar[tuple[Symmetry, ...]] = mirror_symmetries()
    picture: ClassVar[Mapping[str, tuple[str, ...]]] = {"u": (), "y": ("u",)}
