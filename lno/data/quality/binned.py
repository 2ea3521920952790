"""Samples with points of their own, made comparable: means of values in the bins of a grid."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from lno.data import columns
from lno.data.fields import Fields

BINS = {1: 64, 2: 8, 3: 4}  # along each axis


@dataclass(frozen=True)
class Bins:
    """A coarse grid over the domain of the query points.

    Args:
        low: the lower corner.
        high: the upper corner.
        sides: how many bins along each axis.
    """

    low: np.ndarray
    high: np.ndarray
    sides: int

    @property
    def count(self) -> int:
        """Of all bins."""
        return self.sides ** len(self.low)

    def number(self, x: Float[np.ndarray, "q d"]) -> np.ndarray:
        """The bin of each point."""
        span = np.where(self.high > self.low, self.high - self.low, 1.0)
        place = np.floor((x[:, : len(self.low)] - self.low) / span * self.sides)
        inside = np.clip(place, 0, self.sides - 1).astype(int)
        return np.ravel_multi_index(tuple(inside.T), (self.sides,) * len(self.low))


def bins_of(fields: Fields) -> Bins:
    """Bins over the first coordinates, at most three, of all query points."""
    d = min(fields.space, 3)
    every = list(columns.samples(fields.x_query, len(fields)))
    low = np.min([x.min(0) for x in every], axis=0)[:d]
    high = np.max([x.max(0) for x in every], axis=0)[:d]
    return Bins(low, high, BINS[d])


def in_bins(
    bins: Bins, x: Float[np.ndarray, "q d"], values: Float[np.ndarray, "q c"] | None
) -> Float[np.ndarray, "bins c"]:
    """The mean of the values in each bin; in an empty one, the mean of all values."""
    assert values is not None
    number = bins.number(x)
    size = np.bincount(number, minlength=bins.count)
    sums = [np.bincount(number, values[:, c], bins.count) for c in range(values.shape[1])]
    with np.errstate(invalid="ignore"):
        means = np.stack(sums, -1) / size[:, None]
    return np.where(size[:, None] > 0, means, values.mean(0))


def share_in_bins(bins: Bins, x: Float[np.ndarray, "q d"]) -> Float[np.ndarray, " bins"]:
    """The share of the points in each bin."""
    return np.bincount(bins.number(x), minlength=bins.count) / len(x)
