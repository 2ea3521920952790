"""Conformal risk control: the factor by its definition, the promise by repetition, strict files."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lno.calibration import (
    Calibration,
    Limits,
    Nonconformity,
    calibrate,
    coverage,
    factor,
    flags,
)

SOME = Calibration(0.8, 9, (9,), (3.0,), (4.0,), (0.5,), (0.6,))


def test_the_factor_is_the_smallest_that_keeps_the_risk() -> None:
    """By definition, with one more field that is all outside."""
    random = np.random.default_rng(0)
    for fields, points, level in (
        (9, 7, 0.9),
        (10, 7, 0.9),
        (25, 3, 0.8),
        (64, 11, 0.9),
        (1, 4, 0.5),
    ):
        scores = random.exponential(size=(fields, points))
        chosen = factor(scores, level)

        def risk(value: float, scores: np.ndarray = scores) -> float:
            return ((scores > value).mean(1).sum() + 1) / (len(scores) + 1)

        assert risk(chosen) <= 1 - level + 1e-9
        assert risk(np.nextafter(chosen, 0)) > 1 - level - 1e-9
        assert chosen in scores


def test_bounds_hold_on_average_over_fields_whose_points_are_correlated() -> None:
    """Every field is far off or near as a whole: few fields, not many points, decide.

    The quantile of pooled points promises as much, and contains less.
    """
    random, points, shares, pooled = np.random.default_rng(0), 200, [], []
    for _ in range(4000):
        size = random.lognormal(0.0, 1.0, (20, 1))  # of the errors of each field
        scores = np.abs(size * (1 + 0.1 * random.standard_normal((20, points))))
        known, new = scores[:-1], scores[-1]
        shares.append((new <= factor(known, 0.9)).mean())
        pooled.append((new <= np.quantile(known, 0.9)).mean())
    assert np.mean(pooled) < 0.89
    assert 0.9 <= np.mean(shares) < 0.96  # at most 1 / 20 too much, which is what 19 fields cost


@pytest.mark.parametrize(
    ("level", "needed"), [(0.9, 9), (0.5, 1), (0.95, 19), (0.8, 4), (0.99, 99)]
)
def test_too_few_fields_give_no_bounds(level: float, needed: int) -> None:
    def scores(fields: int) -> list[Nonconformity]:
        return [Nonconformity(5, np.ones((fields, 3)), np.ones((fields, 2)), np.ones(fields))]

    assert calibrate(scores(needed), level).fields == needed
    with pytest.raises(
        ValueError, match=f"need at least {needed} held-out fields, got {needed - 1}"
    ):
        calibrate(scores(needed - 1), level)


def test_patterns_with_one_number_of_sensors_are_averaged_within_each_field() -> None:
    random = np.random.default_rng(0)
    a, b = (
        Nonconformity(5, random.uniform(size=(12, 30)), np.zeros((12, 0)), np.ones(12))
        for _ in "ab"
    )
    both = calibrate([a, b])
    assert both.fields == 12  # not 24: observing a field twice makes no second field
    assert both.inside == (factor(np.hstack((a.inside, b.inside)), 0.9),)
    share = coverage([a, b], both)["inside"]
    assert share == pytest.approx(1 - (0.1 * 13 - 1) / 12, abs=0.01)
    with pytest.raises(ValueError, match="expected errors of the same fields"):
        calibrate([a, Nonconformity(5, b.inside[:9], b.outside[:9], b.residual[:9])])


def test_false_alarms_are_rare_in_total() -> None:
    """Statistics of new fields exceed either threshold in 0.5 % of the cases at most."""
    random, shares = np.random.default_rng(0), []
    none = np.zeros((1, 1))
    for _ in range(300):
        known, new = random.lognormal(size=(2, 2, 399))
        measured = [
            Nonconformity(9, none.repeat(399, 0), none.repeat(399, 0), *values)
            for values in (known, new)
        ]
        shares.append(flags(measured[1], calibrate(measured[:1])).mean())
    assert 0.004 < np.mean(shares) < 0.0055


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"sensors": (1, 2)}, "a value for every number of sensors"),
        ({"outside": (1.0, 2.0)}, "a value for every number of sensors"),
        ({"inside": 3.0}, "a value for every number of sensors"),
        ({"inside": (float("nan"),)}, r"Calibration.inside\[0\]"),
        ({"residual": ("1",)}, r"Calibration.residual\[0\]"),
        ({"disagreement": (1.0, 2.0)}, "a value for every number of sensors"),
        ({"residual": ()}, "a value for every number of sensors"),
        ({"level": 90.0}, "Calibration.level"),
        ({"fields": 3}, "need at least 4 held-out fields, got 3"),
        ({"sensors": (0,)}, r"Calibration.sensors\[0\]"),
        (dict.fromkeys(("sensors", *Limits._fields), (5, 2)), "must increase"),
    ],
)
def test_impossible_calibrations_are_errors(keys: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(SOME, **keys)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda d: d.pop("fields"), "needs the key 'fields'"),
        (lambda d: d.update(usual=[1.0]), "has no key 'usual'"),
        (lambda d: d.update(inside=[-1.0]), r"Calibration.inside\[0\]"),
    ],
)
def test_calibration_files_are_read_strictly(
    edit: Callable[[dict], object], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "calibration.json"
    SOME.save(path)
    assert Calibration.load(path) == SOME
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=message) as caught:
        Calibration.load(path)
    assert str(path) in str(caught.value)
    path.write_text("{")
    with pytest.raises(ValueError, match="is not a calibration"):
        Calibration.load(path)
