"""The sizes of data, and one sample of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lno.config import require_count


@dataclass(frozen=True)
class Spec:
    """What a model must know about the data: numbers of coordinates and channels, and the grid.

    >>> from lno import Fields
    >>> Fields(np.zeros((6, 2)), np.zeros((4, 6, 1)), y=np.zeros((4, 6, 3)), grid=(2, 3)).spec
    Spec(coordinates=2, in_channels=1, out_channels=3, grid=(2, 3))
    """

    coordinates: int
    in_channels: int
    out_channels: int
    grid: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        require_count("coordinates", self.coordinates, 10**6)
        for name in ("in_channels", "out_channels"):
            require_count(name, getattr(self, name), 10**6, least=0)

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
