"""Which axes are samples, points and channels; what is guessed; and what becomes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from plates import EXPECTED, LAT, LON, NODES, RE, SST, A, N, S, T, same, stacked, write_csv

import lno
from lno import Fields
from lno.data.importing import Imported, import_files

RANDOM = np.random.default_rng(2)


def imported(path: Path, arrays: dict[str, Any], **how: Any) -> Imported:
    np.savez(path / "a.npz", **arrays)
    return import_files(path / "a.npz", **how)


def read_as(done: Imported) -> dict[str, str]:
    """What each variable was read as, with its axes."""
    return {row[1]: f"{row[0]}: {row[3]}".rstrip(": ") for row in done.table}


def test_names_that_leave_no_doubt_are_guessed(tmp_path: Path) -> None:
    done = imported(tmp_path, {"positions": NODES, "u": A, "y": T, "parameters": RE, "note": "b"})
    assert read_as(done) == {
        "positions": "positions (guessed): points, channels",
        "u": "inputs (guessed): samples, points",
        "y": "outputs (guessed): samples, points",
        "parameters": "parameters (guessed): samples",
        "note": "not used",
    }
    done = imported(tmp_path, {"x": NODES, "a": A, "u": T})
    assert read_as(done)["a"].startswith("inputs")
    assert read_as(done)["u"].startswith("outputs")


def test_what_is_to_be_learned_is_not_completed(tmp_path: Path) -> None:
    arrays = {"positions": NODES, "u": A, "y": T, "parameters": RE}
    done = imported(tmp_path, arrays, outputs="y")
    assert read_as(done)["u"] == read_as(done)["parameters"] == "not used"
    assert done.fields.spec.in_channels == 0


@pytest.mark.parametrize(
    ("grid", "at"),
    [
        ("endpoints", [0, 0.5, 1]),
        ("no-endpoint", [0, 1 / 3, 2 / 3]),
        ("centres", [1 / 6, 0.5, 5 / 6]),
    ],
)
def test_grids_without_coordinates(grid: str, at: list[float], tmp_path: Path) -> None:
    done = imported(tmp_path, {"a": SST[:, 2], "u": SST[:, 2] + 1}, grid=grid)
    assert done.fields.grid == (4,)
    done = imported(
        tmp_path, {"a": np.ones((S, 3, 3)), "u": RANDOM.normal(size=(S, 3, 3))}, grid=grid
    )
    assert np.allclose(done.fields.x, lno.grid((3, 3), points=grid))
    assert np.allclose(done.fields.x[:3, 1], at)
    [said] = [note for note in done.notes if "unit square" in note]
    words = {"endpoints": "both ends included", "no-endpoint": "without the upper end"}
    assert words.get(grid, "the centres of equal cells") in said


def test_a_grid_that_lacks_its_upper_end_is_suspected(tmp_path: Path) -> None:
    full = lno.grid((17, 17)).reshape(17, 17, 2)
    bump = np.sin(np.pi * full).prod(-1) * RANDOM.uniform(1, 2, (S, 1, 1))
    hint = "the grid lacks its upper end (grid: no-endpoint)"
    cut = imported(tmp_path, {"u": bump[:, :-1:4, :-1:4]}, outputs="u")
    assert any(hint in note and "along x and y" in note for note in cut.notes)
    whole = imported(tmp_path, {"u": bump[:, ::4, ::4]}, outputs="u")
    assert not any(hint in note for note in whole.notes)


@pytest.mark.parametrize("order", ["lat,lon", "lon,lat"])
def test_axes_are_found_by_their_lengths(order: str, tmp_path: Path) -> None:
    arrays = {"sst": np.nan_to_num(SST), "lat": LAT, "lon": LON}
    fields = imported(tmp_path, arrays, outputs="sst", axes=order).fields
    by_place = {tuple(np.round(x, 3)): v for x, v in zip(fields.x, fields.y[2, :, 0], strict=True)}
    place = (30.0, 90.0) if order == "lat,lon" else (90.0, 30.0)
    assert by_place[place] == SST[2, 2, 1]
    assert fields.grid == ((3, 4) if order == "lat,lon" else (4, 3))


def test_deformed_grids(tmp_path: Path) -> None:
    x, y, q = RANDOM.normal(size=(3, S, 4, 5))
    fields = imported(tmp_path, {"x": x, "y": y, "q": q}, positions="x,y", outputs="q").fields
    assert fields.grid == (4, 5)
    assert np.array_equal(fields.x[2], np.stack((x[2].ravel(), y[2].ravel()), 1))
    one = imported(tmp_path, {"x": x[0], "y": y[0], "q": q}, positions="x,y", outputs="q").fields
    assert one.x.shape == (20, 2) and one.grid == (4, 5)


def test_an_input_that_all_samples_share_or_that_lacks_an_axis(tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    w, start = RANDOM.normal(size=(S, 3, 2)), RANDOM.normal(size=(S, 3))
    slope = RANDOM.normal(size=3)
    data = xarray.Dataset(
        {"w": (("run", "x", "t"), w), "start": (("run", "x"), start), "slope": ("x", slope)},
        {"x": np.arange(3.0), "t": np.arange(2.0)},
    )
    names = {"inputs": "start", "outputs": "w", "covariates": "slope", "time": "t", "axes": "x"}
    fields = Fields.from_xarray(data, sample="run", **names)
    assert np.array_equal(fields.u.reshape(S, 3, 2), np.repeat(start[..., None], 2, -1))
    assert (fields.names["x"], fields.space) == (["x", "t", "slope"], 2)
    assert np.array_equal(fields.x[::2, 2], slope)


def test_each_file_is_a_sample(tmp_path: Path) -> None:
    images = RANDOM.normal(size=(S, 4, 5))
    for k, image in enumerate(images):
        np.savez(tmp_path / f"{k}.npz", u=image, Re=RE[k])
    pattern = str(tmp_path / "?.npz")
    done = import_files(pattern, outputs="u", parameters="Re", sample="file")
    assert np.array_equal(done.fields.y.reshape(S, 4, 5), images)
    assert np.array_equal(done.fields.parameters[:, 0], RE)
    assert done.fields.grid == (4, 5)
    assert f"{S} samples, one for each file" in done.notes


def test_samples_in_several_files(tmp_path: Path) -> None:
    for k, part in enumerate((slice(0, 2), slice(2, S))):
        arrays = stacked() | {"a": A[part], "T": T[part], "Re": RE[part]}
        np.savez(tmp_path / f"{k}.npz", **arrays)
    names = {"positions": "nodes:x,y", "inputs": "a", "outputs": "T", "parameters": "Re"}
    assert same(Fields.from_files(str(tmp_path / "?.npz"), **names))


def test_points_of_a_table_that_form_a_grid(tmp_path: Path) -> None:
    x, y = (v.ravel() for v in np.meshgrid(np.arange(3.0), np.arange(4.0)))  # x varies fastest
    values = RANDOM.normal(size=(2, 12))
    columns = {name: np.tile(v, 2) for name, v in (("x", x), ("y", y))}
    path = write_csv(
        tmp_path / "a.csv", {"run": np.repeat([0, 1], 12), **columns, "T": values.ravel()}
    )
    done = import_files(path)
    assert done.fields.grid == (3, 4)
    assert np.array_equal(
        done.fields.y.reshape(2, 3, 4), values.reshape(2, 4, 3).transpose(0, 2, 1)
    )
    assert "the points form a grid 3 × 4, and were put in its order" in done.notes


def test_time_in_tables(tmp_path: Path) -> None:
    t, x = (v.ravel() for v in np.meshgrid(range(2), range(3), indexing="ij"))
    values = RANDOM.normal(size=(2, 6))
    columns = {"t": np.tile(t, 2), "x": np.tile(x, 2), "u": values.ravel()}
    path = write_csv(tmp_path / "a.csv", {"run": np.repeat([0, 1], 6), **columns})
    fields = import_files(path).fields  # a column of samples: time is a coordinate
    assert fields.names["x"] == ["x", "t"] and fields.grid == (3, 2)
    assert np.array_equal(fields.y.reshape(2, 3, 2), values.reshape(2, 2, 3).transpose(0, 2, 1))
    path = write_csv(tmp_path / "b.csv", {"time": t, "x": x, "u": values[0]})
    fields = import_files(path).fields  # nothing else tells samples apart: every time is one
    assert np.array_equal(fields.y[..., 0], values[0].reshape(2, 3))


def test_time_is_guessed_where_samples_are_known(tmp_path: Path) -> None:
    w = RANDOM.normal(size=(S, 2, 3, 4))
    axes = {"t": np.arange(2.0), "x": np.arange(3.0), "y": np.arange(4.0)}
    done = imported(tmp_path, {"w": w, **axes})
    assert done.fields.names["x"] == ["x", "y", "t"] and done.fields.grid == (3, 4, 2)
    assert read_as(done)["t"] == "time (guessed): t"
    xarray = pytest.importorskip("xarray")
    data = xarray.Dataset({"w": (("run", "t", "x", "y"), w)}, axes)
    assert same(Fields.from_xarray(data), done.fields)


def test_logarithms_are_recorded(tmp_path: Path) -> None:
    k = np.exp(A)
    arrays = {"nodes": NODES, "k": k, "T": np.exp(T), "first": np.exp(T) * 2, "Re": RE}
    how = {"inputs": "k", "outputs": "T", "parameters": "Re", "background": "first"}
    done = imported(tmp_path, arrays, positions="nodes", log="k,Re,T", units="k=m2,T=K", **how)
    fields = done.fields
    assert np.allclose(fields.u[..., 0], A) and np.allclose(fields.parameters[:, 0], np.log(RE))
    assert np.allclose(fields.background - fields.y, np.log(2))
    assert fields.names["u"] == ["log(k)"] and fields.names["parameters"] == ["log(Re)"]
    assert fields.units["u"] == ["log(m2)"] and fields.units["y"] == ["log(K)"]
    assert fields.provenance["import"]["natural logarithm of"] == ["k", "Re", "T"]
    assert any("predictions of it are logarithms too" in note for note in done.notes)


def test_weights_background_period_and_units(tmp_path: Path) -> None:
    arrays = stacked() | {"area": np.arange(1.0, N + 1), "guess": T[..., None] + 1}
    how = {"positions": "nodes:x,y", "inputs": "a", "outputs": "T", "parameters": "Re"}
    fields = imported(
        tmp_path, arrays, weights="area", background="guess", period="y=1", units="T=K,Re=1", **how
    ).fields
    expected = EXPECTED.replace(
        weights=np.arange(1.0, N + 1),
        background=T[..., None] + 1,
        period=(None, 1.0),
        units={"y": ["K"], "parameters": ["1"]},
    )
    assert same(fields, expected)


@pytest.mark.parametrize("first", [0, 1])
def test_cells_may_be_counted_from_one(first: int, tmp_path: Path) -> None:
    cells = np.array([[0, 1, 2], [4, 5, 6]]) + first
    arrays = {"nodes": NODES, "T": T, "triangles": cells}
    fields = imported(tmp_path, arrays, outputs="T").fields
    assert fields.cells.tolist() == [[0, 1, 2], [4, 5, 6]]


def test_the_names_of_columns(tmp_path: Path) -> None:
    arrays = {"nodes": NODES, "v": RANDOM.normal(size=(S, N, 2)), "p": T}
    fields = imported(tmp_path, arrays, outputs=["p", "v"]).fields
    assert fields.names["y"] == ["p", "v0", "v1"]
    fields = imported(tmp_path, arrays, outputs="p,v:vx,vy").fields
    assert fields.names["y"] == ["p", "vx", "vy"]
    assert np.array_equal(fields.y[..., 1:], arrays["v"])


def test_the_provenance_says_where_data_come_from(tmp_path: Path) -> None:
    done = imported(tmp_path, stacked(), outputs="T", inputs=["a"], period={"x": 1})
    origin = done.fields.provenance["import"]
    assert origin["files"] == ["a.npz"] and len(origin["sha256"]) == 64
    assert origin["arguments"] == {"outputs": "T", "inputs": ["a"], "period": {"x": 1}}
    done.fields.save(tmp_path / "a.h5")
    assert Fields.load(tmp_path / "a.h5").provenance == done.fields.provenance
