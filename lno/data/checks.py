"""What `Fields` must satisfy: shapes that fit together, finite values, no contradictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from lno.data import columns
from lno.data.columns import Column, check_finite

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
    for key, value in (given or {}).items():
        if key not in found:
            raise ValueError(f"{what}: expected keys among {', '.join(found)}, got {key!r}")
        if isinstance(value, str) or len(value) != len(found[key]):
            raise ValueError(
                f"{what}[{key!r}]: expected {len(found[key])} entries, one for each "
                f"coordinate or channel, got {value!r}"
            )
        found[key] = [str(v) for v in value]
    return found


def as_geometry(
    fields: Fields, given: Mapping[str, Sequence[str]] | None
) -> dict[str, list[str]] | None:
    """The channels that hold the positions of the nodes, checked."""
    if given is None:
        return None
    if len(given) != 1 or not set(given) <= {"u", "y"}:
        raise ValueError(
            "geometry: expected the channels of u or of y that hold the nodes' positions, like "
            f'{{"u": ["x", "y"]}}, got {given!r}'
        )
    [(key, channels)] = given.items()
    unknown = [name for name in channels if name not in fields.names[key]]
    if unknown or isinstance(channels, str) or not 1 <= len(channels) <= 3:
        raise ValueError(
            f"geometry: expected one to three channels of {key} "
            f"({', '.join(fields.names[key])}), got {channels!r}"
        )
    if key == "u" and not fields.same_points:
        raise ValueError("geometry: u is not given at the query points: expected channels of y")
    return {key: [str(name) for name in channels]}


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
