"""What is found in data that have a flaw, and that nothing is found in data that have none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from command_line import Run
from scipy.stats import spearmanr

from lno import Fields
from lno.data import Finding, findings, quick_findings
from lno.data.quality.samples import rank_correlation

RANDOM = np.random.default_rng(0)
X = np.linspace(0, 1, 24)[:, None]


def waves(samples: int = 60, **more: Any) -> Fields:
    """Smooth fields of three random numbers each, in random order."""
    a, b, c = RANDOM.uniform(0.5, 1.5, (3, samples, 1, 1))
    u = a * np.sin(3 * X) + b * X + c
    return Fields(X, u, y=u**2, parameters=a[:, 0] + 0 * b[:, 0], **more)


def of(severity: str, found: list[Finding]) -> list[str]:
    return [
        f"{finding.what} | {finding.advice}" for finding in found if finding.severity == severity
    ]


def test_good_data_have_no_flaw() -> None:
    found = findings(waves())
    assert not of("error", found) and not of("warning", found)
    assert quick_findings(waves()) == []


def test_the_worst_comes_first_and_names_are_checked() -> None:
    data = waves()
    doubled = Fields.concatenate([data, data.subset([3])])
    constant = doubled.replace(u=np.ones_like(doubled.u))
    assert [finding.severity for finding in findings(constant)][:1] == ["error"]
    with pytest.raises(ValueError, match="severity: expected one of"):
        Finding("bad", "this", "that")


def test_copies_across_the_split_and_within_training() -> None:
    data = waves(50)
    whole = Fields.concatenate([data, data.subset([3, 4]), data.subset([7])])
    [error] = of("error", findings(whole, split=(51, 2)))
    assert "2 of 2 test samples are also training samples (51, 52)" in error
    [warning] = of("warning", findings(whole, split=(51, 2)))
    assert "1 of 51 training samples are copies of others (50)" in warning
    [warning] = of("warning", findings(whole, split=(53, 0)))
    assert "3 of 53 training samples are copies" in warning


def test_equal_inputs_with_other_outputs() -> None:
    data = waves(40)
    y = data.y.copy()
    other = Fields.concatenate([data, data.subset([5]).replace(y=y[5:6] * 1.25)])
    [warning] = of("warning", findings(other))
    assert "1 samples have the inputs of another one and other outputs (40)" in warning
    assert "differ by up to 25 %" in warning


def test_sorted_samples() -> None:
    data = waves(40)
    sorted_ = data.subset(np.argsort(data.parameters[:, 0]))
    for found in (findings(sorted_, split=(30, 10)), quick_findings(sorted_, split=(30, 10))):
        [warning] = of("warning", found)
        low, high = np.sort(data.parameters[:, 0])[[29, 30]]
        assert "sorted by the parameter 'parameter0' (rank correlation 1.00)" in warning
        assert f"to {low:.4g} in the training samples, from {high:.4g} to" in warning


def test_the_slow_one_of_nested_sweeps_is_found() -> None:
    slow, fast = (v.ravel() for v in np.meshgrid(range(6), range(10), indexing="ij"))
    labels = {"names": {"parameters": ["fast", "slow"]}, "units": {}}
    data = waves().replace(parameters=np.stack((fast, slow), 1), **labels)
    [warning] = of("warning", findings(data))
    assert "parameter 'slow'" in warning


def test_rank_correlation_with_ties() -> None:
    a, b = RANDOM.integers(0, 5, (2, 50))
    assert np.isclose(rank_correlation(a, b), spearmanr(a, b).statistic)


def test_constant_channels_and_decades() -> None:
    data = waves(40, names={"u": ["k"], "parameters": ["Re"]})
    wide = data.replace(u=10 ** (4 * RANDOM.uniform(size=data.u.shape)), y=data.y * 0 + 3)
    wide = wide.replace(parameters=np.full((40, 1), 7.0))
    [wide_u, constant_y] = of("warning", quick_findings(wide))
    assert "input 'k' is positive and spans 4.0 decades" in wide_u and "--log k" in wide_u
    assert "output 'y0' is 3 everywhere" in constant_y
    assert not any("POD" in note for note in of("note", findings(wide)))  # nothing varies
    assert any("parameter 'Re' is 7 everywhere" in note for note in of("note", findings(wide)))


def test_an_output_far_from_zero_makes_relative_errors_small() -> None:
    data = waves(40)
    [warning] = of("warning", quick_findings(data.replace(y=data.y / data.y.std() + 101_325)))
    assert "a standard deviation of 1: a model that always predicts 1.0133" in warning
    assert "has a relative error of 0.00099 %" in warning and "Subtract a reference" in warning
    assert not of("warning", quick_findings(data.replace(y=data.y / data.y.std() + 15)))


def test_outliers_and_fill_values() -> None:
    data = waves(40)
    y = data.y.copy()
    y[3, 5] = 400.0
    [warning] = of("warning", quick_findings(data.replace(y=y)))
    assert "output 'y0' has 1 outlier (0.1 % of the values): up to 400" in warning
    y[3, 5:8] = -9999.0
    [error] = of("error", findings(data.replace(y=y)))
    assert "is -9999 in 0.31 % of the values" in error and "a fill value" in error


def test_inputs_of_one_point_are_parameters() -> None:
    data = waves(40)
    point = Fields(np.zeros((1, 1)), data.u[:, :1], X, data.y)
    [error] = of("error", quick_findings(point))
    assert "inputs are at one point in all 40 samples" in error and "--parameters" in error


def test_data_without_inputs() -> None:
    data = Fields(X, y=waves().y)
    assert any("there are no inputs" in note for note in of("note", findings(data)))
    moving = Fields(X + RANDOM.uniform(size=(60, 1, 1)), y=waves().y)
    assert not any("there are no inputs" in note for note in of("note", findings(moving)))


def test_points_at_the_same_place() -> None:
    x = np.append(X, X[3:4] + 1e-9, 0)
    y = waves().y
    agree = Fields(x, y=np.append(y, y[:, 3:4], 1))
    [note] = [n for n in of("note", findings(agree)) if "points lie" in n]
    assert "60 points lie where another one of the sample is" in note
    clash = Fields(x, y=np.append(y, y[:, 3:4] + 1, 1))
    [warning] = of("warning", findings(clash))
    assert "60 pairs of points lie at the same place and have different outputs" in warning
    assert "sample 0, points 3 and 24" in warning


def test_both_ends_of_a_period_are_one_place() -> None:
    data = Fields(X, y=waves().y, period=(1.0,))
    assert any("points 0 and 23" in warning for warning in of("warning", findings(data)))


def test_too_few_samples_for_the_variation() -> None:
    x = np.linspace(0, 1, 200)[:, None]
    basis = np.sin(np.pi * np.arange(1, 41) * x)  # forty modes of equal size

    def many(samples: int) -> Fields:
        weights = RANDOM.normal(size=(samples, 40))
        return Fields(x, u=np.ones((samples, 200, 1)) * x, y=(weights @ basis.T)[..., None])

    [warning] = [w for w in of("warning", findings(many(40))) if "POD" in w]
    assert "more samples would help" in warning
    covered = [n for n in of("note", findings(many(600))) if "POD modes" in n]
    assert covered and covered[0].startswith(("39 POD", "40 POD"))
    assert "The samples cover the variation" in covered[0]


def test_ragged_samples_are_compared_at_the_same_places() -> None:
    sizes = RANDOM.integers(300, 400, 60)
    x = [RANDOM.uniform(size=(n, 2)) for n in sizes]
    a = RANDOM.uniform(1, 2, 60)
    data = Fields(x, y=[k * p.sum(1, keepdims=True) for k, p in zip(a, x, strict=True)])
    assert not of("warning", findings(data.replace(parameters=a[:, None])))


def test_one_sample_is_an_error() -> None:
    assert "there is one sample" in of("error", findings(waves().subset([0])))[0]


def test_the_command(tmp_path: Any, run: Run) -> None:
    data = waves(40)
    data.save(tmp_path / "good.h5")
    done = run("data", "check", tmp_path / "good.h5")
    assert done.returncode == 0
    assert "0 errors, 0 warnings" in done.stdout and "Next: " in done.stdout
    Fields.concatenate([data, data.subset([3])]).save(tmp_path / "bad.h5")
    done = run("data", "check", tmp_path / "bad.h5")
    assert done.returncode == 1
    assert "1 of 4 test samples are also training samples (40)" in done.stdout
    done = run("data", "check", tmp_path / "good.h5", "--symmetry", "reverse z")
    assert "no symmetry 'reverse z' (did you mean 'reverse y'?)" in done.stderr.replace(
        "x'?", "y'?"
    )
