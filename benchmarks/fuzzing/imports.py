"""Attacks on files of other programs that are imported.

Most of these formats have no digest: whoever changes a value makes another valid file. So what is
imported is compared with what the file holds, as read by the plain library of its format.
"""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from scipy.io import loadmat, savemat

from fuzzing import mutate
from fuzzing.engine import CHANGED, SAME, WRITTEN, Attack, Attacks, Section
from fuzzing.mutate import Random, pick
from lno import Fields

S, N = 3, 6
Arrays = dict[str, np.ndarray]  # nodes (n, 2), a (s, n), T (s, n)
NAMES = {"positions": "x,y", "inputs": "a", "outputs": "T"}


def arrays() -> Arrays:
    """What all files hold."""
    random = np.random.default_rng(0)
    x, y = random.random((2, N)).round(6)
    a, T = random.random((2, S, N)).round(6)
    return {"x": x, "y": y, "a": a, "T": T}


# -- writing and plain reading, format by format ---------------------------------------------------


def write_npz(path: Path, found: Arrays) -> None:
    np.savez_compressed(path, **found)


def write_stored_npz(path: Path, found: Arrays) -> None:
    np.savez(path, **found)


def read_npz(path: Path) -> Arrays:
    with np.load(path, allow_pickle=False) as file:
        return {name: file[name] for name in ("x", "y", "a", "T")}


def write_csv(path: Path, found: Arrays) -> None:
    rows = [
        [k, *(found[name][j] for name in "xy"), found["a"][k, j], found["T"][k, j]]
        for k in range(S)
        for j in range(N)
    ]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([["case", "x", "y", "a", "T"], *rows])
    path.write_text(text.getvalue())


def read_csv(path: Path) -> Arrays:
    """Columns (rows,), with the sample of each row."""
    text = path.read_text(encoding="utf-8-sig")
    head = text.splitlines()[0]
    separator = max((",", ";", "\t"), key=head.count)
    lines = [
        row
        for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator)
        if any(cell.strip() for cell in row)
    ]
    header = [name.strip() for name in lines[0]]
    found: dict[str, Any] = {name: [] for name in ("case", "x", "y", "a", "T")}
    for row in lines[1:]:
        for name, cells in found.items():
            cell = row[header.index(name)].strip()
            missing = cell.lower() in ("", "nan", "na", "n/a", "null", "none")
            cells.append(cell if name == "case" else float("nan" if missing else cell))
    return {name: np.array(cells) for name, cells in found.items()}


def write_hdf5(path: Path, found: Arrays) -> None:
    with h5py.File(path, "w") as file:
        for name, values in found.items():
            file.create_dataset(name, data=values, chunks=True, compression="gzip")


def read_hdf5(path: Path) -> Arrays:
    with h5py.File(path, "r") as file:
        return {name: file[name][...] for name in ("x", "y", "a", "T")}


def write_mat(path: Path, found: Arrays) -> None:
    savemat(path, found, do_compression=True)


def read_mat(path: Path) -> Arrays:
    content = loadmat(path)
    return {k: content[k].ravel() if k in "xy" else content[k] for k in ("x", "y", "a", "T")}


def write_new_mat(path: Path, found: Arrays) -> None:
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, values in found.items():
            file[name] = values.T


def read_new_mat(path: Path) -> Arrays:
    with h5py.File(path, "r") as file:
        return {name: file[name][...].T for name in ("x", "y", "a", "T")}


def _dataset(found: Arrays) -> Any:
    import xarray

    places = {name: ("node", found[name]) for name in "xy"}
    values = {name: (("sample", "node"), found[name]) for name in "aT"}
    return xarray.Dataset(values, places)


def write_netcdf(path: Path, found: Arrays) -> None:
    _dataset(found).to_netcdf(path, engine="h5netcdf")


def write_classic(path: Path, found: Arrays) -> None:
    _dataset(found).to_netcdf(path, engine="scipy")


def read_netcdf(path: Path) -> Arrays:
    import xarray

    engine: Any = "h5netcdf" if h5py.is_hdf5(path) else "scipy"
    with xarray.open_dataset(path, engine=engine, decode_times=False) as data:
        return {name: data[name].values for name in ("x", "y", "a", "T")}


def _mesh(found: Arrays) -> Any:
    import meshio

    points = np.column_stack((found["x"], found["y"], np.zeros(N)))
    data = {"a": found["a"][0], "T": found["T"][0]}
    return meshio.Mesh(points, [("triangle", np.array([[0, 1, 2], [3, 4, 5]]))], point_data=data)


def write_mesh(path: Path, found: Arrays) -> None:
    _mesh(found).write(path)


def write_text_mesh(path: Path, found: Arrays) -> None:
    _mesh(found).write(path, binary=False)


def read_mesh(path: Path) -> Arrays:
    import meshio

    mesh = meshio.read(path)
    x, y = mesh.points[:, :2].T
    return {"x": x, "y": y, **{name: mesh.point_data[name][None] for name in "aT"}}


Write = Callable[[Path, Arrays], None]
Read = Callable[[Path], Arrays]
FORMATS: dict[str, tuple[str, Write, Read]] = {
    "npz": (".npz", write_npz, read_npz),
    "stored npz": (".npz", write_stored_npz, read_npz),
    "csv": (".csv", write_csv, read_csv),
    "hdf5": (".h5", write_hdf5, read_hdf5),
    "mat": (".mat", write_mat, read_mat),
    "mat 7.3": (".mat", write_new_mat, read_new_mat),
    "netcdf": (".nc", write_netcdf, read_netcdf),
    "classic netcdf": (".nc", write_classic, read_netcdf),
    "vtu": (".vtu", write_mesh, read_mesh),
    "text vtu": (".vtu", write_text_mesh, read_mesh),
    "vtk": (".vtk", write_mesh, read_mesh),
}


# -- what an attacker would make -------------------------------------------------------------------


def forged(name: str, path: Path, random: Random, work: Path) -> None:
    """A file of a format that claims too much, leads elsewhere, or holds other things."""
    big = int(pick(random, (10**5, 10**8, 10**12, 2**61)))
    which = pick(random, ("x", "T"))
    if path.suffix == ".npz":
        header = io.BytesIO()
        shape = pick(random, ((big,), (S, big), (-1, N), (0, N), (S, N, 1, 1, 1), ()))
        kind = pick(random, ("<f8", "|O", "<U1000000", "<c16", "|b1", ">f4", "<M8[D]"))
        described = {"descr": kind, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(header, described)
        packed = pick(random, (bytes(96), bytes(40_000_000), b""))
        changed = arrays()
        del changed[which]
        np.savez(path, **changed)
        with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(f"{which}.npy", header.getvalue() + packed)
    elif path.suffix == ".csv":
        cells = ("1e999", "x" * 300_000, '"', "\0", "1,5", "", "nan", "\x1b[2J", "1_0", "0x1")
        path.write_text(path.read_text().replace(".", pick(random, cells), 1))
    elif h5py.is_hdf5(path):
        with h5py.File(path, "r+") as file:
            del file[which]
            kind = int(random.integers(4))
            if kind == 0:
                chunks = (1, min(big, 1000))
                file.create_dataset(which, shape=(S, big), dtype="f8", chunks=chunks)
            elif kind == 1:
                file[which] = h5py.ExternalLink("/etc/passwd", which)
            elif kind == 2:
                outside = [("/dev/zero", 0, 8 * N)]
                file.create_dataset(which, shape=(N,), dtype="f8", external=outside)
            else:
                file[which] = pick(random, ("text", np.zeros((S, N), "c16"), np.zeros((2, 2, 2))))
    elif path.suffix == ".vtu":
        text = path.read_text(errors="replace")
        entity = '<!DOCTYPE a [<!ENTITY a "aaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]>'
        changes = (
            entity + text,
            text.replace(f'NumberOfPoints="{N}"', f'NumberOfPoints="{big}"'),
            text.replace('NumberOfComponents="3"', f'NumberOfComponents="{big}"'),
            text.replace("Float64", pick(random, ("Int8", "Float16", "UInt64"))),
            text.replace("base64", "raw"),
        )
        path.write_text(pick(random, changes))
    elif path.suffix == ".vtk":
        data = path.read_bytes()
        path.write_bytes(data.replace(b"POINTS 6", b"POINTS %d" % big))
    else:
        path.write_bytes(mutate.resize(path.read_bytes(), random))


def prepare(folder: Path) -> None:
    """A file of each format."""
    for name, (suffix, write, _) in FORMATS.items():
        write(folder / f"{name.replace(' ', '_')}{suffix}", arrays())


def holds(fields: Fields, plain: Arrays) -> bool:
    """Whether data are what a file holds: points without an output left out."""
    if "case" in plain:
        labels = list(dict.fromkeys(_label(case) for case in plain["case"]))
        rows = [np.array([_label(c) == k for c in plain["case"]]) for k in labels]
        samples = [{name: plain[name][mask] for name in ("x", "y", "a", "T")} for mask in rows]
    else:
        count = len(plain["T"])
        samples = [
            {**{name: plain[name] for name in "xy"}, **{name: plain[name][k] for name in "aT"}}
            for k in range(count)
        ]
    left = []
    for sample in samples:
        points = np.stack([np.asarray(sample[name], np.float64) for name in ("x", "y")], -1)
        values = np.asarray(sample["T"], np.float64)
        there = ~np.isnan(points).any(1) & ~np.isnan(values)
        if there.any():
            given = np.asarray(sample["a"], np.float64)
            left.append((points[there], given[there], values[there]))
    if len(left) != len(fields):
        return False
    for found, (points, given, values) in zip(fields, left, strict=True):
        order, own = np.lexsort(points.T), np.lexsort(found.x.T)
        same = np.array_equal(found.x[own], points[order])
        same &= np.array_equal(found.u[own, 0], given[order])
        if not same or found.y is None or not np.array_equal(found.y[own, 0], values[order]):
            return False
    return True


def _label(case: str) -> Any:
    try:
        return float(case)
    except ValueError:
        return case


KINDS = ("bit flip", "bit flip", "bytes overwritten", "cut or extended", "forged")


def attacks(folder: Path) -> Attacks:
    """The function that makes attack k on a file that is imported."""
    import meshio  # noqa: F401  before memory is measured
    import xarray  # noqa: F401

    names = list(FORMATS)
    bases = {name: folder / f"{name.replace(' ', '_')}{FORMATS[name][0]}" for name in names}
    digests = {name: Fields.from_files(path, **NAMES).digest for name, path in bases.items()}

    def attack(k: int, random: Random, work: Path) -> Attack:
        name, kind = names[k % len(names)], KINDS[(k // len(names)) % len(KINDS)]
        suffix, _, read = FORMATS[name]
        path = work / f"data{suffix}"
        data = bases[name].read_bytes()
        if kind == "forged":
            path.write_bytes(data)
            forged(name, path, random, work)
        else:
            change = {"bit flip": mutate.flip, "bytes overwritten": mutate.scramble}
            path.write_bytes(change.get(kind, mutate.resize)(data, random))

        def act() -> str:
            fields = Fields.from_files(path, **NAMES)
            if fields.digest == digests[name]:
                return SAME
            return WRITTEN if holds(fields, read(path)) else CHANGED

        return Attack(f"{name}: {kind}", act, path)

    return attack


SECTION = Section("imports", 1100, prepare, attacks)
