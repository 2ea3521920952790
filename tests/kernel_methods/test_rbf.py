"""The classical baseline must be as good as it can be."""

import warnings

import numpy as np
import pytest

from lno.kernel_methods.rbf import interpolate_rbf


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


@pytest.mark.parametrize("size", [1.0, 1e-12, 1e9])
def test_sensors_on_a_slanted_line_at_any_scale(size):
    t = np.linspace(0, 1, 9)
    x = size * np.column_stack((t, 0.3 * t + 0.1))
    between = size * np.column_stack((t + 0.05, 0.3 * t + 0.115))[:-1]
    found = interpolate_rbf(x, np.sin(3 * t)[:, None], between)
    np.testing.assert_allclose(found[:, 0], np.sin(3 * (t[:-1] + 0.05)), atol=0.05)


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
