"""Points and channels of data on structured grids, in C order: the last axis varies fastest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from lno.data.grids import grid_points
from lno.mesh import grid_cells


def unit_grid(grid: Sequence[int]) -> Float[np.ndarray, "n d"]:
    """The points of a grid on [0, 1]^d, both ends included."""
    return grid_points(*(np.linspace(0, 1, n) for n in grid))


def one_channel(values: np.ndarray) -> Float[np.ndarray, "s n 1"]:
    """(s, n1, n2, …) to one channel at the points of the grid."""
    return values.reshape(len(values), -1, 1)


def mapped_grid(
    x: Float[np.ndarray, "s n m"], y: Float[np.ndarray, "s n m"], q: Float[np.ndarray, "s n m"]
) -> dict[str, Any]:
    """Data on a grid that is mapped to a domain of its own in every sample, for `Fields`.

    The points are those of the reference grid. The positions of the nodes are input values.

    Args:
        x: first coordinates of the nodes.
        y: second coordinates of the nodes.
        q: the quantity to predict.
    """
    grid = x.shape[1:]
    return {
        "x": unit_grid(grid),
        "u": np.concatenate([one_channel(x), one_channel(y)], axis=-1),
        "y": one_channel(q),
        "grid": grid,
        "cells": grid_cells(grid),
        "geometry": {"u": ["x", "y"]},
        "frame": "reference grid",
    }
