"""Steady incompressible flow in a channel, by Taylor–Hood finite elements and Newton's method.

    inertia (u·∇)u − ν Δu + ∇p = 0,    ∇·u = 0

Velocity is biquadratic and pressure bilinear on quadrilaterals with nine nodes (Q2–Q1), which
satisfies the inf-sup condition. The elements form a grid of c columns and r rows. The first axis
runs from the inlet to the outlet, the second from wall to wall. Velocity is given at the inlet and
the walls. At the outlet ν ∂u/∂n = p n, the natural condition of the weak form: no traction.
`inertia` is 1 for the Navier–Stokes equations and 0 for the Stokes equations.

A column of elements couples the unknowns on its left line of nodes, on its right line, and on the
line between them. Velocities on the line between are eliminated inside the column. What is left is
a block-tridiagonal system whose blocks are the lines between columns: with 64 rows they have 319
unknowns. Everything is dense inside a block and the same for every sample, so batches are solved at
once, on a CPU or a GPU. Sums over elements are formed in a fixed order, without atomic operations.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, einsum

from lno.problems.numerics.block_tridiagonal import BlockRow, solve_block_tridiagonal, solve_dense
from lno.problems.numerics.quadrilaterals import gauss_rule, mapped_gradients, shape_functions

PRESSURES = 4  # of an element, at its corners


class Flow(NamedTuple):
    """Velocity at the nodes and pressure at the corners of c × r elements; also a residual."""

    velocity: Float[Tensor, "b 2*c+1 2*r+1 2"]
    pressure: Float[Tensor, "b c+1 r+1"]

    def plus(self, length: Float[Tensor, " b"], change: Flow) -> Flow:
        """This flow plus `length` times a change; unchanged, whatever the change is, for 0."""
        moves = (length != 0)[:, None, None, None]
        velocity = self.velocity + length[:, None, None, None] * change.velocity
        pressure = self.pressure + length[:, None, None] * change.pressure
        return Flow(
            torch.where(moves, velocity, self.velocity),
            torch.where(moves[..., 0], pressure, self.pressure),
        )

    def norm(self) -> Float[Tensor, " b"]:
        """The Euclidean norm over all velocities and pressures."""
        return torch.cat([part.flatten(1) for part in self], dim=1).norm(dim=1)


class TaylorHood:
    """The discrete equations on a batch of meshes.

    Args:
        nodes: positions of the (2c + 1) × (2r + 1) nodes of each mesh, in double precision.
        viscosity: ν.
        grad_div: γ, the factor of the term −γ ∇(∇·u) in the momentum equation. It is zero for the
            exact solution. Discrete solutions conserve mass weakly; with γ of the order of ten ν,
            they do so much better at each point, and curvature of the walls disturbs them less.

    The 4 × 4 Gauss rule integrates all terms exactly if each mesh is a rectangle that is sheared
    along its second axis, as in `lno.problems.pipe`: then the Jacobian determinant is constant.

    >>> line = torch.linspace(0, 1, 5, dtype=torch.float64)
    >>> nodes = torch.stack(torch.meshgrid(line, line, indexing="ij"), dim=-1)[None]
    >>> equations = TaylorHood(nodes, viscosity=0.1)
    >>> rest = equations.at_rest(inflow=line * (1 - line))
    >>> stokes = equations.newton_step(rest, equations.residual(rest, inertia=0.0), inertia=0.0)
    >>> flow = rest.plus(torch.ones(1), stokes)
    >>> f"{flow.velocity[0, -1, 2, 0]:.6f}"  # Poiseuille flow
    '0.250000'
    """

    def __init__(
        self, nodes: Float[Tensor, "b i j 2"], viscosity: float, grad_div: float = 0.0
    ) -> None:
        points, weights = gauss_rule(4)
        quadratic, slopes = (nodes.new_tensor(v) for v in shape_functions(2, points))
        self.nodes, self.viscosity, self.grad_div = nodes, viscosity, grad_div
        self.columns, self.rows = (nodes.shape[1] - 1) // 2, (nodes.shape[2] - 1) // 2
        self.quadratic, self.linear = quadratic, nodes.new_tensor(shape_functions(1, points)[0])
        self.gradients, determinant = mapped_gradients(slopes, to_elements(nodes, 2))
        self.weights = determinant * nodes.new_tensor(weights)
        self.line = 2 * (2 * self.rows - 1)  # velocities on a line of nodes, without the walls
        self._targets, self._first, self._second = (
            torch.from_numpy(index).to(nodes.device) for index in column_entries(self.rows)
        )

    def at_rest(self, inflow: Float[Tensor, " j"]) -> Flow:
        """Fluid at rest but for the velocity at the inlet, which is along the first coordinate."""
        velocity = torch.zeros_like(self.nodes)
        velocity[:, 0, 1:-1, 0] = inflow[1:-1]
        return Flow(velocity, velocity.new_zeros(len(velocity), self.columns + 1, self.rows + 1))

    def residual(self, flow: Flow, inertia: float) -> Flow:
        """The weak form for every test function: zero at a solution.

        ∫ (ν ∇u + (γ ∇·u − p) I) : ∇v + inertia (u·∇)u · v,  −∫ q ∇·u. Entries of velocities that
        are given are zero.
        """
        u, slope = self._at_points(flow.velocity)
        p = einsum("bcrkd,pk->bcrp", to_elements(flow.pressure[..., None], 1), self.linear)
        advection = inertia * (slope * u[..., None, :]).sum(-1)
        divergence = slope.diagonal(dim1=-2, dim2=-1).sum(-1)
        stress = self.viscosity * slope
        stress.diagonal(dim1=-2, dim2=-1).add_((self.grad_div * divergence - p)[..., None])
        w = self.weights
        momentum = einsum("bcrpij,bcrpaj->bcrai", w[..., None, None] * stress, self.gradients)
        momentum = momentum + einsum("bcrpi,pa->bcrai", w[..., None] * advection, self.quadratic)
        mass = -einsum("bcrp,pk->bcrk", w * divergence, self.linear)
        forces = to_nodes(momentum, 2)
        forces[:, 0] = 0  # inlet
        forces[:, :, 0] = forces[:, :, -1] = 0  # walls
        return Flow(forces, to_nodes(mass[..., None], 1)[..., 0])

    def newton_step(self, flow: Flow, residual: Flow, inertia: float) -> Flow:
        """The change of the flow that makes its linearised residual zero."""
        line, pressures = self.line, self.rows + 1
        outer = 2 * (line + pressures)  # unknowns on the left and right lines of a column
        entries = self._element_matrices(flow.velocity, inertia).flatten(2)
        entries = torch.cat((entries, torch.zeros_like(entries[..., :1])), dim=-1)
        forces, mass = -residual.velocity[:, :, 1:-1].flatten(2), -residual.pressure
        lines = torch.cat((forces[:, ::2], mass), dim=-1)[..., None]  # line 2k and corners k
        between = forces[:, 1::2, :, None]
        eliminated: list[Tensor] = []  # velocities between: last column − the others × outer ones

        def rows() -> Iterator[BlockRow]:
            lower, diagonal, rhs = None, 0.0, lines[:, 0, line:]
            for k in range(self.columns):
                matrix = self._column_matrix(entries[:, k])
                skip = line if k == 0 else 0  # velocities at the inlet are given
                ends, inside = slice(skip, outer), slice(outer, None)
                right = torch.cat((matrix[:, inside, ends], between[:, k]), dim=-1)
                eliminated.append(solve_dense(matrix[:, inside, inside], right))
                full = torch.nn.functional.pad(matrix[:, ends, ends], (0, 1))
                full = torch.baddbmm(full, matrix[:, ends, inside], eliminated[-1], alpha=-1)
                m = outer // 2 - skip
                here, after, loads = full.split((m, outer // 2, 1), dim=-1)
                yield BlockRow(lower, diagonal + here[:, :m], after[:, :m], rhs + loads[:, :m])
                lower, diagonal, rhs = here[:, m:], after[:, m:], lines[:, k + 1] + loads[:, m:]
            assert isinstance(diagonal, Tensor)
            yield BlockRow(lower, diagonal, None, rhs)

        solved = solve_block_tridiagonal(rows())
        inside = []
        for k, kept in enumerate(eliminated):
            ends = torch.cat((solved[k], solved[k + 1]), dim=-1)[..., None]
            inside.append(torch.baddbmm(kept[..., -1:], kept[..., :-1], ends, alpha=-1)[..., 0])
        velocity, pressure = torch.zeros_like(flow.velocity), torch.empty_like(flow.pressure)
        beyond = torch.stack(solved[1:], dim=1)
        velocity[:, 2::2, 1:-1] = beyond[..., :line].unflatten(-1, (-1, 2))
        velocity[:, 1::2, 1:-1] = torch.stack(inside, dim=1).unflatten(-1, (-1, 2))
        pressure[:, 0], pressure[:, 1:] = solved[0], beyond[..., line:]
        return Flow(velocity, pressure)

    def _at_points(
        self, velocity: Float[Tensor, "b i j 2"]
    ) -> tuple[Float[Tensor, "b c r p 2"], Float[Tensor, "b c r p 2 2"]]:
        """Velocity u_i and its derivatives ∂u_i/∂x_j at the quadrature points."""
        local = to_elements(velocity, 2)
        u = einsum("bcrai,pa->bcrpi", local, self.quadratic)
        return u, einsum("bcrai,bcrpaj->bcrpij", local, self.gradients)

    def _element_matrices(
        self, velocity: Float[Tensor, "b i j 2"], inertia: float
    ) -> Float[Tensor, "b c r 22 22"]:
        """The derivative of the residual of each element; unknowns (node, component), pressures."""
        u, slope = self._at_points(velocity)
        gradients, values, w = self.gradients, self.quadratic, self.weights
        weighted = w[..., None, None] * gradients
        along = inertia * (gradients * u[..., None, :]).sum(-1)  # (u·∇) of the shape functions
        scalar = self.viscosity * einsum("bcrpaj,bcrpdj->bcrad", weighted, gradients)
        scalar = scalar + einsum("bcrpa,bcrpd->bcrad", w[..., None] * values, along)
        pairs = values[:, :, None] * values[:, None, :]
        full = einsum("bcrpij,pad->bcraidj", (inertia * w)[..., None, None] * slope, pairs)
        full = full + self.grad_div * einsum("bcrpai,bcrpdj->bcraidj", weighted, gradients)
        for component in range(2):
            full[..., component, :, component] += scalar
        full = full.flatten(5).flatten(3, 4)
        coupling = -einsum("bcrpai,pk->bcraik", weighted, self.linear).flatten(3, 4)
        zero = coupling.new_zeros(*coupling.shape[:3], PRESSURES, PRESSURES)
        below = torch.cat((coupling.mT, zero), dim=-1)
        return torch.cat((torch.cat((full, coupling), dim=-1), below), dim=-2)

    def _column_matrix(self, entries: Float[Tensor, "b e"]) -> Float[Tensor, "b m m"]:
        """The matrix of one column of elements, from their entries and a zero at the end."""
        m = 2 * (self.line + self.rows + 1) + self.line
        matrix = entries.new_zeros(len(entries), m * m)
        matrix[:, self._targets] = entries[:, self._first] + entries[:, self._second]
        return matrix.unflatten(1, (m, m))


def column_entries(
    rows: int,
) -> tuple[Int[np.ndarray, " k"], Int[np.ndarray, " k"], Int[np.ndarray, " k"]]:
    """How the matrix of a column is built from the matrices of its elements.

    The unknowns are the velocities and pressures on the left line of nodes, the same on the right
    line, and the velocities on the line between; walls are left out. Neighbouring elements share
    nodes, so an entry is the sum of one or two entries of element matrices.

    Returns:
        The flat indices of the nonzero entries, of the first and of the second entry to add. Where
        there is no second one, the index is one past the last entry.
    """
    free = 2 * rows - 1
    half = 2 * free + rows + 1  # unknowns on a line between columns
    on_line = np.arange(2 * free).reshape(free, 2)
    velocity = np.full((3, 2 * rows + 1, 2), -1)
    velocity[:, 1:-1] = np.stack((on_line, 2 * half + on_line, half + on_line))
    pressure = 2 * free + np.arange(rows + 1) + np.array([[0], [half]])
    unknowns = np.stack(
        [
            np.r_[velocity[:, 2 * j : 2 * j + 3].ravel(), pressure[:, j : j + 2].ravel()]
            for j in range(rows)
        ]
    )
    size = 2 * half + 2 * free
    row, column = unknowns[:, :, None], unknowns[:, None, :]
    source = np.flatnonzero((row >= 0) & (column >= 0))
    target = (row * size + column).ravel()[source]
    source = source[np.argsort(target, kind="stable")]
    targets, start, count = np.unique(np.sort(target), return_index=True, return_counts=True)
    behind = np.append(source, -1)[start + 1]
    return targets, source[start], np.where(count == 2, behind, row.size * column.shape[2])


def to_elements(nodal: Float[Tensor, "b i j d"], order: int) -> Float[Tensor, "b c r k d"]:
    """Values at the nodes of a grid of elements, for each of them: k = (order + 1)² nodes."""
    local = nodal.unfold(1, order + 1, order).unfold(2, order + 1, order)
    return local.flatten(4).mT


def to_nodes(local: Float[Tensor, "b c r k d"], order: int) -> Float[Tensor, "b i j d"]:
    """Sums over the elements around each node, in a fixed order; the transpose of `to_elements`.

    >>> to_nodes(torch.ones(1, 2, 1, 4, 1), order=1)[0, :, :, 0].tolist()
    [[1.0, 1.0], [2.0, 2.0], [1.0, 1.0]]
    """
    b, c, r, _, d = local.shape
    local = local.unflatten(3, (order + 1, order + 1))
    nodal = local.new_zeros(b, order * c + 1, order * r + 1, d)
    for i, j in product(range(order + 1), repeat=2):
        at = slice(i, i + order * (c - 1) + 1, order), slice(j, j + order * (r - 1) + 1, order)
        nodal[:, *at] += local[:, :, :, i, j]
    return nodal
