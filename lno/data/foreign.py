"""Arrays in MATLAB and NumPy files from unknown sources, opened without running any code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from scipy.io import loadmat, whosmat

from lno.files import require_signature

MAT = "a MATLAB file (v5 or v7.3)"
NPY = "a .npy file of plain numbers, without pickled objects"
NPZ = "an .npz file of plain numbers, without pickled objects"
SIGNATURES = {MAT: (b"\x00\x01IM", 124), NPY: (b"\x93NUMPY", 0), NPZ: (b"PK\x03\x04", 0)}
# A chunk may span several of the slices that are read in turn: keep it until they are done.
CHUNK_CACHE = {"rdcc_nbytes": 1 << 28, "rdcc_nslots": 100_003}


class ForeignFileError(ValueError):
    """A file that is damaged, or is not the file that was expected."""


class Reversed:
    """An HDF5 dataset with its axes in MATLAB's order, the reverse of the order in the file."""

    def __init__(self, dataset: h5py.Dataset) -> None:
        self.dataset, self.shape, self.dtype = dataset, dataset.shape[::-1], dataset.dtype


@contextmanager
def opened(path: Path, key: str, kind: str) -> Iterator[Any]:
    """The array `key` of a file, its axes as published.

    Whatever a library raises becomes a `ForeignFileError` that names the file.
    """
    hdf5 = kind == MAT and h5py.is_hdf5(path)
    try:
        if not hdf5:  # the content decides: the suffix of a file may be wrong
            require_signature(path, *SIGNATURES[kind], kind)
    except ValueError as error:
        raise ForeignFileError(str(error)) from error
    try:
        with ExitStack() as stack:
            if hdf5:
                file = stack.enter_context(h5py.File(path, "r", **CHUNK_CACHE))
                yield Reversed(_dataset(file, path, key))
            elif kind == MAT:
                _require_key(path, key, [name for name, *_ in whosmat(path, appendmat=False)])
                yield np.asarray(loadmat(path, variable_names=[key], appendmat=False)[key])
            elif kind == NPZ:
                archive = stack.enter_context(np.load(path, allow_pickle=False))
                _require_key(path, key, archive.files)
                yield archive[key]
            else:
                yield np.load(path, mmap_mode="r", allow_pickle=False)
    except (ForeignFileError, MemoryError):
        raise
    except Exception as error:  # for damaged files, each library raises a dozen types
        raise ForeignFileError(
            f"{path} cannot be read as {kind}: {str(error) or type(error).__name__}. It may be "
            "damaged or incomplete: compare its size with the source's, and fetch it again."
        ) from error


def _dataset(file: h5py.File, path: Path, key: str) -> h5py.Dataset:
    """A dataset of this file; links to other files are not followed."""
    _require_key(path, key, file)
    inside = isinstance(file.get(key, getlink=True), h5py.HardLink)
    dataset = file[key] if inside else None
    if not isinstance(dataset, h5py.Dataset) or dataset.is_virtual or dataset.external:
        raise ForeignFileError(
            f"{path}, {key}: expected an array inside the file; links to other places are not "
            "followed"
        )
    return dataset


def _require_key(path: Path, key: str, found: Iterable[str]) -> None:
    names = sorted(found)
    if key not in names:
        listed = ", ".join(names) or "nothing"
        raise ForeignFileError(f"{path}: expected an array named {key!r}, found {listed}")
