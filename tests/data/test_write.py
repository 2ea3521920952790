"""Results for other programs: what is read back is what was written, where it was."""

from __future__ import annotations

import csv
import resource
import signal
import tracemalloc
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import netcdf_file

import lno
from lno import Fields
from lno.data import tables
from lno.data.domain import Domain
from lno.data.exports import netcdf, vtu


def grid(*shape: int) -> np.ndarray:
    sides = [np.linspace(0, k + 1, n) for k, n in enumerate(shape)]
    return np.stack(np.meshgrid(*sides, indexing="ij"), -1).reshape(-1, len(shape))


def plate(samples: int = 1, **changes: Any) -> Fields:
    """Pressure and temperature on a deformed grid of 5 × 4 nodes."""
    x = grid(5, 4)
    nodes = x + 0.1 * np.sin(3 * x[:, ::-1])
    y = np.random.default_rng(0).normal(size=(samples, 20, 2)).astype(np.float32)
    given = {
        "u": np.repeat(nodes[None], samples, 0),
        "y": y,
        "grid": (5, 4),
        "geometry": {"u": ["X", "Y"]},
        "names": {"x": ["a", "b"], "u": ["X", "Y"], "y": ["p", "T"]},
        "units": {"x": ["m", "m"], "u": ["m", "m"], "y": ["Pa", "K"]},
        "frame": "a plate",
    }
    return Fields(x, **(given | changes))


def read_vtu(path: Path) -> dict[str, np.ndarray]:
    """All arrays of a VTU file, by an independent reading of its layout."""
    head, _, rest = path.read_bytes().partition(b'<AppendedData encoding="raw">\n_')
    root = ET.fromstring(head + b"<AppendedData/></VTKFile>")
    assert root.get("byte_order") == "LittleEndian" and root.get("header_type") == "UInt64"
    kinds = {"Float32": "<f4", "Float64": "<f8", "Int64": "<i8", "UInt8": "u1"}
    found, end = {}, 0
    for array in root.iter("DataArray"):
        start = int(array.get("offset", ""))
        size = int.from_bytes(rest[start : start + 8], "little")
        values = np.frombuffer(rest[start + 8 : start + 8 + size], kinds[array.get("type", "")])
        columns = int(array.get("NumberOfComponents", "1"))
        found[array.get("Name", "")] = values.reshape(-1, columns) if columns > 1 else values
        end = max(end, start + 8 + size)
    assert rest[end:] == b"\n</AppendedData>\n</VTKFile>\n"
    piece = root.find("UnstructuredGrid/Piece")
    assert piece is not None
    assert int(piece.get("NumberOfPoints", "")) == len(found["Points"])
    assert int(piece.get("NumberOfCells", "")) == len(found["types"]) == len(found["offsets"])
    return found


def area(points: np.ndarray, quads: np.ndarray) -> float:
    x, y = points[quads][..., 0], points[quads][..., 1]
    return float(np.abs((x * np.roll(y, -1, 1) - y * np.roll(x, -1, 1)).sum(1)).sum() / 2)


# -- VTU -------------------------------------------------------------------------------------------


def test_a_mesh_file_has_the_nodes_where_they_are_and_values_as_they_were(tmp_path: Path) -> None:
    data = plate()
    lno.write(tmp_path / "a.vtu", data)
    found = read_vtu(tmp_path / "a.vtu")
    np.testing.assert_array_equal(found["Points"][:, :2], data.geometry_of(0))
    assert not found["Points"][:, 2].any()
    for c, name in enumerate("pT"):
        assert found[name].dtype == np.float32
        np.testing.assert_array_equal(found[name], data[0].y[:, c])
    quads = found["connectivity"].reshape(-1, 4)
    assert set(found["types"]) == {9} and found["offsets"].tolist() == list(range(4, 52, 4))
    flat = Fields(grid(5, 4), y=np.ones((1, 20, 1)), grid=(5, 4))
    lno.write(tmp_path / "flat.vtu", flat)
    assert area(read_vtu(tmp_path / "flat.vtu")["Points"], quads) == pytest.approx(2)


@pytest.mark.parametrize(("corners", "kind"), [(3, 5), (4, 9)])
def test_cells_of_the_data_come_before_those_of_a_grid(
    corners: int, kind: int, tmp_path: Path
) -> None:
    cells = np.array([[0, 1, 5, 4], [1, 2, 6, 5]])[:, :corners]
    lno.write(tmp_path / "a.vtu", plate(cells=cells))
    found = read_vtu(tmp_path / "a.vtu")
    np.testing.assert_array_equal(found["connectivity"].reshape(-1, corners), cells)
    assert found["types"].tolist() == [kind, kind]


def test_points_without_cells_are_vertices_and_volumes_hexahedra(tmp_path: Path) -> None:
    x = grid(3, 4, 2)
    lno.write(tmp_path / "points.vtu", x, {"p": x[:, 0]})
    found = read_vtu(tmp_path / "points.vtu")
    assert set(found["types"]) == {1} and found["connectivity"].tolist() == list(range(24))
    np.testing.assert_array_equal(found["Points"], x)
    lno.write(tmp_path / "volume.vtu", x, {"p": x[:, 0]}, grid=(3, 4, 2))
    found = read_vtu(tmp_path / "volume.vtu")
    cells = found["connectivity"].reshape(-1, 8)
    assert set(found["types"]) == {12} and len(cells) == 2 * 3 * 1
    low, high = x[cells].min(1), x[cells].max(1)
    assert np.prod(high - low, axis=1).sum() == pytest.approx(1 * 2 * 3)
    lno.write(tmp_path / "line.vtu", x[:6, :1], x[:6, :1], grid=(6,))
    assert set(read_vtu(tmp_path / "line.vtu")["types"]) == {3}


def test_a_grid_with_gaps_has_cells_between_the_points_that_there_are(tmp_path: Path) -> None:
    kept = np.delete(np.arange(20), [0, 9])
    x = grid(5, 4)[kept]
    data = Fields(x, y=x[None, :, :1], grid=(5, 4), grid_index=kept)
    lno.write(tmp_path / "a.vtu", data)
    found = read_vtu(tmp_path / "a.vtu")
    quads = found["connectivity"].reshape(-1, 4)
    assert area(found["Points"], quads) == pytest.approx(2 * (12 - 1 - 4) / 12)


def test_names_and_units_are_any_text(tmp_path: Path) -> None:
    odd = plate(
        names={"x": ["a", "b"], "u": ["X", "Y"], "y": ['<p & "q">', "X"]},
        units={"y": ["<°C>", "\x1b[31m"]},
    )
    lno.write(tmp_path / "a.vtu", odd)
    assert {'<p & "q">', "X_2"} <= set(read_vtu(tmp_path / "a.vtu"))


def test_a_mesh_is_written_in_parts_of_bounded_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lno.write(tmp_path / "one.vtu", plate())
    with monkeypatch.context() as patch:
        patch.setattr(vtu, "PART", 7)
        lno.write(tmp_path / "many.vtu", plate())
    assert (tmp_path / "one.vtu").read_bytes() == (tmp_path / "many.vtu").read_bytes()
    peaks = []
    for n in (500, 1000):
        x = grid(n, n).astype(np.float32)
        tracemalloc.start()
        lno.write(tmp_path / "a.vtu", x, x[:, :1], grid=(n, n))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.2 * peaks[0]  # four times the nodes


# -- NetCDF ----------------------------------------------------------------------------------------


def test_a_regular_grid_has_named_axes(tmp_path: Path) -> None:
    data = plate(samples=3, geometry=None)
    lno.write(tmp_path / "a.nc", data)
    with netcdf_file(tmp_path / "a.nc", mmap=False) as file:
        p = file.variables["p"]
        assert p.dimensions == ("sample", "a", "b") and p.units == b"Pa"
        np.testing.assert_array_equal(p[:], np.asarray(data.y)[..., 0].reshape(3, 5, 4))
        np.testing.assert_allclose(file.variables["b"][:], np.linspace(0, 2, 4))
        assert file.variables["b"].units == b"m" and file.frame == b"a plate"


def test_nodes_of_a_deformed_grid_are_coordinates_of_its_points(tmp_path: Path) -> None:
    data = plate()
    lno.write(tmp_path / "a.nc", data)
    moved = data.geometry_of(0)
    lno.write(tmp_path / "b.nc", moved, data[0].y, grid=(5, 4), names={"x": ["X", "Y"]})
    for name, dimensions, value in (("a.nc", ("a", "b"), "p"), ("b.nc", ("i", "j"), "y0")):
        with netcdf_file(tmp_path / name, mmap=False) as file:
            assert file.variables[value].dimensions == dimensions
            assert file.variables[value].coordinates == b"X Y"
            np.testing.assert_array_equal(file.variables["Y"][:], moved[:, 1].reshape(5, 4))


def test_gaps_of_a_grid_are_nan_and_other_points_a_list(tmp_path: Path) -> None:
    kept = np.delete(np.arange(20), [0, 9])
    x, values = grid(5, 4)[kept], np.arange(18.0)
    data = Fields(x, y=values[None, :, None], grid=(5, 4), grid_index=kept)
    lno.write(tmp_path / "a.nc", data)
    with netcdf_file(tmp_path / "a.nc", mmap=False) as file:
        flat = file.variables["y0"][:].ravel()
        np.testing.assert_array_equal(flat[kept], values)
        assert np.isnan(flat[[0, 9]]).all() and file.variables["y0"].dimensions == ("x0", "x1")
    lno.write(tmp_path / "b.nc", Fields(x, y=values[None, :, None]))
    with netcdf_file(tmp_path / "b.nc", mmap=False) as file:
        assert file.variables["y0"].dimensions == ("point",)
        np.testing.assert_array_equal(file.variables["x1"][:], x[:, 1])


def test_rows_of_a_grid_without_any_point_keep_their_coordinates(tmp_path: Path) -> None:
    """As at a pole on land: the axis goes on, and the row is NaN."""
    kept = np.arange(4, 16)  # of five rows, the first and the last are missing
    data = Fields(grid(5, 4)[kept], y=np.ones((1, 12, 1)), grid=(5, 4), grid_index=kept)
    lno.write(tmp_path / "a.nc", data)
    with netcdf_file(tmp_path / "a.nc", mmap=False) as file:
        assert file.variables["y0"].dimensions == ("x0", "x1")
        np.testing.assert_allclose(file.variables["x0"][:], grid(5, 4)[::4, 0], atol=1e-12)
        assert np.isnan(file.variables["y0"][:]).any(1).tolist() == [True, *[False] * 3, True]
    domain = Domain.of(data)
    assert domain is not None
    np.testing.assert_allclose(domain.axes()[0], grid(5, 4)[::4, 0], atol=1e-12)
    np.testing.assert_allclose(data.to_xarray()["x0"], grid(5, 4)[::4, 0], atol=1e-12)
    row = np.arange(4)
    one_row = Fields(grid(5, 4)[row], y=np.ones((1, 4, 1)), grid=(5, 4), grid_index=row)
    lno.write(tmp_path / "b.nc", one_row)
    with netcdf_file(tmp_path / "b.nc", mmap=False) as file:
        assert file.variables["y0"].dimensions == ("point",)  # one row tells no step


def test_covariates_are_values_on_the_grid(tmp_path: Path) -> None:
    x = np.hstack((grid(5, 4), np.random.default_rng(0).normal(size=(20, 1))))
    lno.write(tmp_path / "a.nc", Fields(x, y=x[None, :, :1], grid=(5, 4), space=2))
    with netcdf_file(tmp_path / "a.nc", mmap=False) as file:
        assert file.variables["x2"].dimensions == ("x0", "x1")
        np.testing.assert_array_equal(file.variables["x2"][:].ravel(), x[:, 2])


def test_what_netcdf_cannot_hold_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(netcdf, "LARGEST", 79)
    with pytest.raises(ValueError, match=r"at most 2 GiB.*write a \.h5 or \.npz file"):
        lno.write(tmp_path / "a.nc", plate())
    assert not list(tmp_path.iterdir())


# -- CSV and NPZ -----------------------------------------------------------------------------------


def test_csv_gives_every_number_back_in_its_precision(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "PART", 3)
    data = plate()
    lno.write(tmp_path / "a.csv", data)
    with (tmp_path / "a.csv").open() as file:
        header, *rows = csv.reader(file)
    assert header == ["a", "b", "X", "Y", "p", "T"]
    table = np.array(rows, float)
    np.testing.assert_array_equal(table[:, :2], data[0].x_query)
    np.testing.assert_array_equal(table[:, 4:].astype(np.float32), data[0].y)


def test_npz_has_the_arrays_and_their_names(tmp_path: Path) -> None:
    data = plate(samples=3)
    lno.write(tmp_path / "a.npz", data)
    with np.load(tmp_path / "a.npz", allow_pickle=False) as file:
        np.testing.assert_array_equal(file["y"], data.y)
        assert file["names_y"].tolist() == ["p", "T"] and file["units_y"].tolist() == ["Pa", "K"]
    lno.write(tmp_path / "b.npz", grid(5, 4), {"p": np.arange(20.0)})
    with np.load(tmp_path / "b.npz", allow_pickle=False) as file:
        assert file["y"][0, :, 0].tolist() == list(range(20)) and file["names_y"] == ["p"]


# -- all of them -----------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".vtu", ".nc", ".csv", ".npz", ".h5"])
def test_further_values_stand_beside_the_outputs(suffix: str, tmp_path: Path) -> None:
    path, low = tmp_path / f"a{suffix}", np.arange(20.0)
    lno.write(path, plate(samples=3), {"low": np.stack((low, low + 1, low + 2))}, sample=1)
    if suffix == ".vtu":
        found = read_vtu(path)["low"]
    elif suffix == ".nc":
        with netcdf_file(path, mmap=False) as file:
            found = file.variables["low"][:].ravel()
    elif suffix == ".csv":
        found = np.genfromtxt(path, delimiter=",", names=True)["low"]
    elif suffix == ".npz":
        found = np.load(path)["y"][0, :, 2]
    else:
        found = Fields.load(path)[0].y[:, 2]
    np.testing.assert_array_equal(found, low + 1)


def test_meshio_reads_what_was_written(tmp_path: Path) -> None:
    meshio = pytest.importorskip("meshio")
    data = plate()
    lno.write(tmp_path / "a.vtu", data)
    mesh = meshio.read(tmp_path / "a.vtu")
    np.testing.assert_array_equal(mesh.points[:, :2], data.geometry_of(0))
    np.testing.assert_array_equal(mesh.point_data["T"], data[0].y[:, 1])
    assert mesh.cells[0].type == "quad" and len(mesh.cells[0].data) == 12


def test_xarray_reads_what_was_written(tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    data = plate(samples=3)
    lno.write(tmp_path / "a.nc", data)
    found = xarray.load_dataset(tmp_path / "a.nc", engine="scipy")
    assert found["p"].dims == ("sample", "a", "b") and set(found.coords) == {"a", "b", "X", "Y"}
    value = found["p"].isel(sample=2).sel(a=1.0, b=2.0).item()
    assert value == data[2].y[-1, 0]


@pytest.mark.parametrize(
    ("name", "points", "values", "options", "words"),
    [
        ("a.txt", "plate", None, {}, r"a\.txt: expected a name ending in \.vtu, \.nc, \.csv"),
        ("a", "plate", None, {}, "expected a name ending in"),
        ("a.vtu", "several", None, {}, r"a \.vtu file holds one sample, not 3. Choose one"),
        ("a.csv", "several", None, {}, r"a \.csv file holds one sample"),
        ("a.npz", "ragged", None, {}, "differ in their number of points"),
        ("a.vtu", "plate", None, {"sample": 7}, "index: expected numbers of the 1 samples, got 7"),
        ("a.vtu", "none", None, {}, "nothing to write: the data have no outputs y"),
        ("a.vtu", "plate", np.zeros(20), {}, "values: expected a mapping from names to arrays"),
        ("a.vtu", "plate", {"low": np.zeros(3)}, {}, r"'low'\], sample 0: expected .* 20 points"),
        ("a.vtu", "plate", None, {"grid": (5, 4)}, "Fields have names, cells and a grid"),
        ("a.vtu", "wide", np.zeros((6, 1)), {}, "points in one to three dimensions, not 4"),
        ("a.vtu", "points", np.zeros((5, 1)), {}, r"a number for each of the 20 points, got shape"),
        ("a.vtu", "points", np.zeros((20, 1)), {"grid": (3, 3)}, "a shape of 20 points"),
        ("a.vtu", "points", np.zeros((20, 1)), {"cells": [[0, 1, 99]]}, "indices of the 20 points"),
        ("a.vtu", "points", np.zeros((20, 1)), {"cells": [[0, 1]]}, r"indices \(m, 3\)"),
        (
            "a.vtu",
            "points",
            np.zeros((20, 1)),
            {"names": {"y": ["a", "b"]}},
            "expected 1 texts",
        ),
        (
            "a.vtu",
            "points",
            np.zeros((20, 1)),
            {"units": {"x": ["m"]}},
            "expected 2 texts",
        ),
        ("a.vtu", "points", np.zeros((20, 1)), {"sample": 0}, "chooses one of several in Fields"),
        ("a.vtu", "flat", np.zeros(20), {}, r"points: expected positions \(n, d\) or Fields"),
    ],
)
def test_mistakes_are_one_clear_sentence(
    name: str, points: str, values: Any, options: dict[str, Any], words: str, tmp_path: Path
) -> None:
    sizes = [np.random.default_rng(n).uniform(size=(n, 2)) for n in (20, 24)]
    given = {
        "plate": plate(),
        "several": plate(samples=3),
        "ragged": Fields(sizes, y=[x[:, :1] for x in sizes]),
        "none": Fields(grid(5, 4)),
        "wide": np.zeros((6, 4)),
        "points": grid(5, 4),
        "flat": np.zeros(20),
    }[points]
    with pytest.raises((ValueError, TypeError, IndexError), match=words):
        lno.write(tmp_path / name, given, values, **options)
    assert not list(tmp_path.iterdir())


@pytest.fixture
def little_room() -> Iterator[None]:
    """A limit on the size of files makes real writes fail, as a full disk does."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    signal.signal(signal.SIGXFSZ, before)


@pytest.mark.parametrize("suffix", [".vtu", ".nc", ".csv", ".npz"])
def test_a_disk_with_too_little_room_keeps_the_old_file(
    suffix: str, tmp_path: Path, little_room: None
) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_text("old")
    x = np.random.default_rng(0).uniform(size=(4000, 2))
    with pytest.raises(OSError, match=r"cannot write .* has room"):
        lno.write(path, x, x)
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]
