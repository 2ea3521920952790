"""How to correct a model by its residuals at sensors, learned from whole fields.

A few sensors tell little about a covariance. Besides, a model has read these sensors, so that its
residuals there look more independent than its errors elsewhere: the most likely length scale is too
short. Whole fields tell what works. The residuals of a model are taken to have the covariance

    variance · (S(x, x') · Matérn(|x − x'| / scale) + nugget where x = x')

with scale and nugget that minimise the squared error of the corrected predictions where there is no
sensor. S is 1; or, where all fields have the same points, the covariance of the training fields
there (sample covariance), which knows where fields vary and what varies together. The Matérn factor
then keeps far points apart, whose sample covariance is mostly chance (localisation; together they
are ensemble optimal interpolation, Evensen, 2003). The nugget is what varies below all distances.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy.spatial import cKDTree
from torch import Tensor

from lno.config import from_dict, require_range, require_type
from lno.kernel_methods.gaussian_process import FACTORS, JITTER, LENGTH_SCALES, matern

NUGGETS = (1e-6, 1e-4, 1e-3, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)  # candidates
SENSORS, OTHERS = 512, 512  # points of a field, at random, that decide
MOST_SENSORS = 4096  # that a correction uses, a random subset of more
ENTRIES = 2**24  # of a matrix of queries and sensors at once
SAME = 1e-6  # distance of points that are one, in the units of positions
KEYS, PREFIX = ("scales", "nugget", "variance"), "covariance."  # in a file, and of its arrays
ARRAYS = {"points": torch.float64, "values": torch.float32}


class Residuals(NamedTuple):
    """Truth minus model in one field, at its sensors and at other points; functions in columns."""

    x: Float[Tensor, "n f"]
    at_sensors: Float[Tensor, "n c"]
    x_others: Float[Tensor, "q f"]
    at_others: Float[Tensor, "q c"]


@dataclass(frozen=True)
class FieldsAtPoints:
    """Fields at points that they share, whose sample covariance is S.

    Args:
        points: positions, as features whose distances are meaningful.
        values: of each field minus the mean of all fields.

    >>> points, values = np.array([[0.0], [1.0]]), np.array([[1.0, 2.0], [-1.0, -2.0]])
    >>> FieldsAtPoints(points, values).at(torch.tensor([[0.9], [0.1]]))  # of the nearest point
    tensor([[ 0.8944, -0.8944],
            [ 0.4472, -0.4472]], dtype=torch.float64)
    """

    points: Float[np.ndarray, "p f"]
    values: Float[np.ndarray, "r _"]

    def __post_init__(self) -> None:
        for name in ("points", "values"):
            array = getattr(self, name)
            if array.ndim != 2 or not array.size or not np.isfinite(array).all():
                raise ValueError(f"FieldsAtPoints.{name}: expected finite numbers in a table")
        if self.values.shape[1] != len(self.points):
            raise ValueError(
                f"FieldsAtPoints.values: expected {len(self.points)} points, got "
                f"{self.values.shape[1]}"
            )

    def at(self, x: Float[Tensor, "n f"]) -> Float[Tensor, "n r"]:
        """Factors of S at positions, S = a bᵀ, so that S is 1 on average over the points."""
        nearest = np.asarray(self._tree.query(x.cpu().double().numpy())[1])
        return torch.from_numpy(self._factors[nearest]).to(x.device)

    @cached_property
    def _tree(self) -> cKDTree:
        return cKDTree(self.points)

    @cached_property
    def _factors(self) -> Float[np.ndarray, "p r"]:
        values = self.values.T.astype(np.float64)
        return values / np.sqrt(max(np.square(values).sum(1).mean(), 1e-300))


@dataclass(frozen=True)
class Covariance:
    """The covariance of a model's residuals; see above.

    Args:
        scales: the length scale of each coordinate.
        nugget: the variance of what varies below all distances, over that of the rest.
        variance: of the rest, on average.
        fields: whose sample covariance is S; None: S = 1.

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
    fields: FieldsAtPoints | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        require_type("Covariance.scales", self.scales, tuple[float, ...])
        for scale in self.scales:
            require_range("Covariance.scales", scale, 1e-9, 1e9)
        require_range("Covariance.nugget", self.nugget, 0.0, 1e9)
        require_range("Covariance.variance", self.variance, 0.0, 1e300)

    def require_fit(self, axes: Sequence[int]) -> None:
        """Raise unless it is for positions whose features belong to these coordinates."""
        count = max(axes) + 1
        if len(self.scales) != count:
            raise ValueError(
                f"Covariance.scales: expected {count}, one for each coordinate, got "
                f"{len(self.scales)}"
            )
        if self.fields is not None and self.fields.points.shape[1] != len(axes):
            raise ValueError(
                f"Covariance.fields: expected points with {len(axes)} features, got "
                f"{self.fields.points.shape[1]}"
            )

    @classmethod
    def fit(
        cls,
        residuals: Sequence[Residuals],
        axes: Sequence[int] | None = None,
        fields: FieldsAtPoints | None = None,
    ) -> Covariance:
        """The covariance with the least squared error at the points without a sensor.

        Args:
            residuals: in several fields.
            axes: the coordinate that each feature of a position belongs to; None: one for all.
            fields: whose sample covariance may be S; None: there are none.
        """
        if not residuals:
            raise ValueError("residuals: expected those of at least one field, got none")
        axis = torch.tensor(axes or [0] * residuals[0].x.shape[1])
        some, count = [_some(one) for one in residuals], int(axis.max()) + 1
        best: tuple[float, tuple[float, ...], float, FieldsAtPoints | None]
        best = (math.inf, (1.0,) * count, NUGGETS[0], None)
        for sample in (None,) if fields is None else (None, fields):
            known = [_Field(one, axis, sample) for one in some]
            tried: dict[tuple[tuple[float, ...], float], float] = {}
            for scale, nugget in product(LENGTH_SCALES, NUGGETS):
                scales = (scale,) * count
                tried[scales, nugget] = sum(one.error(scales, nugget) for one in known)
            for factor, k in product(FACTORS, range(count)):
                scales, nugget = min(tried, key=lambda pair: tried[pair])
                scales = (*scales[:k], factor * scales[k], *scales[k + 1 :])
                tried[scales, nugget] = sum(one.error(scales, nugget) for one in known)
            scales, nugget = min(tried, key=lambda pair: tried[pair])
            if tried[scales, nugget] < best[0]:
                best = (tried[scales, nugget], scales, nugget, sample)
        _, scales, nugget, chosen = best
        squares = torch.cat([one.at_sensors.flatten() for one in some]).square()
        return cls(scales, nugget, float(squares.mean()) / (1 + nugget), chosen)

    def correct(
        self,
        x: Float[Tensor, "#b n f"],
        residuals: Float[Tensor, "k b n 1"],
        queries: Float[Tensor, "#b q f"],
        mask: Bool[Tensor, "b n"] | None = None,
        noise: float = 0.0,
        axes: Sequence[int] | None = None,
    ) -> tuple[Float[Tensor, "k b q 1"], Float[Tensor, "b q 1"]]:
        """What to add to k models at the queries, and the standard deviation of what is left.

        The correction at a sensor is the residual there, unless sensors are noisy.

        Args:
            x: positions of the sensors, as features whose distances are meaningful.
            residuals: of the models there.
            queries: positions of the correction.
            mask: which sensors are real; None: all.
            noise: the standard deviation of the sensors' errors.
            axes: the coordinate that each feature belongs to; None: one for all.
        """
        found = []
        for k in range(residuals.shape[1]):
            real = slice(None) if mask is None else mask[k]
            here, values = x[k % len(x)][real].double(), residuals[:, k, real, 0].T.double()
            if len(here) > MOST_SENSORS:
                order = torch.randperm(len(here), generator=torch.Generator().manual_seed(0))
                chosen = order[:MOST_SENSORS].to(here.device)
                here, values = here[chosen], values[chosen]
            asked = queries[k % len(queries)].double()
            found.append(self._correct(here, values, asked, axes or [0] * here.shape[1], noise))
        added, left = (torch.stack(parts) for parts in zip(*found, strict=True))
        return added.permute(2, 0, 1)[..., None].to(residuals), left[..., None].to(residuals)

    def _correct(
        self,
        x: Float[Tensor, "n f"],
        values: Float[Tensor, "n c"],
        queries: Float[Tensor, "q f"],
        axes: Sequence[int],
        noise: float,
    ) -> tuple[Float[Tensor, "q c"], Float[Tensor, " q"]]:
        """The correction in one field."""
        scale = torch.tensor(self.scales, dtype=x.dtype, device=x.device)[list(axes)]
        here = None if self.fields is None else self.fields.at(x)
        matrix = matern(torch.cdist(x / scale, x / scale))
        matrix = matrix if here is None else matrix * (here @ here.T)
        matrix.diagonal().add_(self.nugget + noise**2 / max(self.variance, 1e-300) + JITTER)
        factor, _ = torch.linalg.cholesky_ex(matrix)
        weights = torch.cholesky_solve(values, factor)
        found, left = [], []
        for part in queries.split(max(1, ENTRIES // len(x))):
            between = matern(torch.cdist(part / scale, x / scale))
            total = torch.ones(len(part), dtype=x.dtype, device=x.device)
            if self.fields is not None and here is not None:
                there = self.fields.at(part)
                between, total = between * (there @ here.T), there.square().sum(1)
            apart = torch.cdist(part, x, compute_mode="donot_use_mm_for_euclid_dist")
            between = between + self.nugget * (apart < SAME)  # what is known at the sensor itself
            found.append(between @ weights)
            whitened = torch.linalg.solve_triangular(factor, between.T, upper=False)
            left.append(total + self.nugget - whitened.square().sum(0))
        return torch.cat(found), (self.variance * torch.cat(left).clamp(min=0)).sqrt()


class _Field:
    """What all candidates need of one field, computed once."""

    def __init__(self, one: Residuals, axis: Tensor, fields: FieldsAtPoints | None) -> None:
        parts = [axis == k for k in range(int(axis.max()) + 1)]

        def squares(a: Tensor, b: Tensor) -> Float[Tensor, "_ _ d"]:
            return torch.stack([torch.cdist(a[:, p], b[:, p]).square() for p in parts], -1)

        self.among, self.between = squares(one.x, one.x), squares(one.x_others, one.x)
        self.values, self.others = one.at_sensors, one.at_others
        self.factors: tuple[Tensor, Tensor] | None = None
        if fields is not None:
            here, there = fields.at(one.x), fields.at(one.x_others)
            self.factors = here @ here.T, there @ here.T

    def error(self, scales: tuple[float, ...], nugget: float) -> float:
        """The sum of squares that the correction leaves at the points without a sensor."""
        weights = torch.tensor(scales, dtype=self.among.dtype).pow(-2)
        matrix, between = (matern((s @ weights).sqrt_()) for s in (self.among, self.between))
        if self.factors is not None:
            matrix, between = matrix * self.factors[0], between * self.factors[1]
        matrix.diagonal().add_(nugget)
        factor, failed = torch.linalg.cholesky_ex(matrix)
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


# -- in the file of an operator: arrays as tensors, all else as JSON -------------------------------


def stored_covariance(covariance: Covariance | None) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What the metadata of a file say of a covariance, and its fields; nothing if there is none."""
    if covariance is None:
        return {}, {}
    numbers = {key: getattr(covariance, key) for key in KEYS}
    described = {"covariance": {**numbers, "sample": covariance.fields is not None}}
    if covariance.fields is None:
        return described, {}
    return described, {
        f"{PREFIX}{key}": torch.from_numpy(getattr(covariance.fields, key).copy()).to(kind)
        for key, kind in ARRAYS.items()
    }


def read_covariance(
    found: Mapping[str, Any] | None, tensors: dict[str, Tensor]
) -> Covariance | None:
    """The covariance that a file describes; its arrays are taken out of `tensors`."""
    if found is None:
        return None
    numbers = dict(found)
    sample = numbers.pop("sample", None)
    require_type("covariance.sample", sample, bool)
    covariance = from_dict(Covariance, {**numbers, "fields": None})
    if not sample:
        return covariance
    arrays = {}
    for key, kind in ARRAYS.items():
        tensor = tensors.pop(f"{PREFIX}{key}", None)
        if tensor is None or tensor.dtype != kind:
            raise ValueError(f"{PREFIX}{key}: expected numbers of type {kind}")
        arrays[key] = tensor.numpy()
    return replace(covariance, fields=FieldsAtPoints(**arrays))
