"""A stretched block of rubber with a hole, from the shape of the hole to the stress.

    ∇·P = 0 in the unit cell without the hole,  P = F S,  S = 2 ∂W/∂C,  C = FᵀF,  F = I + ∇u
    W = c₁ (I₁ − 3) + c₂ (I₂ − 3),  incompressible plane stress: C₃₃ = 1/det C
    u = 0 at the bottom,  P n = (0, 100) at the top,  P n = 0 at the sides and the hole

The hole is at the centre of the cell and has the radius r(θ) = 0.2 + 0.2/(1 + exp(g(θ))) with the
Gaussian process g ~ N(0, 4² (−Δ + 3²)⁻¹) on the circle, its modes 1 to 5. The output is the von
Mises stress σ at 972 points: the 3 × 3 Gauss points of 36 × 3 quadrilaterals around the hole. The
positions of the points are the only input. The published stresses have no unit.

Elements with nine nodes (Q9), total Lagrangian: all integrals are over the undeformed cell. The
corners of the cell are corners of elements. Newton's method with Cholesky factors of the dense
stiffness matrices, about a thousand unknowns each, in double precision; a sample has converged when
its residual is 1e-10 of its nodal forces. Strains are about 1e-3, so three iterations do.

Displacements are of third order, stresses of second. Against linear elasticity of scikit-fem on
fine triangles, 36 × 3 elements have errors of 0.7 % in displacement and 6 % in stress, 72 × 6
elements 0.08 % and 2 % (relative L2, the larger of two samples).

`refine` solves on a finer mesh. Each element is divided evenly in the coordinates of the mesh, and
the new nodes are placed by the true radius, not on the sides of the coarse elements: the hole, and
with it the solution, converges. The stress is taken at the same coordinates of the mesh, and the
positions in the data are those of the finer mesh there, so stress and position belong together.

Of the published data, the material, the formula of the radius, its five modes and the 108 elements
of nine points are known. The covariance of g, the traction and the arrangement of the elements are
assumptions, supported by agreeing statistics; see docs/problems/elasticity.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.special import expit
from torch import Tensor

from lno.config import require_count, require_range
from lno.data import Fields
from lno.data.foreign import NPY
from lno.data.published import SAMPLES, Array, Layout
from lno.data.symmetry import Symmetry
from lno.problems.numerics.batches import solve_in_batches
from lno.problems.numerics.grids import one_channel
from lno.problems.numerics.hyperelasticity import Mesh, Rubber, equilibrium
from lno.problems.numerics.quadrilaterals import gauss_rule, mapped_gradients, shape_functions
from lno.problems.problem import Problem, Protocol

POINTS = 972
MODES = 5  # of the radius, a cosine and a sine each
GRADING = 1.3  # a ring of elements is wider than the next one inside it by this factor
LOAD_STEPS = 20  # of the safer settings
ENTRIES = 4 * 10**8  # of all stiffness matrices that a GPU has at once: 3.2 GB


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


def field_arguments(
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
    build=field_arguments,
    last=True,
)


@dataclass(frozen=True)
class Elasticity(Problem):
    """Von Mises stresses at points that differ in every sample; the points are the input.

    Args:
        c1, c2: constants of the material.
        traction: force on a unit of length at the top, upwards.
        deviation, tau: g has the covariance deviation² (−Δ + tau²)⁻¹.
        around: elements around the hole, a multiple of 4.
        across: elements from the hole to the boundary of the cell. There are 9 · around · across
            points.
        refine: the solver divides each element into refine × refine.

    >>> from lno.problems.make import make
    >>> make(Elasticity(around=12, across=1), samples=2, seed=7)
    Fields(2 samples: no values at 108 points of x, y → sigma at the same points)
    """

    c1: float = 1.863e5
    c2: float = 9.79e3
    traction: float = 100.0
    deviation: float = 4.0
    tau: float = 3.0
    around: int = 36
    across: int = 3
    refine: int = 1

    name: ClassVar[str] = "elasticity"
    title: ClassVar[str] = "Elasticity"
    equation: ClassVar[str] = "∇·P(F) = 0 around a hole, P of a Rivlin–Saunders solid"
    protocols: ClassVar[Mapping[str, Protocol]] = {
        "standard": Protocol(1000, 200),
        "small": Protocol(500, 100),
        "reference": Protocol(1000, 1000),
    }
    published: ClassVar[Mapping[str, Layout]] = {"standard": FILES, "reference": FILES}
    symmetries: ClassVar[tuple[Symmetry, ...]] = mirror_symmetries()
    batch: ClassVar[int] = 128

    def __post_init__(self) -> None:
        require_range("c1", self.c1, 1e-3, 1e12)
        require_range("c2", self.c2, 0.0, 1e12)
        require_range("traction", self.traction, -1e12, 1e12)
        require_range("deviation", self.deviation, 0.0, 100.0)
        require_range("tau", self.tau, 0.0, 100.0)
        require_count("around", self.around, 1000, least=4)
        require_count("across", self.across, 100)
        require_count("refine", self.refine, 10)
        if self.around % 4:
            raise ValueError(
                "expected around to be a multiple of 4, so that the corners of the cell are "
                f"corners of elements, got {self.around}"
            )
        if self.unknowns > 20_000:
            raise ValueError(
                "expected a mesh of at most 20000 unknowns, since stiffness matrices are dense, "
                f"got {self.unknowns}: lower around, across or refine"
            )

    @property
    def unknowns(self) -> int:
        """The displacements of all nodes."""
        return 4 * self.around * self.refine * (2 * self.across * self.refine + 1)

    @property
    def mesh(self) -> Mesh:
        """The mesh of the solver."""
        return ring_mesh(self.around * self.refine, self.across * self.refine, self.traction)

    def draw(self, random: np.random.Generator) -> Float[np.ndarray, " 10"]:
        """Standard normal coefficients of cos θ, sin θ, …, cos 5θ, sin 5θ in g."""
        return random.standard_normal(2 * MODES)

    def solve(self, inputs: list[np.ndarray], device: torch.device) -> list[np.ndarray | None]:
        """Coefficients (10,) to stresses (points,), float32; None if Newton's method diverges."""
        return self._solve(inputs, device, load_steps=1)

    def solve_safely(
        self, inputs: list[np.ndarray], device: torch.device
    ) -> list[np.ndarray | None]:
        """Like `solve`, with the traction applied in steps."""
        return self._solve(inputs, device, load_steps=LOAD_STEPS)

    def fields(
        self,
        inputs: Sequence[np.ndarray],
        solutions: Sequence[np.ndarray],
        provenance: Mapping[str, Any],
    ) -> Fields:
        """Points and stresses, and the quadrilaterals between the points."""
        nodes = torch.from_numpy(self.nodes(np.stack(inputs)))
        x = self.sample(nodes, nodes)[0].float().numpy()
        cells = ring_cells(self.around, self.across)
        arguments = field_arguments(x, np.stack(solutions))
        return Fields(**arguments, cells=cells, provenance=provenance)

    def nodes(self, drawn: Float[np.ndarray, "b 10"]) -> Float[np.ndarray, "b n 2"]:
        """Positions of the nodes of the solver: rays from the hole to the boundary of the cell.

        Rays start at the corner (1, 0), go counterclockwise and divide the sides of the cell
        evenly. Nodes on a ray are consecutive, from the hole outwards.
        """
        n, m = 2 * self.around * self.refine, 2 * self.across * self.refine + 1
        side = 4 * np.arange(n) / n
        corners = np.array([[1, -1], [1, 1], [-1, 1], [-1, -1], [1, -1]]) / 2
        outer = np.stack([np.interp(side, np.arange(5), c) for c in corners.T], axis=-1)
        theta = np.arctan2(outer[:, 1], outer[:, 0])
        radius = hole_radius(drawn, theta, self.deviation, self.tau)
        inner = radius[..., None] * np.stack([np.cos(theta), np.sin(theta)], axis=-1)
        rings = np.cumsum(np.append(0, GRADING ** np.arange(self.across)))
        s = np.interp(np.linspace(0, self.across, m), np.arange(self.across + 1), rings / rings[-1])
        nodes = inner[:, :, None] * (1 - s)[:, None] + outer[:, None] * s[:, None]
        return 0.5 + nodes.reshape(len(drawn), n * m, 2)

    def sample(
        self, nodes: Float[Tensor, "b n 2"], values: Float[Tensor, "b n 2"]
    ) -> tuple[Float[Tensor, "b points 2"], Float[Tensor, "b points 2 2"]]:
        """Nodal values at the points of the data, and their gradients ∂value_i/∂x_j.

        On a finer mesh a point may lie between elements, where gradients jump: their mean is taken.
        """
        points, _ = gauss_rule(3)
        shape = (self.around, self.refine, self.across, self.refine, 9)
        parts = torch.from_numpy(self.mesh.elements.reshape(shape)).to(nodes.device)
        b, e = len(nodes), self.around * self.across
        value, gradient = nodes.new_zeros(b, e, 9, 2), nodes.new_zeros(b, e, 9, 2, 2)
        count = nodes.new_zeros(9)
        for i, j in product(range(self.refine), repeat=2):
            local = self.refine * (points + 1) - 1 - 2 * np.array([i, j])
            here = np.flatnonzero((abs(local) < 1 + 1e-9).all(axis=1))
            shapes, slopes = (
                torch.from_numpy(v).to(nodes) for v in shape_functions(2, local[here])
            )
            part = parts[:, j, :, i].reshape(e, 9)
            slopes, _ = mapped_gradients(slopes, nodes[:, part])
            value[:, :, here] += torch.einsum("pk,beki->bepi", shapes, values[:, part])
            gradient[:, :, here] += torch.einsum("beki,bepkj->bepij", values[:, part], slopes)
            count[here] += 1
        value, gradient = value / count[:, None], gradient / count[:, None, None]
        return value.flatten(1, 2), gradient.flatten(1, 2)

    def _solve(
        self, inputs: list[np.ndarray], device: torch.device, load_steps: int
    ) -> list[np.ndarray | None]:
        mesh, rubber = self.mesh, Rubber(self.c1, self.c2)

        def stresses(nodes: Tensor) -> Tensor:
            u, converged = equilibrium(nodes, mesh, rubber, load_steps)
            sigma = rubber.von_mises(self.sample(nodes, u)[1])
            return torch.where(converged[:, None], sigma, torch.nan).float()

        size = min(self.batch, max(1, ENTRIES // self.unknowns**2))
        nodes = list(self.nodes(np.stack(inputs)))
        return solve_in_batches(stresses, nodes, device, cpu=1, gpu=size)


def hole_radius(
    drawn: Float[np.ndarray, "b 10"], theta: Float[np.ndarray, " n"], deviation: float, tau: float
) -> Float[np.ndarray, "b n"]:
    """The radius of each hole at angles θ.

    The functions cos(kθ)/√π and sin(kθ)/√π have unit norm and the eigenvalue k² of −Δ.

    >>> hole_radius(np.zeros((1, 10)), np.zeros(1), deviation=4.0, tau=3.0).item()
    0.30000000000000004
    """
    k = np.arange(1, MODES + 1)
    waves = np.stack([np.cos(np.outer(k, theta)), np.sin(np.outer(k, theta))], axis=1)
    amplitude = deviation / np.sqrt(np.pi * (k**2 + tau**2))
    g = np.einsum("k,bkc,kcn->bn", amplitude, drawn.reshape(-1, MODES, 2), waves)
    return 0.2 + 0.2 * expit(-g)


@lru_cache(maxsize=8)
def ring_mesh(around: int, across: int, traction: float) -> Mesh:
    """Elements around a hole in the unit cell, clamped at the bottom, pulled at the top.

    The first reference coordinate points outwards, the second one around the hole.

    >>> mesh = ring_mesh(8, 1, traction=100.0)
    >>> len(mesh.elements), int(mesh.fixed.sum()), mesh.load.sum(axis=0).round(9).tolist()
    (8, 10, [0.0, 100.0])
    """
    node = np.arange(2 * around * (2 * across + 1)).reshape(2 * around, 2 * across + 1)
    node = np.concatenate([node, node[:1]])  # the last ray is the first one again
    nodes_of_element = np.lib.stride_tricks.sliding_window_view(node, (3, 3))[::2, ::2]
    elements = nodes_of_element.transpose(0, 1, 3, 2).reshape(-1, 9)
    fixed, load = np.zeros((node.max() + 1, 2), bool), np.zeros((node.max() + 1, 2))
    half = around // 2  # nodes along a side of the cell: the first one to the first one of the next
    fixed[node[3 * half :, -1]] = True
    for first in range(half, 2 * half, 2):  # Simpson's rule on each element
        load[node[first : first + 3, -1], 1] += np.array([1, 4, 1]) / 6 * (2 / half)
    return Mesh(elements, fixed, traction * load)


def ring_cells(around: int, across: int) -> Int[np.ndarray, "cells 4"]:
    """Quadrilaterals between neighbouring points of the data, within and between elements."""
    point = np.arange(9 * around * across).reshape(around, across, 3, 3)
    ring = point.transpose(0, 3, 1, 2).reshape(3 * around, 3 * across)
    after = np.roll(ring, -1, axis=0)
    corners = (ring[:, :-1], ring[:, 1:], after[:, 1:], after[:, :-1])
    return np.stack(corners, axis=-1).reshape(-1, 4)
