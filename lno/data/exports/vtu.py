"""VTU files, the unstructured meshes of VTK, for ParaView and other programs.

The layout is "appended raw": an XML header that says where each array stands, then the arrays as
they are. They are written a part at a time, so memory does not grow with the mesh.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import BinaryIO
from xml.sax.saxutils import escape, quoteattr

import numpy as np
from jaxtyping import Float, Int

from lno.data.exports.result import Result
from lno.files import replacing
from lno.mesh import CORNERS, grid_cells
from lno.text import visible
from lno.version import __version__

PART = 65_536  # rows that are in memory at once
# The numbers that VTK has for cells, by their number of corners; lines, faces and volumes.
VERTEX, CELLS = 1, {2: 3, 3: 5, 4: 9, 8: 12}
TYPES = {"f4": "Float32", "f8": "Float64", "i8": "Int64", "u1": "UInt8"}


@dataclass(frozen=True)
class Array:
    """One array of the file.

    Args:
        name: of it.
        kind: of its numbers, as in NumPy.
        rows, columns: its shape.
        parts: its rows, some at a time.
        unit: of its numbers.
    """

    name: str
    kind: str
    rows: int
    columns: int
    parts: Iterator[np.ndarray]
    unit: str = ""

    @property
    def size(self) -> int:
        """In bytes."""
        return self.rows * self.columns * np.dtype(self.kind).itemsize


def write_vtu(path: str | Path, result: Result) -> None:
    """Write one sample with its cells: those of the data, else of the grid, else a vertex a point.

    Args:
        path: the file, which is written atomically.
        result: values of one sample, at points in one to three dimensions.
    """
    positions, n = result.positions, result.points
    if len(positions) > 3:
        raise ValueError(
            f"a .vtu file has points in one to three dimensions, not {len(positions)}: write .nc, "
            ".csv, .npz or .h5, or say how many coordinates are positions, Fields(..., space=3)"
        )
    count, corners, cells = _cells(result, len(positions))
    values = [
        Array(name, _kind(v), n, 1, _values(v[0]), result.units.get(name, ""))
        for name, v in result.values.items()
    ]
    kind = "f8" if any(_kind(v) == "f8" for v in positions) else "f4"
    points = Array("Points", kind, n, 3, _points([v[0] for v in positions]))
    mesh = [
        Array("connectivity", "i8", count * corners, 1, cells),
        Array("offsets", "i8", count, 1, _offsets(count, corners)),
        Array("types", "u1", count, 1, _types(count, corners)),
    ]
    with replacing(path) as temporary, temporary.open("wb") as file:
        file.write(_header(n, count, values, points, mesh).encode())
        for array in (*values, points, *mesh):
            _append(file, array)
        file.write(b"\n</AppendedData>\n</VTKFile>\n")


def _header(n: int, cells: int, values: list[Array], points: Array, mesh: list[Array]) -> str:
    """The XML before the arrays, which says at which byte each begins."""
    order = "LittleEndian" if sys.byteorder == "little" else "BigEndian"
    offset = 0

    def lines(arrays: list[Array]) -> str:
        nonlocal offset
        found = []
        for array in arrays:
            unit, many = "", ""
            if array.columns > 1:
                many = f' NumberOfComponents="{array.columns}"'
            if array.unit:
                key = '<InformationKey name="UNITS_LABEL" location="vtkDataArray">'
                unit = f"{key}{escape(visible(array.unit))}</InformationKey>"
            found.append(
                f'<DataArray type="{TYPES[array.kind]}" Name={quoteattr(visible(array.name))}'
                f'{many} format="appended" offset="{offset}">'
                f"{unit}</DataArray>\n"
            )
            offset += 8 + array.size
        return "".join(found)

    return (
        f'<?xml version="1.0" encoding="utf-8"?>\n<!-- lno {__version__} -->\n'
        f'<VTKFile type="UnstructuredGrid" version="1.0" byte_order="{order}" '
        f'header_type="UInt64">\n<UnstructuredGrid>\n'
        f'<Piece NumberOfPoints="{n}" NumberOfCells="{cells}">\n'
        f"<PointData>\n{lines(values)}</PointData>\n<Points>\n{lines([points])}</Points>\n"
        f"<Cells>\n{lines(mesh)}</Cells>\n</Piece>\n</UnstructuredGrid>\n"
        f'<AppendedData encoding="raw">\n_'
    )


def _append(file: BinaryIO, array: Array) -> None:
    """The size of an array in bytes, then its numbers."""
    file.write(np.uint64(array.size).tobytes())
    for part in array.parts:
        file.write(np.ascontiguousarray(part, array.kind).data)


def _kind(values: np.ndarray) -> str:
    return "f4" if values.dtype == np.float32 else "f8"


def _values(values: Float[np.ndarray, " n"]) -> Iterator[np.ndarray]:
    return (values[k : k + PART] for k in range(0, len(values), PART))


def _points(positions: list[Float[np.ndarray, " n"]]) -> Iterator[np.ndarray]:
    """Positions in three dimensions; those that are missing are zero."""
    for k in range(0, len(positions[0]), PART):
        parts = [v[k : k + PART] for v in positions]
        yield np.stack((*parts, *[np.zeros_like(parts[0])] * (3 - len(parts))), 1)


def _cells(result: Result, dimensions: int) -> tuple[int, int, Iterator[np.ndarray]]:
    """How many cells there are, how many corners each has, and the cells, some at a time."""
    grid, n = result.grid, result.points
    if result.cells is not None:
        own = result.cells
        parts = (own[k : k + PART] for k in range(0, len(own), PART))
        return len(own), own.shape[1], parts
    if grid is None or len(grid) > dimensions or min(grid) < 2:
        return n, 1, (np.arange(k, min(k + PART, n)) for k in range(0, n, PART))
    corners = len(CORNERS[len(grid)])
    if result.index is not None:
        found = grid_cells(grid, result.index[0])
        return len(found), corners, iter([found])
    step = max(1, PART // prod(grid[1:]))
    rows = (slice(k, min(k + step, grid[0] - 1)) for k in range(0, grid[0] - 1, step))
    return prod(k - 1 for k in grid), corners, (grid_cells(grid, rows=r) for r in rows)


def _offsets(count: int, corners: int) -> Iterator[Int[np.ndarray, " m"]]:
    """Where the corners of each cell end."""
    for k in range(0, count, PART):
        yield corners * np.arange(k + 1, min(k + PART, count) + 1)


def _types(count: int, corners: int) -> Iterator[np.ndarray]:
    for k in range(0, count, PART):
        yield np.full(min(PART, count - k), CELLS.get(corners, VERTEX), np.uint8)
