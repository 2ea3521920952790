"""NumPy files: .npz archives of named arrays, and .npy files of one array each."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from lno import limits
from lno.data.foreign import NPY, NPZ, SIGNATURES, ForeignFileError
from lno.data.imports.source import Source, Variable, reading, require_claim
from lno.files import require_signature

COMPRESSED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # those that NumPy writes


def read_npz(path: Path) -> Source:
    """The arrays of an .npz archive, each read when it is used."""
    require_signature(path, *SIGNATURES[NPZ], NPZ)
    variables: dict[str, Variable] = {}
    with reading(path, NPZ), zipfile.ZipFile(path) as archive:
        members = [m for m in archive.infolist() if m.filename.endswith(".npy")]
        if len(members) > limits.IMPORT_VARIABLES:
            raise ForeignFileError(f"{path} claims {len(members):,} arrays")
        total = path.stat().st_size
        for member in members:
            name = member.filename.removesuffix(".npy")
            if member.compress_type not in COMPRESSED:
                raise ForeignFileError(f"{path}, {name}: compressed in a way NumPy does not write")
            if member.compress_size > total:
                raise ForeignFileError(f"{path}, {name}: claims more bytes than the file has")
            require_claim(path, name, member.file_size, member.compress_size)
            with archive.open(member) as file:
                shape, dtype = _header(path, name, file, member.file_size)
            if name in variables:
                raise ForeignFileError(f"{path} holds two arrays of the name {name!r}")
            variables[name] = _variable(path, name, shape, dtype, member)
    return Source(str(path), variables)


def read_npy(paths: Sequence[Path]) -> Source:
    """Arrays of .npy files, a file each; the names of the files, without .npy, are theirs."""
    variables: dict[str, Variable] = {}
    for path in paths:
        require_signature(path, *SIGNATURES[NPY], NPY)
        with reading(path, NPY), path.open("rb") as file:
            shape, dtype = _header(path, path.stem, file, path.stat().st_size)
        if path.stem in variables:
            raise ForeignFileError(f"{path}: another file has the same name, {path.stem}")
        variables[path.stem] = _variable(path, path.stem, shape, dtype, None)
    return Source(str(paths[0]) if len(paths) == 1 else f"{paths[0]} …", variables)


def _header(
    path: Path, name: str, file: IO[bytes], size: int
) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and type of an array, checked against the bytes that there are."""
    version = np.lib.format.read_magic(file)
    read = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }.get(version, np.lib.format.read_array_header_2_0)
    shape, _, dtype = read(file, max_header_size=limits.NPY_HEADER_BYTES)
    if dtype.hasobject:
        raise ForeignFileError(
            f"{path}, {name}: holds Python objects (a pickle), which can run any code and are "
            "never opened here: save it as an array of numbers"
        )
    claimed = math.prod(shape) * dtype.itemsize
    if any(n < 0 for n in shape) or claimed > size:
        raise ForeignFileError(f"{path}, {name}: claims {claimed:,} bytes, {size:,} are stored")
    return tuple(shape), dtype


def _variable(
    path: Path,
    name: str,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    member: zipfile.ZipInfo | None,
) -> Variable:
    def read() -> np.ndarray:
        if dtype.kind not in "biuf":
            raise ForeignFileError(f"{path}, {name}: expected real numbers, got {_called(dtype)}")
        return array()

    def array() -> np.ndarray:
        with reading(path, NPY if member is None else NPZ):
            if member is None:
                return np.load(path, allow_pickle=False)
            with zipfile.ZipFile(path) as archive, archive.open(member) as file:
                values = np.lib.format.read_array(file, allow_pickle=False)
                file.read()  # the checksum is compared at the end
                return values

    def texts() -> list[str]:
        return [str(value) for value in array().ravel()]

    return Variable(name, shape, read, dtype.kind in "biuf", texts=texts)


def _called(dtype: np.dtype[Any]) -> str:
    text = "text: encode it as numbers, such as 0 and 1 for each category"
    kinds = {"U": text, "S": text, "c": "complex numbers: pass real and imaginary part"}
    kinds |= {
        "M": "dates: take their parts, like time.month, as parameters",
        "m": "times: convert them to numbers",
    }
    return kinds.get(dtype.kind, f"values of type {dtype}")
