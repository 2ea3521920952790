"""The same data in every format come out as the same `Fields`."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
from plates import (
    EXPECTED,
    LAT,
    LON,
    NODES,
    RE,
    ROLES,
    SST,
    A,
    N,
    S,
    T,
    long_columns,
    same,
    sample_columns,
    stacked,
    write_csv,
)
from scipy.io import savemat

from lno import Fields
from lno.data.foreign import ForeignFileError
from lno.data.importing import import_files

FROM_ARRAYS = {**ROLES, "positions": "nodes:x,y"}


def test_npz(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez_compressed(path, **stacked())
    assert same(Fields.from_files(path, **FROM_ARRAYS))
    np.savez(path, x=NODES[:, 0], y=NODES[:, 1], a=A, T=T, Re=RE)
    assert same(Fields.from_files(path, **ROLES))
    np.savez(path, **stacked() | {"nodes": np.stack([NODES] * S)})
    own = Fields.from_files(path, **FROM_ARRAYS)
    assert own.x.shape == (S, N, 2)
    assert np.array_equal(own.x[3], NODES)


def test_npy_files_are_one_array_each(tmp_path: Path) -> None:
    for name, values in stacked().items():
        np.save(tmp_path / f"{name}.npy", values)
    assert same(Fields.from_files(str(tmp_path / "*.npy"), **FROM_ARRAYS))


def test_a_csv_file_for_each_sample(tmp_path: Path) -> None:
    for k in range(S):
        write_csv(tmp_path / f"run_{7 + k}.csv", sample_columns(k))  # 10 comes after 9
    assert same(Fields.from_files(str(tmp_path / "run_*.csv"), **ROLES))


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_one_csv_file_with_a_column_of_samples(tmp_path: Path, separator: str) -> None:
    path = write_csv(tmp_path / "all.csv", long_columns())
    path.write_text(path.read_text().replace(",", separator), encoding="utf-8-sig")
    assert same(Fields.from_files(path, sample="case", **ROLES))
    assert same(Fields.from_files(path, **ROLES))  # "case" is a likely name


def test_samples_that_have_names_and_mixed_rows(tmp_path: Path) -> None:
    columns = long_columns()
    order = np.argsort(np.tile(np.arange(N), S), kind="stable")  # point by point
    mixed = {name: values[order] for name, values in columns.items()}
    mixed["case"] = np.array([f"plate {k:.0f}" for k in mixed["case"]])
    assert same(Fields.from_files(write_csv(tmp_path / "a.csv", mixed), sample="case", **ROLES))


def test_long_columns_in_an_npz(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **long_columns())
    assert same(Fields.from_files(tmp_path / "a.npz", sample="case", **ROLES))


def test_parameters_in_a_table_of_their_own(tmp_path: Path) -> None:
    for k in range(S):
        write_csv(tmp_path / f"{k}.csv", sample_columns(k))
    cases = write_csv(tmp_path / "cases.csv", {"name": list("abcde"), "Re": RE})
    names = {**ROLES, "parameters": f"{cases}:Re"}
    done = import_files(str(tmp_path / "?.csv"), **names)
    assert same(done.fields)
    assert [row[:2] for row in done.table[-2:]] == [
        ["not used", f"{cases}: name"],
        ["parameters", f"{cases}: Re"],
    ]


def test_hdf5_by_the_names_of_datasets(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        file["mesh/nodes"] = NODES
        file["results/a"], file["results/T"], file["Re"] = A, T, RE
    names = {"positions": "mesh/nodes:x,y", "inputs": "results/a:a", "outputs": "results/T:T"}
    assert same(Fields.from_files(path, parameters="Re", **names))


@pytest.mark.parametrize("version", ["5", "7.3"])
def test_matlab(tmp_path: Path, version: str) -> None:
    path = tmp_path / "a.mat"
    arrays = {"nodes": NODES, "a": A, "T": T, "Re": RE[:, None]}
    if version == "5":
        savemat(path, arrays)
    else:
        with h5py.File(path, "w", userblock_size=512) as file:
            for name, values in arrays.items():
                file[name] = values.T  # MATLAB's order of axes
    assert same(Fields.from_files(path, **FROM_ARRAYS))


def test_samples_along_the_last_axis_as_in_matlab(tmp_path: Path) -> None:
    savemat(tmp_path / "a.mat", {"nodes": NODES, "a": A.T, "T": T.T, "Re": RE})
    assert same(Fields.from_files(tmp_path / "a.mat", sample="-1", **FROM_ARRAYS))


def test_channels_before_the_grid(tmp_path: Path) -> None:
    images = np.random.default_rng(1).normal(size=(S, 2, 5, 6))
    np.savez(tmp_path / "a.npz", images=images)
    fields = Fields.from_files(tmp_path / "a.npz", outputs="images:u,v")
    assert fields.grid == (5, 6)
    assert np.array_equal(fields.y, images.transpose(0, 2, 3, 1).reshape(S, 30, 2))


def test_netcdf_with_any_dimension_as_samples(tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")
    axes = ("member", "node")
    data = xarray.Dataset(
        {"a": (axes, A, {"units": "m"}), "T": (axes[::-1], T.T), "Re": ("member", RE)},
        {"x": ("node", NODES[:, 0]), "y": ("node", NODES[:, 1])},
    )
    expected = EXPECTED.replace(units={"u": ["m"]})
    for engine in ("h5netcdf", "scipy"):
        data.to_netcdf(tmp_path / "a.nc", engine=engine)
        found = Fields.from_files(tmp_path / "a.nc", sample="member", **ROLES)
        assert same(found, expected)
    assert same(Fields.from_xarray(data, **ROLES), expected)


def test_netcdf_is_guessed_and_nan_is_not_there(tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    data = xarray.Dataset(
        {"sst": (("time", "lat", "lon"), SST, {"units": "degC"})},
        {"lat": LAT, "lon": LON, "time": np.arange("2000-01", "2000-06", dtype="M8[M]")},
    )
    data.to_netcdf(tmp_path / "a.nc", engine="h5netcdf", encoding={"sst": {"_FillValue": -999.0}})
    fields = Fields.from_files(tmp_path / "a.nc")
    there = [np.flatnonzero(~np.isnan(frame)) for frame in SST.reshape(S, -1)]
    assert [len(sample.x) for sample in fields] == [11, 11, 11, 10, 11]
    for k, index in enumerate(there):
        assert np.array_equal(fields[k].grid_index, index)
        assert np.array_equal(fields[k].y[:, 0], SST[k].ravel()[index])
        assert np.array_equal(fields[k].x, np.stack((LAT[index // 4], LON[index % 4]), 1))
    assert (fields.grid, fields.period) == ((3, 4), (None, 360.0))
    assert (fields.names["y"], fields.units["y"]) == (["sst"], ["degC"])
    np.savez(tmp_path / "a.npz", sst=SST, lat=LAT, lon=LON, month=np.arange(S))
    assert same(Fields.from_files(tmp_path / "a.npz", units="sst=degC"), fields)


def test_time_is_the_last_coordinate(tmp_path: Path) -> None:
    xarray = pytest.importorskip("xarray")
    w = np.random.default_rng(1).normal(size=(S, 2, 3, 4))  # sample, t, x, y
    axes = {"t": np.array([0.0, 0.5]), "x": np.arange(3.0), "y": np.arange(4.0)}
    np.savez(tmp_path / "a.npz", w=w, **axes)
    fields = Fields.from_files(tmp_path / "a.npz", outputs="w", axes="x,y", time="t")
    assert fields.names["x"] == ["x", "y", "t"]
    assert fields.grid == (3, 4, 2)
    assert np.array_equal(fields.y.reshape(S, 3, 4, 2), np.moveaxis(w, 1, -1))
    assert np.array_equal(fields.x[:2, 2], axes["t"])
    data = xarray.Dataset({"w": (("case", "t", "x", "y"), w)}, axes)
    assert same(Fields.from_xarray(data, outputs="w", axes="x,y", time="t"), fields)


MESHES = {".vtu": {}, ".vtk": {}, ".xdmf": {}, ".msh": {"file_format": "gmsh"}}


@pytest.mark.parametrize("suffix", MESHES)
def test_meshes_keep_their_cells(tmp_path: Path, suffix: str) -> None:
    meshio = pytest.importorskip("meshio")
    triangles = [np.array([[0, 1, 2], [2, 3, 4]]), np.array([[4, 5, 6]])]
    for k, cells in enumerate(triangles):
        points = np.column_stack((NODES, np.zeros(N)))
        data = {"a": A[k], "T": T[k], "v": np.stack((A[k], T[k], 0 * T[k]), 1)}
        mesh = meshio.Mesh(points, [("triangle", cells)], point_data=data)
        mesh.write(tmp_path / f"{k}{suffix}", **MESHES[suffix])
    done = import_files(str(tmp_path / f"*{suffix}"), inputs="a", outputs="T,v:vx,vy,vz")
    fields = done.fields
    plain = {"names": NAMES, "units": {}, "cells": None}
    assert same(fields.replace(y=fields.y[..., :1], **plain), _two_samples())
    assert fields.names["y"] == ["T", "vx", "vy", "vz"]
    assert [s.cells.tolist() for s in fields] == [c.tolist() for c in triangles]
    assert "z is 0 at all points and was left out" in done.notes


NAMES = {"x": ["x", "y"], "u": ["a"], "y": ["T"]}


def _two_samples() -> Fields:
    return EXPECTED.split(2)[0].replace(parameters=None)


def test_values_of_cells_are_at_their_centres(tmp_path: Path) -> None:
    meshio = pytest.importorskip("meshio")
    points = np.array([[0.0, 0, 0], [2, 0, 0], [2, 2, 0], [0, 2, 0], [4, 1, 0]])
    cells = [("quad", np.array([[0, 1, 2, 3]])), ("triangle", np.array([[1, 4, 2]]))]
    mesh = meshio.Mesh(points, cells, cell_data={"p": [np.array([1.0]), np.array([2.0])]})
    mesh.write(tmp_path / "a.vtu")
    done = import_files(tmp_path / "a.vtu", outputs="p")
    assert np.allclose(done.fields.x, [[1, 1], [8 / 3, 1]])
    assert done.fields.y.ravel().tolist() == [1.0, 2.0]
    assert done.fields.names["x"] == ["x", "y"]


@pytest.mark.parametrize("suffix", [".vtu", ".vtk"])
@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_truncated_mesh_is_said_to_be_damaged_in_one_line(tmp_path, suffix, share):
    meshio = pytest.importorskip("meshio")
    points = np.random.default_rng(0).uniform(size=(30, 3))
    whole = meshio.Mesh(points, [("triangle", np.arange(30).reshape(10, 3))], {"p": points[:, 0]})
    path = tmp_path / f"case{suffix}"
    whole.write(path)
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(ForeignFileError, match="damaged") as caught:
        import_files([path], outputs="p")
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)
    assert suffix == ".vtk" or "XML: " in str(caught.value)  # the other reader says nothing
