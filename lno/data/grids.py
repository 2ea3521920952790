"""Points of regular grids, and finding the grid that a list of points forms."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from lno.data.checks import as_shape, require_instance, require_number

# Where n points lie between the ends 0 and 1 of an axis, and what that is in words.
POINTS = {
    "endpoints": "both ends included",
    "no-endpoint": "without the upper end",
    "centres": "the centres of equal cells",
}


def grid(
    shape: Sequence[int],
    low: float | Sequence[float] = 0.0,
    high: float | Sequence[float] = 1.0,
    points: str = "endpoints",
) -> Float[np.ndarray, "n d"]:
    """The points of a regular grid in C order: the last coordinate varies fastest.

    Args:
        shape: the number of points along each axis.
        low: the lower end of each axis, or of all.
        high: the upper end.
        points: "endpoints": i/(n − 1) of the way, both ends included; "no-endpoint": i/n, without
            the upper end, as for periodic axes; "centres": (i + ½)/n, the centres of cells.

    >>> grid((2, 3)).tolist()
    [[0.0, 0.0], [0.0, 0.5], [0.0, 1.0], [1.0, 0.0], [1.0, 0.5], [1.0, 1.0]]
    >>> grid((4,), high=360, points="no-endpoint")[:, 0].tolist()
    [0.0, 90.0, 180.0, 270.0]
    >>> grid((4,), points="centres")[:, 0].tolist()
    [0.125, 0.375, 0.625, 0.875]
    """
    sizes = as_shape("shape", shape)
    lows, highs = (_each(name, v, len(sizes)) for name, v in (("low", low), ("high", high)))
    ends = zip(sizes, lows, highs, strict=True)
    return grid_points(*(a + (b - a) * unit_axis(n, points) for n, a, b in ends))


def grid_points(*axes: Float[np.ndarray, " _"]) -> Float[np.ndarray, "n d"]:
    """The points of the grid with these coordinates along its axes, in C order.

    >>> grid_points(np.array([0.0, 1.0]), np.array([5.0, 6.0])).tolist()
    [[0.0, 5.0], [0.0, 6.0], [1.0, 5.0], [1.0, 6.0]]
    """
    return np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, len(axes))


def trapezoidal_weights(
    shape: Sequence[int], periodic: Sequence[bool] = ()
) -> Float[np.ndarray, " n"]:
    """The share of the domain that each point of a regular grid represents, in C order.

    Those of the trapezoidal rule: points at the ends of an axis count half, unless it is periodic.
    Pass them as `Fields(..., weights=...)` and train with `Recipe(weighted=True)`: what a model
    reads then approaches an integral as the grid becomes finer, and depends less on its resolution.

    Args:
        shape: the number of points along each axis.
        periodic: whether each axis is periodic; empty: none of them is.

    >>> trapezoidal_weights((3,)).tolist(), trapezoidal_weights((4,), (True,)).tolist()
    ([0.25, 0.5, 0.25], [0.25, 0.25, 0.25, 0.25])
    """
    sizes = as_shape("shape", shape)
    closed = tuple(periodic) or (False,) * len(sizes)
    if len(closed) != len(sizes):
        raise ValueError(
            f"periodic: expected one value for each axis of the grid {sizes}, got {closed}"
        )
    weights = np.ones(1)
    for n, wraps in zip(sizes, closed, strict=True):
        along = np.ones(n)
        if not wraps and n > 1:
            along[[0, -1]] = 0.5
        weights = np.outer(weights, along / along.sum()).ravel()
    return weights


def unit_axis(n: int, points: str) -> Float[np.ndarray, " n"]:
    """Where n points lie between 0 and 1, as in `grid`."""
    require_instance("points", points, str, f"one of {', '.join(POINTS)}")
    if points not in POINTS:
        raise ValueError(f"points: expected one of {', '.join(POINTS)}, got {points!r}")
    at = np.arange(n, dtype=np.float64)
    return (at if points != "centres" else at + 0.5) / (
        n if points != "endpoints" else max(n - 1, 1)
    )


def completed_axis(axis: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"] | None:
    """An axis of a grid whose missing coordinates, NaN, follow from the others.

    Where a whole row of a grid has no point, as at a pole on land. Inside they are interpolated,
    outside the first or last step continues. None: there are fewer than two to go by.

    >>> completed_axis(np.array([np.nan, 80.0, np.nan, 60.0, np.nan])).tolist()
    [90.0, 80.0, 70.0, 60.0, 50.0]
    """
    known = np.flatnonzero(~np.isnan(axis))
    if len(known) == len(axis):
        return axis
    if len(known) < 2:
        return None
    at, there = np.arange(len(axis)), axis[known]
    steps = np.diff(there) / np.diff(known)
    found = np.interp(at, known, there)
    found[: known[0]] += (at[: known[0]] - known[0]) * steps[0]
    found[known[-1] + 1 :] += (at[known[-1] + 1 :] - known[-1]) * steps[-1]
    return found.astype(axis.dtype)


def regular_axes(
    grid: Sequence[int],
    index: Int[np.ndarray, "*#points"],
    coordinates: Iterable[Float[np.ndarray, "*#points"]],
    tolerance: float,
) -> list[Float[np.ndarray, " _"]] | None:
    """The coordinates along each axis of a grid; None: its points are those of no regular grid.

    Args:
        grid: its shape.
        index: the flat index of each point in the grid. Where points of several samples are given,
            all must lie on the same axes.
        coordinates: of the points, one array for each axis.
        tolerance: how far coordinates may differ that should be equal, as a share of their extent.

    >>> x, y = grid_points(np.array([0.0, 1.0, 4.0]), np.array([5.0, 6.0])).T
    >>> some = np.array([0, 1, 3, 5])
    >>> [axis.tolist() for axis in regular_axes((3, 2), some, (x[some], y[some]), 1e-6)]
    [[0.0, 1.0, 4.0], [5.0, 6.0]]
    >>> regular_axes((3, 2), np.arange(6), (x + 0.1 * y, y), 1e-6) is None
    True
    """
    axes = []
    for size, steps, given in zip(grid, np.unravel_index(index, grid), coordinates, strict=True):
        at, values = np.broadcast_arrays(steps, given)
        axis = np.full(size, np.nan, values.dtype)
        axis[at] = values
        whole = completed_axis(axis)
        if whole is None or np.abs(axis[at] - values).max() > tolerance * np.ptp(values):
            return None
        axes.append(whole)
    return axes


def find_grid(
    x: Float[np.ndarray, "n d"],
) -> tuple[tuple[int, ...], Int[np.ndarray, " n"]] | None:
    """The shape of the grid that points form, and their order in it; None: they form none.

    Every combination of the values of the coordinates must be there once.

    >>> shape, order = find_grid(np.array([[0.0, 5.0], [1.0, 5.0], [0.0, 6.0], [1.0, 6.0]]))
    >>> shape, order.tolist()
    ((2, 2), [0, 2, 1, 3])
    >>> find_grid(np.array([[0.0, 5.0], [1.0, 5.0], [0.0, 6.0]])) is None
    True
    """
    n, d = x.shape
    span = np.ptp(x, axis=0)
    if n < 2 or not np.isfinite(span).all() or np.any(span == 0):
        return None
    # Written as text or in single precision, equal coordinates differ in their last digits.
    rounded = np.round((x - x.min(0)) / span, 6)
    axes = [np.unique(rounded[:, k], return_inverse=True) for k in range(d)]
    shape = tuple(len(values) for values, _ in axes)
    if np.prod([float(k) for k in shape]) != n:
        return None
    flat = np.ravel_multi_index([place.ravel() for _, place in axes], shape)
    order = np.argsort(flat, kind="stable")
    return (shape, order) if np.array_equal(flat[order], np.arange(n)) else None


def _each(name: str, value: float | Sequence[float], count: int) -> list[float]:
    """One number for each axis."""
    several = isinstance(value, list | tuple | np.ndarray)
    values: list[Any] = list(value) if several else [value] * count  # type: ignore[arg-type]
    for one in values:
        require_number(name, one)
    if len(values) != count:
        raise ValueError(f"{name}: expected {count} numbers, one for each axis, got {len(values)}")
    return [float(one) for one in values]
