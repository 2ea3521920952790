"""How to correct a model by its residuals at sensors, learned from whole fields.

A few sensors tell little about a covariance. Besides, a model has read these sensors, so that its
residuals there look more independent than its errors elsewhere: the most likely length scale is too
short. Whole fields tell what works. The length scale and the nugget of one Matérn covariance
minimise the squared error of the corrected predictions where there is no sensor. The nugget is what
varies below all distances (the nugget effect of geostatistics): it keeps the correction from
following every sensor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from lno.config import require_range, require_type
from lno.data.gaussian_process import FACTORS, LENGTH_SCALES, matern

NUGGETS = (1e-6, 1e-4, 1e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)  # candidates
SENSORS, OTHERS = 512, 512  # points of a field, at random, that count


class Residuals(NamedTuple):
    """Truth minus model in one field, at its sensors and at other points; functions in columns."""

    x: Float[Tensor, "n f"]
    at_sensors: Float[Tensor, "n c"]
    x_others: Float[Tensor, "q f"]
    at_others: Float[Tensor, "q c"]


@dataclass(frozen=True)
class Covariance:
    """variance · (Matérn-5/2 in units of `scales`, plus the nugget where two points are one).

    Args:
        scales: the length scale of each coordinate.
        nugget: the variance of what varies below all distances, over that of the rest.
        variance: of the rest.

    >>> x, random = torch.linspace(0, 8, 40)[:, None].double(), torch.Generator().manual_seed(0)
    >>> root = torch.linalg.cholesky(matern(torch.cdist(x, x) / 0.8) + 0.1 * torch.eye(40))
    >>> values = [root @ torch.randn(40, 1, generator=random).double() for _ in range(60)]
    >>> found = Covariance.fit([Residuals(x[::2], v[::2], x[1::2], v[1::2]) for v in values])
    >>> found.scales, found.nugget, round(found.variance, 1)
    ((0.8,), 0.1, 1.0)
    """

    scales: tuple[float, ...]
    nugget: float
    variance: float

    def __post_init__(self) -> None:
        require_type("Covariance.scales", self.scales, tuple[float, ...])
        for scale in self.scales:
            require_range("Covariance.scales", scale, 1e-9, 1e9)
        require_range("Covariance.nugget", self.nugget, 0.0, 1e9)
        require_range("Covariance.variance", self.variance, 0.0, 1e300)

    @classmethod
    def fit(cls, fields: Sequence[Residuals], axes: Sequence[int] | None = None) -> Covariance:
        """The covariance with the least squared error at the points without a sensor.

        Args:
            fields: residuals in several fields.
            axes: the coordinate that each feature of a position belongs to; None: one for all.
        """
        if not fields:
            raise ValueError("fields: expected residuals in at least one field, got none")
        axis = torch.tensor(axes or [0] * fields[0].x.shape[1])
        count = int(axis.max()) + 1
        known = [_Field(_some(one), axis) for one in fields]

        def error(scales: tuple[float, ...], nugget: float) -> float:
            return sum(one.error(scales, nugget) for one in known)

        tried = {
            ((scale,) * count, nugget): error((scale,) * count, nugget)
            for scale in LENGTH_SCALES
            for nugget in NUGGETS
        }
        for factor in FACTORS:
            for k in range(count):
                scales, nugget = min(tried, key=lambda pair: tried[pair])
                scales = (*scales[:k], factor * scales[k], *scales[k + 1 :])
                tried[scales, nugget] = error(scales, nugget)
        scales, nugget = min(tried, key=lambda pair: tried[pair])
        squares = torch.cat([one.values.flatten() for one in known]).square()
        return cls(scales, nugget, float(squares.mean()) / (1 + nugget))


class _Field:
    """Squared distances along each coordinate in one field, computed once for all candidates."""

    def __init__(self, one: Residuals, axis: Tensor) -> None:
        parts = [axis == k for k in range(int(axis.max()) + 1)]

        def squares(a: Tensor, b: Tensor) -> Float[Tensor, "_ _ d"]:
            return torch.stack([torch.cdist(a[:, p], b[:, p]).square() for p in parts], -1)

        self.among, self.between = squares(one.x, one.x), squares(one.x_others, one.x)
        self.values, self.others = one.at_sensors, one.at_others

    def error(self, scales: tuple[float, ...], nugget: float) -> float:
        """The sum of squares that the correction leaves at the points without a sensor."""
        weights = torch.tensor(scales, dtype=self.among.dtype).pow(-2)
        covariance, between = (matern((s @ weights).sqrt_()) for s in (self.among, self.between))
        covariance.diagonal().add_(nugget)
        factor, failed = torch.linalg.cholesky_ex(covariance)
        if failed:
            return math.inf
        corrected = between @ torch.cholesky_solve(self.values, factor)
        return float((self.others - corrected).square().sum())


def _some(one: Residuals) -> Residuals:
    """At most SENSORS and OTHERS points of a field, in double precision on the CPU."""
    random, parts = torch.Generator().manual_seed(0), []
    for most, pair in ((SENSORS, one[:2]), (OTHERS, one[2:])):
        order = torch.randperm(len(pair[0]), generator=random)[:most]
        parts += [values.cpu().double()[order] for values in pair]
    return Residuals(*parts)
