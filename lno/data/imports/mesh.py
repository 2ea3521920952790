"""Meshes (VTK, VTU, Gmsh, XDMF and others) with meshio: a file is a sample, its cells are kept."""

from __future__ import annotations

import contextlib
import io
import lzma
import re
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import h5py
import numpy as np

from lno import limits
from lno.data.foreign import ForeignFileError
from lno.data.imports.hdf5 import require_own_values
from lno.data.imports.source import Source, Variable, missing_extra, reading
from lno.text import visible

KIND = "a mesh"
# Suffixes that meshio reads, but compressed ones and .svg.
SUFFIXES = (
    *(".avs", ".bdf", ".cgns", ".dat", ".dato", ".e", ".ele", ".ex2", ".exo", ".f3grid", ".fem"),
    *(".h5m", ".hmf", ".inp", ".mdpa", ".med", ".mesh", ".meshb", ".msh", ".nas", ".node", ".obj"),
    *(".off", ".ply", ".post", ".stl", ".su2", ".tec", ".ugrid", ".vol", ".vtk", ".vtu", ".wkt"),
    *(".xdmf", ".xmf", ".xml"),
)
XML = (".vtu", ".xdmf", ".xmf", ".xml")
SURFACES = {"triangle": 3, "triangle6": 3, "triangle7": 3, "quad": 4, "quad8": 4, "quad9": 4}
CENTRE = "{} of the cell's centre"
_LOCK = threading.Lock()  # one mesh at a time: a part of meshio is replaced while it reads


def read_mesh(path: Path) -> Source:
    """Points, values at the points and at the cells, and the triangles and quadrilaterals."""
    try:
        import meshio
    except ImportError as error:
        raise missing_extra(path, "meshio") from error
    if path.suffix.lower() in XML:
        _require_harmless_xml(path)
    elif h5py.is_hdf5(path):
        require_own_values(path, KIND)
    said = io.StringIO()
    silent = contextlib.redirect_stdout(said), contextlib.redirect_stderr(io.StringIO())
    with reading(path, KIND), silent[0], silent[1], _bounded(path):
        try:
            mesh = meshio.read(path)
        except SystemExit:  # that is how meshio gives up
            raise ForeignFileError(_damaged(path, said.getvalue())) from None
        except ModuleNotFoundError as error:
            raise ForeignFileError(f"{path} needs {error.name}: pip install {error.name}") from None
        except MemoryError:
            raise ForeignFileError(f"{path} claims more points than fit into memory") from None
        return _source(path, mesh)


def _damaged(path: Path, said: str) -> str:
    """Why a file cannot be read, with what its reader said in one line, if it said anything."""
    reason = " ".join(said.split()).rstrip(".")
    if not reason and path.suffix.lower() in XML:  # meshio hides what the parser says
        try:
            ElementTree.parse(path)
        except ElementTree.ParseError as error:
            reason = f"XML: {error}"
    shown = f" ({visible(reason)[:200]})" if reason else ""
    return (
        f"{path} cannot be read as {KIND}: it is damaged or truncated, or no {path.suffix} "
        f"file{shown}. Compare its size with the source's, and fetch or write it again"
    )


def _source(path: Path, mesh: Any) -> Source:
    points = np.asarray(mesh.points, np.float64)
    if points.ndim != 2 or len(points) == 0:
        raise ForeignFileError(f"{path} has no points")
    used = [k for k in range(points.shape[1]) if np.ptp(points[:, k]) > 0] or [0]
    notes = [
        f"{'xyz'[k]} is {points[0, k]:g} at all points and was left out"
        for k in range(points.shape[1])
        if k not in used
    ]
    found = {"xyz"[k]: _variable("xyz"[k], points[:, k], "point") for k in used}
    for name, values in (mesh.point_data or {}).items():
        found[_free(name, found)] = _variable(_free(name, found), values, "point")
    cells, more = _surface_cells(mesh)
    notes += more
    if cells is not None:
        found[_free("cells", found)] = Variable(
            _free("cells", found), cells.shape, lambda: cells, True, ("cell", "corner")
        )
    if mesh.cell_data:
        centres = np.concatenate([points[block.data].mean(1) for block in mesh.cells])
        for k in used:
            name = CENTRE.format("xyz"[k])
            found[name] = _variable(name, centres[:, k], "centre")
        for name, parts in mesh.cell_data.items():
            values = np.concatenate([np.asarray(part) for part in parts])
            found[_free(name, found)] = _variable(_free(name, found), values, "centre")
    return Source(str(path), found, notes=tuple(notes))


def _free(name: str, taken: dict[str, Variable]) -> str:
    """The name, or where another array has it, the name with an underscore."""
    while name in taken:
        name += "_"
    return name


def _variable(name: str, values: Any, axis: str) -> Variable:
    array = np.asarray(values)
    axes = (axis, *(f"component {k}" for k in range(array.ndim - 1)))
    return Variable(name, array.shape, lambda: array, array.dtype.kind in "biuf", axes)


def _surface_cells(mesh: Any) -> tuple[np.ndarray | None, list[str]]:
    """Triangles, or quadrilaterals; where there are both, all as triangles."""
    surfaces = [b for b in mesh.cells if b.type in SURFACES and len(b.data)]
    volumes = sorted({b.type for b in mesh.cells if b.dim == 3})
    if volumes:
        return None, [f"cells of volume ({', '.join(volumes)}) were left out: pictures show faces"]
    if not surfaces:
        return None, []
    blocks = [np.asarray(b.data, np.int64)[:, : SURFACES[b.type]] for b in surfaces]
    if len({block.shape[1] for block in blocks}) == 1:
        return np.concatenate(blocks), []
    parts = [b if b.shape[1] == 3 else np.concatenate((b[:, :3], b[:, [0, 2, 3]])) for b in blocks]
    return np.concatenate(parts), ["quadrilaterals were divided: there are triangles too"]


# -- files that were made to do harm ---------------------------------------------------------------


def _require_harmless_xml(path: Path) -> None:
    """Refuse entities, which can expand without end, and data in other places."""
    content = path.read_bytes()
    head = content[:4]
    if b"\0" in head or head[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise ForeignFileError(f"{path} is not {KIND}: expected XML in UTF-8")
    if b"<!DOCTYPE" in content or b"<!ENTITY" in content:
        raise ForeignFileError(
            f"{path} declares XML entities, which {KIND} does not need and which can take all "
            "memory: it was not opened"
        )
    if path.suffix.lower() == ".vtu":
        return
    checked: set[str] = set()
    for found in re.finditer(rb"<DataItem([^>]*)>([^<]*)", content):
        described, text = found[1].decode("latin-1"), found[2].decode("latin-1").strip()
        binary = re.search(r"Format\s*=\s*[\"']Binary", described)
        other = re.search(r"Format\s*=\s*[\"']HDF", described)
        name = text.partition(":")[0]
        if binary or (other and Path(name).name != name):
            raise ForeignFileError(
                f"{path} refers to {name or 'another file'!r}: only HDF5 files beside it are read"
            )
        if other and name not in checked:
            checked.add(name)
            require_own_values(path.with_name(name), KIND)


class _Bounded:
    """A module that unpacks data, with a limit on all that it unpacks together."""

    def __init__(self, module: Any, path: Path) -> None:
        self.module, self.path = module, path
        self.left = max(limits.IMPORT_RATIO * path.stat().st_size // 4, limits.IMPORT_SMALL_BYTES)

    def decompress(self, data: bytes) -> bytes:
        """Unpack, or raise where it is too much."""
        unpack = zlib.decompressobj() if self.module is zlib else lzma.LZMADecompressor()
        found = unpack.decompress(data, self.left + 1)
        self.left -= len(found)
        if self.left < 0:
            raise ForeignFileError(f"{self.path} unpacks to far more than its size: not opened")
        if not unpack.eof:
            raise ForeignFileError(f"{self.path} is damaged: a block of data is incomplete")
        return found


@contextlib.contextmanager
def _bounded(path: Path) -> Iterator[None]:
    """Compressed VTU files say how large their blocks are, and meshio does not ask."""
    from meshio.vtu import _vtu

    with _LOCK:
        before = _vtu.zlib, _vtu.lzma
        _vtu.zlib, _vtu.lzma = _Bounded(zlib, path), _Bounded(lzma, path)
        try:
            yield
        finally:
            _vtu.zlib, _vtu.lzma = before
