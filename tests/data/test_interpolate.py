"""The classical opponent must be as good as it can be."""

import warnings

import numpy as np
import pytest
import torch

from lno.data import interpolate as interpolation
from lno.data.interpolate import interpolate, interpolate_rbf, interpolation_matrix


def rng():
    return np.random.default_rng(0)


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("n", [5, 40, 150])
@pytest.mark.parametrize("periodic", [False, True])
def test_exact_at_the_sensors(d, n, periodic):
    x, u = rng().random((n, d)), rng().standard_normal((n, 2))
    period = [1.0] * d if periodic else None
    # Sensors that almost coincide but differ in value are badly conditioned: hence 1e-5.
    np.testing.assert_allclose(interpolate_rbf(x, u, x, period), u, atol=1e-5)


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("n", [10, 120])
def test_linear_functions_are_reproduced(d, n):
    x, q = rng().random((n, d)), rng().random((50, d)) * 1.4 - 0.2
    slope = rng().standard_normal((d, 2))
    expected = q @ slope + [3, -1]
    np.testing.assert_allclose(interpolate_rbf(x, x @ slope + [3, -1], q), expected, atol=1e-8)


@pytest.mark.parametrize("period", [[1.0, None], [None, 2.5], [1.0, 2.5]])
def test_periodic_functions_have_no_seam(period):
    x = rng().random((80, 2)) * [1.0, 2.5]
    u = np.sin(2 * np.pi * x[:, :1]) + np.cos(2 * np.pi * x[:, 1:] / 2.5)
    q = rng().random((60, 2)) * [1.0, 2.5]
    shift = [p or 0.0 for p in period]
    here = interpolate_rbf(x, u, q, period)
    np.testing.assert_allclose(interpolate_rbf(x, u, q + shift, period), here, atol=1e-8)
    moved = interpolate_rbf(x + np.multiply(shift, 3), u, q, period)
    np.testing.assert_allclose(moved, here, atol=1e-8)


def test_the_seam_is_as_smooth_as_the_middle():
    x = np.linspace(0, 1, 40, endpoint=False)[:, None]
    q = np.array([[-1e-7], [1e-7], [0.9999999], [1.0000001]])
    v = interpolate_rbf(x, np.cos(2 * np.pi * x), q, [1.0])
    np.testing.assert_allclose(v, 1.0, atol=1e-5)


def test_it_converges():
    """Cubic RBF in one dimension is the cubic spline: fourth order."""

    def error(n):
        x = np.linspace(0, 1, n, endpoint=False)[:, None]
        q = np.linspace(0, 1, 301)[:, None]
        v = interpolate_rbf(x, np.sin(2 * np.pi * x), q, [1.0], neighbors=1000)
        return np.abs(v - np.sin(2 * np.pi * q)).max()

    assert np.log2(error(10) / error(20)) > 3.5
    assert np.log2(error(20) / error(40)) > 3.5


@pytest.mark.parametrize("period", [None, "all"])
@pytest.mark.parametrize("d", [1, 2, 3])
def test_one_point_is_a_constant_and_two_are_met(d, period):
    period = None if period is None else [1.0] * d
    x, u, q = rng().random((2, d)), np.array([[3.0], [5.0]]), rng().random((7, d))
    np.testing.assert_allclose(interpolate_rbf(x[:1], u[:1], q, period), 3.0)
    np.testing.assert_allclose(interpolate_rbf(x, u, x, period), u, atol=1e-9)
    assert np.all(np.isfinite(interpolate_rbf(x, u, q, period)))


@pytest.mark.parametrize(("n", "d"), [(1, 2), (2, 3), (1, 3)])
def test_few_points_with_one_periodic_coordinate(n, d):
    """The images of one point lie on a line, which determines no plane."""
    x, u = rng().random((n, d)), np.arange(1.0, n + 1)[:, None]
    period = [None] * (d - 1) + [1.0]
    np.testing.assert_allclose(interpolate_rbf(x, u, x, period), u, atol=1e-9)


def test_sensors_on_a_line():
    """All sensors at one time, say: they determine no trend across the line."""
    x = np.stack((np.linspace(0, 1, 9), np.full(9, 0.5)), axis=1)
    u = np.sin(x[:, :1])
    np.testing.assert_allclose(interpolate_rbf(x, u, x), u, atol=1e-8)
    away = interpolate_rbf(x, u, x + np.array([0, 0.1]))
    assert np.all(np.isfinite(away))


def test_sensors_that_repeat():
    """`Fields` allows one position twice with one value."""
    x = np.array([[0.0], [0.0], [1.0], [2.0], [4.0]])
    v = interpolate_rbf(x, 2 * x + 1, np.array([[0.5], [3.0]]))
    np.testing.assert_allclose(v, [[2.0], [7.0]], atol=1e-8)


def test_both_ends_of_a_periodic_grid():
    """0 and the period are one place; grids of simulations often hold both."""
    x = np.linspace(0, 1, 21)[:, None]
    u = np.sin(2 * np.pi * x)
    u[-1] = u[0]
    q = np.linspace(0, 1, 57)[:, None]
    v = interpolate_rbf(x, u, q, [1.0])
    np.testing.assert_allclose(v, np.sin(2 * np.pi * q), atol=1e-3)


def test_few_points_do_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        interpolate_rbf(np.zeros((1, 2)), np.ones((1, 1)), np.ones((3, 2)))


def test_arguments_are_left_alone():
    x, q = rng().random((9, 1)) + 5, rng().random((4, 1)) + 7
    before = x.copy(), q.copy()
    interpolate_rbf(x, x, q, [1.0])
    np.testing.assert_array_equal(x, before[0])
    np.testing.assert_array_equal(q, before[1])


# -- many samples at once --------------------------------------------------------------------------


def test_all_samples_at_once_are_scipys_one_by_one():
    x, u = rng().random((3, 40, 2)), rng().standard_normal((3, 40, 2))
    q = rng().random((3, 50, 2))
    got = interpolate(*(torch.from_numpy(v) for v in (x, u, q)))
    for k in range(3):
        alone = interpolate_rbf(x[k], u[k], q[k], neighbors=40)
        np.testing.assert_allclose(got[k], alone, rtol=1e-6, atol=1e-6)
    shared = interpolate(*(torch.from_numpy(v) for v in (x, u, q[:1])))
    np.testing.assert_allclose(shared[0], got[0], atol=1e-12)


def test_padded_observations_count_for_nothing():
    x, u, q = (torch.rand(2, n, c, dtype=torch.float64) for n, c in ((30, 3), (30, 1), (9, 3)))
    mask = torch.arange(30) < torch.tensor([[30], [11]])
    got = interpolate(x, u, q, mask)
    u[1, 11:], x[1, 11:] = 1e6, 0.5
    np.testing.assert_allclose(interpolate(x, u, q, mask), got, atol=1e-9)
    alone = interpolate(x[1:, :11], u[1:, :11], q[1:])
    np.testing.assert_allclose(got[1:], alone, atol=1e-7)


def test_the_matrix_is_the_interpolation():
    x, u, q = (torch.rand(2, n, c, dtype=torch.float64) for n, c in ((30, 3), (30, 2), (9, 3)))
    mask = torch.arange(30) < torch.tensor([[30], [11]])
    matrix = interpolation_matrix(x, q, mask)
    np.testing.assert_allclose(matrix @ u, interpolate(x, u, q, mask), atol=1e-7)
    assert not matrix[1, :, 11:].any()
    through = interpolation_matrix(x, x, mask)[1, :11, :11]
    np.testing.assert_allclose(through, np.eye(11), atol=1e-6)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_few_observations_or_all_on_a_line_are_enough(n):
    x, u = torch.rand(1, n, 2), torch.rand(1, n, 1)
    np.testing.assert_allclose(interpolate(x, u, x), u, atol=1e-4)
    line = torch.linspace(0, 1, 12)[None, :, None] * torch.ones(2)
    values = line[..., :1] ** 2
    np.testing.assert_allclose(interpolate(line, values, line), values, atol=1e-4)
    twice = torch.cat((x, x), dim=1)  # exact repeats are the same observation
    np.testing.assert_allclose(interpolate(twice, torch.cat((u, u), 1), x), u, atol=1e-4)


def test_beyond_what_is_dense_the_nearest_decide(monkeypatch):
    x, u, q = (torch.rand(2, n, c, dtype=torch.float64) for n, c in ((200, 2), (200, 1), (20, 2)))
    u = x.sin().sum(-1, keepdim=True)
    mask = torch.arange(200) < torch.tensor([[200], [150]])
    whole = interpolate(x, u, q, mask)
    monkeypatch.setattr(interpolation, "DENSE", 100)
    np.testing.assert_allclose(interpolate(x, u, q, mask), whole, atol=1e-3)


def test_queries_in_parts_are_queries_at_once(monkeypatch):
    x, u, q = torch.rand(2, 30, 2), torch.rand(2, 30, 1), torch.rand(2, 40, 2)
    whole = interpolate(x, u, q)
    monkeypatch.setattr(interpolation, "SCRATCH", 2 * 30 * 7)
    np.testing.assert_allclose(interpolate(x, u, q), whole, atol=1e-6)


@pytest.mark.parametrize("noise", [0.01, 0.05, 0.3])
def test_smoothing_is_as_good_as_the_best_that_could_have_been_chosen(noise: float) -> None:
    random = np.random.default_rng(0)
    x, q = (random.uniform(size=(n, 2)) for n in (300, 500))
    clean, truth = (np.sin(6 * v[:, :1]) * np.cos(5 * v[:, 1:]) for v in (x, q))
    u = clean + noise * random.standard_normal(clean.shape)
    at, values, queries = (torch.from_numpy(v)[None] for v in (x, u, q))
    exact, smooth = (
        np.abs(interpolate(at, values, queries, noise=s)[0].numpy() - truth).mean()
        for s in (0.0, noise)
    )
    best = min(
        np.abs(interpolate_rbf(x, u, q, neighbors=300, smoothing=s) - truth).mean()
        for s in 10.0 ** np.arange(-7, 3)
    )
    assert smooth < 1.2 * best
    assert smooth < 0.7 * exact


def test_without_noise_nothing_is_smoothed() -> None:
    x = torch.rand(1, 50, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    u = torch.sin(6 * x[..., :1])
    assert torch.allclose(interpolate(x, u, x, noise=1e-9), u, atol=1e-7)


def test_observations_that_noise_explains_leave_a_trend() -> None:
    x = torch.rand(1, 30, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    u = 1 + x[..., :1] + 1e-3 * torch.sin(40 * x[..., 1:])
    found = interpolate(x, u, x, noise=0.1)
    corners = torch.linalg.lstsq(torch.cat((torch.ones(30, 1), x[0]), 1), u[0]).solution
    assert torch.allclose(found[0], torch.cat((torch.ones(30, 1), x[0]), 1) @ corners, atol=1e-5)
