"""The published benchmark files, read into `Fields` that mean the same as generated ones.

    fields = read("darcy", ["piececonst_r421_N1024_smooth1.mat", "…_smooth2.mat"])
    train, test = fields.split(*fields.provenance["split"])

Two protocols exist in the literature and are not comparable: "standard" (Transolver's) and
"reference" (the paper's own code). Values become single precision. Only the samples and grid points
asked for are kept; of HDF5 and .npy files only those are read. No pickle is ever opened.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from lno.config import require_count
from lno.data.fields import Fields
from lno.data.foreign import MAT, NPY, NPZ, ForeignFileError, opened

PROTOCOLS = ("standard", "reference")
SAMPLES, ANY = -1, -2  # in a shape: the axis of the samples, an axis of any length
CONVERT = """The published Burgers files are pickles, which can run any code: never opened here.
If you trust one, convert it yourself, every fourth point of it:
    d = np.load("Burgers_IC_std_train.npy", allow_pickle=True).item()
    np.savez("train.npz", x=d["x"][0, ::4, ::4], y=d["y"][:, ::4, ::4], f=d["f"][:, ::4, ::4])
Expected are two such files, train and test, of plain arrays: x (times, positions, 2), each
(position, time); y and f (samples, times, positions, 1)."""


@dataclass(frozen=True)
class Array:
    """One array: the number of its file, its name there, its shape, and the part that is wanted.

    An array without the axis `SAMPLES` is the same for all samples. `part` indexes the axes other
    than that of the samples. The axes of MATLAB arrays are as MATLAB shows them.
    """

    file: int
    key: str
    shape: tuple[int, ...]
    part: tuple[int | slice, ...] = ()

    def at(self, path: Path) -> str:
        """Where it is, for errors."""
        return f"{path}, {self.key}" if self.key else str(path)


@dataclass(frozen=True)
class Layout:
    """The files of a problem.

    Args:
        files: the names that they are published under, in the order to give them in.
        kind: MAT, NPY or NPZ.
        arrays: what they hold.
        split: numbers of training and test samples.
        build: from the arrays, samples first, to the arguments of `Fields`.
        separate: training samples are in the first file, test samples in the second.
        last: test samples are the last of the file, not those after the training samples.
        reference: the layout under the reference protocol, where it differs.
        advice: what to say beside an error.
    """

    files: tuple[str, ...]
    kind: str
    arrays: tuple[Array, ...]
    split: tuple[int, int]
    build: Callable[..., dict[str, Any]]
    separate: bool = False
    last: bool = False
    reference: Layout | None = None
    advice: str = ""


def read(
    problem: str,
    paths: Sequence[str | Path],
    protocol: str = "standard",
    *,
    counts: tuple[int, int] | None = None,
) -> Fields:
    """Read the published files of a problem: training samples first, then test samples.

    Args:
        problem: a key of `PUBLISHED`.
        paths: its files, in the order of `PUBLISHED[problem].files`.
        protocol: "standard" or "reference".
        counts: numbers of training and test samples other than the protocol's, for small files.

    The provenance names problem, protocol, files with their SHA-256, and the split.
    """
    for what, given, known in (
        ("problem", problem, tuple(PUBLISHED)),
        ("protocol", protocol, PROTOCOLS),
    ):
        if given not in known:
            raise ValueError(f"expected a {what} among {', '.join(known)}, got {given!r}")
    layout = PUBLISHED[problem]
    if protocol == "reference" and layout.reference is not None:
        layout = layout.reference
    files = _in_order(problem, layout, [paths] if isinstance(paths, str | Path) else paths)
    split = list(layout.split if counts is None else counts)
    if len(split) != 2:
        raise ValueError(f"counts: expected two numbers, train and test samples, got {counts!r}")
    for name, count in zip(("train", "test"), split, strict=True):
        require_count(f"counts, {name}", count, 10**9)

    loaded: list[np.ndarray] = []
    first: list[int] = []
    for array in layout.arrays:
        try:
            values, lengths = _load(layout, files, array, split)
        except ForeignFileError as error:
            raise ForeignFileError(f"{error}\n{layout.advice}".rstrip()) from error
        loaded.append(values)
        first = first or lengths
        if lengths and lengths != first:
            raise ForeignFileError(
                f"{array.at(files[array.file])} has {lengths} samples, "
                f"{layout.arrays[0].at(files[0])} has {first}: they do not belong together"
            )
    digests = [_sha256(path) for path in files]
    if len(set(digests)) < len(digests):
        raise ForeignFileError(f"expected different files, got equal ones: {_list(files)}")
    provenance = {"published": problem, "protocol": protocol, "files": [p.name for p in files]}
    try:
        return Fields(
            **layout.build(*loaded), provenance={**provenance, "split": split, "sha256": digests}
        )
    except ValueError as error:
        raise ForeignFileError(f"{_list(files)}: {error}") from error


def _in_order(problem: str, layout: Layout, paths: Sequence[str | Path]) -> list[Path]:
    """The paths: as many as expected and, as far as their names tell, in the right order."""
    files, names = [Path(path) for path in paths], layout.files
    if len(files) == len(names) and all(
        path.name == name or path.name not in names for path, name in zip(files, names, strict=True)
    ):
        return files
    raise ForeignFileError(
        f"{problem}: expected {len(names)} files in the order {', '.join(names)}; "
        f"got {len(files)}: {_list(files)}"
    )


def _list(files: Sequence[Path]) -> str:
    return ", ".join(str(path) for path in files) or "none"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# -- arrays ----------------------------------------------------------------------------------------


def _load(
    layout: Layout, files: list[Path], array: Array, split: Sequence[int]
) -> tuple[np.ndarray, list[int]]:
    """The wanted part of an array (train + test, ...), and how many samples each file holds."""
    sources = [(files[array.file], list(split))]
    if layout.separate:
        sources = [(path, [count]) for path, count in zip(files, split, strict=True)]
    out: np.ndarray | None = None
    lengths: list[int] = []
    done = 0
    for path, wanted in sources:
        where = array.at(path)
        with opened(path, array.key, layout.kind) as values:
            _check_shape(values, array, path, layout, files)
            if SAMPLES not in array.shape:
                if out is not None and not np.array_equal(out, values):
                    raise ForeignFileError(f"{where}: expected the same as in {files[0]}")
                out = np.array(values, np.float64)
                continue
            if array.shape[0] != SAMPLES:
                values = np.moveaxis(values, array.shape.index(SAMPLES), 0)
            length, *shape = values.shape
            _check_count(length, wanted, where)
            lengths.append(length)
            part = array.part + (slice(None),) * (len(shape) - len(array.part))
            pairs = zip(shape, part, strict=True)
            sizes = tuple(len(range(n)[p]) for n, p in pairs if isinstance(p, slice))
            out = np.empty((sum(split), *sizes), np.float32) if out is None else out
            if out.shape[1:] != sizes:
                raise ForeignFileError(
                    f"{where}: expected samples of the shape {out.shape[1:]} as in {files[0]}, "
                    f"got {sizes}"
                )
            starts = [0, length - wanted[-1] if layout.last else wanted[0]]
            for start, count in zip(starts, wanted, strict=False):
                here = out[done : done + count]
                _copy(values, (slice(start, start + count), *part), here)
                _check_finite(here, start, where)
                done += count
    assert out is not None
    return out, lengths


def _copy(values: Any, index: tuple[Any, ...], out: np.ndarray) -> None:
    """out[...] = values[index]; of HDF5, whose axes are reversed, a slice at a time."""
    with np.errstate(over="ignore"):  # what does not fit single precision is found afterwards
        if isinstance(values, np.ndarray):
            out[...] = values[index]
            return
        # The last axis varies slowest in the file: one pass, and only a slice is there twice.
        for k, at in enumerate(range(values.shape[-1])[index[-1]]):
            out[..., k] = values.dataset[(at, *index[-2::-1])].T


def _check_shape(
    values: Any, array: Array, path: Path, layout: Layout, files: Sequence[Path]
) -> None:
    if values.dtype.kind not in "fiu":
        raise ForeignFileError(f"{array.at(path)}: expected real numbers, got {values.dtype}")
    fits = [e in (n, ANY, SAMPLES) for e, n in zip(array.shape, values.shape, strict=False)]
    if len(values.shape) == len(array.shape) and all(fits) and all(values.shape):
        return
    expected = ", ".join({SAMPLES: "samples", ANY: "any"}.get(n, str(n)) for n in array.shape)
    message = f"{array.at(path)}: expected the shape ({expected}), got {values.shape}. "
    if layout.kind == NPY:  # most likely given in another order
        found = []
        for name, other in zip(layout.files, files, strict=True):
            with suppress(ValueError, OSError), opened(other, "", NPY) as there:
                found.append(f"{other.name} {there.shape} as {name}")
        message += f"The files given: {'; '.join(found)}. Is the order right?"
    else:
        message += f"Is it one of {', '.join(layout.files)}, and the protocol the right one?"
    raise ForeignFileError(message)


def _check_count(length: int, wanted: Sequence[int], where: str) -> None:
    if length < sum(wanted):
        raise ForeignFileError(
            f"{where}: expected at least {' + '.join(map(str, wanted))} samples, found {length}. "
            "To use fewer than the protocol, pass counts=(train, test)."
        )


def _check_finite(values: np.ndarray, start: int, where: str) -> None:
    for k, sample in enumerate(values):
        if not np.isfinite(sample).all():
            raise ForeignFileError(
                f"{where}, sample {start + k} (counted from 0): expected finite numbers in single "
                "precision, got NaN or infinity. The file is damaged or not as published."
            )


# -- problems --------------------------------------------------------------------------------------


def _points(*axes: np.ndarray) -> np.ndarray:
    """The points (n1·n2·…, d) of a grid, in C order."""
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(axes))


def _unit(sizes: Sequence[int]) -> np.ndarray:
    """The points of a grid on [0, 1]^d, both ends included."""
    return _points(*(np.linspace(0, 1, n) for n in sizes))


def _one(values: np.ndarray) -> np.ndarray:
    """(s, n1, n2, ...) to one channel (s, n, 1)."""
    return values.reshape(len(values), -1, 1)


def _fields(x: Any, u: Any, y: Any, names: Sequence[str], frame: str, **more: Any) -> Any:
    """The arguments of `Fields`; `names` are those of x, u and y, separated by spaces."""
    labels = {key: value.split() for key, value in zip("xuy", names, strict=True)}
    return {"x": x, "u": u, "y": y, "names": labels, "frame": frame, **more}


def _darcy(a: np.ndarray, u: np.ndarray) -> dict[str, Any]:
    """Coefficients and solutions (s, m, m)."""
    grid = a.shape[1:]
    return _fields(_unit(grid), _one(a), _one(u), ("x y", "a", "u"), "unit square", grid=grid)


def _ns2d(w: np.ndarray) -> dict[str, Any]:
    """Vorticity (s, m, m, frames): the first half of the frames gives the second."""
    s, *grid, frames = w.shape
    x, w, half = _points(*(np.arange(n) / n for n in grid)), w.reshape(s, -1, frames), frames // 2
    times = [f"w(t={k + 1})" for k in range(frames)]
    names = ("x y", " ".join(times[:half]), " ".join(times[half:]))
    more = {"grid": grid, "period": (1.0, 1.0)}
    return _fields(x, w[..., :half], w[..., half:], names, "periodic unit square", **more)


def _mapped(x: np.ndarray, y: np.ndarray, q: np.ndarray, *, name: str) -> dict[str, Any]:
    """Node coordinates and a quantity (s, n1, n2): the coordinates are values on the grid."""
    grid, nodes = x.shape[1:], np.concatenate([_one(x), _one(y)], axis=-1)
    names = ("xi eta", "x y", name)
    return _fields(_unit(grid), nodes, _one(q), names, "reference grid", grid=grid)


def _elasticity(xy: np.ndarray, sigma: np.ndarray) -> dict[str, Any]:
    """Positions (s, n, 2) and stresses (s, n); the positions are all that is given."""
    return _fields(xy, None, _one(sigma), ("x y", "", "sigma"), "unit cell")


def _plasticity(die: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """Die profiles (s, n1) and states (s, n1, n2, t, 4); u at (i, j, t) is die[i]."""
    s, *grid, channels = y.shape
    u, y = np.broadcast_to(die[:, :, None, None], (s, *grid)), y.reshape(s, -1, channels)
    names, units = ("xi eta t", "die", "x y u_x u_y"), {"u": ["mm"], "y": ["mm"] * 4}
    return _fields(_unit(grid), _one(u), y, names, "reference grid", grid=grid, units=units)


def _burgers(y: np.ndarray, f: np.ndarray, points: np.ndarray) -> dict[str, Any]:
    """Whole fields y (s, t, x, 1), forces f of the same shape, points (t, x, 2).

    The published positions i/(n−1) are those of n cells of a period, which closes after the last:
    they are taken as i/n of the period 1, as in generated data.
    """
    if f.any():
        raise ValueError("f: expected zeros; Burgers' equation with a force is another problem")
    x, t = points[0, :, 0], points[:, 0, 1]
    even = np.allclose(x, x[-1] * np.linspace(0, 1, len(x))) and np.all(np.diff(t) > 0)
    if not even or not np.array_equal(points, np.stack(np.meshgrid(x, t), axis=-1)):
        raise ValueError("x: expected (position, time) on a regular grid, rows being times")
    frame = "time and position in the periodic unit interval"
    more = {"grid": points.shape[:2], "period": (None, 1.0)}
    at = _points(t, np.arange(len(x)) / len(x))
    return _fields(at, None, _one(y), ("t x", "", "u"), frame, **more)


def _darcy_layout(n: int, every: int, split: tuple[int, int]) -> Layout:
    files = tuple(f"piececonst_r{n}_N1024_smooth{k}.mat" for k in (1, 2))
    part = (slice(None, None, every),) * 2
    arrays = tuple(Array(0, key, (SAMPLES, n, n), part) for key in ("coeff", "sol"))
    return Layout(files, MAT, arrays, split, _darcy, separate=True)


def _mapped_layout(stem: str, n1: int, n2: int, quantities: int, target: int, name: str) -> Layout:
    """Published as X, Y and Q, one file each; the target is one of the quantities of Q."""
    nodes = [Array(k, "", (SAMPLES, n1, n2)) for k in (0, 1)]
    field = Array(2, "", (SAMPLES, quantities, n1, n2), (target,))
    files = tuple(f"{stem}_{letter}.npy" for letter in "XYQ")
    return Layout(files, NPY, (*nodes, field), (1000, 200), partial(_mapped, name=name))


def _with_reference(standard: Layout, **changes: Any) -> Layout:
    return replace(standard, reference=replace(standard, **changes))


NS2D = (Array(0, "u", (SAMPLES, 64, 64, 20)),)
CELLS = (Array(0, "", (972, 2, SAMPLES)), Array(1, "", (972, SAMPLES)))
FORGING = (Array(0, "input", (SAMPLES, 101)), Array(0, "output", (SAMPLES, 101, 31, 20, 4)))
SHOCKS = (*(Array(0, key, (SAMPLES, ANY, ANY, 1)) for key in "yf"), Array(0, "x", (ANY, ANY, 2)))
CELL_FILES = ("Random_UnitCell_XY_10.npy", "Random_UnitCell_sigma_10.npy")

PUBLISHED: dict[str, Layout] = {
    "darcy": replace(
        _darcy_layout(421, 5, (1000, 200)), reference=_darcy_layout(241, 1, (1024, 1024))
    ),
    "ns2d": Layout(("NavierStokes_V1e-5_N1200_T20.mat",), MAT, NS2D, (1000, 200), _ns2d, last=True),
    # Airfoil and Pipe hold more samples than are used: the reference code tests on the last.
    "airfoil": _with_reference(_mapped_layout("NACA_Cylinder", 221, 51, 5, 4, "Mach"), last=True),
    "elasticity": _with_reference(
        Layout(CELL_FILES, NPY, CELLS, (1000, 200), _elasticity, last=True), split=(1000, 1000)
    ),
    "plasticity": _with_reference(
        Layout(("plas_N987_T20.mat",), MAT, FORGING, (900, 80), _plasticity, last=True),
        split=(900, 87),
    ),
    "pipe": _with_reference(_mapped_layout("Pipe", 129, 129, 3, 0, "u"), last=True),
    "burgers": Layout(
        ("train.npz", "test.npz"), NPZ, SHOCKS, (4096, 128), _burgers, separate=True, advice=CONVERT
    ),
}
