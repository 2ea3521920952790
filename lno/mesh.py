"""Cells between points: those of grids, with or without gaps, and triangles between loose points.

Pictures and mesh files need them. Cells (m, k) are rows of indices of their corners, in the order
of VTK: around the face of a quadrilateral; around the bottom of a hexahedron, then around its top.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from jaxtyping import Float, Int
from scipy.spatial import Delaunay, QhullError, cKDTree

# Corners of a line, a quadrilateral and a hexahedron, as steps along the axes of a grid.
CORNERS = {
    1: ((0,), (1,)),
    2: ((0, 0), (1, 0), (1, 1), (0, 1)),
    3: ((0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0), (0, 0, 1), (1, 0, 1), (1, 1, 1), (0, 1, 1)),
}
NEIGHBOURS = 6  # whose distance is the spacing of points around a point
LONG = 3.0  # times that spacing: such an edge crosses a hole or a bay of the domain
COVERED = 0.98  # of the points must be corners of a triangle


def grid_cells(
    grid: Sequence[int],
    index: Int[np.ndarray, " q"] | None = None,
    rows: slice = slice(None),
) -> Int[np.ndarray, "m k"]:
    """Lines, quadrilaterals or hexahedra of a grid of one, two or three axes in C order.

    Args:
        grid: its shape.
        index: the flat index in the grid of each point, if some of it are missing: cells are those
            whose corners are all there, and number the points.
        rows: cells of this part of the first axis only.

    >>> grid_cells((2, 3)).tolist()
    [[0, 3, 4, 1], [1, 4, 5, 2]]
    >>> grid_cells((2, 3), index=np.array([1, 2, 4, 5])).tolist()
    [[0, 2, 3, 1]]
    """
    shape = tuple(grid)
    strides = np.array([prod(shape[k + 1 :]) for k in range(len(shape))])
    steps = [np.arange(n - 1) for n in shape]
    steps[0] = steps[0][rows]
    lowest = sum(np.ix_(*(s * stride for s, stride in zip(steps, strides, strict=True))))
    cells = np.asarray(lowest).reshape(-1, 1) + np.array(CORNERS[len(shape)]) @ strides
    if index is None:
        return cells
    number = np.full(prod(shape), -1)
    number[index] = np.arange(len(index))
    cells = number[cells]
    return cells[(cells >= 0).all(1)]


def triangles(cells: Int[np.ndarray, "m k"]) -> Int[np.ndarray, "t 3"]:
    """Triangles as they are; of quadrilaterals two each."""
    if cells.shape[1] == 3:
        return cells
    return np.concatenate((cells[:, [0, 1, 2]], cells[:, [0, 2, 3]]))


def delaunay(points: Float[np.ndarray, "n 2"]) -> Int[np.ndarray, "t 3"] | None:
    """Triangles between neighbouring points, none across holes and bays of the domain.

    The Delaunay triangulation, without triangles that have an edge much longer than the spacing of
    the points at its ends. None if there is no such triangulation: points on a line, or so unevenly
    spread that many of them would be lost.

    >>> square = np.array([[0.0, 0], [1, 0], [0, 1], [1, 1]])
    >>> len(delaunay(square))
    2
    """
    if len(points) < 3:
        return None
    try:
        found = Delaunay(points).simplices
    except QhullError:  # all on a line
        return None
    count = min(NEIGHBOURS, len(points) - 1)
    spacing = np.asarray(cKDTree(points).query(points, [count + 1])[0])[:, 0]
    ends = found[:, [1, 2, 0]]
    length = np.linalg.norm(points[found] - points[ends], axis=-1)
    long = length > LONG * np.maximum(spacing[found], spacing[ends])
    kept = found[~long.any(1)]
    covered = len(np.unique(kept)) >= COVERED * len(np.unique(found))
    return kept if len(kept) and covered else None


def divided(corners: Float[np.ndarray, "m 3 c"], least: int) -> Float[np.ndarray, "k 3 c"]:
    """Triangles, each divided into four until there are at least so many.

    >>> divided(np.zeros((1, 3, 2)), 10).shape
    (16, 3, 2)
    """
    while len(corners) < least:
        a, b, c = corners.transpose(1, 0, 2)
        ab, bc, ca = (a + b) / 2, (b + c) / 2, (c + a) / 2
        parts = ((a, ab, ca), (ab, b, bc), (ca, bc, c), (ab, bc, ca))
        corners = np.concatenate([np.stack(part, 1) for part in parts])
    return corners
