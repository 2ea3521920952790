"""NetCDF files: grids with named axes where there are any, else lists of points.

NetCDF-3 with 64-bit offsets and the attributes of the CF conventions, so that xarray, Panoply,
MATLAB and others read it.
"""

from __future__ import annotations

import re
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from scipy.io import netcdf_file

from lno.data.exports.result import Names, Result
from lno.data.grids import regular_axes
from lno.files import replacing
from lno.version import __version__

LARGEST = 2**31 - 4  # bytes of a variable
Shape = tuple[str, ...]  # the names of the dimensions of a variable


def write_netcdf(path: str | Path, result: Result) -> None:
    """Write all samples.

    A regular grid has its coordinates as axes, with NaN at points that are missing; a deformed grid
    has axes that count, and coordinates for each point; other points are a list, of samples with
    fewer points than others with NaN at its end. With several samples, their number is the first
    axis.

    Args:
        path: the file, which is written atomically.
        result: values at points.
    """
    points = max(prod(result.grid or (0,)), result.points)
    size = len(result) * points * max(v.itemsize for v in result.values.values())
    if size > LARGEST:
        raise ValueError(
            f"a NetCDF-3 file holds variables of at most 2 GiB, these would have {size / 2**30:.1f}"
            ": write a .h5 or .npz file, or one sample"
        )
    with replacing(path) as temporary, netcdf_file(temporary, "w", version=2) as file:
        _fill(file, result)


def _fill(file: Any, result: Result) -> None:
    file.Conventions, file.source = b"CF-1.8", f"lno {__version__}".encode()
    if result.frame:
        file.frame = result.frame.encode()
    names = Names()
    several = ("sample",) if len(result) > 1 else ()
    if several:
        file.createDimension(names.new("sample"), len(result))
    axes = _axes(result)
    found = dict(zip(result.coordinates, axes, strict=False))  # the coordinates that are axes
    dimensions: Shape = ()
    if axes:
        for name, axis in found.items():
            dimensions += (_legal(names, name),)
            file.createDimension(dimensions[-1], len(axis))
            _create(file, dimensions[-1], dimensions[-1:], axis, name, result)
    elif result.grid is not None and result.index is None:
        for k, size in enumerate(result.grid):
            dimensions += (names.new("ijk"[k] if len(result.grid) <= 3 else f"axis_{k}"),)
            file.createDimension(dimensions[-1], size)
    else:
        dimensions = (names.new("point"),)
        file.createDimension("point", result.points)
    index = result.index if axes else None
    shape = tuple(file.dimensions[name] for name in dimensions)
    others = {n: v for n, v in result.coordinates.items() if n not in found}
    beside = {n: v for n, v in (others | result.nodes).items() if n not in result.values}
    places = []
    for name, values in beside.items():
        there = _on_grid(values, prod(shape), index)
        places.append(_legal(names, name))
        own = several if len(there) > 1 else ()
        _create(file, places[-1], own + dimensions, there, name, result)
    for name, values in result.values.items():
        there = _on_grid(values, prod(shape), index)
        variable = _create(file, _legal(names, name), several + dimensions, there, name, result)
        if places:
            variable.coordinates = " ".join(places).encode()


def _create(
    file: Any, written: str, dimensions: Shape, values: np.ndarray, name: str, result: Result
) -> Any:
    kind = "f4" if values.dtype == np.float32 else "f8"
    variable = file.createVariable(written, kind, dimensions)
    variable[:] = values.reshape([file.dimensions[d] for d in dimensions])
    variable.long_name = name.encode()
    if result.units.get(name):
        variable.units = result.units[name].encode()
    return variable


def _axes(result: Result) -> list[Float[np.ndarray, " m"]]:
    """The coordinates along each axis of a regular grid; none where it is not regular."""
    if result.grid is None or len(result.grid) != result.space:
        return []
    index = np.arange(result.points)[None] if result.index is None else result.index
    places = list(result.coordinates.values())[: result.space]
    if (there := index >= 0).all():
        return regular_axes(result.grid, index, places, 1e-6) or []
    known = [np.broadcast_to(place, index.shape)[there] for place in places]
    return regular_axes(result.grid, index[there], known, 1e-6) or []


def _on_grid(
    values: Float[np.ndarray, "#s n"], size: int, index: Int[np.ndarray, "#s n"] | None
) -> Float[np.ndarray, "#s m"]:
    """Values at points as values on a grid, NaN where there is no point."""
    if index is None:
        return values
    rows, values = np.broadcast_arrays(index, values)
    full = np.full((len(rows), size + 1), np.nan, values.dtype)
    np.put_along_axis(full, rows, values, 1)  # what is no point lands behind the end
    return full[:, :size]


def _legal(names: Names, name: str) -> str:
    """A name that NetCDF allows and that is not taken yet.

    >>> _legal(Names(), "wall shear / Pa")
    'wall_shear___Pa'
    """
    plain = re.sub(r"[^A-Za-z0-9_.@+-]", "_", name) or "_"
    return names.new(plain if re.match(r"[A-Za-z_]", plain) else f"_{plain}")
