"""Darcy against a direct solution, a manufactured one, and its own symmetries."""

import math
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sparse
import torch
from on_gpu import assert_gpu_agrees
from scipy.sparse.linalg import spsolve

from lno.problems.darcy import Darcy, solve_diffusion
from lno.problems.make import generator, make

CPU = torch.device("cpu")


def coefficients(problem: Darcy, count: int, seed: int = 0) -> torch.Tensor:
    """Coefficients (count, n, n) in double precision."""
    high = np.stack([problem.draw(generator(seed, k)) for k in range(count)])
    return torch.from_numpy(np.where(high, problem.high, problem.low))


def direct(a: np.ndarray) -> np.ndarray:
    """The finite-difference solution by sparse elimination, assembled face by face."""
    n = len(a)
    node = np.arange(n * n).reshape(n, n)
    pairs = [(node[:-1], node[1:]), (node[:, :-1], node[:, 1:])]
    i, j = (np.concatenate([pair[side].ravel() for pair in pairs]) for side in (0, 1))
    between = (a.ravel()[i] + a.ravel()[j]) / 2 * (n - 1) ** 2
    faces = sparse.coo_array((between, (i, j)), shape=(n * n, n * n))
    matrix = sparse.diags_array((faces + faces.T).sum(axis=1)) - faces - faces.T
    inside = node[1:-1, 1:-1].ravel()
    u = np.zeros(n * n)
    u[inside] = spsolve(matrix.tocsc()[inside][:, inside], np.ones(len(inside)))
    return u.reshape(n, n)


def test_against_a_direct_solution():
    a = coefficients(Darcy(grid=85, every=1), 2)
    u, _ = solve_diffusion(a, tolerance=1e-12)
    kept, _ = solve_diffusion(a)
    for k in range(2):
        exact = direct(a[k].numpy())
        assert np.linalg.norm(u[k].numpy() - exact) < 1e-10 * np.linalg.norm(exact)
        assert np.linalg.norm(kept[k].numpy() - exact) < 1e-9 * np.linalg.norm(exact)


def test_second_order_on_a_manufactured_solution():
    pi, errors = math.pi, []
    for n in (33, 65, 129):
        side = torch.linspace(0, 1, n, dtype=torch.float64)
        x, y = torch.meshgrid(side, side, indexing="ij")
        u = torch.sin(pi * x) * torch.sin(2 * pi * y)
        a = 6 + 3 * torch.sin(2 * pi * x) * torch.cos(pi * y)
        ax_ux = (
            6
            * pi
            * torch.cos(2 * pi * x)
            * torch.cos(pi * y)
            * pi
            * torch.cos(pi * x)
            * torch.sin(2 * pi * y)
        )
        ay_uy = (
            -3
            * pi
            * torch.sin(2 * pi * x)
            * torch.sin(pi * y)
            * 2
            * pi
            * torch.sin(pi * x)
            * torch.cos(2 * pi * y)
        )
        source = 5 * pi**2 * a * u - ax_ux - ay_uy
        errors.append((solve_diffusion(a[None], source)[0][0] - u).abs().max().item())
    orders = [math.log2(a / b) for a, b in pairwise(errors)]
    assert all(order == pytest.approx(2, abs=0.05) for order in orders)


def test_iterations_do_not_grow_with_the_grid():
    counts = [int(solve_diffusion(coefficients(Darcy(grid=n, every=1), 1))[1]) for n in (85, 421)]
    assert counts[1] <= counts[0] + 2
    assert max(counts) <= 22


def test_a_sample_is_bit_for_bit_the_same_in_every_batch_and_for_any_number_of_threads():
    problem = Darcy(grid=86)  # odd sizes: samples of a batch are differently aligned in memory
    drawn = [problem.draw(generator(0, k)) for k in range(4)]
    drawn[3][:] = True  # converges at once
    alone = [problem.solve([d], CPU)[0] for d in drawn]
    torch.set_num_threads(3)
    assert np.array_equal(problem.solve(drawn, CPU), alone)
    order = (2, 3, 1)
    assert np.array_equal(problem.solve([drawn[k] for k in order], CPU), [alone[k] for k in order])


@pytest.mark.parametrize("symmetry", Darcy.symmetries, ids=lambda g: g.name)
def test_symmetries_map_solutions_to_solutions(symmetry):
    a = coefficients(Darcy(grid=46), 1)
    u, _ = solve_diffusion(a, tolerance=1e-13)
    mapped_a, mapped_u = symmetry(a[..., None], u[..., None])
    again, _ = solve_diffusion(mapped_a[..., 0], tolerance=1e-13)
    torch.testing.assert_close(mapped_u[..., 0], again, rtol=0, atol=1e-12 * u.max().item())


def test_fields_hold_every_kth_node():
    problem = Darcy(grid=41, every=4)
    data = make(problem, samples=3, seed=5)
    a = coefficients(problem, 3, seed=5)
    u, _ = solve_diffusion(a)
    assert data.spec.grid == (11, 11)
    assert set(np.unique(data.u)) == {3.0, 12.0}
    assert data.u.dtype == data.y.dtype == np.float32
    assert np.array_equal(data.u.reshape(3, 11, 11), a[:, ::4, ::4].float())
    np.testing.assert_allclose(data.y.reshape(3, 11, 11), u[:, ::4, ::4], rtol=1e-6)
    i, j = 3, 7  # rows are x, columns are y
    assert data.x[i * 11 + j] == pytest.approx([0.3, 0.7])
    assert np.all(data.y.reshape(3, 11, 11)[:, [0, -1]] == 0)


def test_half_of_the_medium_is_of_each_kind():
    share = np.mean([Darcy(grid=57, every=4).draw(generator(1, k)).mean() for k in range(400)])
    assert share == pytest.approx(0.5, abs=0.02)


def test_impossible_parameters_are_errors():
    with pytest.raises(ValueError, match="multiple of every"):
        Darcy(grid=420)
    with pytest.raises(ValueError, match="high must be a number from 3"):
        Darcy(high=1.0)


@pytest.mark.gpu
def test_gpu_and_cpu_agree_and_the_batch_does_not_matter_bit_for_bit():
    problem = Darcy(grid=211)
    assert_gpu_agrees(problem, [problem.draw(generator(0, k)) for k in range(6)], 1e-7)
