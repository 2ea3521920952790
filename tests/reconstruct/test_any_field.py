"""From `lno train --task complete` to `lno reconstruct`: land, clouds, the sphere, covariates."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from command_line import lno
from scipy.io import netcdf_file

from lno import Completion, Fields, Operator, Reconstructor, cli
from lno.commands.reconstruct import _picture, reconstruct_file
from lno.data.domain import Domain
from lno.data.observe import RandomCount

LAT, LON = np.meshgrid(np.linspace(-60, 60, 7), np.arange(0, 360, 30), indexing="ij")
GRID = np.stack((LAT, LON), -1).reshape(-1, 2)
LAND = (GRID[:, 0] > 10) & (GRID[:, 1] < 100)
SIZES = [w for s in ("width=8", "latents=4", "blocks=1") for w in ("--set", s)]


def ocean(samples: int = 120, clouds: bool = False) -> Fields:
    """Temperatures that are warmer in some months, without land, elevation as a covariate."""
    random = np.random.default_rng(0)
    month, phase = random.integers(1, 4, samples).astype(float), random.uniform(0, 6, samples)
    up, around = np.deg2rad(GRID).T
    values = np.sin(up) + 5 * month[:, None] + np.cos(up) * np.cos(around + phase[:, None])
    x, sea = np.column_stack((GRID, np.cos(up))), np.flatnonzero(~LAND)
    there = [sea] * samples
    if clouds:
        there = [
            np.sort(random.choice(sea, len(sea) - k % 9, replace=False)) for k in range(samples)
        ]
    named = {"x": ["lat", "lon", "depth"], "y": ["T"], "parameters": ["month"]}
    same = {"grid": (7, 12), "space": 2, "parameters": month[:, None], "names": named}
    if not clouds:
        return Fields(x[sea], y=values[:, sea, None], grid_index=sea, **same)
    y = [values[k, i, None] for k, i in enumerate(there)]
    return Fields([x[i] for i in there], y=y, grid_index=there, **same)


@pytest.fixture(scope="module", params=[False, True], ids=["land", "clouds"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ocean")
    ocean(clouds=request.param).save(folder / "ocean.h5")
    words = ["train", folder / "ocean.h5", "--task", "complete", "--observe", "0.1:0.3"]
    words += ["--members", 2, "--sphere", "lat,lon", "--background", "climatology:month"]
    words += ["--epochs", 2, *SIZES, "--device", "cpu", "--out", folder / "run"]
    assert cli.run([str(word) for word in words]) == 0
    return folder


def sensors(folder: Path, columns: str = "lat,lon,T,month") -> tuple[Path, np.ndarray]:
    """A file of sensors, with longitudes from −180 to 180, and the field that they observe."""
    truth = ocean(samples=121)[120]
    chosen = np.random.default_rng(1).choice(len(truth.x), 14, replace=False)
    month = float(truth.parameters[0])
    lines = [columns]
    for lat, lon, depth, value in np.column_stack((truth.x, truth.y))[chosen]:
        row = {"lat": lat, "lon": (lon + 180) % 360 - 180, "depth": depth, "T": value}
        lines.append(",".join(str((row | {"month": month})[name]) for name in columns.split(",")))
    path = folder / "sensors.csv"
    path.write_text("\n".join(lines))
    field = np.full(84, np.nan)
    field[truth.grid_index] = truth.y[:, 0]
    return path, field.reshape(7, 12)


def test_a_field_with_land_is_reconstructed_with_bounds(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, truth = sensors(run)
    words = ("--model", run / "run", "--device", "cpu", "--bounds", 0.9)
    lno(capsys, "reconstruct", path, "--out", run / "field.nc", *words)
    with netcdf_file(run / "field.nc", mmap=False) as file:
        found = {name: variable[:].copy() for name, variable in file.variables.items()}
        assert file.variables["T"].dimensions == ("lat", "lon")
    assert np.allclose(found["lat"], LAT[:, 0]) and np.allclose(found["lon"], LON[0])
    sea = ~LAND.reshape(7, 12)
    assert np.array_equal(np.isnan(found["T"]), ~sea)
    error = np.abs(found["T"] - truth)[sea]
    assert error.mean() < 0.5  # the months differ by 5: the climatology is applied
    inside = (found["lower"] <= truth) & (truth <= found["upper"])
    assert inside[sea].mean() > 0.6  # one field of the kind that 90 % are promised for on average
    lno(capsys, "reconstruct", path, "--out", run / "field.csv", *words)
    table = np.genfromtxt(run / "field.csv", delimiter=",", names=True)
    assert np.allclose(table["T"], found["T"][sea], atol=1e-5) and len(table) == sea.sum()


def test_a_field_with_land_is_drawn_with_north_above(run: Path) -> None:
    path, truth = sensors(run)
    done = {"model": run / "run", "device": "cpu"}
    found = reconstruct_file(path, run / "field.npz", plot=run / "field.png", **done)
    assert (run / "field.png").stat().st_size > 1000
    reconstructor = Reconstructor.load(run / "run", "cpu")
    rows = np.flip(found.axes[0]), *found.axes[1:]
    upside_down = {name: np.flip(getattr(found, name), 0) for name in ("mean", "lower", "upper")}
    at, there = np.array([[0.0, 200.0]]), np.ones(1)
    for one in (found, replace(found, axes=rows, **upside_down)):
        field, width = (axis.images[0] for axis in _picture(reconstructor, one, at, there).axes[:2])
        assert field.get_extent() == [0.0, 360.0, -60.0, 60.0] and field.origin == "lower"
        assert np.array_equal(field.get_array().filled(np.nan), found.mean, equal_nan=True)
        low, high = field.get_clim()
        assert low <= np.nanmin(truth) + 1 and np.nanmax(found.mean) <= high < 40
        assert width.get_clim()[1] == np.nanmax(found.upper - found.lower)


def test_scattered_stations_are_drawn(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    x, phase = random.uniform(size=(40, 2)), random.uniform(0, 6, size=(12, 1, 1))
    data = Fields(x, y=np.sin(3 * x[:, :1] + phase), names={"x": ["x", "y"], "y": ["T"]})
    task, config = Completion(RandomCount(9)), {"width": 8, "latents": 4, "blocks": 1, "heads": 2}
    keys = {"epochs": 1, "config": config, "progress": False, "device": "cpu"}
    made = Operator.fit(data, task=task, conditional=True, **keys)
    found = (whole := Reconstructor(made, where=Domain.of(data)))(x[:5], data[0].y[:5])
    figure = _picture(whole, found, x[:5], np.asarray(data[0].y)[:5, 0])
    assert figure.axes[0].get_title() == "T from 5 sensors"


def test_covariates_and_parameters_may_come_from_elsewhere(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fields = []
    month = float(ocean(samples=121)[120].parameters[0])
    for columns, more in (
        ("lat,lon,T,month", ()),
        ("lat,lon,depth,T,month", ()),
        ("lat,lon,T", ("--parameter", f"month={month}")),
    ):
        path, _ = sensors(run, columns)
        out = ("--out", run / "field.npz", "--model", run / "run", "--device", "cpu", *more)
        lno(capsys, "reconstruct", path, *out)
        fields.append(np.load(run / "field.npz")["T"])
    assert np.allclose(fields[0], fields[1], equal_nan=True)
    assert np.allclose(fields[0], fields[2], equal_nan=True)


@pytest.mark.parametrize(
    ("columns", "more", "message"),
    [
        ("lat,lon,T", (), "expected the columns lat, lon, T, month"),
        ("lat,lon,T", ("--parameter", "month=9"), "month = 9: the climatology"),
        ("lat,lon,T", ("--parameter", "year=9"), "the parameters of this model are month"),
        ("lat,lon,T", ("--parameter", "month=may"), "expected a number"),
        ("lat,lon,T,month", ("--bounds", "0.5"), "the model is calibrated for 0.9"),
        ("lat,lon,T,month", ("--out", "field.mat"), "field.mat: expected a name ending in .vtu"),
    ],
)
def test_mistakes_of_sensors_are_said(
    run: Path,
    columns: str,
    more: tuple[str, ...],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path, _ = sensors(run, columns)
    words = ["reconstruct", str(path), "--model", str(run / "run"), "--device", "cpu"]
    out = [] if "--out" in more else ["--out", str(run / "field.npz")]
    assert cli.run([*words, *out, *more]) == 1
    assert message in capsys.readouterr().err


def test_the_folder_of_a_run_keeps_its_promise_on_other_fields(run: Path) -> None:
    reconstructor = Reconstructor.load(run / "run", "cpu")
    assert reconstructor.calibration is not None and reconstructor.calibration.level == 0.9
    clouds = Fields.load(run / "ocean.h5").is_ragged
    assert clouds or reconstructor.grid == (7, 12)
    others = ocean(240, clouds=clouds).subset(np.arange(120, 240))
    found = reconstructor.coverage(others, [RandomCount(8)])
    assert found["all"] > 0.8


def test_points_of_another_domain_are_refused(run: Path) -> None:
    domain = Domain.load(run / "run" / "domain.h5")
    assert len(domain.points) == (~LAND).sum() and domain.weights is not None
    other = Fields(GRID[:5], y=np.zeros((1, 5, 1)))
    with pytest.raises(ValueError, match="expected points of the domain"):
        domain.locate(other, 0)
    assert Domain.of(Fields([GRID[:3], GRID[:4]], y=[np.zeros((3, 1)), np.zeros((4, 1))])) is None
