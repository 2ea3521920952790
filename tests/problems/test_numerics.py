"""Random fields against their theory, solvers against exact solutions, grids, symmetry groups."""

from itertools import product

import numpy as np
import pytest
import torch

from lno.data.grids import grid_points
from lno.data.symmetry import square
from lno.mesh import grid_cells
from lno.problems.darcy import inverse_laplacian
from lno.problems.ns2d import flow_symmetries
from lno.problems.numerics.batches import solve_in_batches
from lno.problems.numerics.conjugate_gradients import conjugate_gradients
from lno.problems.numerics.random_fields import neumann_field, periodic_field


def test_the_modes_of_a_neumann_field_have_their_variance():
    n, alpha, tau, random = 24, 2.0, 3.0, np.random.default_rng(0)
    fields = np.stack([neumann_field(random, n, alpha, tau) for _ in range(4000)])
    x = (np.arange(n) + 0.5) / n
    for k, m in [(1, 0), (0, 3), (2, 2), (5, 7)]:
        mode = np.outer(np.cos(np.pi * k * x), np.cos(np.pi * m * x))
        mode /= np.sqrt((mode**2).mean())
        found = np.var((fields * mode).mean((1, 2)))
        variance = tau ** (2 * alpha - 2) * (np.pi**2 * (k**2 + m**2) + tau**2) ** -alpha
        assert found == pytest.approx(variance, rel=4 * np.sqrt(2 / 4000))
    assert np.abs(fields.mean((1, 2))).max() < 1e-14


def test_the_spectrum_and_the_variance_of_a_periodic_field():
    n, alpha, tau, random = 32, 2.5, 7.0, np.random.default_rng(1)
    fields = np.stack([periodic_field(random, n, alpha, tau) for _ in range(2000)])
    k = np.fft.fftfreq(n, 1 / n)
    laplacian = 4 * np.pi**2 * np.add.outer(k**2, k**2)
    variance = tau ** (2 * alpha - 2) * (laplacian + tau**2) ** -alpha
    variance[0, 0] = 0
    power = (np.abs(np.fft.fft2(fields, norm="forward")) ** 2).mean(0)
    for band in (1, 2, 4, 8, 15):
        ring = np.round(np.sqrt(np.add.outer(k**2, k**2))) == band
        assert power[ring].sum() == pytest.approx(variance[ring].sum(), rel=0.1)
    assert fields.var() == pytest.approx(variance.sum(), rel=0.03)


def test_a_field_is_fixed_by_its_generator():
    a, b = (periodic_field(np.random.default_rng([3, 5]), 16, 2.5, 7.0) for _ in range(2))
    assert np.array_equal(a, b)


def test_the_inverse_laplacian_inverts_the_five_point_laplacian():
    u = torch.randn(2, 37, 37, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    v = torch.nn.functional.pad(u, (1, 1, 1, 1))
    laplacian = 4 * u - v[:, 2:, 1:-1] - v[:, :-2, 1:-1] - v[:, 1:-1, 2:] - v[:, 1:-1, :-2]
    torch.testing.assert_close(inverse_laplacian(37, u)(laplacian), u, rtol=0, atol=1e-12)


def test_a_sample_that_has_converged_does_not_change_while_others_go_on():
    # Diagonal systems: with m distinct values on the diagonal, m steps give the exact solution.
    few = torch.linspace(1, 2, 2, dtype=torch.float64).repeat(32).reshape(1, 8, 8)
    many = torch.linspace(1, 50, 40, dtype=torch.float64).repeat(2)[:64].reshape(1, 8, 8)
    diagonal, b = torch.cat([few, many]), torch.ones(2, 8, 8, dtype=torch.float64)
    x, iterations = conjugate_gradients(lambda p: diagonal * p, torch.clone, b, 1e-10)
    alone, _ = conjugate_gradients(lambda p: few * p, torch.clone, b[:1], 1e-10)
    assert iterations[0] == 2 and iterations[1] > 10
    assert torch.equal(x[:1], alone)
    torch.testing.assert_close(x, 1 / diagonal, rtol=1e-8, atol=0)


def test_conjugate_gradients_say_when_they_fail():
    with pytest.raises(RuntimeError, match="1 of 1 systems have not converged"):
        conjugate_gradients(lambda p: p * torch.nan, torch.clone, torch.ones(1, 2, 2), 1e-6, most=8)


@pytest.mark.parametrize("symmetries", [square(), flow_symmetries(4)], ids=["square", "flow"])
def test_symmetries_are_a_group_and_compose_as_maps(symmetries):
    w = np.random.default_rng(0).standard_normal((8, 8, 2))
    images = {g(w, w)[0].tobytes() for g in symmetries}
    assert len(images) == len(symmetries)
    for g, h in product(symmetries[:8], symmetries[:8]):
        after = g(*h(w, w))[0]
        assert after.tobytes() in images
        assert np.array_equal((g @ h)(w, w)[0], after)


def test_symmetries_map_tensors_and_arrays_alike():
    w = np.random.default_rng(0).standard_normal((3, 8, 8, 2))
    for g in (*square(), *flow_symmetries(8)):
        mapped, twice = g(torch.from_numpy(w), torch.from_numpy(2 * w))
        assert np.array_equal(mapped.numpy(), g(w, w)[0])
        assert torch.equal(twice, 2 * mapped)


@pytest.mark.gpu
def test_symmetries_map_tensors_on_a_gpu():
    w = torch.arange(128.0).reshape(8, 8, 2)
    for g in (*square(), *flow_symmetries(4)):
        assert torch.equal(g(w.cuda(), w.cuda())[1].cpu(), g(w, w)[1])


def test_a_translation_between_grid_points_is_refused():
    w = np.zeros((4, 4, 1))
    with pytest.raises(ValueError, match="got 4 × 4"):
        flow_symmetries(8)[4](w, w)


def test_samples_are_solved_in_order_in_equal_batches_and_the_threads_are_restored():
    threads, seen = torch.get_num_threads(), []

    def solve(x):
        seen.append((len(x), torch.get_num_threads()))
        return -x

    inputs = [np.full(3, k) for k in range(5)]
    solved = solve_in_batches(solve, inputs, torch.device("cpu"), cpu=2, gpu=4)
    assert [s.tolist() for s in solved] == [[-k] * 3 for k in range(5)]
    assert set(seen) == {(2, 1)} and torch.get_num_threads() == threads


def test_the_cells_of_a_grid_tile_it():
    n, m = 7, 5
    a, b = grid_points(np.linspace(0, 1, n), np.linspace(0, 1, m)).T
    x, y = a + 0.1 * np.sin(3 * b), b * (1 + a) + 0.2 * a  # a one-to-one map, not an affine one
    cells = grid_cells((n, m))

    def area(corners):
        """Of polygons, counterclockwise positive."""
        u, v = x[corners], y[corners]
        return (u * np.roll(v, -1, axis=-1) - v * np.roll(u, -1, axis=-1)).sum(-1) / 2

    node = np.arange(n * m).reshape(n, m)
    rim = np.concatenate([node[:-1, 0], node[-1, :-1], node[:0:-1, -1], node[0, :0:-1]])
    assert (area(cells) > 0).all()
    assert area(cells).sum() == pytest.approx(area(rim))
    assert set(cells.flat) == set(range(n * m))
