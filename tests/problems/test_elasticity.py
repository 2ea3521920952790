"""Elasticity against scikit-fem, its own refinement, its symmetry, and the published data."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from on_gpu import GPU, assert_gpu_agrees
from published_files import elasticity as published_files
from scipy.spatial import cKDTree

from lno.problems import read_published
from lno.problems.elasticity import Elasticity, hole_radius
from lno.problems.make import generator, make
from lno.problems.numerics.hyperelasticity import Body, Rubber

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
from accuracy.elasticity import against_scikit_fem

CPU = torch.device("cpu")
COARSE = Elasticity(around=12, across=2)
RUBBER = Rubber(COARSE.c1, COARSE.c2)


def draws(problem: Elasticity, count: int, seed: int = 0) -> list[np.ndarray]:
    return [problem.draw(generator(seed, k)) for k in range(count)]


def nodes_of(problem: Elasticity, count: int = 1) -> torch.Tensor:
    return torch.from_numpy(problem.nodes(np.stack(draws(problem, count))))


def test_against_scikit_fem_on_triangles_of_its_own():
    pytest.importorskip("skfem")
    drawn = draws(COARSE, 1)[0]
    coarse, fine = against_scikit_fem(drawn, refinements=(1, 2))
    # The 36 × 3 elements of the data, and 72 × 6. Stresses converge more slowly by one order.
    assert coarse["displacement"] < 5e-3
    assert coarse["stress"] < 0.05
    assert fine["displacement"] < 1e-3
    assert fine["stress"] < 0.02


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
    drawn = draws(Elasticity(), 6)
    assert_gpu_agrees(Elasticity(), drawn, 1e-6)
    absurd = Elasticity(traction=1e9)
    assert list(absurd.solve_safely(drawn[:2], GPU)) == [None, None]
