"""Bounds of reconstructed fields: they hold, and what they cannot hold for is reported."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_waves import SOME, WINDOW, bounds, calibrated, sensors, waves

from lno import Fields, RandomRatio, cli
from lno.calibration import Calibration, Nonconformity, calibrate, coverage
from lno.data.tables import write_csv
from lno.reconstruct import Reconstructor


def test_too_few_fields_are_refused_before_the_work(whole: Reconstructor) -> None:
    with pytest.raises(ValueError, match="need at least 9 held-out fields, got 8"):
        whole.calibrated(waves(8, 1), [RandomRatio(0.1)])
    with pytest.raises(ValueError, match="no bounds without calibration"):
        whole.coverage(waves(8, 1), [RandomRatio(0.1)])


def test_calibrated_bounds_hold_on_other_fields(
    whole: Reconstructor, scored: dict[float, tuple[list[Nonconformity], list[Nonconformity]]]
) -> None:
    fitted, tested = ([*scored[0.05][k], *scored[0.2][k]] for k in (0, 1))
    calibration, wider = (calibrate(fitted, level) for level in (0.8, 0.95))
    shares = coverage(tested, calibration)
    assert set(shares) == {"inside", "outside", "all"}
    for one in (shares, *(coverage([one], calibration) for one in tested)):
        assert one["all"] == pytest.approx(0.82, abs=0.1)
    assert wider.sensors == calibration.sensors == (7, 29)
    for name in ("inside", "outside"):
        pairs = zip(getattr(wider, name), getattr(calibration, name), strict=True)
        assert all(a > b for a, b in pairs)
    with pytest.raises(ValueError, match="expected a pattern with a definite number"):
        whole.nonconformity(waves(3, 1), [RandomRatio(0.1, 0.3)])


def test_coverage_follows_the_stated_level(
    scored: dict[float, tuple[list[Nonconformity], list[Nonconformity]]],
) -> None:
    fitted, tested = scored[0.2]
    levels = (0.5, 0.7, 0.9)
    curve = [coverage(tested, calibrate(fitted, level))["all"] for level in levels]
    assert curve == pytest.approx(levels, abs=0.1)
    assert curve == sorted(curve)


def test_calibrating_is_scoring_and_choosing_factors(whole: Reconstructor) -> None:
    patterns, data = [RandomRatio(0.1), RandomRatio(0.05)], waves(9, 1)
    once = whole.calibrated(data, patterns)
    assert once.calibration == calibrate(whole.nonconformity(data, patterns), 0.9)
    assert once.calibration is not None and once.calibration.fields == 9
    assert once.coverage(data, patterns)["all"] == 1  # with 9 fields, none may have a point outside


@pytest.mark.filterwarnings("ignore:out of distribution")  # where the noise is not told
def test_noisy_sensors_are_smoothed_and_widen_the_bounds(
    whole: Reconstructor, scored: dict[float, tuple[list[Nonconformity], list[Nonconformity]]]
) -> None:
    whole = calibrated(whole, scored)
    truth, random = waves(1, 7), np.random.default_rng(0)
    inside = WINDOW.contains(truth.x, ["t", "x"])
    x, u = truth.x[inside][::3], np.asarray(truth.y)[0, inside][::3]
    noise = 0.3
    wrong = u + noise * random.standard_normal(u.shape)
    exact, smooth, clean = whole(x, wrong), whole(x, wrong, noise), whole(x, u)
    errors = [
        np.abs(r.mean.reshape(-1) - np.asarray(truth.y)[0, :, 0])[inside].mean()
        for r in (exact, smooth)
    ]
    assert errors[1] < 0.9 * errors[0]
    widths = [
        (upper - lower).reshape(-1)[inside].mean()
        for lower, upper in (bounds(clean), bounds(smooth))
    ]
    assert widths[1] > 1.5 * widths[0]


def test_bounds_hold_with_noisy_sensors_too(
    whole: Reconstructor, scored: dict[float, tuple[list[Nonconformity], list[Nonconformity]]]
) -> None:
    known, truth = calibrated(whole, scored), waves(6, 8)
    inside, random = WINDOW.contains(truth.x, ["t", "x"]), np.random.default_rng(0)
    contained = []
    for field in np.asarray(truth.y):
        chosen = random.permutation(inside.sum())[:40]
        x, u = truth.x[inside][chosen], field[inside][chosen]
        found = known(x, u + 0.2 * random.standard_normal(u.shape), 0.2)
        lower, upper = (v.reshape(-1)[inside] for v in bounds(found))
        contained.append(((lower <= field[inside, 0]) & (field[inside, 0] <= upper)).mean())
    assert 0.8 < np.mean(contained) < 0.99


def test_sensors_at_few_places_count_for_less_than_as_many_everywhere(
    whole: Reconstructor,
) -> None:
    points = waves(1, 0).x
    points = points[WINDOW.contains(points, ["t", "x"])].reshape(-1, 16, 2)
    random = np.random.default_rng(1).permutation(points.reshape(-1, 2))[:32]
    assert whole.effective_sensors(random) == pytest.approx(32, rel=0.3)
    assert whole.effective_sensors(points.reshape(-1, 2)) == len(points) * 16  # no gap at all
    for few in (points[:, ::8], points[::4, :].reshape(-1, 2)[:32]):
        few = few.reshape(-1, 2)
        assert whole.effective_sensors(few) < 0.7 * len(few)
    narrow = replace(
        whole, calibration=Calibration(0.9, 9, (4, 40), (9.0, 1.0), *[(99.0, 99.0)] * 3)
    )
    wide = [
        (bounds(found)[1] - bounds(found)[0])[6:11].mean()
        for x in (random, points[:, ::8].reshape(-1, 2)[:32])
        for found in [narrow(x, np.sin(2 * np.pi * x[:, 1:]))]
    ]
    assert wide[1] > wide[0]


def test_fields_on_another_grid_are_not_compared_with(whole: Reconstructor) -> None:
    data, patterns = waves(4, 1), [RandomRatio(0.1)]
    squeezed = Fields(data.x**2, y=data.y, grid=data.grid, period=data.period, names=data.names)
    with pytest.raises(ValueError, match=r"expected whole fields on the regular grid \(17, 16\)"):
        whole.nonconformity(squeezed, patterns)


@pytest.mark.filterwarnings("ignore:out of distribution")
def test_members_disagree_more_where_no_sensor_is_near(whole: Reconstructor) -> None:
    table = sensors(40, last=0.35)  # all of them early
    lower, upper = bounds(replace(whole, calibration=SOME)(table[:, [1, 0]], table[:, 2:]))
    width = upper - lower
    assert width[4:6].mean() < width[10:12].mean()


def test_fields_out_of_distribution_are_reported(
    whole: Reconstructor,
    scored: dict[float, tuple[list[Nonconformity], list[Nonconformity]]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    known = calibrated(whole, scored)  # with 29 sensors
    table = sensors(29)
    x, u = table[:, [1, 0]], table[:, 2:]
    noisy = np.random.default_rng(0).standard_normal(u.shape)
    found = known(x, u)
    assert not found.flagged
    assert [score.name for score in found.scores] == ["sensors", "residual", "disagreement"]
    with pytest.warns(UserWarning, match="out of distribution: the residuals of the completer"):
        found = known(x, noisy)
    assert found.flagged and found.scores[1].flagged
    with pytest.warns(
        UserWarning, match="calibrated for 29 sensors or more: with 2, they"
    ) as caught:
        assert known(x[:2], np.array([[9.0], [-9.0]])).flagged
    assert len(caught) == 1  # one warning with all reasons
    assert not known(x, noisy, noise=3.0).flagged  # residuals within the noise are none
    known.save(tmp_path)
    for values, warned, strict in ((u, False, True), (noisy, True, False), (noisy, True, True)):
        write_csv(tmp_path / "s.csv", ["x", "t", "u"], np.column_stack((table[:, :2], values)))
        words = ["lno", "reconstruct", str(tmp_path / "s.csv"), "--out", str(tmp_path / "f.npz")]
        words += ["--model", str(tmp_path), "--device", "cpu", *["--strict"] * strict]
        monkeypatch.setattr("sys.argv", words)
        with pytest.raises(SystemExit) as left:
            cli.main()
        assert left.value.code == (3 if warned and strict else 0)
        assert ("out of distribution" in capsys.readouterr().err) is warned
        stored = np.load(tmp_path / "f.npz", allow_pickle=False)
        assert (stored["score_values"] > stored["score_thresholds"]).any() == warned
    (tmp_path / "calibration.json").unlink()
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 1
    assert "--strict: without calibration" in capsys.readouterr().err


def test_other_dynamics_are_flagged_by_the_propagator_and_widen_the_bounds(
    whole: Reconstructor, scored: dict[float, tuple[list[Nonconformity], list[Nonconformity]]]
) -> None:
    """Standing waves are not among the travelling waves, though each moment looks like one."""
    known, usual = calibrated(whole, scored), scored[0.2][1][0]
    fields = waves(40, 2)
    t, x = np.asarray(fields.x).T
    u = np.cos(4 * np.pi * t) * np.sin(2 * np.pi * x + np.linspace(0, 6, 40)[:, None])
    standing = fields.replace(y=u[..., None])
    [other] = known.nonconformity(standing, [RandomRatio(0.2)])
    assert np.median(other.disagreement) > 2 * np.median(usual.disagreement)
    limits = known.calibration.at(29)
    assert np.mean(other.disagreement > limits.disagreement) > 0.5
    assert np.mean(usual.disagreement > limits.disagreement) < 0.1
    within = np.mean(other.outside <= limits.outside)
    scale = (other.residual * other.disagreement)[:, None]
    fixed = limits.outside * np.median(usual.residual * usual.disagreement)
    assert within > np.mean(other.outside * scale <= fixed)  # than bounds of the spread alone
