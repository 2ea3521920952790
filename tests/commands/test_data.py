from __future__ import annotations

import io
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from command_line import Run

from lno import Fields, cli
from lno.commands.data import build_problem, describe_failures
from lno.data.published import Layout
from lno.experiments import datasets
from lno.experiments.pictures import sample_gallery
from lno.problems import PROBLEMS, Darcy, NS2d, Pipe, Problem, Protocol


def make_darcy(samples: int, path: Path, *options: str) -> Fields:
    """A small data set by the command."""
    words = ["--grid", "29", "--every", "4", "--seed", "7", "--device", "cpu", "--out", str(path)]
    assert cli.run(["data", "make", "darcy", "--samples", str(samples), *words, *options]) == 0
    return Fields.load(path)


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
        ("stokes", {}, "no problem 'stokes': expected one of darcy, ns2d, airfoil"),
        ("ns2d", {"viscosty": "1"}, r"no key 'viscosty' \(did you mean 'viscosity'\?\)"),
        ("ns2d", {"viscosity": "thick"}, "viscosity: expected a number, got 'thick'"),
        ("darcy", {"grid": "8.5"}, "grid: expected a whole number, got '8.5'"),
        ("darcy", {"grid": "30", "every": "4"}, "multiple of every"),
        ("darcy", {"high": "nan"}, "high must be a number"),
        ("burgers", {"every": "2"}, "no key 'every'; its keys are: grid, viscosity"),
        ("burgers", {"every": "two"}, "no key 'every'; its keys are: grid, viscosity"),
    ],
)
def test_impossible_settings_are_errors(name: str, settings: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_problem(name, settings)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("pipe --grid 33", "--grid does not apply to pipe, .* changed with --set: elements=64$"),
        ("airfoil --every 2", "--every does not apply .*: surface=120, wake=50, normal=50$"),
        ("burgers --grid 64 --every 2", "--every does not apply .* with --set: grid=128$"),
        ("stokes --grid 33", "no problem 'stokes'"),
        ("darcy --grid 29 --set grid=85", "expected --grid or --set grid=…, got both"),
        ("darcy --set high=9 --set low=1 --set high=7", "--set sets high twice, to 9 and to 7"),
        ("darcy --set high", "--set high: expected KEY=VALUE"),
    ],
)
def test_impossible_options_are_errors(
    words: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*words.split(), "--samples", "1", "--out", str(tmp_path / "a.h5")]
    assert cli.run(["data", "make", *arguments]) == 1
    assert re.search(message, capsys.readouterr().err.strip())
    assert not list(tmp_path.iterdir())


def test_a_size_of_a_model_is_set_once(run: Run) -> None:
    words = ["--set", "width=8", "--set", "blocks=1", "--set", "width=16", "--dry-run"]
    assert "--set sets width twice, to 8 and to 16" in run("train", "darcy", *words).stderr


def test_a_shorter_file_is_the_beginning_of_a_longer_one(tmp_path: Path) -> None:
    short, long = (make_darcy(count, tmp_path / f"{count}.h5") for count in (2, 5))
    assert np.array_equal(short.y, long.y[:2])
    assert np.array_equal(short.u, long.u[:2])
    assert set(np.unique(long.u)) == {3.0, 12.0}


def test_a_wrong_ending_is_said_before_the_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--samples", str(10**9), "--out", str(tmp_path / "a.csv")]
    assert cli.run(["data", "make", "darcy", *words]) == 1
    assert "expected a name ending in .h5" in capsys.readouterr().err


def test_a_problem_without_a_generator_points_to_its_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    @dataclass(frozen=True)
    class Unsolved(Problem):
        name: ClassVar[str] = "unsolved"
        title: ClassVar[str] = "Unsolved"
        equation: ClassVar[str] = "y = ?"
        published: ClassVar[Mapping[str, Layout]] = Pipe.published

    monkeypatch.setitem(PROBLEMS, "unsolved", Unsolved)
    words = ["--samples", "2", "--out", str(tmp_path / "a.h5")]
    assert cli.run(["data", "make", "unsolved", *words]) == 1
    assert "lno data read unsolved Pipe_X.npy" in capsys.readouterr().err
    assert cli.run(["data", "make", "unsolved", "--grid", "9", *words]) == 1
    assert "no key 'grid'" in capsys.readouterr().err


def test_ranges_are_made_and_joined(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = make_darcy(5, tmp_path / "whole.h5")
    a, b, joined = (tmp_path / f"{name}.h5" for name in ("a", "b", "joined"))
    make_darcy(3, a)
    make_darcy(2, b, "--first", "3")
    capsys.readouterr()
    assert cli.run(["data", "join", str(b), str(a), "--out", str(joined)]) == 0
    assert f"wrote {joined}: samples 0 to 4" in capsys.readouterr().out
    assert Fields.load(joined).digest == whole.digest
    assert Fields.load(joined).provenance == whole.provenance
    make_darcy(1, b, "--first", "4")
    assert cli.run(["data", "join", str(b), str(a), "--out", str(joined)]) == 1
    assert "missing: sample 3" in capsys.readouterr().err
    assert Fields.load(joined).digest == whole.digest  # the old file is still there


def test_samples_that_failed_are_shown() -> None:
    x, y = np.arange(3.0)[:, None], np.zeros((12, 3, 1))
    record = {"retried": list(range(11)), "redrawn": {"7": 2}}
    assert describe_failures(Fields(x, y=y)) == []
    assert describe_failures(Fields(x, y=y, provenance=record)) == [
        "11 of 12 samples did not converge at first and were solved with safer settings: "
        "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, …",
        "1 of 12 samples did not converge, and another input was drawn: 7",
    ]


def test_pictures_of_samples(tmp_path: Path) -> None:
    make_darcy(2, tmp_path / "a.h5")
    words = ["data", "info", str(tmp_path / "a.h5"), "--plot", str(tmp_path / "a.png")]
    assert cli.run(words) == 0
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def channels(fields: Fields) -> list[str]:
    """The titles of the fields of the first sample that a picture shows."""
    figure = sample_gallery(fields)
    figure.savefig(io.BytesIO(), dpi=30)
    titles = [axis.get_title() for axis in figure.axes]
    return [title.removesuffix(", sample 0") for title in titles if title.endswith("sample 0")]


def test_pictures_of_lines_clouds_meshes_and_the_last_time() -> None:
    random = np.random.default_rng(0)
    line = Fields(np.linspace(0, 1, 7)[:, None], y=random.normal(size=(1, 7, 3)))
    assert channels(line) == ["y0", "y2"]
    sizes = (9, 12)
    cloud = Fields(
        [random.uniform(size=(n, 2)) for n in sizes],
        [random.normal(size=(n, 2)) for n in sizes],
        y=[random.normal(size=(n, 1)) for n in sizes],
    )
    assert channels(cloud) == ["u0", "u1", "y0"]
    deformed = Fields(
        np.stack(np.meshgrid(range(3), range(2), indexing="ij"), -1).reshape(-1, 2),
        u=random.uniform(size=(2, 6, 2)),
        y=random.normal(size=(2, 6, 1)),
        cells=np.array([[0, 1, 3, 2], [2, 3, 5, 4]]),
        geometry={"u": ["a", "b"]},
        names={"u": ["a", "b"]},
    )
    assert channels(deformed) == ["mesh", "y0"]  # a and b are where the nodes are
    times = np.stack(np.meshgrid(range(3), range(2), range(4), indexing="ij"), -1).reshape(-1, 3)
    block = Fields(times, y=random.normal(size=(1, 24, 1)), grid=(3, 2, 4))
    assert channels(block) == ["y0"]
    assert channels(Fields(times, y=random.normal(size=(1, 24, 1)))) == ["y0"]
    with pytest.raises(ValueError, match="expected 1 to 3 coordinates"):
        sample_gallery(Fields(random.uniform(size=(5, 4)), y=np.zeros((1, 5, 1))))
    with pytest.raises(ValueError, match="several points in one slice"):
        sample_gallery(Fields(random.uniform(size=(5, 3)), y=np.zeros((1, 5, 1))))
    with pytest.raises(ValueError, match="positions only"):
        sample_gallery(Fields(random.uniform(size=(5, 2))))


def test_the_data_set_of_a_protocol_is_made_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LNO_DATA", str(tmp_path))
    small = {"standard": Protocol(3, 2, {"grid": 29, "every": 4})}
    monkeypatch.setattr(Darcy, "protocols", small)
    train, test = datasets.dataset("darcy", device="cpu", show=False)
    assert (len(train), len(test)) == (3, 2)
    [path] = tmp_path.iterdir()
    written = path.stat().st_mtime_ns
    again, _ = datasets.dataset("darcy", device="cpu", show=False)
    assert path.stat().st_mtime_ns == written
    assert again.digest == train.digest
    with pytest.raises(ValueError, match="no problem 'stokes': expected one of darcy"):
        datasets.dataset("stokes")
    with pytest.raises(ValueError, match="no protocol 'tiny' of darcy: expected one of standard"):
        datasets.dataset("darcy", "tiny")
