"""MATLAB files: v5 with SciPy, v7.3, which are HDF5 files, with h5py."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
from scipy.io import loadmat, whosmat

from lno.data.foreign import MAT, SIGNATURES, ForeignFileError
from lno.data.imports.hdf5 import datasets
from lno.data.imports.source import Source, Variable, reading, require_claim
from lno.files import require_signature

# What MATLAB calls the classes of arrays of numbers, and their bytes.
NUMBERS = {"double": 8, "single": 4, "logical": 1}
NUMBERS |= {f"{sign}int{8 * n}": n for sign in ("", "u") for n in (1, 2, 4, 8)}


def read_mat(path: Path) -> Source:
    """The arrays of a MATLAB file; vectors, which MATLAB keeps as matrices, have one axis."""
    if path.is_file() and h5py.is_hdf5(path):
        return _read_hdf5(path)
    require_signature(path, *SIGNATURES[MAT], MAT)
    variables: dict[str, Variable] = {}
    with reading(path, MAT):
        for name, shape, kind in whosmat(path, appendmat=False):
            size = int(np.prod([float(n) for n in shape])) * NUMBERS.get(kind, 1)
            require_claim(path, name, size, path.stat().st_size)
            variables[name] = _variable(path, name, tuple(map(int, shape)), kind)
    return Source(str(path), variables)


def _variable(path: Path, name: str, shape: tuple[int, ...], kind: str) -> Variable:
    def read() -> np.ndarray:
        if kind not in NUMBERS:
            raise ForeignFileError(
                f"{path}, {name}: expected an array of numbers, got a MATLAB {kind}: save the "
                "arrays inside it as variables of their own"
            )
        with reading(path, MAT):
            loaded = loadmat(path, variable_names=[name], appendmat=False)
            return np.asarray(loaded[name]).reshape(_without_ones(shape))

    return Variable(name, _without_ones(shape), read, kind in NUMBERS)


def _without_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a vector, if it is one that MATLAB keeps as a matrix.

    >>> _without_ones((7, 1)), _without_ones((1, 7)), _without_ones((1, 1)), _without_ones((2, 7))
    ((7,), (7,), (1,), (2, 7))
    """
    return (max(shape),) if len(shape) == 2 and min(shape) == 1 else shape


def _read_hdf5(path: Path) -> Source:
    """Version 7.3: axes are in reverse order in the file."""
    source = datasets(path, MAT)
    variables = {name: _reversed(v) for name, v in source.variables.items() if name[0] != "#"}
    return Source(str(path), variables)


def _reversed(stored: Variable) -> Variable:
    shape = _without_ones(stored.shape[::-1])

    def read() -> np.ndarray:
        return stored.read().T.reshape(shape)

    return Variable(stored.name, shape, read, stored.is_number)
