"""Values interpolated at other points: exact, bounded, and finite wherever the points are."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from small_models import inputs

from lno.models import interpolation
from lno.models.interpolation import Interpolant, interpolate

GENERATOR = torch.Generator().manual_seed(4)


def test_interpolation_is_exact_at_the_observations_and_within_their_range() -> None:
    x, u, q = inputs(n=40, q=30, i=2, dtype=torch.float64)
    assert torch.allclose(interpolate(x, u, x), u, atol=1e-9)
    y = interpolate(x, u, q)
    assert (y >= u.amin(1, keepdim=True)).all() and (y <= u.amax(1, keepdim=True)).all()
    assert torch.equal(interpolate(x, torch.ones_like(u), q).round(decimals=12), torch.ones_like(y))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_linear_functions_are_interpolated_exactly(dtype: torch.dtype) -> None:
    """Up to the ridge, also next to an observation and with values far from zero."""
    axis = torch.linspace(-1, 1, 9, dtype=dtype)
    x = torch.stack(torch.meshgrid(axis, axis, indexing="ij"), -1).view(1, 81, 2)
    x = x + 0.05 * torch.rand(x.shape, generator=GENERATOR, dtype=dtype)
    size = torch.rand(1, 81, generator=GENERATOR, dtype=dtype) + 0.5
    mask = torch.rand(1, 81, generator=GENERATOR) < 0.9
    q = 1.6 * torch.rand(1, 50, 2, generator=GENERATOR, dtype=dtype) - 0.8
    close_by = x[:, 30:50] + 1e-3 * torch.randn(1, 20, 2, generator=GENERATOR, dtype=dtype)
    for at in (q, close_by):
        u, expected = (100 + v @ torch.tensor([[2.0], [-3.0]], dtype=dtype) for v in (x, at))
        assert (interpolate(x, u, at, mask, size) - expected).abs().max() < 0.02


def test_interpolation_does_not_depend_on_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    x, u, q = inputs(n=40, q=30, dtype=torch.float64)
    whole = interpolate(x, u, q)
    monkeypatch.setattr(interpolation, "PAIRS", 400)
    assert torch.allclose(interpolate(x, u, q), whole, atol=1e-12)


@pytest.mark.parametrize("weighted", [False, True])
def test_nearest_neighbours_interpolate_like_all_points(weighted: bool) -> None:
    rng = np.random.default_rng(0)
    axis = np.linspace(-1, 1, 12)
    x = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
    u, q = rng.normal(size=(144, 3)), rng.uniform(-1, 1, (50, 2))
    sizes = rng.uniform(0.5, 2, 144) if weighted else None
    tensors = (torch.from_numpy(v)[None] for v in (x, u, q))
    size = None if sizes is None else torch.from_numpy(sizes)[None]
    expected = interpolate(*tensors, weights=size)[0].numpy()
    assert np.abs(Interpolant(x, u, sizes)(q) - expected).max() < 0.02
    assert np.allclose(Interpolant(x, u, sizes)(x), u, atol=1e-9)


def test_nearest_neighbours_extrapolate_like_all_points() -> None:
    """Within the range of all values, not within that of the neighbours."""
    x, q = np.random.default_rng(0).uniform(-1.7, 1.7, (2, 1000, 2))
    u = np.sin(1.8 * x[:, :1]) * np.cos(1.2 * x[:, 1:])
    everything = interpolate(*(torch.from_numpy(v)[None] for v in (x, u, q)))[0].numpy()
    assert np.abs(Interpolant(x, u)(q) - everything).max() < 2e-3


@pytest.mark.parametrize("extent", [1e-1, 3e-4, 1e-5])
def test_clustered_observations_are_extrapolated_within_their_range(extent: float) -> None:
    """In float32 as in float64: nothing cancels where all observations are far away."""
    x, u, q = inputs(n=5, q=30)
    x = 0.3 + extent * x
    y, exact = interpolate(x, u, q), interpolate(x.double(), u.double(), q.double())
    assert (y >= u.amin(1, keepdim=True)).all() and (y <= u.amax(1, keepdim=True)).all()
    near = Interpolant(x[0].numpy(), u[0].numpy())(q[0].numpy())
    assert np.abs(near - y[0].numpy()).max() < 1e-5
    assert (y - exact).abs().max() < 1e-4


@pytest.mark.parametrize("shift", [3e3, 1e4, 1e5, 1e9, 1e15])
def test_queries_far_from_all_observations_stay_within_their_range(shift: float) -> None:
    x, u, q = inputs(n=30, q=7)
    near = Interpolant(x[0].numpy(), u[0].numpy())(q[0].numpy() + np.float32(shift))
    for y in (interpolate(x, u, q + shift)[0], torch.from_numpy(near)):
        assert (y >= u[0].amin()).all() and (y <= u[0].amax()).all()


@pytest.mark.parametrize("count", [1, 2, 5])
def test_observations_at_one_place_are_averaged(count: int) -> None:
    x, u, q = inputs(n=count, q=30)
    x, mean = x[:, :1].expand(-1, count, -1), u.mean(1, keepdim=True)
    assert torch.allclose(interpolate(x, u, torch.cat((q, x), 1)), mean.expand(-1, 30 + count, -1))
    near = Interpolant(x[0].numpy().copy(), u[0].numpy())(q[0].numpy())
    assert np.allclose(near, mean[0].numpy(), rtol=1e-5)


@pytest.mark.parametrize("size", [2.0**-66, 2.0**66, 2.0**120])
def test_interpolation_scales_with_the_values(size: float) -> None:
    """Values in physical units may be large: squares of them would overflow."""
    x, u, q = inputs(n=40, q=30)
    assert torch.allclose(interpolate(x, size * u, q) / size, interpolate(x, u, q), atol=1e-5)


def test_without_observations_that_count_all_do_and_without_any_values_are_zero() -> None:
    x, u, q = inputs(n=40, q=30)
    nothing = torch.zeros(2, 40)
    for none in ({"mask": nothing > 0}, {"weights": nothing}):
        y = interpolate(x, u, q, **none)
        assert (y >= u.amin(1, keepdim=True)).all() and (y <= u.amax(1, keepdim=True)).all()
    assert not interpolate(x[:, :0], u[:, :0], q).any()
    assert interpolate(x, u, q[:, :0]).shape == (2, 0, 1)
