"""Reading published benchmark files, whose layout a problem describes, into `Fields`.

Only the samples and grid points that a protocol uses are kept; of HDF5 and .npy files only those
are read. Values become single precision. Pickles are never opened.

`lno.problems.read_published` reads the files of a problem by its name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lno.config import require_count
from lno.data.fields import Fields
from lno.data.foreign import NPY, ForeignFileError, opened

SAMPLES, ANY = -1, -2  # in a shape: the axis of the samples, an axis of any length


@dataclass(frozen=True)
class Array:
    """An array in one of the files.

    Args:
        file: the position of its file among the files of the layout.
        key: its name in the file; "" in .npy files, which hold one array.
        shape: with `SAMPLES` for the axis of the samples, which may be any, and `ANY` for axes of
            any length. Without `SAMPLES` the array is the same for all samples. The axes of MATLAB
            arrays are in MATLAB's order.
        part: indices into the axes other than that of the samples. Only that part is read.
    """

    file: int
    key: str
    shape: tuple[int, ...]
    part: tuple[int | slice, ...] = ()

    def at(self, path: Path) -> str:
        """Where it is, for error messages."""
        return f"{path}, {self.key}" if self.key else str(path)


@dataclass(frozen=True)
class Layout:
    """The published files of a problem under one protocol.

    Args:
        files: the names that they are published under, in the order to give them in.
        kind: `MAT`, `NPY` or `NPZ` of `lno.data.foreign`.
        arrays: what is read from them.
        build: maps the arrays, with the samples as the first axis, to the arguments of `Fields`.
        split: numbers of training and test samples. None: those of the protocol.
        separate: training samples are in the first file, test samples in the second.
        last: test samples are the last ones of the file, not those after the training samples.
        advice: added to error messages about these files.
    """

    files: tuple[str, ...]
    kind: str
    arrays: tuple[Array, ...]
    build: Callable[..., dict[str, Any]]
    split: tuple[int, int] | None = None
    separate: bool = False
    last: bool = False
    advice: str = ""


def read(
    layout: Layout,
    paths: Sequence[str | Path] | str | Path,
    counts: Sequence[int],
    *,
    problem: str,
    protocol: str,
) -> Fields:
    """Read files of a layout: training samples first, then test samples.

    Args:
        layout: of the files.
        paths: the files, in the order of `layout.files`.
        counts: numbers of training and test samples.
        problem: its name, for the provenance and for error messages.
        protocol: its name, for the provenance.

    The provenance also holds the names of the files, their SHA-256, and the split.
    """
    files = _in_order(problem, layout, [paths] if isinstance(paths, str | Path) else paths)
    split = list(counts)
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
    provenance = {
        "problem": problem,
        "protocol": protocol,
        "files": [path.name for path in files],
        "split": split,
        "sha256": digests,
    }
    try:
        return Fields(**layout.build(*loaded), provenance=provenance)
    except ValueError as error:
        raise ForeignFileError(f"{_list(files)}: {error}") from error


def _in_order(problem: str, layout: Layout, paths: Sequence[str | Path]) -> list[Path]:
    """The paths, if their number is right and no published name is in the wrong place."""
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
    """The part of an array to keep (train + test, …), and the number of samples in each file."""
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
    """out[...] = values[index]; HDF5 arrays, whose axes are reversed, one slice at a time."""
    with np.errstate(over="ignore"):  # overflow of single precision is found by _check_finite
        if isinstance(values, np.ndarray):
            out[...] = values[index]
            return
        # The last axis varies slowest in the file, so this is one pass over it. At any time only
        # one slice is in memory twice.
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
