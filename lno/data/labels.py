"""What the numbers of a data set mean, for an operator that was trained on it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lno import limits
from lno.config import require_count, require_type
from lno.data import columns
from lno.data.batch import Batch
from lno.data.fields import Fields


@dataclass(frozen=True)
class Labels:
    """What the inputs and outputs of an operator mean, and the box that it was trained in.

    Args:
        names, units: of coordinates, channels and parameters, as in `Fields`.
        frame: what the coordinates are, in words.
        low, high: the ends of the box, for each coordinate.
        grid: the shape of the grid of the training data, if it was one.
        space: how many leading coordinates are positions.
    """

    names: dict[str, list[str]]
    units: dict[str, list[str]]
    frame: str
    low: tuple[float, ...]
    high: tuple[float, ...]
    grid: tuple[int, ...] | None
    space: int

    def __post_init__(self) -> None:
        for key, labels in (("names", self.names), ("units", self.units)):
            require_type(f"labels.{key}", labels, dict[str, list[str]])
            if not {"x", "u", "y"} <= set(labels) <= {"x", "u", "y", "parameters"}:
                raise ValueError(f"labels.{key}: expected x, u and y, got {', '.join(labels)}")
        for key, names in self.names.items():
            if len(self.units.get(key, [])) != len(names):
                raise ValueError(f"labels.units: expected {len(names)} of {key}")
        require_type("labels.frame", self.frame, str)
        d = len(self.names["x"])
        for key, side in (("low", self.low), ("high", self.high)):
            require_type(f"labels.{key}", side, tuple[float, ...])
            if len(side) != d or not all(math.isfinite(end) for end in side):
                raise ValueError(f"labels.{key}: expected {d} finite numbers, got {side}")
        if not all(low <= high for low, high in zip(self.low, self.high, strict=True)):
            raise ValueError(f"labels: expected low <= high, got {self.low} and {self.high}")
        require_grid("labels.grid", self.grid)
        require_count("labels.space", self.space, d)

    @classmethod
    def of(cls, prepared: Fields, observes_outputs: bool = False) -> Labels:
        """The labels of training data, whose observations may be drawn from their outputs."""
        points = (prepared.x, prepared.x_query)
        arrays = [a for column in points for a in columns.samples(column, len(prepared))]
        low = np.min([a.min(0) for a in arrays], axis=0)
        high = np.max([a.max(0) for a in arrays], axis=0)
        names, units = (
            {**labels, "u": labels["y"]} if observes_outputs else dict(labels)
            for labels in (prepared.names, prepared.units)
        )
        box = (tuple(low.tolist()), tuple(high.tolist()))
        grid = prepared.grid
        if grid is not None and math.prod(grid) > limits.GRID_POINTS:
            grid = None  # a label that no file may have
        return cls(names, units, prepared.frame, *box, grid, prepared.space)

    def axes(self, shape: Sequence[int], period: Sequence[float | None]) -> tuple[np.ndarray, ...]:
        """The coordinates of a regular grid of this shape over the box.

        The last point of a periodic coordinate is one step before its first.
        """
        return tuple(
            np.linspace(low, high, n) if p is None else low + p * np.arange(n) / n
            for low, high, n, p in zip(self.low, self.high, shape, period, strict=True)
        )

    def require(self, key: str, got: int) -> None:
        """Raise unless there are as many coordinates, channels or parameters as in training."""
        names = self.names.get(key, [])
        if got != len(names):
            what = {"x": "coordinate", "parameters": "number"}.get(key, "channel")
            what += "s" * (len(names) != 1)
            listed = f" ({', '.join(names)})" if names else ""
            if key == "parameters" and not names:
                raise ValueError(
                    f"parameters: the operator was trained without any, got {got}: leave them out"
                )
            raise ValueError(f"{key}: expected {len(names)} {what}{listed}, got {got}")

    def require_batch(self, batch: Batch) -> None:
        """Raise unless a batch has the coordinates, channels and parameters of training."""
        numbers = 0 if batch.parameters is None else batch.parameters.shape[-1]
        for key, count in (("x", batch.x.shape[-1]), ("u", batch.u.shape[-1])):
            self.require(key, count)
        self.require("parameters", numbers)

    def compare(self, fields: Fields, *keys: str) -> None:
        """Warn where data name coordinates ("x") or channels otherwise, if they name them."""
        for key in keys:
            ours, theirs = self.names[key], fields.names[key]
            unnamed = [f"{key}{k}" for k in range(len(theirs))]
            if theirs != ours and unnamed not in (theirs, ours) and len(theirs) == len(ours):
                warnings.warn(
                    f"{key}: the operator was trained with {', '.join(ours)}, the data have "
                    f"{', '.join(theirs)}: they are taken in this order",
                    stacklevel=3,
                )

    def check(self, fields: Fields, period: Sequence[float | None]) -> None:
        """Refuse other coordinates or channels; warn of positions outside of the box."""
        self.require("x", fields.spec.coordinates)
        self.require("u", columns.channels(fields.u))
        self.require("parameters", 0 if fields.parameters is None else fields.parameters.shape[1])
        low, high = np.array(self.low), np.array(self.high)
        bounded = np.array([p is None for p in period])
        # Half a cell of a grid is not far, and a window may end between two of its points. A cloud
        # of random points ends somewhere inside its domain.
        gridded = self.grid is not None and len(self.grid) == len(low)
        cells = np.maximum(np.array(self.grid) - 1, 1) if gridded else 50
        slack = 0.5 * (high - low) / cells
        for what, column in (("observed", fields.x), ("query", fields.x_query)):
            outside = total = 0
            for x in columns.samples(column, len(fields)):
                out = ((x < low - slack) | (x > high + slack)) & bounded
                outside, total = outside + int(out.any(1).sum()), total + len(x)
            if outside:
                sides = zip(self.names["x"], low, high, bounded, strict=True)
                box = ", ".join(
                    f"{a:.4g} <= {name} <= {b:.4g}" for name, a, b, inside in sides if inside
                )
                warnings.warn(
                    f"{outside} of {total} {what} positions lie outside the box that the "
                    f"operator was trained in ({box}): expect larger errors there",
                    stacklevel=4,
                )


def require_grid(name: str, grid: object) -> None:
    """Raise unless a grid is None or the shape of one that fits into memory."""
    require_type(name, grid, tuple[int, ...] | None)
    if isinstance(grid, tuple) and not (
        0 < len(grid) <= 16 and min(grid) > 0 and math.prod(grid) <= limits.GRID_POINTS
    ):
        raise ValueError(
            f"{name}: expected positive sizes of at most {limits.GRID_POINTS:,} points, got {grid}"
        )
