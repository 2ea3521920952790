"""`Domain`: all points where fields of one kind have values, of which a sample may lack some."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path

import numpy as np
from jaxtyping import Float, Int

from lno.data import columns
from lno.data.fields import Fields
from lno.data.grids import grid_points, regular_axes


@dataclass(frozen=True)
class Domain:
    """The points of fields: of a mesh, of a grid, or of a grid where some are missing (land).

    Args:
        fields: one sample without values: positions, covariates and sizes of points, their grid.

    >>> x = np.arange(6.0)[:, None]
    >>> there = [np.array([0, 1, 2]), np.array([1, 2, 4])]  # points 3 and 5 are land
    >>> data = Fields([x[i] for i in there], y=[x[i] for i in there], grid=(6,), grid_index=there)
    >>> domain = Domain.of(data)
    >>> domain.points.ravel().tolist(), domain.locate(data, 1).tolist()
    ([0.0, 1.0, 2.0, 4.0], [1, 2, 3])
    >>> domain.on_grid(np.ones(4)).tolist()
    [1.0, 1.0, 1.0, nan, 1.0, nan]
    """

    fields: Fields

    def __post_init__(self) -> None:
        if len(self.fields) != 1 or not self.fields.same_points:
            raise ValueError("Domain: expected the points of one sample, without x_query")

    @classmethod
    def of(cls, data: Fields) -> Domain | None:
        """The domain of samples; None if each has points of its own, on no grid."""
        points, index, grid = data.x_query, data.grid_index, data.grid
        sizes = data.weights if data.same_points else data.query_weights
        if not columns.is_shared(points):
            if grid is None or index is None:
                return None
            return cls(_union(data, sizes))
        shared = sizes if sizes is None or columns.is_shared(sizes) else None
        x = columns.sample(points, 0)
        where = None if index is None else columns.sample(index, 0)
        return cls(_alone(data, x, shared, where))

    @classmethod
    def of_grid(cls, axes: tuple[np.ndarray, ...], names: list[str]) -> Domain:
        """A regular grid."""
        shape = tuple(len(axis) for axis in axes)
        return cls(Fields(grid_points(*axes), grid=shape, names={"x": names}))

    @cached_property
    def points(self) -> Float[np.ndarray, "p d"]:
        """Positions and covariates of all points."""
        return np.asarray(columns.sample(self.fields.x, 0), np.float64)

    @property
    def weights(self) -> Float[np.ndarray, " p"] | None:
        """The sizes that the points stand for, if they are known."""
        sizes = self.fields.weights
        return None if sizes is None else columns.sample(sizes, 0)[:, 0]

    @cached_property
    def index(self) -> Int[np.ndarray, " p"] | None:
        """The flat index of each point in the grid; None if there is no grid."""
        if self.fields.grid is None:
            return None
        if self.fields.grid_index is None:
            return np.arange(len(self.points))
        return columns.sample(self.fields.grid_index, 0)[:, 0]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of a field: that of the grid, or the number of points."""
        return self.fields.grid or (len(self.points),)

    def axes(self) -> tuple[np.ndarray, ...]:
        """The coordinates along each axis of a regular grid; none where there is no such grid."""
        grid, index = self.fields.grid, self.index
        if grid is None or index is None or len(grid) != self.fields.space:
            return ()
        return tuple(regular_axes(grid, index, self.points.T[: len(grid)], 1e-5) or ())

    def on_grid(self, values: Float[np.ndarray, " p"]) -> np.ndarray:
        """Values at the points in the shape of the grid, NaN where it has no point."""
        if self.index is None:
            return values
        whole = np.full(prod(self.shape), np.nan, values.dtype)
        whole[self.index] = values
        return whole.reshape(self.shape)

    def locate(self, data: Fields, k: int) -> Int[np.ndarray, " q"]:
        """Which points of the domain sample k has."""
        x = columns.sample(data.x_query, k)
        size = np.ptp(self.points, axis=0).max(initial=1e-300)
        if data.grid_index is not None and self.index is not None and data.grid == self.fields.grid:
            wanted = columns.sample(data.grid_index, k)[:, 0]
            order = np.argsort(self.index)
            place = np.searchsorted(self.index[order], wanted).clip(max=len(order) - 1)
            found = order[place]
            if np.array_equal(self.index[found], wanted):
                return found
        elif x.shape == self.points.shape and np.allclose(x, self.points, atol=1e-5 * size):
            return np.arange(len(x))
        raise ValueError(
            f"sample {k}: expected points of the domain, {len(self.points)} of "
            f"{', '.join(self.fields.names['x'])} on the grid {self.fields.grid}, got {len(x)} on "
            f"{data.grid}"
        )

    def save(self, path: str | Path) -> None:
        """Write a data file, atomically."""
        self.fields.save(path)

    @staticmethod
    def load(path: str | Path) -> Domain:
        """Read a file of `save`."""
        try:
            return Domain(Fields.load(path))
        except ValueError as error:
            raise ValueError(f"{path} is not a domain: {error}") from error


def _union(data: Fields, sizes: columns.Column | None) -> Fields:
    """All points of the grid that any of the samples has, in the order of the grid."""
    assert data.grid_index is not None
    found: dict[int, tuple[int, int]] = {}
    for k in range(len(data)):
        for row, at in enumerate(columns.sample(data.grid_index, k)[:, 0].tolist()):
            found.setdefault(at, (k, row))
    places = [found[at] for at in sorted(found)]
    x = np.stack([columns.sample(data.x_query, k)[row] for k, row in places])
    weights = None
    if sizes is not None:
        weights = np.stack([columns.sample(sizes, k)[row] for k, row in places])
    return _alone(data, x, weights, np.array(sorted(found))[:, None])


def _alone(data: Fields, x: np.ndarray, weights: object, grid_index: np.ndarray | None) -> Fields:
    """Points without values."""
    return Fields(
        x,
        weights=weights,
        grid=data.grid,
        grid_index=grid_index,
        space=data.space,
        period=data.period,
        sphere=data.sphere,
        names={"x": data.names["x"]},
        units={"x": data.units["x"]},
        frame=data.frame,
    )
