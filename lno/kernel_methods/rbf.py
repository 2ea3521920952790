"""Interpolation with radial basis functions: the classical baseline of reconstruction."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
from scipy.interpolate import RBFInterpolator


def interpolate_rbf(
    x: np.ndarray,
    u: np.ndarray,
    x_query: np.ndarray,
    period: Sequence[float | None] | None = None,
    neighbors: int = 64,
) -> np.ndarray:
    """Values (q, i) at x_query (q, d) of the cubic RBF interpolant of u (n, i) at x (n, d).

    Points are repeated one period to either side of a periodic coordinate. Of points that coincide,
    the first is used.

    Args:
        x: positions of the observations.
        u: values there.
        x_query: positions of the interpolated values.
        period: the period of each coordinate, None for those that have none.
        neighbors: how many nearest observations are used at a point.

    >>> x = np.linspace(0, 1, 20, endpoint=False)[:, None]
    >>> v = interpolate_rbf(x, np.sin(2 * np.pi * x), np.array([[0.975]]), period=[1.0])
    >>> float(abs(v[0, 0] - np.sin(2 * np.pi * 0.975))) < 1e-3
    True
    """
    points, queries = (np.array(v, dtype=np.float64) for v in (x, x_query))
    values = np.asarray(u, dtype=np.float64)
    periodic = [(axis, length) for axis, length in enumerate(period or ()) if length is not None]
    for axis, length in periodic:
        points[:, axis] %= length
        queries[:, axis] %= length
    extent = np.ptp(points, axis=0).max() or 1.0
    _, first = np.unique((points / extent).round(12), axis=0, return_index=True)
    points, values = points[first], values[first]
    for axis, length in periodic:
        shift = np.eye(points.shape[1])[axis] * length
        points = np.concatenate((points, points - shift, points + shift))
        values = np.concatenate((values, values, values))
    near = min(neighbors, len(points))
    # Cubic RBFs need a linear trend, which points on a line, or too few, do not determine.
    sizes = np.linalg.svd(points - points.mean(0), compute_uv=False)
    flat = len(points) <= points.shape[1] or sizes[-1] < 1e-9 * sizes[0]
    for degree in (0,) if flat else (1, 0):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # SciPy prefers degree 1, and so do we
            try:
                spline = RBFInterpolator(
                    points, values, kernel="cubic", degree=degree, neighbors=near
                )
                return spline(queries)
            except (np.linalg.LinAlgError, ValueError):
                if degree == 0:
                    raise
    raise AssertionError("unreachable")
