"""Training at points near those of a grid: exact for linear fields, and better between points."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from lno import Fields, Operator, Recipe, Rollout, Snapshots, Spec
from lno.data import Batch
from lno.data.grids import trapezoidal_weights
from lno.training.jitter import jittered, stencils

CPU = {"device": "cpu", "progress": False}


def lattice(*grid: int) -> np.ndarray:
    axes = np.meshgrid(*[np.linspace(0, 1, n) for n in grid], indexing="ij")
    return np.stack(axes, -1).reshape(-1, len(grid))


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("grid", [(9,), (5, 7), (4, 3, 5), (1, 6)])
def test_linear_fields_stay_what_they_are(grid: tuple[int, ...]) -> None:
    """On any mesh of the grid, which may differ from sample to sample."""
    random = np.random.default_rng(0)
    d, x = len(grid), lattice(*grid)
    mesh = np.stack([x @ random.normal(size=(d, d)) for _ in range(3)])
    slope, tilt = random.normal(size=(d, 2)), random.normal(size=(d, 1))
    for points in (x, mesh):
        y = np.ones((3, 1, 1)) * (points @ tilt - 1)
        batch = Fields(points, np.ones((3, 1, 1)) * (points @ slope), y=y).batch([0, 1, 2])
        moved = jittered(batch, Spec(d, 2, 1, grid), 0.5, generator())
        assert moved.x_query is moved.x and moved.x.shape == batch.x.shape and moved.y is not None
        assert not torch.equal(moved.x, batch.x)
        expected = moved.x.double() @ torch.from_numpy(slope)
        torch.testing.assert_close(moved.u.double(), expected.expand(3, -1, -1), atol=1e-5, rtol=0)
        expected = moved.x.double() @ torch.from_numpy(tilt) - 1
        torch.testing.assert_close(moved.y.double(), expected.expand(3, -1, -1), atol=1e-5, rtol=0)


def test_points_move_by_at_most_the_reach_and_stay_in_the_domain() -> None:
    x = torch.from_numpy(lattice(6, 6)).float()[None]
    batch, ways = Batch(x, x, x, x), []
    for seed in range(200):
        moved = jittered(batch, Spec(2, 2, 2, (6, 6)), 0.5, generator(seed)).x
        assert moved.min() > -1e-6 and moved.max() < 1 + 1e-6
        ways.append(5 * (moved - x).abs().max())
    assert max(ways) <= 0.5 + 1e-5
    assert min(ways) < 0.05 and max(ways) > 0.45  # some steps are nearly on the grid


def test_every_place_is_reached() -> None:
    """No gap is left between the points: not next to the boundary, where errors are largest."""
    x = torch.from_numpy(lattice(6)).float()[None]
    batch = Batch(x, x, x, x)
    seen = torch.cat(
        [jittered(batch, Spec(1, 1, 1, (6,)), 0.5, generator(k)).x.flatten() for k in range(400)]
    )
    assert bool((torch.histc(seen, bins=50, min=0, max=1) > 0).all())


def test_periodic_axes_go_round() -> None:
    """Beyond the last point comes the first, also for positions, which are cos and sin there."""
    angle = 2 * np.pi * torch.arange(64) / 64
    x = torch.stack((angle.cos(), angle.sin()), -1)[None]
    batch = Batch(x, x[..., :1], x, x[..., 1:])
    moved = jittered(batch, Spec(2, 1, 1, (64,), (True,)), 0.5, generator(3))
    assert moved.y is not None
    assert (torch.atan2(moved.x[0, -1, 1], moved.x[0, -1, 0]) - angle[-1]).abs() > 1e-3
    torch.testing.assert_close(moved.x.norm(dim=-1), torch.ones(1, 64), atol=2e-3, rtol=0)
    torch.testing.assert_close(torch.cat((moved.u, moved.y), -1), moved.x)
    sources, _ = stencils(torch.zeros(64, 1), (64,), (True,))
    assert sources[-1].tolist() == [62, 63, 0]


def test_without_a_reach_nothing_changes() -> None:
    x = torch.from_numpy(lattice(5, 4)).float()[None]
    batch = Batch(x, torch.rand(2, 20, 3), x, torch.rand(2, 20, 1))
    same = jittered(batch, Spec(2, 3, 1, (5, 4)), 0.0, generator())
    for name in ("x", "u", "y"):
        assert torch.equal(getattr(same, name), getattr(batch, name))


def waves(n: int, samples: int = 40, seed: int = 0) -> Fields:
    """Waves with a random phase, and the same waves times a bump that is zero on the boundary."""
    x, random = lattice(n, n), np.random.default_rng(seed)
    phase, bump = random.uniform(0, 3, size=(samples, 1, 1)), np.prod(np.sin(np.pi * x), axis=1)
    y = bump[:, None] * np.cos(2 * x[:, 1:] + phase)
    weights = trapezoidal_weights((n, n))
    return Fields(x, np.cos(2 * x[:, :1] + phase), y=y, grid=(n, n), weights=weights)


def test_errors_between_the_points_are_smaller() -> None:
    """And not much larger than at the points of the grid."""
    small = {"width": 32, "latents": 16, "rounds": 2}
    recipe, found = Recipe(epochs=40, schedule="linear", weighted=True), {}
    for jitter in (0.0, 0.5):
        how = replace(recipe, jitter=jitter)
        op = Operator.fit(waves(9), model="lno_plus", config=small, recipe=how, **CPU)
        for n in (9, 33):
            error = op.on_grid((n, n)).evaluate(waves(n, seed=1))["relative_l2"]
            found[jitter, n] = error
    assert found[0.5, 33] < 0.4 * found[0.0, 33]
    assert found[0.5, 33] < 2 * found[0.5, 9]


def test_frames_move_together() -> None:
    x, t = lattice(8, 8), np.arange(5)
    frames = np.sin(3 * x[:, :1] + 0.2 * t)[None] * np.ones((4, 1, 1))
    data = Fields(x, frames[..., :3], y=frames[..., 3:], grid=(8, 8))
    recipe = Recipe(epochs=2, jitter=0.5)
    tiny = {"width": 8, "latents": 4, "rounds": 1}
    op = Operator.fit(data, task=Rollout(2), model="lno_plus", config=tiny, recipe=recipe, **CPU)
    assert np.isfinite(op.evaluate(data)["relative_l2"])


def test_a_paused_run_resumes_with_the_same_moves(tmp_path: Path) -> None:
    tiny = {"width": 8, "latents": 4, "rounds": 1}
    how = {"model": "lno_plus", "config": tiny, "recipe": Recipe(epochs=3, jitter=0.5), **CPU}
    whole = Operator.fit(waves(9), **how)
    Operator.fit(waves(9), folder=tmp_path, pause_after=0.0, **how)
    resumed = Operator.fit(waves(9), folder=tmp_path, resume=True, **how)
    for name, values in whole.model.state_dict().items():
        assert torch.equal(values, resumed.model.state_dict()[name])


def test_weights_for_another_number_of_axes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"periodic: expected one value for each axis"):
        trapezoidal_weights((3, 4), (True,))


def test_what_has_no_grid_is_refused() -> None:
    x, keys = np.random.default_rng(0).uniform(size=(30, 2)), {"width": 8, "latents": 4}
    cloud = Fields(x, np.ones((3, 1, 1)) * x[:, :1], y=np.ones((3, 1, 1)) * x[:, 1:])
    with pytest.raises(ValueError, match=r"Recipe\.jitter: moves the points of a grid.*grid=") as e:
        Operator.fit(cloud, model="lno", config=keys, recipe=Recipe(epochs=1, jitter=0.5), **CPU)
    assert "set it to 0" in str(e.value)
    with pytest.raises(ValueError, match=r"needs the points of the grid.*Recipe\.jitter.*use lno"):
        sizes = {"width": 8, "modes": 2}
        Operator.fit(
            waves(9), model="fno", config=sizes, recipe=Recipe(epochs=1, jitter=0.5), **CPU
        )
    in_time = Fields(lattice(4, 4, 3), np.ones((2, 48, 1)), y=np.ones((2, 48, 1)), grid=(4, 4, 3))
    with pytest.raises(ValueError, match=r"Recipe\.jitter: .*Snapshots predicts each time"):
        recipe, task = Recipe(epochs=1, jitter=0.5), Snapshots(3)
        Operator.fit(in_time, task=task, model="transolver", config={}, recipe=recipe, **CPU)
    for value in (-0.1, 1.5, float("nan")):
        with pytest.raises(ValueError, match=r"Recipe\.jitter"):
            Recipe(jitter=value)


def test_some_of_the_moved_points_can_be_the_queries() -> None:
    recipe = Recipe(epochs=1, jitter=0.5, queries=10)
    tiny = {"width": 8, "latents": 4, "blocks": 1, "heads": 2}
    op = Operator.fit(waves(9), model="lno", config=tiny, recipe=recipe, **CPU)
    assert np.isfinite(op.evaluate(waves(9))["relative_l2"])
