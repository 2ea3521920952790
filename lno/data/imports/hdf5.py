"""HDF5 files of other programs: datasets by their names, `group/name` inside of groups."""

from __future__ import annotations

import math
from pathlib import Path

import h5py
import numpy as np

from lno import limits
from lno.data.foreign import CHUNK_CACHE, ForeignFileError
from lno.data.imports.source import Source, Variable, reading, require_claim
from lno.files import require_signature

KIND = "an HDF5 file"
SIGNATURE = (b"\x89HDF\r\n\x1a\n", 0)


def read_hdf5(path: Path) -> Source:
    """The datasets of an HDF5 file."""
    require_signature(path, *SIGNATURE, KIND)
    with reading(path, KIND), h5py.File(path, "r") as file:
        if file.attrs.get("format") == "lno.fields":
            raise ForeignFileError(
                f"{path} is a data file of lno already: use it as it is, 'lno data info {path}'"
            )
    return datasets(path, KIND)


def datasets(path: Path, kind: str) -> Source:
    """All datasets that are inside of this very file; links to other files are not followed."""
    variables: dict[str, Variable] = {}

    def add(name: str, found: object) -> None:
        if isinstance(found, h5py.Dataset) and found.shape is not None:
            if len(variables) >= limits.IMPORT_VARIABLES:
                raise ForeignFileError(f"{path} holds more than {len(variables):,} datasets")
            variables[name] = _variable(path, name, found, kind)

    with reading(path, kind), h5py.File(path, "r") as file:
        file.visititems(add)  # follows neither soft nor external links
    return Source(str(path), variables)


def _variable(path: Path, name: str, dataset: h5py.Dataset, kind: str) -> Variable:
    dtype, shape = dataset.dtype, tuple(dataset.shape)

    def read() -> np.ndarray:
        if dtype.kind not in "biuf":
            raise ForeignFileError(f"{path}, {name}: expected real numbers, got {dtype}")
        with reading(path, kind), h5py.File(path, "r", **CHUNK_CACHE) as file:
            return opened(path, name, file)[...]

    def texts() -> list[str]:
        with reading(path, kind), h5py.File(path, "r") as file:
            values = opened(path, name, file)
            numbers = dtype.kind in "biuf"
            return [str(v) for v in (values if numbers else values.asstr())[...].ravel()]

    return Variable(name, shape, read, dtype.kind in "biuf", texts=texts)


def opened(path: Path, name: str, file: h5py.File) -> h5py.Dataset:
    """A dataset whose values are in the file and may be read as a whole."""
    dataset = file[name]
    if dataset.is_virtual or dataset.external:
        raise ForeignFileError(
            f"{path}, {name}: its values are in another file, and links are not followed"
        )
    claimed = math.prod(dataset.shape) * dataset.dtype.itemsize
    require_claim(path, name, claimed, min(dataset.id.get_storage_size(), path.stat().st_size))
    if dataset.chunks is not None:  # one chunk is unpacked as a whole
        chunk = math.prod(dataset.chunks) * dataset.dtype.itemsize
        require_claim(path, name, chunk, path.stat().st_size)
    return dataset


def require_own_values(path: Path, kind: str) -> None:
    """Raise unless all values of a file are in it; for libraries that follow links."""

    def refuse(name: str, link: object) -> None:
        if isinstance(link, h5py.ExternalLink):
            raise ForeignFileError(f"{path}, {name}: is in another file; links are not followed")

    with reading(path, kind), h5py.File(path, "r") as file:
        file.visititems_links(refuse)
        for name in datasets(path, kind).variables:
            opened(path, name, file)
