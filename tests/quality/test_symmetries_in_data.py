"""Symmetries that are claimed are tested on the moments of the samples."""

from __future__ import annotations

import numpy as np
import pytest

import lno
from lno import Fields
from lno.data import findings
from lno.data.quality.symmetric import asymmetry
from lno.data.symmetry import Symmetry, square

N, S = 9, 120
RANDOM = np.random.default_rng(0)
GRID = lno.grid((N, N))
BY_NAME = {g.name: g for g in square()}


def fields(u: np.ndarray, y: np.ndarray, ragged: bool = False) -> Fields:
    if not ragged:
        return Fields(GRID, u.reshape(len(u), -1, 1), y=y.reshape(len(y), -1, 1), grid=(N, N))
    kept = [np.sort(RANDOM.choice(N * N, 60, replace=False)) for _ in u]
    pairs = list(zip(kept, u.reshape(len(u), -1, 1), y.reshape(len(y), -1, 1), strict=True))
    return Fields(
        [GRID[k] for k in kept], [a[k] for k, a, _ in pairs], y=[b[k] for k, _, b in pairs]
    )


def errors(data: Fields, *names: str) -> list[str]:
    chosen = [BY_NAME[name] for name in names] or list(square())
    return [f.what for f in findings(data, symmetries=chosen) if f.severity == "error"]


@pytest.mark.parametrize("ragged", [False, True])
def test_a_symmetric_problem_passes_all_eight(ragged: bool) -> None:
    u = RANDOM.normal(size=(S, N, N))
    y = u + np.roll(u, 1, 1) + np.roll(u, -1, 1) + np.roll(u, 1, 2) + np.roll(u, -1, 2)
    assert errors(fields(u, y, ragged)) == []


@pytest.mark.parametrize("ragged", [False, True])
def test_a_force_along_x_breaks_the_reflection_of_x_only(ragged: bool) -> None:
    u = RANDOM.normal(size=(S, N, N))
    y = u + 2 * GRID[:, 0].reshape(N, N)
    found = errors(fields(u, y, ragged), "reverse x", "reverse y")
    assert len(found) == 1
    assert found[0].startswith("the symmetry 'reverse x' is not in the outputs: moments")


def test_inputs_that_are_not_symmetric_are_told_from_outputs() -> None:
    u = RANDOM.normal(size=(S, N, N)) * (1 + GRID[:, 1].reshape(N, N))  # the mean is symmetric
    found = errors(fields(u, RANDOM.normal(size=(S, N, N))), "reverse y", "reverse x")
    assert len(found) == 1
    assert "'reverse y' is not in the inputs" in found[0]


def test_a_channel_that_changes_its_sign() -> None:
    flow = RANDOM.normal(size=(S, N, N)) + (GRID[:, 0] - 0.5).reshape(N, N)  # odd in x
    data = fields(np.ones((S, N, N)), flow)
    mirror = BY_NAME["reverse x"]
    odd = Symmetry(mirror.name, mirror.matrix, mirror.shift, channel_signs={"y": (-1,)})
    assert asymmetry(data, mirror, "y").p <= 0.001
    assert asymmetry(data, odd, "y").p > 0.01


def test_the_size_is_that_of_the_asymmetry() -> None:
    noise = RANDOM.normal(size=(4000, N, N))
    data = fields(noise, noise + 0.5 * GRID[:, 0].reshape(N, N))
    found = asymmetry(data.subset(np.arange(1000)), BY_NAME["reverse x"], "y")
    gap = 0.5 * (2 * GRID[:, 0] - 1)  # of the means of values; squares differ little
    assert found is not None
    assert 0.6 < found.size / np.sqrt(np.square(gap).mean() / 2) < 1.4
    assert found.by_chance < 0.2 * found.size


def test_false_alarms_are_rare() -> None:
    alarms = 0
    for seed in range(60):
        random = np.random.default_rng(seed)
        u, y = random.normal(size=(2, 30, N, N))
        found = asymmetry(fields(u, y), BY_NAME["swap x and y, reverse x"], "y")
        alarms += found is not None and found.p <= 0.01
    assert alarms <= 4


def test_symmetries_that_do_not_fit() -> None:
    x = lno.grid((4, 5))
    data = Fields(x, y=RANDOM.normal(size=(30, 20, 1)), grid=(4, 5))
    [error] = [
        f.what for f in findings(data, symmetries=[BY_NAME["swap x and y"]]) if "fit" in f.what
    ]
    assert "'swap x and y' does not fit: swap x and y: expected a square grid, got 4 × 5" in error
    few = findings(data.subset(np.arange(10)), symmetries=list(square()))
    assert any("10 samples are too few to test 7 symmetries" in f.what for f in few)
