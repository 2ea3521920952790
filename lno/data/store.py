"""`Fields` in one HDF5 file, readable with plain h5py.

Datasets `x`, `u`, `y`, and those of `x_query`, `weights`, `query_weights`, `background`, `cells`
and `grid_index` that the data have: shape (s, n, c), (n, c) for what all samples share, or
(Σ n_k, c) with `<name>_offsets` (s + 1) for samples of different sizes; `parameters` (s, p).
Attributes: format, version, samples, digest, and as JSON meaning (grid, period, names, units,
geometry, space, frame; sphere where there is one) and provenance. Chunks hold whole samples, are
compressed unless the file is a temporary one, and carry a checksum.

A file that is read may be damaged or hostile. Before anything of their size is allocated, declared
shapes are checked against what is stored: every chunk must be there, in a filter that HDF5 itself
has, and all values together may take `lno.limits.HDF5_RATIO` times the size of the file. With
`lazy` too. Links to other files are not followed.

What this does not protect from: the HDF5 library parses the file's own structures (superblock,
object headers, B-trees, heaps) in native code. A few changed bytes in them can make it run for ever
or crash, before or while this module looks. Files that may be hostile should be opened in a process
with a time limit.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from lno import limits
from lno.data.columns import Column, Ragged, Rows
from lno.data.fields import COLUMNS, INDEX_COLUMNS, Fields
from lno.files import parse_json, replacing, require_signature

FORMAT, VERSION = "lno.fields", 2
MEANING = ("grid", "period", "names", "units", "geometry", "space", "frame")
# Version 2 added columns and gathered most attributes in one.
CONVERT = """with h5py.File(PATH, "r+") as f:
    old = f.attrs
    meaning = {k: json.loads(old[k]) for k in ("grid", "period", "names", "units")}
    meaning |= {"geometry": None, "space": f["x"].shape[-1], "frame": old["frame"]}
    old.update(version=2, digest=old["hash"], meaning=json.dumps(meaning))"""
FILTERS = {h5py.h5z.FILTER_DEFLATE, h5py.h5z.FILTER_SHUFFLE, h5py.h5z.FILTER_FLETCHER32}
TYPES = {"f": ("float32", "float64"), "i": ("int64",)}  # in the byte order of this machine
CHUNK_VALUES = 1 << 17  # half a MiB of float32: small enough to read one sample, large to compress


def save(fields: Fields, path: str | Path, *, compress: bool = True) -> None:
    """Write `fields` to one file; `path` keeps its old content until the new one is whole.

    Compression takes ten times as long as writing and saves a quarter of the space, or more where
    values repeat.
    """
    with replacing(path) as temporary, _writing(temporary) as file:
        meaning = {key: getattr(fields, key) for key in MEANING}
        meaning |= {} if fields.sphere is None else {"sphere": fields.sphere}
        file.attrs.update(format=FORMAT, version=VERSION, samples=len(fields))
        file.attrs.update(digest=fields.digest, meaning=json.dumps(meaning))
        file.attrs["provenance"] = json.dumps(fields.provenance)
        if fields.parameters is not None:
            _write(file, "parameters", fields.parameters, compress)
        for name in (*COLUMNS, *INDEX_COLUMNS):
            column = fields.column(name)
            if isinstance(column, Ragged):
                packed = Ragged.pack(list(column))
                offsets = np.append(packed.starts, packed.stops[-1])
                file.create_dataset(
                    f"{name}_offsets",
                    data=offsets,
                    chunks=(min(len(offsets), CHUNK_VALUES),),
                    fletcher32=True,
                )
                _write(file, name, packed.flat, compress)
            elif column is not None:
                _write(file, name, column, compress)


def load(path: str | Path, *, lazy: bool = False) -> Fields:
    """Read a file of `save`; with `lazy`, values stay in the file until they are used."""
    kind = "a data file (HDF5) written by lno"
    require_signature(path, b"\x89HDF\r\n\x1a\n", 0, kind)
    file = None
    try:
        file = h5py.File(path, "r")
        fields = _read(file, lazy)
    except Exception as error:
        if file is not None:  # HDF5 would go on answering from it after the file is repaired
            file.close()
        if isinstance(error, MemoryError):
            raise
        if isinstance(error, ValueError):
            raise ValueError(f"{path}: {error}") from error
        raise ValueError(f"{path} is damaged or not {kind}: {error}") from error
    if not lazy:
        file.close()
    return fields


class _Guarded(io.FileIO):
    """A file object that hides its first error, or Ctrl-C, from HDF5.

    HDF5 cannot give up a file that it failed to write: it tries again when the process ends, and
    crashes it. So every write appears to succeed, and the error is raised once HDF5 has closed.
    """

    failure: BaseException | None = None

    def write(self, data: Any) -> int:
        """Write, or remember the error."""
        try:
            if self.failure is None:
                return super().write(data) or 0
        except (OSError, KeyboardInterrupt) as error:
            self.failure = error
        return len(data)

    def truncate(self, size: int | None = None) -> int:
        """Change the size, or remember the error."""
        try:
            if self.failure is None:
                return super().truncate(size)
        except (OSError, KeyboardInterrupt) as error:
            self.failure = error
        return size or 0

    def readinto(self, buffer: Any) -> int:
        """Read back what was written; zeros where the write failed."""
        view = memoryview(buffer).cast("B")
        count = super().readinto(view) or 0
        view[count:] = bytes(len(view) - count)
        return len(view)


@contextmanager
def _writing(path: Path) -> Iterator[h5py.File]:
    """An open HDF5 file whose failures, when the disk is full say, are plain OSErrors."""
    with _Guarded(path, "w+") as raw:
        with h5py.File(raw, "w", libver=("v110", "v112")) as file:
            yield file
        if raw.failure is not None:
            raise raw.failure


def _write(file: h5py.File, name: str, column: Any, compress: bool) -> None:
    rows, c = column.shape[-2], max(column.shape[-1], 1)
    points = max(1, min(rows, CHUNK_VALUES // c))
    chunks: tuple[int, ...] = (points, c)
    if len(column.shape) == 3:
        together = max(1, min(column.shape[0], CHUNK_VALUES // (points * c)))
        chunks = (together, *chunks)
    packing: dict[str, Any] = {}
    if column.shape[-1] > 0:  # HDF5 cannot chunk an empty axis
        packing = {"chunks": chunks, "fletcher32": True}
        if compress:
            packing |= {"shuffle": True, "compression": "gzip", "compression_opts": 4}
    dataset = file.create_dataset(name, shape=column.shape, dtype=column.dtype, **packing)
    if len(column.shape) == 2:
        dataset[...] = column
        return
    for start in range(0, column.shape[0], chunks[0]):  # never more than a chunk in memory
        dataset[start : start + chunks[0]] = np.asarray(column[start : start + chunks[0]])


def _read(file: h5py.File, lazy: bool) -> Fields:
    attributes = file.attrs
    if attributes.get("format") != FORMAT:
        got = attributes.get("format")
        raise ValueError(f"expected the attribute format = {FORMAT!r}, got {got!r}")
    version = int(attributes["version"])
    if version > VERSION:
        raise ValueError(
            f"written in format version {version}, this lno reads up to {VERSION}: "
            "update with 'pip install -U latent-neural-operator'"
        )
    if version < VERSION:
        raise ValueError(
            f"written in format version {version} by an older lno; this one reads version "
            f"{VERSION}. Make or read the data again, or convert the file with h5py:\n{CONVERT}"
        )
    meaning = parse_json(attributes["meaning"], finite=False)
    provenance = parse_json(attributes["provenance"], finite=False)
    _require_room(file)
    if not isinstance(meaning, dict) or set(meaning) - {"sphere"} != set(MEANING):
        raise ValueError(f"meaning: expected {', '.join(MEANING)}, got {str(meaning)[:100]}")
    found: dict[str, Any] = {name: _column(file, name, lazy, "f") for name in COLUMNS}
    found |= {name: _column(file, name, lazy, "i") for name in INDEX_COLUMNS}
    if found["x"] is None or found["u"] is None:
        raise ValueError("expected the datasets x and u")
    parameters = _dataset(file, "parameters", "f")
    found["parameters"] = None if parameters is None else parameters[...]
    fields = Fields(**found, **meaning, provenance=provenance)
    stored = str(attributes["digest"])
    if lazy:
        fields._digest = stored
    elif fields.digest != stored:
        raise ValueError("the values do not match their digest: the file was changed or damaged")
    return fields


def _column(file: h5py.File, name: str, lazy: bool, kind: str) -> Column | None:
    dataset = _dataset(file, name, kind)
    if dataset is None:
        return None
    offsets = _dataset(file, f"{name}_offsets", "i")
    if offsets is not None:
        ends = np.asarray(offsets[...], dtype=np.int64)
        fit = dataset.ndim == 2 and ends.ndim == 1 and len(ends) > 1
        if not fit or ends[0] != 0 or ends[-1] != len(dataset):
            raise ValueError(f"{name}_offsets does not fit the {dataset.shape} values of {name}")
        if np.any(np.diff(ends) < 0):
            raise ValueError(f"{name}_offsets: expected increasing numbers")
        return Ragged(_Stored(dataset) if lazy else dataset[...], ends[:-1], ends[1:])
    if dataset.ndim not in (2, 3):
        raise ValueError(f"{name}: expected 2 or 3 axes, got shape {dataset.shape}")
    if dataset.ndim == 3 and lazy:
        return Rows(_Stored(dataset), np.arange(len(dataset)))
    return dataset[...]


class _Stored:
    """A dataset whose values stay in the file; damage that is found later names the file."""

    def __init__(self, dataset: h5py.Dataset) -> None:
        self.dataset, self.file = dataset, dataset.file
        self.shape, self.dtype = dataset.shape, dataset.dtype

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: Any) -> Any:
        try:
            return self.dataset[index]
        except OSError as error:
            raise ValueError(
                f"{self.file.filename} is damaged: {self.dataset.name[1:]}: {error}"
            ) from error


def _dataset(file: h5py.File, name: str, kind: str) -> h5py.Dataset | None:
    """A dataset that this very file holds; a link to another file is not followed."""
    link = file.get(name, getlink=True)
    if link is None:
        return None
    dataset = file[name] if isinstance(link, h5py.HardLink) else None
    if not isinstance(dataset, h5py.Dataset) or dataset.is_virtual or dataset.external:
        raise ValueError(f"{name}: expected a plain dataset inside the file")
    if dataset.dtype not in TYPES[kind]:
        raise ValueError(f"{name}: expected {' or '.join(TYPES[kind])}, got {dataset.dtype}")
    return dataset


def _require_room(file: h5py.File) -> None:
    """Raise unless all datasets are stored as a whole, and their values fit into memory."""
    names = [*COLUMNS, *INDEX_COLUMNS, "parameters"]
    names += [f"{name}_offsets" for name in names]
    found = {name: file[name] for name in names if _holds(file, name)}
    stored = file.id.get_filesize()
    room = max(limits.HDF5_RATIO * stored, limits.HDF5_SMALL_BYTES)
    known: set[int] = set()  # lengths of axes that stored values have
    total = 0
    for name, dataset in found.items():
        shape = dataset.shape or ()
        size = math.prod(shape) * dataset.dtype.itemsize
        total += size
        if total > room:
            raise ValueError(
                f"{name}: claims {size:,} bytes, which a file of {stored:,} bytes cannot hold"
            )
        if size > 0:
            _require_stored(name, dataset, size, stored)
            known |= set(shape)
    for name, dataset in found.items():
        for length in dataset.shape or ():
            if length > limits.HDF5_EMPTY_ROWS and length not in known:
                raise ValueError(
                    f"{name}: claims {length:,} rows, but no values of them are stored"
                )


def _holds(file: h5py.File, name: str) -> bool:
    """Whether the file itself holds a dataset of this name."""
    link = file.get(name, getlink=True)
    return isinstance(link, h5py.HardLink) and isinstance(file[name], h5py.Dataset)


def _require_stored(name: str, dataset: h5py.Dataset, size: int, stored: int) -> None:
    """Raise unless every value of a dataset is in the file."""
    if dataset.is_virtual or dataset.external:
        return  # refused by `_dataset`
    held = dataset.id.get_storage_size()
    if held > stored:
        raise ValueError(f"{name}: claims {held:,} bytes of a file of {stored:,} bytes")
    if dataset.chunks is None:
        if held < size:
            raise ValueError(f"{name}: {size:,} bytes are claimed and {held:,} are stored")
        return
    plist = dataset.id.get_create_plist()
    filters = {plist.get_filter(k)[0] for k in range(plist.get_nfilters())}
    if not filters <= FILTERS:
        raise ValueError(f"{name}: compressed in a way that lno does not write (filters {filters})")
    pairs = list(zip(dataset.shape, dataset.chunks, strict=True))
    if any(chunk > length for length, chunk in pairs):
        raise ValueError(f"{name}: chunks {dataset.chunks} are larger than {dataset.shape}")
    chunks = math.prod(-(-length // chunk) for length, chunk in pairs)
    # Every chunk takes some bytes; so a number that the file cannot hold need not be counted.
    if chunks > stored or dataset.id.get_num_chunks() != chunks:
        raise ValueError(f"{name}: expected {chunks:,} stored chunks, some are missing")
