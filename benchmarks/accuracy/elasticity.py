"""Accuracy and statistics of Elasticity. Called by benchmarks/solver_accuracy.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from lno.data import Fields
from lno.problems.elasticity import Elasticity, hole_radius
from lno.problems.make import generator
from lno.problems.numerics.hyperelasticity import Body, Mesh, Rubber, equilibrium

SAMPLES = 2
LINEAR = 1e-3  # a traction so small that the body is linear


def measure() -> list[dict[str, Any]]:
    """Rows {"check", "value", "unit"}; errors are the largest of all samples."""
    problem = Elasticity()
    drawn = [problem.draw(generator(0, k)) for k in range(SAMPLES)]
    rows = [
        _row("patch test, displacement", _patch_error(), "relative L2"),
        _row("residual after three Newton iterations", _residual(problem, drawn, 3), "relative"),
        _row("linear instead of nonlinear, stress", _nonlinearity(problem, drawn), "relative L2"),
    ]
    compared = [against_scikit_fem(d, (1, 2)) for d in drawn]
    for k, mesh in enumerate(("36 × 3", "72 × 6")):
        for what in ("displacement", "stress"):
            error = max(sample[k][what] for sample in compared)
            rows.append(_row(f"{mesh} elements against scikit-fem, {what}", error, "relative L2"))
    return rows


def statistics(samples: Fields) -> list[dict[str, Any]]:
    """Ranges over samples of the mean and the largest stress, beside the published ones."""
    stress = np.asarray(samples.y)[..., 0]
    mean, most = stress.mean(axis=1), stress.max(axis=1)
    return [
        {
            "statistic": "mean stress of a sample",
            "ours": f"{mean.min():.0f} to {mean.max():.0f}",
            "published": "150 to 250",
        },
        {
            "statistic": "largest stress of a sample",
            "ours": f"{most.min():.0f} to {most.max():.0f}",
            "published": "450 to 1440",
        },
    ]


def against_scikit_fem(
    drawn: np.ndarray, refinements: Sequence[int] = (1,)
) -> list[dict[str, float]]:
    """Errors of the displacement at the top and of the stress at all points, relative L2."""
    ours = []
    for refine in refinements:
        problem = Elasticity(traction=LINEAR, refine=refine)
        nodes, rubber = torch.from_numpy(problem.nodes(drawn[None])), Rubber(problem.c1, problem.c2)
        u, converged = equilibrium(nodes, problem.mesh, rubber)
        assert converged.all()
        x, stress = problem.sample(nodes, nodes)[0], rubber.von_mises(problem.sample(nodes, u)[1])
        top = nodes[0, :, 1] > 1 - 1e-9
        ours.append([v.numpy() for v in (nodes[0, top, 0], u[0, top, 1], x[0], stress[0])])
    points = np.concatenate([x for *_, x, _ in ours])
    at, up, stresses = linear_elasticity(drawn, points, LINEAR)
    return [
        {"displacement": _relative(u, np.interp(x, at, up)), "stress": _relative(stress, exact)}
        for (x, u, _, stress), exact in zip(ours, np.split(stresses, len(ours)), strict=True)
    ]


def linear_elasticity(
    drawn: np.ndarray, points: np.ndarray, traction: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Positions x and displacements at the top, and von Mises stresses at points, by scikit-fem.

    Linear plane stress with Young's modulus 6 (c1 + c2) and Poisson's ratio ½, on 7680 quadratic
    triangles, whose rays are evenly spaced in the angle: another mesh, another assembly, another
    solver.
    """
    import skfem
    from skfem.helpers import ddot, div, sym_grad

    problem, n, m = Elasticity(), 192, 20
    theta = -np.pi / 4 + 2 * np.pi * np.arange(n) / n
    direction = np.stack([np.cos(theta), np.sin(theta)])
    outer = 0.5 / abs(direction).max(axis=0)
    inner = hole_radius(drawn[None], theta, problem.deviation, problem.tau)[0]
    s = np.linspace(0, 1, m + 1)[:, None] ** 1.3
    nodes = 0.5 + direction[:, None] * ((1 - s) * inner + s * outer)
    first = np.arange(m * n).reshape(m, n)
    after = np.roll(first, -1, axis=1)
    halves = ((first, first + n, after + n), (first, after + n, after))
    triangles = np.concatenate([np.stack([c.ravel() for c in half]) for half in halves], axis=1)
    mesh = skfem.MeshTri(nodes.reshape(2, -1), triangles)
    basis = skfem.Basis(mesh, skfem.ElementVector(skfem.ElementTriP2()))
    young, poisson = 6 * (problem.c1 + problem.c2), 0.5
    shear, lame = young / (2 * (1 + poisson)), young * poisson / (1 - poisson**2)

    @skfem.BilinearForm
    def stiffness(u: Any, v: Any, w: Any) -> Any:
        return lame * div(u) * div(v) + 2 * shear * ddot(sym_grad(u), sym_grad(v))

    @skfem.LinearForm
    def upwards(v: Any, w: Any) -> Any:
        return traction * v[1]

    top = mesh.facets_satisfying(lambda x: np.abs(x[1] - 1) < 1e-9)
    load = upwards.assemble(skfem.FacetBasis(mesh, basis.elem, facets=top))
    clamped = basis.get_dofs(lambda x: np.abs(x[1]) < 1e-9)
    u = skfem.solve(*skfem.condense(stiffness.assemble(basis), load, D=clamped))
    cells = mesh.element_finder()(*points.T)
    local = basis.mapping.invF(points.T[:, :, None], tind=cells)
    gradient = np.zeros((2, 2, len(points)))
    for k in range(basis.Nbfun):
        shape = basis.elem.gbasis(basis.mapping, local, k, tind=cells)[0]
        gradient += u[basis.element_dofs[k, cells]] * shape.grad[..., 0]
    strain = (gradient + gradient.transpose(1, 0, 2)) / 2
    stress = lame * np.trace(strain) * np.eye(2)[..., None] + 2 * shear * strain
    xx, yy, xy = stress[0, 0], stress[1, 1], stress[0, 1]
    nodes_at_top = np.flatnonzero(np.abs(mesh.p[1] - 1) < 1e-9)
    nodes_at_top = nodes_at_top[np.argsort(mesh.p[0, nodes_at_top])]
    up = u[basis.nodal_dofs[1, nodes_at_top]]
    return mesh.p[0, nodes_at_top], up, np.sqrt(xx**2 - xx * yy + yy**2 + 3 * xy**2)


def _patch_error() -> float:
    """All boundaries moved linearly, at a strain of 0.2: the nodes inside must follow."""
    problem = Elasticity(around=12, across=2)
    nodes = torch.from_numpy(problem.nodes(problem.draw(generator(0, 0))[None]))
    rings = np.arange(nodes.shape[1]) % (2 * problem.across + 1)
    boundary = (rings == 0) | (rings == rings.max())
    fixed = np.repeat(boundary[:, None], 2, axis=1)
    mesh = Mesh(problem.mesh.elements, fixed, np.zeros(fixed.shape))
    linear = nodes @ torch.tensor([[0.15, -0.05], [0.1, 0.2]], dtype=torch.float64)
    start = torch.where(torch.from_numpy(fixed), linear, 0.9 * linear)
    u, converged = equilibrium(nodes, mesh, Rubber(problem.c1, problem.c2), start=start)
    assert converged.all()
    return _relative(u.numpy(), linear.numpy())


def _residual(problem: Elasticity, drawn: list[np.ndarray], iterations: int) -> float:
    """What a number of Newton iterations leave of the nodal forces."""
    nodes, mesh = torch.from_numpy(problem.nodes(np.stack(drawn))), problem.mesh
    body, load = Body(nodes, mesh, Rubber(problem.c1, problem.c2)), torch.from_numpy(mesh.load)
    u, left = torch.zeros_like(nodes), 1.0
    for k in range(iterations + 1):
        gradient = body.gradient(u)
        forces = body.forces(gradient)
        residual = torch.where(body.fixed, 0.0, load - forces).flatten(1)
        if k == iterations:
            left = float((residual.norm(dim=1) / forces.flatten(1).norm(dim=1)).max())
        else:
            change = torch.linalg.solve(body.stiffness(gradient), residual[..., None])
            u = u + change.view_as(u)
    return left


def _nonlinearity(problem: Elasticity, drawn: list[np.ndarray]) -> float:
    """How far the stress is from that of a body under a tiny load, scaled up."""
    cpu, tiny = torch.device("cpu"), replace(problem, traction=LINEAR)
    linear = (problem.traction / LINEAR) * np.stack(tiny.solve(drawn, cpu))
    pairs = zip(np.stack(problem.solve(drawn, cpu)), linear, strict=True)
    return max(_relative(a, b) for a, b in pairs)


def _relative(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


def _row(check: str, value: float, unit: str) -> dict[str, Any]:
    return {"check": check, "value": value, "unit": unit}
