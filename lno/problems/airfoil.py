"""Transonic flow around an airfoil, from its shape to the Mach number.

    Euler's equations, γ = 1.4, free-stream Mach number 0.8, angle of attack 0

The shapes are NACA-0012 profiles, deformed by vertical displacements of the control points of a
design element, uniform in [−0.05, 0.05] chords. Each shape has its own C-grid of 221 × 51 nodes:
the first axis runs along the wake and around the airfoil, the second from there to the far field.

There is no generator yet: the data are the published ones.

No symmetries are listed. The equations allow y → −y, which reverses the first axis of the grid.
But the published shapes keep one corner of the design element fixed, so a shape and its mirror
image do not have the same distribution.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from lno.data.foreign import NPY
from lno.data.published import SAMPLES, Array, Layout
from lno.problems.numerics.grids import mapped_grid
from lno.problems.problem import Problem, Protocol

NODES = (221, 51)


def from_published(
    x: Float[np.ndarray, "s n m"], y: Float[np.ndarray, "s n m"], mach: Float[np.ndarray, "s n m"]
) -> dict[str, Any]:
    """Node coordinates and Mach numbers to the arguments of `Fields`."""
    names = {"x": ["xi", "eta"], "u": ["x", "y"], "y": ["Mach"]}
    return {**mapped_grid(x, y, mach), "names": names, "units": {"u": ["chord", "chord"]}}


FILES = Layout(
    files=("NACA_Cylinder_X.npy", "NACA_Cylinder_Y.npy", "NACA_Cylinder_Q.npy"),
    kind=NPY,
    arrays=(
        Array(0, "", (SAMPLES, *NODES)),
        Array(1, "", (SAMPLES, *NODES)),
        Array(2, "", (SAMPLES, 5, *NODES), (4,)),  # density, velocity (2), pressure, Mach number
    ),
    build=from_published,
)


@dataclass(frozen=True)
class Airfoil(Problem):
    """Mach numbers at the nodes of a C-grid; the positions of the nodes are the input."""

    name: ClassVar[str] = "airfoil"
    title: ClassVar[str] = "Airfoil"
    equation: ClassVar[str] = "steady Euler equations, Mach 0.8, angle of attack 0"
    protocols: ClassVar[Mapping[str, Protocol]] = {
        "standard": Protocol(1000, 200),
        "reference": Protocol(1000, 200),
    }
    # The files hold more samples than are used: the reference code tests on the last ones.
    published: ClassVar[Mapping[str, Layout]] = {
        "standard": FILES,
        "reference": replace(FILES, last=True),
    }
    picture: ClassVar[Mapping[str, tuple[str, ...]]] = {"u": (), "y": ("Mach",)}
