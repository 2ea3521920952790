from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lno import Fields
from lno.commands.data import build_problem, draw_samples, make_data
from lno.experiments import datasets
from lno.problems import Darcy, NS2d


def test_options_and_settings_become_parameters() -> None:
    assert build_problem("darcy", {"grid": "29", "every": "4", "high": "9"}) == Darcy(
        29, 4, high=9.0
    )
    assert build_problem("darcy", {"grid": "85"}) == Darcy(grid=85, every=1)
    assert build_problem("darcy", {}) == Darcy(grid=421, every=5)
    assert build_problem("ns2d", {"viscosity": "1e-4"}) == NS2d(viscosity=1e-4)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("stokes", {}, "no problem 'stokes': expected one of burgers, darcy, ns2d"),
        ("ns2d", {"viscosty": "1"}, r"no key 'viscosty' \(did you mean 'viscosity'\?\)"),
        ("ns2d", {"viscosity": "thick"}, "viscosity: expected a number, got 'thick'"),
        ("darcy", {"grid": "8.5"}, "grid: expected a whole number, got '8.5'"),
        ("darcy", {"grid": "30", "every": "4"}, "multiple of every"),
        ("darcy", {"high": "nan"}, "high must be a number"),
        ("burgers", {"every": "2"}, "no key 'every'"),
    ],
)
def test_impossible_settings_are_errors(name: str, settings: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_problem(name, settings)


def test_a_shorter_file_is_the_beginning_of_a_longer_one(tmp_path: Path) -> None:
    for count in (2, 5):
        made = make_data(
            "darcy", count, tmp_path / f"{count}.h5", seed=7, grid=29, every=4, device="cpu"
        )
        assert made.hash == Fields.load(tmp_path / f"{count}.h5").hash
    short, long = (Fields.load(tmp_path / f"{count}.h5") for count in (2, 5))
    assert np.array_equal(short.y, long.y[:2])
    assert np.array_equal(short.u, long.u[:2])
    assert set(np.unique(long.u)) == {3.0, 12.0}


def test_a_wrong_ending_is_said_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"expected a name ending in \.h5"):
        make_data("darcy", 10**9, tmp_path / "a.csv")


def test_pictures_of_samples(tmp_path: Path) -> None:
    fields = make_data("darcy", 2, tmp_path / "a.h5", grid=29, every=4, device="cpu")
    draw_samples(fields, tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match="grid of two axes"):
        draw_samples(Fields(np.zeros((3, 1)), y=np.zeros((1, 3, 1))), tmp_path / "b.png")


def test_the_data_set_of_a_protocol_is_made_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LNO_DATA", str(tmp_path))
    small = datasets.Protocol(3, 2, {"grid": 29, "every": 4})
    monkeypatch.setitem(datasets.PROTOCOLS["standard"], "darcy", small)
    train, test = datasets.dataset("darcy", device="cpu", show=False)
    assert (len(train), len(test)) == (3, 2)
    [path] = tmp_path.iterdir()
    written = path.stat().st_mtime_ns
    again, _ = datasets.dataset("darcy", device="cpu", show=False)
    assert path.stat().st_mtime_ns == written
    assert again.hash == train.hash
    with pytest.raises(ValueError, match="no standard data set 'stokes'"):
        datasets.dataset("stokes")
