"""The sizes of data, and one sample of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from lno.config import require_count


@dataclass(frozen=True)
class Spec:
    """What a model must know about the data: numbers of coordinates and channels, and the grid.

    Args:
        coordinates: of a position.
        in_channels: of the values u.
        out_channels: of the values y.
        grid: the number of points along each axis; None: the points form no grid.
        periodic: whether each axis of the grid is periodic; empty: none of them is.

    >>> from lno import Fields
    >>> x, u, y = np.zeros((6, 2)), np.zeros((4, 6, 1)), np.zeros((4, 6, 3))
    >>> Fields(x, u, y=y, grid=(2, 3), period=(None, 1.0)).spec.periodic
    (False, True)
    """

    coordinates: int
    in_channels: int
    out_channels: int
    grid: tuple[int, ...] | None = None
    periodic: tuple[bool, ...] = ()

    def __post_init__(self) -> None:
        require_count("coordinates", self.coordinates, 10**6)
        for name in ("in_channels", "out_channels"):
            require_count(name, getattr(self, name), 10**6, least=0)
        if self.periodic and len(self.periodic) != len(self.grid or ()):
            raise ValueError(
                f"periodic: expected one value for each axis of the grid {self.grid}, got "
                f"{self.periodic}"
            )

    @property
    def of_points(self) -> Spec:
        """The same sizes, of points that form no grid."""
        return replace(self, grid=None, periodic=())

    @property
    def plane(self) -> tuple[int, int] | None:
        """Rows and columns of a 2-D grid; None if the grid is another or there is none."""
        return (self.grid[0], self.grid[1]) if self.grid and len(self.grid) == 2 else None


class Sample(NamedTuple):
    """One sample: positions (n, d), values (n, i), query positions (q, d), targets (q, o).

    The other fields are None if the data do not have them: parameters (p,), weights (n,), query
    weights (q,), background (q, o), cells (m, 3 or 4) and grid index (q,).
    """

    x: np.ndarray
    u: np.ndarray
    x_query: np.ndarray
    y: np.ndarray | None = None
    parameters: np.ndarray | None = None
    weights: np.ndarray | None = None
    query_weights: np.ndarray | None = None
    background: np.ndarray | None = None
    cells: np.ndarray | None = None
    grid_index: np.ndarray | None = None
