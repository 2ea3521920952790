"""Equilibrium of incompressible rubber in plane stress, at large strain, on Q9 elements.

    find u with ∫ P(F) : ∇v = load · v for all v,    P = F S,  S = 2 ∂W/∂C,  C = FᵀF,  F = I + ∇u

All integrals are over the undeformed body (total Lagrangian). Newton's method with the exact
derivative; stiffness matrices are dense, symmetric and positive definite where the body is stable.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lno.problems.numerics.quadrilaterals import (
    disjoint_groups,
    gauss_rule,
    mapped_gradients,
    shape_functions,
)

TOLERANCE = 1e-10  # residual over all nodal forces, reactions among them; rounding leaves 1e-14
ITERATIONS = 12  # of Newton's method in a load step; samples that need more are diverging


@dataclass(frozen=True)
class Rubber:
    """The Rivlin–Saunders solid W = c₁ (I₁ − 3) + c₂ (I₂ − 3), incompressible, in plane stress.

    The stretch across the plane follows from incompressibility, C₃₃ = 1/D with D = det C. With the
    trace t of C in the plane, I₁ = t + 1/D and I₂ = D + t/D. The derivative of t with respect to C
    is the unit matrix I, that of D is the cofactor matrix A, that of A is I⊗I minus the identity.

    Strains are (E₁₁, E₂₂, 2E₁₂) with E = (C − I)/2, other symmetric matrices (S₁₁, S₂₂, S₁₂).
    """

    c1: float
    c2: float

    def stress(self, strain: Float[Tensor, "*batch 3"]) -> Float[Tensor, "*batch 3"]:
        """The second Piola–Kirchhoff stress S = 2 (c₁ + c₂/D) I + 2 (c₂ − (c₁ + c₂t)/D²) A.

        At strains of 1e-3 its terms cancel but for a thousandth. So they are written with A − I,
        D − 1 and t − 2, which are small, and no digits are lost.

        >>> stretched = torch.tensor([1.5, -0.25, 0.0])  # C = diag(4, ½), so D = 2 and A₁₁ = ½
        >>> Rubber(c1=1.0, c2=0.0).stress(stretched).tolist()
        [1.75, 0.0, 0.0]
        """
        unit, a, det, trace = _small_invariants(strain)
        of_c1 = det * (2 + det) * unit - a
        rest = 2 * det + det**2 - trace  # D² − t + 1
        of_c2 = (rest + det) * unit + (rest - 1) * a
        return 2 * (self.c1 * of_c1 + self.c2 * of_c2) / (1 + det) ** 2

    def tangent(self, strain: Float[Tensor, "*batch 3"]) -> Float[Tensor, "*batch 3 3"]:
        """The derivative of the stress with respect to the strain (E₁₁, E₂₂, 2E₁₂).

        4 [2 (c₁ + c₂t)/D³ A⊗A − c₂/D² (I⊗A + A⊗I) + (c₂ − (c₁ + c₂t)/D²) ∂A/∂C]
        """
        unit, small_a, det, trace = (v[..., None] for v in _small_invariants(strain))
        a, d, factor = small_a + unit, det + 1, self.c1 + self.c2 * (trace + 2)
        slope_of_a = strain.new_tensor([[0, 1, 0], [1, 0, 0], [0, 0, -0.5]])
        return 4 * (
            2 * factor / d**3 * (a * a.mT)
            - self.c2 / d**2 * (unit * a.mT + a * unit.mT)
            + (self.c2 - factor / d**2) * slope_of_a
        )

    def cauchy(self, gradient: Float[Tensor, "*batch 2 2"]) -> Float[Tensor, "*batch 2 2"]:
        """The Cauchy stress F S Fᵀ at displacement gradients ∇u; the volume does not change."""
        f = gradient + torch.eye(2).to(gradient)
        return f @ _matrix(self.stress(green_strain(gradient))) @ f.mT

    def von_mises(self, gradient: Float[Tensor, "*batch 2 2"]) -> Float[Tensor, "*batch"]:
        """The von Mises stress at displacement gradients ∇u, with σ₃₃ = 0."""
        sigma = self.cauchy(gradient)
        xx, yy, xy = sigma[..., 0, 0], sigma[..., 1, 1], sigma[..., 0, 1]
        return torch.sqrt(xx**2 - xx * yy + yy**2 + 3 * xy**2)


@dataclass(frozen=True)
class Mesh:
    """What all samples of a batch share; the positions of their nodes differ.

    Args:
        elements: the nodes of each element, in the order of `quadrilaterals`.
        fixed: which displacements are given, in x and in y.
        load: nodal forces.
    """

    elements: Int[np.ndarray, "e 9"]
    fixed: Bool[np.ndarray, "n 2"]
    load: Float[np.ndarray, "n 2"]

    @cached_property
    def groups(self) -> list[Int[np.ndarray, " _"]]:
        """Elements that have no node in common."""
        return disjoint_groups(self.elements)


def equilibrium(
    nodes: Float[Tensor, "b n 2"],
    mesh: Mesh,
    rubber: Rubber,
    load_steps: int = 1,
    start: Float[Tensor, "b n 2"] | None = None,
) -> tuple[Float[Tensor, "b n 2"], Bool[Tensor, " b"]]:
    """Displacements at which the nodal forces are in equilibrium, and which samples converged.

    A sample that has converged is left alone, so it does not depend on the others. It has failed
    where an element is inverted, before or after, where the stiffness matrix is not positive
    definite on the way, or where the iterations do not suffice.

    Args:
        nodes: positions, in double precision.
        mesh: elements, supports and load.
        rubber: the material.
        load_steps: the load grows in so many equal steps, each solved from the one before.
        start: displacements to start from; the given ones keep these values. None: zero.
    """
    u = torch.zeros_like(nodes) if start is None else start.clone()
    body = Body(nodes, mesh, rubber)
    load = torch.from_numpy(mesh.load).to(nodes)
    good = (body.volumes > 0).flatten(1).all(1)
    for step in range(1, load_steps + 1):
        active = good.clone()
        for _ in range(ITERATIONS):
            gradient = body.gradient(u)
            forces = body.forces(gradient)
            residual = torch.where(body.fixed, 0.0, load * (step / load_steps) - forces)
            size, scale = (v.flatten(1).norm(dim=1) for v in (residual, forces))
            active &= ~((size <= TOLERANCE * scale) & scale.isfinite())
            if not active.any():
                break
            factor, failed = torch.linalg.cholesky_ex(body.stiffness(gradient))
            change = torch.cholesky_solve(residual.flatten(1)[..., None], factor)
            good &= ~active | (failed == 0)
            active &= good
            u = torch.where(active[:, None, None], u + change.view_as(u), u)
        good &= ~active
    (xx, xy), (yx, yy) = (row.unbind(-1) for row in body.gradient(u).unbind(-2))
    upright = (1 + xx) * (1 + yy) - xy * yx > 0  # det F
    return u, good & upright.flatten(1).all(1)


class Body:
    """Forces and stiffness of the elements of a batch of meshes.

    Args:
        nodes: positions, (b, n, 2).
        mesh: elements and supports.
        rubber: the material.
    """

    def __init__(self, nodes: Float[Tensor, "b n 2"], mesh: Mesh, rubber: Rubber) -> None:
        points, weights = gauss_rule(3)
        slopes = torch.from_numpy(shape_functions(2, points)[1]).to(nodes)
        self.rubber = rubber
        self.elements = torch.from_numpy(mesh.elements).to(nodes.device)
        self.groups = [torch.from_numpy(group).to(nodes.device) for group in mesh.groups]
        self.fixed = torch.from_numpy(mesh.fixed).to(nodes.device)
        self.gradients, determinant = mapped_gradients(slopes, nodes[:, self.elements])
        self.volumes = determinant * torch.from_numpy(weights).to(nodes)  # (b, e, p)

    def gradient(self, u: Float[Tensor, "b n 2"]) -> Float[Tensor, "b e p 2 2"]:
        """∇u at the Gauss points."""
        return torch.einsum("beki,bepkj->bepij", u[:, self.elements], self.gradients)

    def forces(self, gradient: Float[Tensor, "b e p 2 2"]) -> Float[Tensor, "b n 2"]:
        """Nodal forces ∫ P ∇N of the stress at displacement gradients ∇u."""
        f = gradient + torch.eye(2).to(gradient)
        stress = f @ _matrix(self.rubber.stress(green_strain(gradient)))
        each = torch.einsum(
            "bepij,bepkj->beki", stress * self.volumes[..., None, None], self.gradients
        )
        total = each.new_zeros(len(each), *self.fixed.shape)
        for group in self.groups:
            total[:, self.elements[group]] += each[:, group]
        return total

    def stiffness(self, gradient: Float[Tensor, "b e p 2 2"]) -> Float[Tensor, "b m m"]:
        """The derivative of the forces, with the rows of given displacements those of I."""
        f = gradient + torch.eye(2).to(gradient)
        green, volumes = green_strain(gradient), self.volumes[..., None, None]
        # δE = sym(Fᵀ ∇δu): the derivative of (E₁₁, E₂₂, 2E₁₂) by each displacement of an element.
        products = torch.einsum("bepij,bepkl->bepjlki", f, self.gradients).flatten(-2)
        rows = (products[..., 0, 0, :], products[..., 1, 1, :])
        strain = torch.stack((*rows, products[..., 0, 1, :] + products[..., 1, 0, :]), dim=-2)
        change = (self.rubber.tangent(green) * volumes) @ strain
        each = strain.flatten(2, 3).mT @ change.flatten(2, 3)
        # The stress itself acts on the change of direction, alike for both displacements.
        along = _matrix(self.rubber.stress(green)) * volumes @ self.gradients.mT
        geometric = self.gradients.mT.flatten(2, 3).mT @ along.flatten(2, 3)
        each += torch.einsum("bekl,ij->bekilj", geometric, torch.eye(2).to(f)).reshape(each.shape)
        return self._assembled(each)

    def _assembled(self, each: Float[Tensor, "b e 18 18"]) -> Float[Tensor, "b m m"]:
        """Sum of element matrices, with the rows and columns of given displacements those of I."""
        unknowns = (2 * self.elements[..., None] + torch.arange(2, device=each.device)).flatten(1)
        given = self.fixed.flatten()
        free = ~given[unknowns]
        each = each * (free[:, :, None] & free[:, None, :])
        total = each.new_zeros(len(each), len(given), len(given))
        total.diagonal(dim1=1, dim2=2).copy_(given)
        for group in self.groups:
            at = unknowns[group]
            total[:, at[:, :, None], at[:, None, :]] += each[:, group]
        return total


def green_strain(gradient: Float[Tensor, "*batch 2 2"]) -> Float[Tensor, "*batch 3"]:
    """E = (∇u + ∇uᵀ + ∇uᵀ∇u)/2 as (E₁₁, E₂₂, 2E₁₂)."""
    (xx, xy), (yx, yy) = (row.unbind(-1) for row in gradient.unbind(-2))
    along_x = xx + (xx**2 + yx**2) / 2
    along_y = yy + (xy**2 + yy**2) / 2
    return torch.stack((along_x, along_y, xy + yx + xx * xy + yx * yy), dim=-1)


def _matrix(s: Float[Tensor, "*batch 3"]) -> Float[Tensor, "*batch 2 2"]:
    """(S₁₁, S₂₂, S₁₂) as a matrix."""
    xx, yy, xy = s.unbind(-1)
    return torch.stack((xx, xy, xy, yy), dim=-1).unflatten(-1, (2, 2))


def _small_invariants(strain: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """I and A − I as (11, 22, 12); D − 1 and t − 2 with an axis of size 1."""
    xx, yy, xy = strain.unbind(-1)
    a = torch.stack((2 * yy, 2 * xx, -xy), dim=-1)
    unit = strain.new_tensor([1, 1, 0]).expand(strain.shape)
    trace = 2 * (xx + yy)
    return unit, a, (trace + 4 * xx * yy - xy**2)[..., None], trace[..., None]
