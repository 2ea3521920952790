"""What arguments must be: their types, and for `Fields` shapes that fit together, finite values."""

from __future__ import annotations

import numbers
import os
from collections.abc import Mapping, Sequence
from math import prod
from types import UnionType
from typing import TYPE_CHECKING, Any

import numpy as np

from lno.config import require_count
from lno.data import columns
from lno.data.columns import Column, check_finite
from lno.text import visible

if TYPE_CHECKING:
    from lno.data.fields import Fields

# Each column of values, and the column of positions whose points it belongs to.
POINTS_OF = {
    "u": "x",
    "weights": "x",
    "y": "x_query",
    "query_weights": "x_query",
    "background": "x_query",
    "grid_index": "x_query",
}

SMALLEST_AREA = 1e-3  # the weight of a pole


def require_instance(name: str, value: Any, kind: type | UnionType, expected: str) -> None:
    """Raise a TypeError unless an argument has the right type.

    Args:
        name: of the argument.
        value: what was passed.
        kind: the types that it may have.
        expected: what to pass, in words.

    >>> require_instance("names", ["x"], Mapping, 'a mapping like {"x": ["t"]}')
    Traceback (most recent call last):
    ...
    TypeError: names: expected a mapping like {"x": ["t"]}, got the list ['x']
    """
    if not isinstance(value, kind):
        raise TypeError(f"{name}: expected {expected}, got {described(value)}")


def require_path(name: str, value: Any) -> None:
    """Raise a TypeError unless an argument is the path of a file or folder."""
    require_instance(name, value, str | os.PathLike, "a path, like 'folder/name'")
    if os.fspath(value) == "" or "\0" in str(value):
        raise ValueError(f"{name}: expected a path, like 'folder/name', got {str(value)!r}")


def require_flag(name: str, value: Any) -> None:
    """Raise a TypeError unless an argument is True or False."""
    require_instance(name, value, bool, "True or False")


def require_number(name: str, value: Any) -> None:
    """Raise a TypeError unless an argument is a real number."""
    require_instance(name, value, numbers.Real, "a number")
    if isinstance(value, bool):
        raise TypeError(f"{name}: expected a number, got {value}")


def described(value: Any) -> str:
    """What was passed, for errors: its type and a short form of it.

    >>> described(3), described(int), described(len), described(None)
    ('the int 3', 'the class int', 'the function len', 'None')
    """
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if callable(value) and hasattr(value, "__name__"):
        return f"the function {value.__name__}"
    if hasattr(value, "shape"):
        return f"a {type(value).__name__} of shape {tuple(value.shape)}"
    shown = visible(repr(value))
    return f"the {type(value).__name__} {shown if len(shown) <= 80 else shown[:80] + '…'}"


def as_shape(name: str, given: Any) -> tuple[int, ...]:
    """The shape of a grid as a tuple of whole numbers, checked."""
    expected = "the number of points along each axis, like (64, 64)"
    listed = isinstance(given, Sequence | np.ndarray) and not isinstance(given, str | bytes)
    if not listed:
        raise TypeError(f"{name}: expected {expected}, got {described(given)}")
    if len(given) == 0:
        raise ValueError(f"{name}: expected {expected}, got {described(given)}")
    sizes = [int(k) if isinstance(k, np.integer) else k for k in given]
    for k, size in enumerate(sizes):
        require_count(f"{name}[{k}]", size, 10**12)
    return tuple(sizes)


def as_index(index: Any, count: int) -> columns.Index:
    """Numbers of samples (b,) of `count`; from the end where negative; flags choose samples too."""
    wanted = np.atleast_1d(columns.as_array("index", index))
    flags = wanted.dtype.kind == "b" and wanted.shape == (count,)
    if flags:
        wanted = np.flatnonzero(wanted)
    if wanted.size == 0:
        raise ValueError("no samples: expected at least one index")
    if wanted.dtype.kind not in "iu" or wanted.ndim > 1:
        raise ValueError(f"index: expected numbers of samples, (b,), got {described(index)}")
    if wanted.min() < -count or wanted.max() >= count:
        got = f"{wanted.min()} to {wanted.max()}"
        raise IndexError(f"index: expected numbers of the {count} samples, got {got}")
    return np.arange(count)[wanted]


def as_period(given: Any) -> tuple[float | None, ...]:
    """The period of each coordinate, checked but for their number."""
    expected = "a period or None for each coordinate, like (None, 1.0)"
    if not isinstance(given, Sequence | np.ndarray) or isinstance(given, str | bytes):
        raise TypeError(f"period: expected {expected}, got {described(given)}")
    for k, value in enumerate(given):
        if value is not None:
            require_number(f"period[{k}]", value)
    return tuple(None if p is None else float(p) for p in given)


def as_parameters(values: Any) -> np.ndarray | None:
    """Parameters as an array (s, p); None where there are none."""
    if values is None:
        return None
    column = columns.as_column("parameters", values, shareable=True)
    if not columns.is_shared(column):
        raise ValueError(
            "parameters: expected an array (samples, parameters), one row of numbers for each "
            f"sample; got {column!r}"
        )
    return np.asarray(column)


def labels(
    fields: Fields, what: str, given: Mapping[str, Sequence[str]] | None
) -> dict[str, list[str]]:
    """Names or units of every coordinate, channel and parameter; defaults where none are given."""
    counts = {key: 0 if (c := fields.column(key)) is None else columns.channels(c) for key in "xuy"}
    if fields.parameters is not None:
        counts["parameters"] = fields.parameters.shape[1]

    def default(key: str, k: int) -> str:
        return "" if what == "units" else f"{key.removesuffix('s')}{k}"

    found = {key: [default(key, k) for k in range(count)] for key, count in counts.items()}
    given = {} if given is None else given
    require_instance(what, given, Mapping, 'a mapping like {"x": ["t"], "u": ["f"], "y": ["g"]}')
    for key, value in given.items():
        if key not in found:
            raise ValueError(f"{what}: expected keys among {', '.join(found)}, got {key!r}")
        if not is_texts(value) or len(value) != len(found[key]):
            raise ValueError(
                f"{what}[{key!r}]: expected {len(found[key])} entries, one for each "
                f"coordinate or channel, got {described(value)}"
            )
        found[key] = [str(v) for v in value]
    return found


def as_geometry(
    fields: Fields, given: Mapping[str, Sequence[str]] | None
) -> dict[str, list[str]] | None:
    """The channels that hold the positions of the nodes, checked."""
    if given is None:
        return None
    example = 'the channels that hold the positions of the nodes, like {"u": ["x", "y"]}'
    require_instance("geometry", given, Mapping, example)
    if len(given) != 1 or not set(given) <= {"u", "y"}:
        raise ValueError(
            "geometry: expected the channels of u or of y that hold the nodes' positions, like "
            f'{{"u": ["x", "y"]}}, got {given!r}'
        )
    [(key, channels)] = given.items()
    known = is_texts(channels) and all(name in fields.names[key] for name in channels)
    if not known or not 1 <= len(channels) <= 3:
        raise ValueError(
            f"geometry: expected one to three channels of {key} "
            f"({', '.join(fields.names[key])}), got {channels!r}"
        )
    if key == "u" and not fields.same_points:
        raise ValueError("geometry: u is not given at the query points: expected channels of y")
    return {key: [str(name) for name in channels]}


def is_texts(values: Any) -> bool:
    """Whether it is a list, a tuple or an array of texts."""
    listed = isinstance(values, list | tuple | np.ndarray)
    return listed and all(isinstance(v, str) for v in values)


def check_shapes(fields: Fields) -> None:
    """Raise unless all columns have the points, coordinates and channels that they should."""
    count = len(fields)
    for points in ("x", "x_query"):
        sizes = columns.sizes(getattr(fields, points), count)
        if np.any(sizes == 0):
            k = int(np.argmin(sizes))
            raise ValueError(f"{points}, sample {k} has no points: expected at least one")
    for values, points in POINTS_OF.items():
        column = fields.column(values)
        if column is None:
            continue
        expected = columns.sizes(getattr(fields, points), count)
        got = columns.sizes(column, count)
        if np.any(expected != got):
            k = int(np.argmax(expected != got))
            raise ValueError(
                f"{values}, sample {k}: expected {expected[k]} points as in {points}, got {got[k]}"
            )
    _check_coordinates(fields)
    _check_grid(fields)
    if fields.background is not None and fields.y is not None:
        o, known = columns.channels(fields.y), columns.channels(fields.background)
        if known != o:
            raise ValueError(f"background: expected {o} channels as in y, got {known}")


def as_sphere(fields: Fields, given: Any) -> tuple[str, str] | None:
    """The names of latitude and longitude, checked."""
    if given is None:
        return None
    names = fields.names["x"][: fields.space]
    if not is_texts(given) or len(given) != 2 or len(set(given)) != 2:
        raise TypeError(
            "sphere: expected the names of latitude and longitude, like ('lat', 'lon'), got "
            f"{described(given)}"
        )
    for name in given:
        if name not in names:
            raise ValueError(f"sphere: {name!r} is none of the positions {', '.join(names)}")
    latitude, k = str(given[0]), names.index(given[0])
    for column in (fields.x, fields.x_query):
        for x in columns.samples(column, len(fields)) if columns.in_memory(column) else ():
            if np.abs(x[:, k]).max(initial=0.0) > 90 + 1e-6:
                raise ValueError(
                    f"sphere: {latitude!r} reaches {np.abs(x[:, k]).max():g}, expected a latitude "
                    "in degrees, -90 to 90. Latitude comes first, then longitude"
                )
    return latitude, str(given[1])


def areas(fields: Fields, positions: Column) -> Column:
    """cos(latitude) of points on a sphere (…, 1): the relative area that they stand for on a grid.

    At the poles it is small, not zero: they are points too.
    """
    assert fields.sphere_axes is not None
    latitude, _ = fields.sphere_axes

    def area(x: np.ndarray) -> np.ndarray:
        cosine = np.cos(np.deg2rad(x[:, latitude : latitude + 1]))
        return np.maximum(cosine, SMALLEST_AREA).astype(x.dtype)

    if columns.is_shared(positions):
        return area(columns.sample(positions, 0))
    return columns.stack([area(x) for x in columns.samples(positions, len(fields))])


def check_values(fields: Fields) -> None:
    """Raise where a value is not finite, a weight is negative, or two values contradict."""
    names = {**fields.names, "x_query": fields.names["x"], "background": fields.names["y"]}
    names |= {"weights": ["weight"], "query_weights": ["weight"]}
    present = [(n, c) for n in (*POINTS_OF, "x", "x_query") if (c := fields.column(n)) is not None]
    if not all(columns.in_memory(column) for _, column in present):
        return  # what a file holds was checked when it was written
    for name, column in present:
        if name != "grid_index":
            check_finite(name, column, names[name])
    if fields.parameters is not None and not np.isfinite(fields.parameters).all():
        k, p = np.argwhere(~np.isfinite(fields.parameters))[0]
        raise ValueError(
            f"parameters, sample {k}, {fields.names['parameters'][p]!r}: expected a finite number, "
            f"got {fields.parameters[k, p]}"
        )
    _check_weights(fields)
    _check_cells(fields)
    _check_duplicates("x", fields.x, "u", fields.u, len(fields))
    if fields.y is not None:
        _check_duplicates("x_query", fields.x_query, "y", fields.y, len(fields))


def _check_coordinates(fields: Fields) -> None:
    d = columns.channels(fields.x)
    if d == 0:
        raise ValueError("x has no coordinates: expected an array (..., points, coordinates)")
    if columns.channels(fields.x_query) != d:
        raise ValueError(
            f"x_query has {columns.channels(fields.x_query)} coordinates, x has {d}: "
            "expected the same"
        )
    if not 1 <= fields.space <= d:
        raise ValueError(
            f"space: expected how many of the {d} coordinates are positions, got {fields.space}"
        )
    if fields.period is not None and len(fields.period) != d:
        raise ValueError(f"period: expected {d} entries, one a coordinate, got {fields.period}")
    if any(p is not None and not (np.isfinite(p) and p > 0) for p in fields.period or ()):
        raise ValueError(f"period: expected positive numbers or None, got {fields.period}")


def _check_grid(fields: Fields) -> None:
    sizes = columns.sizes(fields.x_query, len(fields))
    grid, index = fields.grid, fields.grid_index
    if index is not None:
        if grid is None:
            raise ValueError("grid_index: expected the shape of the grid too, pass grid=...")
        if columns.in_memory(index):
            for k, chosen in enumerate(columns.samples(index, len(fields))):
                inside = np.all((chosen >= 0) & (chosen < prod(grid)))
                if not inside or len(np.unique(chosen)) < len(chosen):
                    raise ValueError(
                        f"grid_index, sample {k}: expected different numbers from 0 to "
                        f"{prod(grid) - 1}, the points of the grid {grid}"
                    )
    elif grid is not None and np.any(sizes != prod(grid)):
        raise ValueError(
            f"grid {grid} has {prod(grid)} points, but the query points number "
            f"{sorted(set(sizes.tolist()))[:3]}. If some points of the grid are missing, say which "
            "there are: grid_index=..."
        )


def _check_weights(fields: Fields) -> None:
    for name in ("weights", "query_weights"):
        column = fields.column(name)
        for k, sizes in enumerate(() if column is None else columns.samples(column, len(fields))):
            if sizes.min() < 0 or sizes.max() <= 0:
                raise ValueError(
                    f"{name}, sample {k}: expected the size that each point stands for, zero or "
                    f"more and not all zero, got {sizes.min():g} to {sizes.max():g}"
                )


def _check_cells(fields: Fields) -> None:
    cells = fields.cells
    if cells is None:
        return
    corners = columns.channels(cells)
    if corners not in (3, 4):
        raise ValueError(f"cells: expected 3 or 4 corners (triangles, quads), got {corners}")
    sizes = columns.sizes(fields.x_query, len(fields))
    for k in range(1 if columns.is_shared(cells) else len(fields)):
        least = int(sizes.min()) if columns.is_shared(cells) else int(sizes[k])
        here = columns.sample(cells, k)
        if len(here) and not 0 <= here.min() <= here.max() < least:
            raise ValueError(
                f"cells, sample {k}: expected indices of its {least} query points, 0 to "
                f"{least - 1}, got {here.min()} to {here.max()}"
            )


def _check_duplicates(points: str, x: Column, values: str, v: Column, count: int) -> None:
    """Raise where one position of a sample has two different values."""
    shared: tuple[np.ndarray, np.ndarray] | None = None
    for k in range(count):
        if not columns.is_shared(x):
            first, again = _repeats(columns.sample(x, k))
        else:
            shared = shared or _repeats(columns.sample(x, 0))
            first, again = shared
        if len(first) == 0:
            if columns.is_shared(x):
                return
            continue
        here = columns.sample(v, k)
        clash = np.any(here[first] != here[again], axis=1)
        if np.any(clash):
            a, b = first[clash][0], again[clash][0]
            raise ValueError(
                f"{points}, sample {k}: points {a} and {b} are the same position "
                f"{columns.sample(x, k)[a].tolist()} with different {values}, {here[a].tolist()} "
                f"and {here[b].tolist()}: keep one, or their mean"
            )


def _repeats(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of indices of equal rows of x (n, d), each with the one before it in sorted order."""
    order = np.lexsort(x.T)
    equal = np.all(x[order[1:]] == x[order[:-1]], axis=1)
    return order[:-1][equal], order[1:][equal]
