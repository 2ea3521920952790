"""A stretched block of rubber with a hole, from the shape of the hole to the stress.

    ∇·P(F) = 0 in the unit cell, clamped at the bottom, pulled at the top, free at the hole

P is the first Piola–Kirchhoff stress of an incompressible Rivlin–Saunders solid in plane stress.
The radius of the hole is r(θ) = 0.2 + 0.2/(1 + exp(g(θ))) with a Gaussian process g. The von Mises
stress is given at 972 points, which move with the hole. Nothing but their positions is given. The
published stresses have no unit.

There is no generator yet: the data are the published ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float

from lno.data.foreign import NPY
from lno.data.published import SAMPLES, Array, Layout
from lno.data.symmetry import Symmetry
from lno.problems.numerics.grids import one_channel
from lno.problems.problem import Problem, Protocol

POINTS = 972


def mirror_symmetries() -> tuple[Symmetry, ...]:
    """The identity and the reflection x → 1 − x of the unit cell.

    The clamped side, the traction and the stress stay the same. The process g is stationary on the
    circle and its distribution is that of g(π − θ), so a hole and its mirror image have the same
    distribution. The points are a cloud: the reflection moves their positions.
    """
    return (
        Symmetry("identity", ((1, 0), (0, 1)), (0, 0)),
        Symmetry("reflect x", ((-1, 0), (0, 1)), (1, 0)),
    )


def from_published(
    xy: Float[np.ndarray, "s n 2"], sigma: Float[np.ndarray, "s n"]
) -> dict[str, Any]:
    """Positions and stresses to the arguments of `Fields`."""
    return {
        "x": xy,
        "y": one_channel(sigma),
        "names": {"x": ["x", "y"], "y": ["sigma"]},
        "frame": "unit cell",
    }


FILES = Layout(
    files=("Random_UnitCell_XY_10.npy", "Random_UnitCell_sigma_10.npy"),
    kind=NPY,
    arrays=(Array(0, "", (POINTS, 2, SAMPLES)), Array(1, "", (POINTS, SAMPLES))),
    build=from_published,
    last=True,
)


@dataclass(frozen=True)
class Elasticity(Problem):
    """Von Mises stresses at points that differ in every sample; the points are the input."""

    name: ClassVar[str] = "elasticity"
    title: ClassVar[str] = "Elasticity"
    equation: ClassVar[str] = "∇·P(F) = 0 around a hole, P of a Rivlin–Saunders solid"
    protocols: ClassVar[Mapping[str, Protocol]] = {
        "standard": Protocol(1000, 200),
        "reference": Protocol(1000, 1000),
    }
    published: ClassVar[Mapping[str, Layout]] = {"standard": FILES, "reference": FILES}
    symmetries: ClassVar[tuple[Symmetry, ...]] = mirror_symmetries()
