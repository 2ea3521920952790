"""Sensors: one is enough, several at one place are averaged, impossible ones are named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_waves import SOME, bounds, sensors

from lno.commands.reconstruct import reconstruct_file
from lno.data.sensors import SensorError
from lno.data.tables import write_csv
from lno.reconstruct import Reconstructor


def test_several_measurements_at_one_place_are_averaged(
    whole: Reconstructor, folder: Path, tmp_path: Path
) -> None:
    table = sensors()
    x, u = table[:, [1, 0]], table[:, 2:]
    twice, both = np.concatenate((x, x)), np.concatenate((u - 0.1, u + 0.1))
    once, averaged = whole(x, u, 0.1), whole(twice, both, 0.1)
    np.testing.assert_allclose(averaged.mean, once.mean, atol=1e-4)
    again = whole(twice[::-1], both[::-1], 0.1)
    np.testing.assert_allclose(again.mean, averaged.mean, atol=1e-6)  # in any order
    rows = np.concatenate((table, table + np.array([0, 0, 0.1])))
    write_csv(tmp_path / "s.csv", ["x", "t", "u"], rows)
    reconstruct_file(tmp_path / "s.csv", tmp_path / "f.npz", model=folder, noise=0.1)
    with pytest.raises(ValueError, match="at the same place: leave one out, or say how exact"):
        reconstruct_file(tmp_path / "s.csv", tmp_path / "f.npz", model=folder)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("0.5,1.5,0", "line 3: t = 1.5 lies outside the domain, 0 to 1"),
        ("-0.1,0.5,0", "line 3: x = -0.1 lies outside the domain, 0 to 1"),
        ("0.5,0.9,0", "line 3: this model was trained to observe t from 0.25 to 0.75 only"),
        ("0.25,0.5,3", "lines 2 and 3: two values, 1 and 3, at the same place"),
        ("0.5,nan,0", "line 3, column 't': expected a number, got 'nan'"),
        ("0.5,half,0", "line 3, column 't': expected a number, got 'half'"),
        ("0.5,0.5", "line 3: expected 3 cells as in the header, got 2"),
    ],
)
def test_sensors_that_cannot_be_used_are_named_by_their_line(
    row: str, message: str, folder: Path, tmp_path: Path
) -> None:
    path = tmp_path / "s.csv"
    path.write_text(f"x,t,u\n0.25,0.5,1\n{row}\n")
    with pytest.raises(ValueError, match=message.replace("(", r"\(")):
        reconstruct_file(path, tmp_path / "f.npz", model=folder, device="cpu")
    assert not (tmp_path / "f.npz").exists()


@pytest.mark.parametrize(
    ("x", "u", "message"),
    [
        ([0.5, 1.5], 0.0, r"sensor 1: x = 1\.5 lies outside the domain, 0 to 1: leave it out"),
        ([0.9, 0.5], 0.0, "sensor 1: this model was trained to observe t from 0.25 to 0.75 only"),
        ([0.5, 0.25], 3.0, "sensors 0 and 1: two values, 1 and 3, at the same place"),
        ([0.5, np.nan], 0.0, "sensor 1: expected finite numbers"),
        ([0.5, 0.5], np.inf, "sensor 1: expected finite numbers"),
    ],
)
def test_python_users_are_told_which_sensor_is_wrong(
    x: list[float], u: float, message: str, whole: Reconstructor
) -> None:
    with pytest.raises(SensorError, match=message) as caught:
        whole([[0.5, 0.25], x], [[1.0], [u]])
    assert caught.value.sensors[-1] == 1


def test_the_two_ends_of_a_period_are_one_place(whole: Reconstructor) -> None:
    x, u = whole.validated([[0.5, 0.0], [0.5, 1.0], [0.5, 0.5]], [[1.0], [1.0], [2.0]])
    np.testing.assert_allclose(x, [[0.5, 0.0], [0.5, 0.5]])
    np.testing.assert_allclose(u, [[1], [2]])
    with pytest.raises(SensorError, match="sensors 0 and 1: two values"):
        whole.validated([[0.5, 0.0], [0.5, 1.0]], [[1.0], [2.0]])
    x, u = whole.validated([[0.5, 0.0], [0.5, 1.0]], [[1.0], [2.0]], noise=0.1)
    np.testing.assert_allclose(np.hstack((x, u)), [[0.5, 0.0, 1.5]])


@pytest.mark.parametrize("noise", [float("nan"), -1.0, float("inf")])
def test_impossible_noise_is_an_error(noise: float, whole: Reconstructor) -> None:
    with pytest.raises(ValueError, match="noise must be"):
        whole([[0.5, 0.5]], [[1.0]], noise)


def test_one_sensor_is_enough(whole: Reconstructor) -> None:
    for noise in (0.0, 0.1):
        with pytest.warns(UserWarning, match="calibrated for 9 sensors or more: with 1, they"):
            found = replace(whole, calibration=SOME)([[0.5, 0.5]], [[1.0]], noise)
        assert np.isfinite(found.mean).all()
        lower, upper = bounds(found)
        assert np.all(lower < upper)
