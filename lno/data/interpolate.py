"""Reconstruction without learning: radial basis functions, the classical opponent."""

from __future__ import annotations

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

    A periodic coordinate is continued by an image of the points on either side.

    Args:
        x: positions of the observations.
        u: values there.
        x_query: positions where values are wanted.
        period: the period of each coordinate, None for those that have none.
        neighbors: how many nearest observations decide the value at a point.

    >>> x = np.linspace(0, 1, 20, endpoint=False)[:, None]
    >>> v = interpolate_rbf(x, np.sin(2 * np.pi * x), np.array([[0.975]]), period=[1.0])
    >>> float(abs(v[0, 0] - np.sin(2 * np.pi * 0.975))) < 1e-3
    True
    """
    points, values = np.asarray(x, dtype=np.float64), np.asarray(u, dtype=np.float64)
    x_query = np.array(x_query, dtype=np.float64)
    for axis, length in enumerate(period or ()):
        if length is None:
            continue
        points, x_query = points.copy(), x_query.copy()
        points[:, axis] %= length
        x_query[:, axis] %= length
        shift = np.eye(points.shape[1])[axis] * length
        points = np.concatenate((points, points - shift, points + shift))
        values = np.concatenate((values, values, values))
    # Cubic functions come with a linear trend, which d + 1 points must determine.
    degree = 1 if len(points) > points.shape[1] else 0
    near = min(neighbors, len(points))
    return RBFInterpolator(points, values, kernel="cubic", degree=degree, neighbors=near)(x_query)
