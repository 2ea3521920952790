"""Elasticity against exact solutions, scikit-fem, its own refinement, and its symmetry."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from published_files import elasticity as published_files
from scipy.spatial import cKDTree
from skfem import (
    Basis,
    BilinearForm,
    ElementQuad2,
    ElementTriP2,
    ElementVector,
    FacetBasis,
    LinearForm,
    MeshQuad,
    MeshQuad2,
    MeshTri,
    condense,
    solve,
)
from skfem.helpers import ddot, div, grad, sym_grad

from lno.problems import read_published
from lno.problems.elasticity import Elasticity, hole_radius
from lno.problems.make import generator, make
from lno.problems.numerics.hyperelasticity import Body, Mesh, Rubber, equilibrium
from lno.problems.numerics.quadrilaterals import gauss_rule, mapped_gradients, shape_functions

CPU = torch.device("cpu")
C1, C2 = 1.863e5, 9.79e3
RUBBER = Rubber(C1, C2)
COARSE = Elasticity(around=12, across=2)


@pytest.fixture(autouse=True)
def one_thread():
    """Threads that wait for each other make small problems slow on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def draws(problem: Elasticity, count: int, seed: int = 0) -> list[np.ndarray]:
    return [problem.draw(generator(seed, k)) for k in range(count)]


def nodes_of(problem: Elasticity, count: int = 1) -> torch.Tensor:
    return torch.from_numpy(problem.nodes(np.stack(draws(problem, count))))


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
    problem = Elasticity(around=24, across=2, traction=5e4)
    nodes = nodes_of(problem)
    u, converged = equilibrium(nodes, problem.mesh, RUBBER)
    assert converged.all()
    assert u.abs().max() > 0.05
    place, corners = cKDTree(nodes[0]), problem.mesh.elements[:, [0, 6, 8, 2]]
    used, straight = np.unique(corners, return_inverse=True)
    mesh = MeshQuad2.from_mesh(MeshQuad(nodes[0, used].T.numpy(), straight.reshape(-1, 4).T))
    nearest = place.query(mesh.doflocs.T)[1]  # the middles of straight sides are near our nodes
    assert len(np.unique(nearest)) == nodes.shape[1]
    mesh = MeshQuad2(nodes[0, nearest].T.numpy(), mesh.t)
    basis = Basis(mesh, ElementVector(ElementQuad2()), intorder=5)
    distance, number = place.query(basis.doflocs.T)
    assert distance.max() < 1e-12
    component = np.zeros(basis.N, int)
    for dofs in (basis.nodal_dofs, basis.facet_dofs, basis.interior_dofs):
        component[dofs[1]] = 1

    @LinearForm
    def internal(v, w):
        return ddot(piola_of(grad(w["u"]) + np.eye(2)[:, :, None, None]), grad(v))

    load = top_load(mesh, ElementVector(ElementQuad2()), 5e4)
    displacement = basis.interpolate(u[0].numpy()[number, component])
    residual = internal.assemble(basis, u=displacement) - load
    free = basis.doflocs[1] > 1e-9
    assert np.linalg.norm(residual[free]) < 1e-9 * np.linalg.norm(residual[~free])


def top_load(mesh, element, traction: float) -> np.ndarray:
    @LinearForm
    def upwards(v, w):
        return traction * v[1]

    top = mesh.facets_satisfying(lambda x: np.abs(x[1] - 1) < 1e-9)
    return upwards.assemble(FacetBasis(mesh, element, facets=top))


def linear_elasticity(drawn: np.ndarray, x: np.ndarray, traction: float) -> tuple:
    """Displacements at the top and stresses at points x by scikit-fem, on its own triangles.

    Linear elasticity on straight-sided quadratic triangles, evenly spaced in the angle.
    """
    n, m = 192, 20
    theta = -np.pi / 4 + 2 * np.pi * np.arange(n) / n
    direction = np.stack([np.cos(theta), np.sin(theta)])
    outer = 0.5 / abs(direction).max(axis=0)
    inner = hole_radius(drawn[None], theta, Elasticity.deviation, Elasticity.tau)[0]
    s = np.linspace(0, 1, m + 1)[:, None] ** 1.3
    points = 0.5 + direction[:, None] * ((1 - s) * inner + s * outer)
    first = np.arange(m * n).reshape(m, n)
    after = np.roll(first, -1, axis=1)
    halves = ((first, first + n, after + n), (first, after + n, after))
    triangles = np.concatenate([np.stack([c.ravel() for c in half]) for half in halves], axis=1)
    mesh = MeshTri(points.reshape(2, -1), triangles)
    element = ElementVector(ElementTriP2())
    basis = Basis(mesh, element)
    young, poisson = 6 * (C1 + C2), 0.5
    shear, lame = young / (2 * (1 + poisson)), young * poisson / (1 - poisson**2)

    @BilinearForm
    def stiffness(u, v, w):
        strain = sym_grad(u)
        return lame * div(u) * div(v) + 2 * shear * ddot(strain, sym_grad(v))

    clamped = basis.get_dofs(lambda x: np.abs(x[1]) < 1e-9)
    u = solve(*condense(stiffness.assemble(basis), top_load(mesh, element, traction), D=clamped))
    at_top = np.flatnonzero(np.abs(mesh.p[1] - 1) < 1e-9)
    at_top = at_top[np.argsort(mesh.p[0, at_top])]
    cells = mesh.element_finder()(*x.T)
    local = basis.mapping.invF(x.T[:, :, None], tind=cells)
    gradient = np.zeros((2, 2, len(x)))
    for k in range(basis.Nbfun):
        shape = basis.elem.gbasis(basis.mapping, local, k, tind=cells)[0]
        gradient += u[basis.element_dofs[k, cells]] * shape.grad[..., 0]
    strain = (gradient + gradient.transpose(1, 0, 2)) / 2
    stress = lame * np.trace(strain) * np.eye(2)[..., None] + 2 * shear * strain
    xx, yy, xy = stress[0, 0], stress[1, 1], stress[0, 1]
    mises = np.sqrt(xx**2 - xx * yy + yy**2 + 3 * xy**2)
    return mesh.p[0, at_top], u[basis.nodal_dofs[1, at_top]], mises


def test_against_scikit_fem_on_triangles_of_its_own():
    drawn, traction = draws(COARSE, 1)[0], 1e-3  # so small that the body is linear
    ours = []
    for refine in (1, 2):
        problem = Elasticity(traction=traction, refine=refine)
        nodes = torch.from_numpy(problem.nodes(drawn[None]))
        u, converged = equilibrium(nodes, problem.mesh, RUBBER)
        assert converged.all()
        x, stress = problem.sample(nodes, nodes)[0], RUBBER.von_mises(problem.sample(nodes, u)[1])
        top = nodes[0, :, 1] > 1 - 1e-9
        ours.append([v.numpy() for v in (nodes[0, top, 0], u[0, top, 1], x[0], stress[0])])
    at, up, stresses = linear_elasticity(drawn, np.concatenate([o[2] for o in ours]), traction)
    errors = [
        (relative(u, np.interp(x, at, up)), relative(stress, exact))
        for (x, u, _, stress), exact in zip(ours, np.split(stresses, 2), strict=True)
    ]
    # The 36 × 3 elements of the data, and 72 × 6. Stresses converge more slowly by one order.
    assert errors[0][0] < 5e-3
    assert errors[0][1] < 0.05
    assert errors[1][0] < 1e-3
    assert errors[1][1] < 0.02


def relative(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


@pytest.mark.parametrize("refine", [1, 2, 3])
def test_points_of_a_finer_mesh_lie_at_the_same_coordinates(refine):
    problem = Elasticity(around=12, across=2, refine=refine)
    nodes = nodes_of(problem)
    slope = torch.tensor([[2.0, -3.0], [0.5, 7.0]], dtype=torch.float64)
    value, gradient = problem.sample(nodes, nodes @ slope.T)
    points, identity = problem.sample(nodes, nodes)
    torch.testing.assert_close(value, points @ slope.T)
    torch.testing.assert_close(gradient, slope.expand_as(gradient))
    torch.testing.assert_close(identity, torch.eye(2, dtype=torch.float64).expand_as(identity))
    # Sides of the cell are straight, so the points next to them hardly move; the hole is curved.
    coarse = COARSE.sample(nodes_of(COARSE), nodes_of(COARSE))[0]
    assert (points - coarse).norm(dim=-1).max() < (1e-12 if refine == 1 else 0.02)


def test_the_refined_hole_is_the_true_one():
    drawn = draws(COARSE, 1)[0]
    theta = 2 * np.pi * np.arange(4000) / 4000
    area = 1 - (hole_radius(drawn[None], theta, 4.0, 3.0) ** 2).mean() * np.pi
    errors = []
    for refine in (1, 2, 4):
        problem = Elasticity(around=12, across=1, refine=refine)
        body = Body(nodes_of(problem), problem.mesh, RUBBER)
        errors.append(abs(body.volumes.sum().item() - area))
    assert errors[2] < errors[1] / 8 < errors[0] / 64


def test_a_sample_is_bit_for_bit_the_same_in_every_batch_and_for_any_number_of_threads():
    drawn = draws(COARSE, 4)
    alone = [COARSE.solve([d], CPU)[0] for d in drawn]
    torch.set_num_threads(3)
    assert np.array_equal(COARSE.solve(drawn, CPU), alone)
    order = (2, 3, 1)
    assert np.array_equal(COARSE.solve([drawn[k] for k in order], CPU), [alone[k] for k in order])


def test_samples_that_fail_do_not_touch_the_others_of_their_batch():
    nodes = nodes_of(COARSE, 3)
    alone, _ = equilibrium(nodes[[0, 2]], COARSE.mesh, RUBBER)
    nodes[1] = nodes[1].flip(-1)  # a mirror image: every element is inverted
    u, converged = equilibrium(nodes, COARSE.mesh, RUBBER)
    assert converged.tolist() == [True, False, True]
    torch.testing.assert_close(u[[0, 2]], alone, rtol=1e-10, atol=1e-15)


def test_the_reflection_maps_solutions_to_solutions():
    drawn = draws(COARSE, 1)[0]
    # cos k(π − θ) = (−1)ᵏ cos kθ and sin k(π − θ) = −(−1)ᵏ sin kθ
    sign = (-1.0) ** np.arange(1, 6)
    mirrored = (drawn.reshape(5, 2) * np.stack([sign, -sign], axis=1)).ravel()
    inputs = [drawn, mirrored]
    data = COARSE.fields(inputs, COARSE.solve(inputs, CPU), {})
    reflection = COARSE.symmetries[1]
    moved = data.x[0] @ np.array(reflection.matrix) + np.array(reflection.shift, float)
    distance, image = cKDTree(data.x[1]).query(moved)
    assert distance.max() < 1e-6
    assert len(set(image)) == len(image)
    np.testing.assert_allclose(data.y[1, image], data.y[0], rtol=1e-5)
    assert not np.allclose(data.y[1], data.y[0], rtol=0.01)


def test_stresses_are_in_the_range_of_the_published_ones():
    data = make(Elasticity(), samples=20, seed=0)
    mean, most = data.y.mean(axis=(1, 2)), data.y.max(axis=(1, 2))
    assert np.all((mean > 150) & (mean < 250))
    assert np.all((most > 450) & (most < 1440))


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


def test_radii_have_the_covariance_of_the_process():
    theta = np.linspace(0, 2 * np.pi, 7)
    drawn = np.random.default_rng(0).standard_normal((40000, 10))
    radius = hole_radius(drawn, theta, deviation=4.0, tau=3.0)
    assert np.all((radius > 0.2) & (radius < 0.4))
    g = np.log(0.2 / (radius - 0.2) - 1)
    k = np.arange(1, 6)
    cosines = np.cos(k * (theta[:, None, None] - theta[:, None]))
    exact = (16 / (k**2 + 9) / np.pi * cosines).sum(axis=-1)
    np.testing.assert_allclose(g.T @ g / len(g), exact, atol=0.03 * exact.max())


def test_data_look_like_the_published_files(tmp_path):
    made = make(Elasticity(), samples=2, seed=3)
    read = read_published("elasticity", published_files(tmp_path)[0], counts=(1, 1))
    assert made.x.shape == read.x.shape == (2, 972, 2)
    assert made.y.shape == read.y.shape == (2, 972, 1)
    assert (made.spec, made.names, made.frame) == (read.spec, read.names, read.frame)
    assert made.x.dtype == made.y.dtype == np.float32


def test_cells_cover_the_body_around_the_hole_once():
    data = make(Elasticity(), samples=3, seed=1)
    assert data.cells.shape == (3 * 36 * 8, 4)
    assert set(data.cells.ravel()) == set(range(972))
    corners = data.x[:, data.cells].astype(float)  # (s, cells, 4, 2)
    x, y = corners[..., 0], corners[..., 1]
    area = (x * np.roll(y, -1, -1) - y * np.roll(x, -1, -1)).sum(-1) / 2
    assert np.all(area > 0)
    # The polygons of the innermost and the outermost points bound the same area.
    rings = data.x.reshape(3, 36, 3, 3, 3, 2).astype(float)
    polygons = [rings[:, :, ring, a].reshape(3, 108, 2) for ring, a in ((2, 2), (0, 0))]
    outer, inner = (
        (p[..., 0] * np.roll(p[..., 1], -1, 1) - p[..., 1] * np.roll(p[..., 0], -1, 1)).sum(1) / 2
        for p in polygons
    )
    np.testing.assert_allclose(area.sum(1), outer - inner, rtol=1e-6)
    assert np.all(inner > 0.12)  # the hole is left out


def test_loads_that_are_too_large_fail_and_load_steps_save_what_can_be_saved():
    strong, absurd = (Elasticity(around=12, across=2, traction=t) for t in (2e5, 1e9))
    drawn = draws(strong, 2)
    assert list(strong.solve(drawn, CPU)) == [None, None]
    assert all(sigma is not None for sigma in strong.solve_safely(drawn, CPU))
    assert list(absurd.solve(drawn, CPU)) == [None, None]
    assert list(absurd.solve_safely(drawn, CPU)) == [None, None]


def test_load_steps_lead_to_the_same_solution():
    drawn = draws(COARSE, 2)
    np.testing.assert_allclose(COARSE.solve_safely(drawn, CPU), COARSE.solve(drawn, CPU), rtol=1e-6)


def test_impossible_parameters_are_errors():
    with pytest.raises(ValueError, match="multiple of 4"):
        Elasticity(around=30)
    with pytest.raises(ValueError, match="at most 20000 unknowns"):
        Elasticity(refine=9)
    with pytest.raises(ValueError, match="across must be a whole number"):
        Elasticity(across=0)


@pytest.mark.gpu
def test_gpu_and_cpu_agree_and_the_batch_does_not_matter_bit_for_bit():
    problem, cuda = Elasticity(), torch.device("cuda")
    drawn = draws(problem, 6)
    cpu, gpu = np.stack(problem.solve(drawn, CPU)), np.stack(problem.solve(drawn, cuda))
    assert np.linalg.norm(gpu - cpu) < 1e-6 * np.linalg.norm(cpu)
    order = [5, 0, 3, 1, 1, 2]
    assert np.array_equal(problem.solve([drawn[k] for k in order], cuda), gpu[order])
    absurd = Elasticity(traction=1e9)
    assert list(absurd.solve_safely(drawn[:2], cuda)) == [None, None]
