"""`lno data import` and `lno data check`, on a table of stations and on data made by others."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from command_line import Run
from plates import long_columns, same, write_csv

from lno import Fields

# Published data, which are not part of the project; see the table in docs/data.md.
PUBLISHED = Path(os.environ.get("LNO_PUBLISHED", Path(__file__).parents[3] / "shared" / "data"))


def published(name: str) -> Path:
    path = PUBLISHED / name
    if not path.exists():
        pytest.skip(f"needs {name}: set LNO_PUBLISHED to its folder")
    return path


def test_import_prints_what_was_understood_and_draws_it(tmp_path: Path, run: Run) -> None:
    path = write_csv(tmp_path / "a.csv", long_columns())
    done = run("data", "import", path, "--out", tmp_path / "my.h5", "--outputs", "T", "--plot")
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert ["outputs", "T", "35", "row"] in [line[:4] for line in lines]
    assert ["sample", "(guessed)", "case", "35"] in lines
    assert ["not", "used", "a", "35", "row"] in lines
    assert "5 samples, one for each value of case" in done.stdout
    assert (tmp_path / "my.png").read_bytes().startswith(b"\x89PNG")
    assert len(Fields.load(tmp_path / "my.h5")) == 5
    assert "data check" in done.stdout


def test_options_are_those_of_python(tmp_path: Path, run: Run) -> None:
    path = write_csv(tmp_path / "a.csv", long_columns())
    words = ["--positions", "x,y", "--inputs", "a", "--outputs", "T", "--parameters", "Re"]
    words += ["--log", "Re", "--units", "T=K,x=m", "--units", "y=m", "--period", "x=2"]
    done = run("data", "import", path, "--out", tmp_path / "my.h5", *words, "--shuffle", "3")
    assert done.returncode == 0, done.stderr
    expected = Fields.from_files(
        path,
        positions=["x", "y"],
        inputs="a",
        outputs="T",
        parameters="Re",
        log="Re",
        units={"T": "K", "x": "m", "y": "m"},
        period={"x": 2},
    )
    found = Fields.load(tmp_path / "my.h5")
    assert same(found, expected.shuffle(3))
    assert found.provenance["import"]["shuffled, seed"] == 3


def test_a_picture_that_cannot_be_drawn_does_not_lose_the_data(tmp_path: Path, run: Run) -> None:
    random = np.random.default_rng(0)
    np.savez(tmp_path / "a.npz", x=random.random((5, 4)), y=random.random((3, 5, 1)))
    words = ("--positions", "x:a,b,c,d", "--outputs", "y", "--plot")
    done = run("data", "import", tmp_path / "a.npz", "--out", tmp_path / "my.h5", *words)
    assert done.returncode == 0
    assert "no picture: cannot draw fields over a, b, c, d" in done.stderr
    assert (tmp_path / "my.h5").exists() and not (tmp_path / "my.png").exists()


def test_varying_geometry(tmp_path: Path, run: Run) -> None:
    path, out = published("holed_poisson.npz"), tmp_path / "holed.h5"
    words = ["--positions", "positions:x,y", "--outputs", "values:u", "--cells", "triangles"]
    words += ["--parameters", "parameters:cx,cy"]
    assert run("data", "import", path, "--out", out, *words).returncode == 0
    fields, arrays = Fields.load(out), np.load(path)
    assert np.array_equal(fields.x, arrays["positions"])
    assert np.array_equal(fields.cells, arrays["triangles"])
    assert same(fields.replace(names={}), Fields.from_files(path).replace(names={}))  # guessed
    done = run("data", "check", out)
    said = " ".join(done.stdout.split())
    assert "sorted by the parameter 'cx' (rank correlation 1.00)" in said


def test_grids_of_images(tmp_path: Path, run: Run) -> None:
    path = published("darcy_small.npz")
    coarse, fine = (
        Fields.from_files(
            path,
            inputs=f"test_{n}_coefficient",
            outputs=f"test_{n}_solution",
            grid="no-endpoint",
        )
        for n in (16, 32)
    )
    at = {tuple(x): k for k, x in enumerate(fine.x)}
    shared = [at[tuple(x)] for x in coarse.x]
    assert np.array_equal(fine.y[:, shared], coarse.y)  # so the points are those of no-endpoint
    words = ["--inputs", "train_16_coefficient:a", "--outputs", "train_16_solution:p"]
    done = run("data", "import", path, "--out", tmp_path / "a.h5", *words)
    assert "along x and y all samples have the same outputs at the first points" in done.stdout
    done = run("data", "import", path, "--out", tmp_path / "a.h5")
    assert "cannot tell what is to be learned" in done.stderr


def test_a_grid_in_time_with_missing_land(tmp_path: Path, run: Run) -> None:
    path, out = published("sea_surface_temperature.npz"), tmp_path / "sst.h5"
    words = ["--outputs", "sst", "--axes", "lat,lon", "--sample", "month", "--period", "lon=360"]
    assert run("data", "import", path, "--out", out, *words).returncode == 0
    fields, sst = Fields.load(out), np.load(path)["sst"]
    assert same(fields, Fields.from_files(path))  # guessed
    whole = np.full(sst.shape, np.nan, np.float32).reshape(len(sst), -1)
    whole[:, fields.grid_index[:, 0]] = fields.y[..., 0]
    assert np.array_equal(whole.reshape(sst.shape), sst, equal_nan=True)
    assert (fields.grid, fields.period) == ((73, 144), (None, 360.0))
    alike = "samples next to each other are more alike than random pairs"
    assert alike in " ".join(run("data", "check", out).stdout.replace("│", "").split())


def test_a_time_series_with_its_month_and_its_split(tmp_path: Path, run: Run) -> None:
    path, out = published("sea_surface_temperature.npz"), tmp_path / "sst.h5"
    words = ["--outputs", "sst", "--axes", "lat,lon", "--sample", "month", "--parameters", "month"]
    words += ["--period", "lon=360,month=12", "--split", "349,60,85"]
    done = run("data", "import", path, "--out", out, *words)
    assert "- month: modulo 12, 0 to 11" in done.stdout
    assert "- split in this order: 349 train, 60 validation, 85 test samples" in done.stdout
    fields = Fields.load(out)
    assert np.array_equal(fields.parameters[:, 0], np.load(path)["month"] % 12)
    assert "next to each" not in run("data", "check", out).stdout
