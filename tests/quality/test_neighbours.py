"""Samples next to each other that are alike: found in series, not in independent samples."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from lno import Fields
from lno.data import findings
from lno.data.quality import Finding, quick_neighbour_findings
from lno.data.quality.neighbours import neighbour_findings
from lno.problems import Darcy
from lno.problems.make import make

RANDOM = np.random.default_rng(0)
X = np.linspace(0, 1, 24)[:, None]
MODES = np.sin(np.pi * np.arange(1, 5) * X)


def of(weights: np.ndarray) -> Fields:
    """Fields that are sums of four modes."""
    return Fields(X, y=(weights @ MODES.T)[..., None])


def series(samples: int, correlation: float, seed: int = 0) -> Fields:
    """A stationary series in which each sample has this correlation with the next."""
    noise = np.random.default_rng(seed).normal(size=(samples, 4))
    weights = noise.copy()
    for k in range(1, samples):
        weights[k] = correlation * weights[k - 1] + np.sqrt(1 - correlation**2) * noise[k]
    return of(weights)


def seasons(samples: int) -> Fields:
    """Months of a seasonal cycle with some noise."""
    phase = 2 * np.pi * np.arange(samples)[:, None] / 12 + np.arange(4)
    return of(np.cos(phase) + 0.2 * RANDOM.normal(size=(samples, 4)))


def ragged(fields: Fields) -> Fields:
    """The same samples at other points each, some more and some fewer."""
    y = np.asarray(fields.y)
    chosen = [np.sort(RANDOM.permutation(24)[: RANDOM.integers(16, 23)]) for _ in y]
    points, values = [X[i] for i in chosen], [v[i] for v, i in zip(y, chosen, strict=True)]
    return Fields(points, y=values)


Look = Callable[[Fields], list[Finding]]
BOTH = pytest.mark.parametrize("look", [neighbour_findings, quick_neighbour_findings])


@BOTH
@pytest.mark.parametrize("make_series", [seasons, lambda samples: series(samples, 0.9)])
def test_series_are_found_and_lose_it_in_random_order(
    look: Look, make_series: Callable[[int], Fields]
) -> None:
    data = make_series(300)
    [found] = look(data)
    assert found.severity == "warning"
    assert "samples next to each other are more alike than random pairs" in found.what
    assert "'lno data import --split TRAIN,VALIDATION,TEST'" in found.advice
    assert look(data.shuffle(0)) == []


def test_the_number_is_the_ratio_of_distances() -> None:
    [found] = neighbour_findings(series(4000, 0.75))  # sqrt(1 - 0.75) is one half
    share = float(found.what.split("outputs have ")[1].split(" %")[0])
    assert abs(share - 50) < 7


def test_samples_of_different_points() -> None:
    data = ragged(series(120, 0.95))
    assert len(neighbour_findings(data)) == 1
    assert neighbour_findings(data.shuffle(0)) == []
    assert quick_neighbour_findings(data) == []  # it would cost too much


@BOTH
def test_independent_samples_are_not_found(look: Look) -> None:
    for seed in range(30):
        for samples in (20, 41, 300):
            assert look(series(samples, 0.0, seed)) == []
    heavy = np.random.default_rng(0).standard_cauchy((200, 4))
    assert look(of(heavy)) == []
    assert look(of(np.ones((50, 4)))) == []  # all equal
    assert look(series(19, 0.99)) == []  # too few to say anything
    assert look(Fields(X, np.ones((50, 24, 1)))) == []  # no outputs


def test_samples_of_a_problem_are_independent() -> None:
    data = make(Darcy(grid=17, every=1), 64, 0, "cpu")
    assert neighbour_findings(data) == quick_neighbour_findings(data) == []


def test_nothing_is_said_where_the_split_is_in_order() -> None:
    data = series(100, 0.9)

    def alike(found: list[Finding]) -> list[Finding]:
        return [f for f in found if "next to each other" in f.what]

    assert len(alike(findings(data, ordered=False))) == 1
    assert alike(findings(data, split=(70, 10, 20))) == []


def test_of_three_parts_the_last_is_for_testing() -> None:
    data = series(50, 0.0)
    whole = Fields.concatenate([data, data.subset([3]), data.subset([4])])
    [error] = [f for f in findings(whole, split=(40, 11, 1)) if f.severity == "error"]
    assert "1 of 1 test samples are also training samples (51)" in error.what
    message = "split: expected two or three numbers, of training, validation"
    for wrong in ((50,), (20, 10, 10, 5)):
        with pytest.raises(ValueError, match=message):
            findings(whole, split=wrong)
