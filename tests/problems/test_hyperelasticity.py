"""Rubber in plane stress: its energy, exact solutions, order, and scikit-fem's own assembly."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy.spatial import cKDTree

from lno.problems.elasticity import Elasticity
from lno.problems.make import generator
from lno.problems.numerics.hyperelasticity import Body, Mesh, Rubber, equilibrium
from lno.problems.numerics.quadrilaterals import gauss_rule, mapped_gradients, shape_functions

C1, C2 = 1.863e5, 9.79e3
RUBBER = Rubber(C1, C2)


def nodes_of(problem: Elasticity, count: int = 1) -> torch.Tensor:
    drawn = [problem.draw(generator(0, k)) for k in range(count)]
    return torch.from_numpy(problem.nodes(np.stack(drawn)))


def distorted_square(n: int = 3) -> tuple[torch.Tensor, Mesh]:
    """n × n Q9 elements on the unit square with nodes moved about inside; nothing fixed."""
    side = np.linspace(0, 1, 2 * n + 1)
    nodes = np.stack(np.meshgrid(side, side, indexing="ij"), axis=-1)
    moved = np.random.default_rng(0).uniform(-0.2, 0.2, nodes.shape) / (2 * n)
    nodes[1:-1, 1:-1] += moved[1:-1, 1:-1]
    number = np.arange((2 * n + 1) ** 2).reshape(2 * n + 1, -1)
    elements = np.lib.stride_tricks.sliding_window_view(number, (3, 3))[::2, ::2].reshape(-1, 9)
    nothing = np.zeros((number.size, 2))
    return torch.from_numpy(nodes.reshape(1, -1, 2)), Mesh(elements, nothing > 0, nothing)


def test_stress_and_tangent_are_derivatives_of_the_energy():
    def energy(strain: torch.Tensor) -> torch.Tensor:
        c11, c22, c12 = 2 * strain[0] + 1, 2 * strain[1] + 1, strain[2]
        det = c11 * c22 - c12**2
        first, second = c11 + c22 + 1 / det, det + (c11 + c22) / det
        return C1 * (first - 3) + C2 * (second - 3)

    for size in (1e-4, 0.1, 0.4):
        strains = size * (2 * torch.rand(6, 3, generator=torch.manual_seed(0)).double() - 1)
        slope, curvature = torch.func.grad(energy), torch.func.hessian(energy)
        exact = torch.func.vmap(slope)(strains)
        torch.testing.assert_close(RUBBER.stress(strains), exact, rtol=1e-10, atol=1e-9)
        exact = torch.func.vmap(curvature)(strains)
        torch.testing.assert_close(RUBBER.tangent(strains), exact, rtol=1e-10, atol=1e-9 * C1)


def test_stress_keeps_its_digits_at_small_strain():
    tiny = torch.tensor([3e-9, -1e-9, 2e-9], dtype=torch.float64)
    linear = RUBBER.tangent(torch.zeros(3, dtype=torch.float64)) @ tiny
    torch.testing.assert_close(RUBBER.stress(tiny), linear, rtol=1e-7, atol=0)


def test_small_strains_have_young_modulus_6_c1_c2_and_poisson_ratio_one_half():
    compliance = RUBBER.tangent(torch.zeros(3, dtype=torch.float64)).inverse()
    young = 6 * (C1 + C2)
    exact = torch.tensor([[1, -0.5, 0], [-0.5, 1, 0], [0, 0, 3]], dtype=torch.float64) / young
    torch.testing.assert_close(compliance, exact)


def test_patch_linear_displacements_are_exact_on_a_distorted_mesh():
    nodes, mesh = distorted_square()
    boundary = ((nodes[0] == 0) | (nodes[0] == 1)).any(1).numpy()
    mesh = Mesh(mesh.elements, np.repeat(boundary[:, None], 2, axis=1), mesh.load)
    slope = torch.tensor([[0.15, 0.1], [-0.05, -0.2]], dtype=torch.float64)
    linear = nodes @ slope.T
    noise = 0.01 * torch.randn(nodes.shape, generator=torch.manual_seed(0), dtype=nodes.dtype)
    start = torch.where(torch.from_numpy(mesh.fixed), linear, linear + noise)
    u, converged = equilibrium(nodes, mesh, RUBBER, start=start)
    assert converged.all()
    torch.testing.assert_close(u, linear, rtol=0, atol=1e-12)


@pytest.mark.parametrize("stretch", [1.001, 1.6, 0.95])
def test_uniaxial_tension_is_exact_on_a_distorted_mesh(stretch):
    nodes, mesh = distorted_square()
    x, y = nodes[0].numpy().T
    fixed = np.stack([(x == 0) & (y == 0), y == 0], axis=1)  # rollers
    # P = ∂W/∂λ of W(λ, λ^−½, λ^−½), upwards at the top.
    traction = 2 * (stretch - stretch**-2) * (C1 + C2 / stretch)
    load, top = np.zeros_like(mesh.load), np.flatnonzero(y == 1)
    assert np.all(np.diff(x[top]) > 0)
    for first in range(0, len(top) - 1, 2):
        load[top[first : first + 3], 1] += traction * np.array([1, 4, 1]) / 6 / 3
    u, converged = equilibrium(nodes, Mesh(mesh.elements, fixed, load), RUBBER, load_steps=4)
    assert converged.all()
    exact = nodes * torch.tensor([stretch**-0.5 - 1, stretch - 1], dtype=torch.float64)
    torch.testing.assert_close(u, exact, rtol=0, atol=1e-9)
    mises = RUBBER.von_mises(Body(nodes, mesh, RUBBER).gradient(u))
    torch.testing.assert_close(
        mises, torch.full_like(mises, abs(traction) * stretch), rtol=1e-8, atol=0
    )


def smooth_displacement(x: torch.Tensor) -> torch.Tensor:
    """A displacement with strains of 0.1 to 0.3; stretched everywhere, so that it is stable."""
    p, q = x.unbind(-1)
    waves = torch.stack((torch.sin(2 * p + q), torch.cos(3 * q) * p), dim=-1)
    return 0.2 * x + 0.03 * waves


def manufactured(refine: int) -> tuple[float, float]:
    """Errors of displacements and of gradients for the load that has a known solution."""
    problem = Elasticity(around=12, across=1, refine=refine)
    nodes, mesh = nodes_of(problem), problem.mesh
    points, weights = gauss_rule(6)
    values, slopes = (torch.from_numpy(v) for v in shape_functions(2, points))
    corners = nodes[0, mesh.elements]
    gradients, determinant = mapped_gradients(slopes, corners)
    x = torch.einsum("pk,eki->epi", values, corners).reshape(-1, 2)
    exact = torch.func.vmap(torch.func.jacfwd(smooth_displacement))(x)
    f = exact + torch.eye(2)
    piola = (RUBBER.cauchy(exact) @ f.inverse().mT).unflatten(0, determinant.shape)
    volumes = determinant * torch.from_numpy(weights)
    each = torch.einsum("ep,epij,epkj->eki", volumes, piola, gradients)
    load = np.zeros_like(mesh.load)
    np.add.at(load, mesh.elements, each.numpy())
    loaded = Mesh(mesh.elements, mesh.fixed, load)
    u, converged = equilibrium(nodes, loaded, RUBBER, start=smooth_displacement(nodes))
    assert converged.all()
    found = torch.einsum("pk,eki->epi", values, u[0, mesh.elements]).reshape(-1, 2)
    slope = torch.einsum("eki,epkj->epij", u[0, mesh.elements], gradients).reshape(-1, 2, 2)
    error = ((found - smooth_displacement(x)) ** 2).sum(-1), ((slope - exact) ** 2).sum((-1, -2))
    return tuple(math.sqrt((e * volumes.flatten()).sum().item()) for e in error)


def test_third_order_in_displacements_and_second_order_in_stress():
    errors = [manufactured(refine) for refine in (1, 2, 4)]
    orders = [[math.log2(a / b) for a, b in zip(*pair, strict=True)] for pair in pairwise(errors)]
    assert orders[-1][0] == pytest.approx(3, abs=0.3)
    assert orders[-1][1] == pytest.approx(2, abs=0.3)


def test_newton_converges_quadratically():
    problem = Elasticity(around=12, across=2, traction=5e4)
    nodes, mesh = nodes_of(problem), problem.mesh
    body, load = Body(nodes, mesh, RUBBER), torch.from_numpy(mesh.load)
    u, sizes = torch.zeros_like(nodes), []
    for _ in range(7):
        gradient = body.gradient(u)
        residual = torch.where(body.fixed, 0.0, load - body.forces(gradient))
        sizes.append((residual.norm() / load.norm()).item())
        change = torch.linalg.solve(body.stiffness(gradient), residual.flatten(1)[..., None])
        u = u + change.view_as(u)
    assert sizes[0] == pytest.approx(1)
    assert sizes[-1] < 1e-12
    asymptotic = [s for s in sizes if 1e-11 < s < 0.1]
    assert len(asymptotic) >= 2
    for before, after in pairwise(asymptotic):
        assert after < 30 * before**2


def test_forces_vanish_under_rigid_motions_at_large_strain():
    nodes, mesh = distorted_square()
    cos, sin = math.cos(0.7), math.sin(0.7)
    turn = torch.tensor([[cos, -sin], [sin, cos]], dtype=torch.float64)
    shift = torch.tensor([0.25, -2.0])
    body = Body(nodes, mesh, RUBBER)
    assert body.forces(body.gradient(nodes @ turn.T + shift - nodes)).abs().max() < 1e-9 * C1
    u = smooth_displacement(nodes)
    turned = (nodes + u) @ turn.T + shift - nodes
    forces, again = (body.forces(body.gradient(v)) for v in (u, turned))
    torch.testing.assert_close(again, forces @ turn.T, rtol=0, atol=1e-9 * C1)


def test_the_support_bears_the_traction():
    problem = Elasticity(around=12, across=2, traction=3e4)
    nodes, mesh = nodes_of(problem), problem.mesh
    u, converged = equilibrium(nodes, mesh, RUBBER)
    assert converged.all()
    body = Body(nodes, mesh, RUBBER)
    forces = body.forces(body.gradient(u))[0]
    bearing = forces[body.fixed[:, 0]].sum(0)
    torch.testing.assert_close(bearing, torch.tensor([0, -3e4]).double(), rtol=0, atol=1e-4)
    place = (nodes + u)[0]
    moment = (place[:, 0] * forces[:, 1] - place[:, 1] * forces[:, 0]).sum()
    assert abs(moment) < 1e-9 * 3e4


def test_samples_that_fail_do_not_touch_the_others_of_their_batch():
    problem = Elasticity(around=12, across=2)
    nodes, mesh = nodes_of(problem, 3), problem.mesh
    alone, _ = equilibrium(nodes[[0, 2]], mesh, RUBBER)
    nodes[1] = nodes[1].flip(-1)  # a mirror image: every element is inverted
    u, converged = equilibrium(nodes, mesh, RUBBER)
    assert converged.tolist() == [True, False, True]
    torch.testing.assert_close(u[[0, 2]], alone, rtol=1e-10, atol=1e-15)


def piola_of(f: np.ndarray) -> np.ndarray:
    """P = ∂W/∂F, by finite differences of the energy with complex steps; F is (2, 2, ...)."""
    result = np.zeros_like(f)
    for i in range(2):
        for j in range(2):
            moved = f.astype(complex)
            moved[i, j] += 1e-30j
            c = np.einsum("ki...,kj...->ij...", moved, moved)
            det = c[0, 0] * c[1, 1] - c[0, 1] ** 2
            trace = c[0, 0] + c[1, 1]
            energy = C1 * (trace + 1 / det) + C2 * (det + trace / det)
            result[i, j] = energy.imag / 1e-30
    return result


def test_scikit_fem_assembles_the_same_equilibrium_at_large_strain():
    skfem = pytest.importorskip("skfem")
    problem = Elasticity(around=24, across=2, traction=5e4)
    nodes = nodes_of(problem)
    u, converged = equilibrium(nodes, problem.mesh, RUBBER)
    assert converged.all()
    assert u.abs().max() > 0.05
    place, corners = cKDTree(nodes[0]), problem.mesh.elements[:, [0, 6, 8, 2]]
    used, straight = np.unique(corners, return_inverse=True)
    mesh = skfem.MeshQuad2.from_mesh(
        skfem.MeshQuad(nodes[0, used].T.numpy(), straight.reshape(-1, 4).T)
    )
    nearest = place.query(mesh.doflocs.T)[1]  # the middles of straight sides are near our nodes
    assert len(np.unique(nearest)) == nodes.shape[1]
    mesh = skfem.MeshQuad2(nodes[0, nearest].T.numpy(), mesh.t)
    basis = skfem.Basis(mesh, skfem.ElementVector(skfem.ElementQuad2()), intorder=5)
    distance, number = place.query(basis.doflocs.T)
    assert distance.max() < 1e-12
    component = np.zeros(basis.N, int)
    for dofs in (basis.nodal_dofs, basis.facet_dofs, basis.interior_dofs):
        component[dofs[1]] = 1

    @skfem.LinearForm
    def internal(v, w):
        return skfem.helpers.ddot(
            piola_of(skfem.helpers.grad(w["u"]) + np.eye(2)[:, :, None, None]),
            skfem.helpers.grad(v),
        )

    @skfem.LinearForm
    def upwards(v, w):
        return 5e4 * v[1]

    top = mesh.facets_satisfying(lambda x: np.abs(x[1] - 1) < 1e-9)
    load = upwards.assemble(skfem.FacetBasis(mesh, basis.elem, facets=top))
    displacement = basis.interpolate(u[0].numpy()[number, component])
    residual = internal.assemble(basis, u=displacement) - load
    free = basis.doflocs[1] > 1e-9
    assert np.linalg.norm(residual[free]) < 1e-9 * np.linalg.norm(residual[~free])
