"""Standardisation of positions and values, and back.

Normalisers are fitted to training data alone and kept in the model file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lno.config import from_dict, to_dict
from lno.data import columns
from lno.data.batch import Batch
from lno.data.columns import Column
from lno.data.fields import Fields

COARSE = 0.01  # of a period: the distance of neighbouring numbers, beyond which places are lost
LARGEST = 1e30  # means and standard deviations; single precision ends at 3e38


@dataclass(frozen=True)
class Standardizer:
    """Per channel (v − mean) / std, over all samples and points.

    A channel that never changes has std 1: it becomes zero, and comes back as its constant.

    >>> s = Standardizer.fit([np.array([[[1.0, 5.0], [3.0, 5.0]]])], 1)
    >>> s
    Standardizer(mean=(2.0, 5.0), std=(1.0, 1.0))
    >>> s.encode(torch.tensor([3.0, 5.0])), s.decode(torch.tensor([1.0, 0.0]))
    (tensor([1., 0.]), tensor([3., 5.]))
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.mean) != len(self.std) or not all(math.isfinite(m) for m in self.mean):
            raise ValueError(f"expected as many finite means as stds, got {self.mean}, {self.std}")
        if not all(math.isfinite(s) and s > 0 for s in self.std):
            raise ValueError(f"expected positive standard deviations, got {self.std}")

    @classmethod
    def fit(cls, columns_: Sequence[Column], count: int) -> Standardizer:
        """Fit to `count` samples of one or more columns of the same channels."""
        return cls._fit(columns_, count, lambda values: values)

    @classmethod
    def fit_frames(cls, columns_: Sequence[Column], count: int, channels: int) -> Standardizer:
        """Like `fit` for columns that hold frames, with one mean and std a channel for all frames.

        >>> Standardizer.fit_frames([np.array([[[1.0, 3.0]]])], 1, channels=1)
        Standardizer(mean=(2.0,), std=(1.0,))
        """
        return cls._fit(columns_, count, lambda values: values.reshape(-1, channels))

    @classmethod
    def _fit(
        cls,
        columns_: Sequence[Column],
        count: int,
        change: Callable[[np.ndarray], np.ndarray],
    ) -> Standardizer:
        def arrays() -> list[np.ndarray]:
            return [change(v) for column in columns_ for v in columns.samples(column, count)]

        # Two passes in float64: the textbook one-pass formula loses digits when |mean| >> std.
        total = sum(len(a) for a in arrays())
        mean = sum(a.sum(0, dtype=np.float64) for a in arrays()) / total
        square = sum(np.square(a - mean, dtype=np.float64).sum(0) for a in arrays()) / total
        std = np.sqrt(square)
        rounding = max(8 * np.finfo(column.dtype).eps for column in columns_)
        std = np.where(std <= rounding * np.abs(mean), 1.0, std)  # a constant, up to rounding
        return cls(tuple(mean.tolist()), tuple(std.tolist()))

    @classmethod
    def identity(cls, channels: int) -> Standardizer:
        """Leaves values as they are."""
        return cls((0.0,) * channels, (1.0,) * channels)

    def encode(self, values: Tensor) -> Tensor:
        """Physical to standardised values, computed in the precision that they came in.

        Without channels there is nothing to do: observations may still have to be drawn.
        """
        if values.shape[-1] == 0:
            return values.float()
        return ((values - _like(self.mean, values)) / _like(self.std, values)).float()

    def decode(self, values: Tensor) -> Tensor:
        """Standardised to physical values."""
        return values * _like(self.std, values) + _like(self.mean, values)


@dataclass(frozen=True)
class Coordinates:
    """Standardised positions; a periodic coordinate becomes the pair cos, sin of its angle.

    Args:
        scale: of every coordinate.
        period: of every coordinate; None for those that have none.
        space: how many leading coordinates are positions; the rest are covariates. None: all.
        sphere: which coordinates are latitude and longitude in degrees; they become a unit vector,
            whose distances are chords of the sphere. None: there are none.

    >>> c = Coordinates(Standardizer((0.5, 0.0), (0.25, 1.0)), period=(None, 2.0))
    >>> c.axes, c.encode(torch.tensor([[1.0, 1.0]])).round(decimals=3)
    ((0, 1, 1), tensor([[ 2., -1., -0.]]))
    """

    scale: Standardizer
    period: tuple[float | None, ...]
    space: int | None = None
    sphere: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        d = len(self.scale.mean)
        pair = self.sphere
        if pair is not None and (len(set(pair)) != 2 or not 0 <= min(pair) <= max(pair) < d):
            raise ValueError(f"sphere: expected two of the {d} coordinates, got {pair}")
        if len(self.period) != d or not all(p is None or 0 < p < math.inf for p in self.period):
            raise ValueError(f"expected {d} positive periods or None, got {self.period}")
        if self.space is not None and not 1 <= self.space <= d:
            raise ValueError(f"space: expected a number from 1 to {d}, got {self.space}")

    @classmethod
    def fit(cls, fields: Fields) -> Coordinates:
        """Fit to the observed and the query positions of `fields` together."""
        both = [fields.x] if fields.same_points else [fields.x, fields.x_query]
        period = tuple(fields.period or (None,) * fields.spec.coordinates)
        sphere = fields.sphere_axes
        return cls(Standardizer.fit(both, len(fields)), period, fields.space, sphere)

    @property
    def features(self) -> int:
        """How many numbers a position becomes."""
        return len(self.axes)

    @property
    def axes(self) -> tuple[int, ...]:
        """The coordinate that each feature belongs to."""
        return tuple(k for k, count in enumerate(self._counts()) for _ in range(count))

    @property
    def wraps(self) -> tuple[float | None, ...]:
        """The period of every coordinate; that of a longitude is 360 degrees."""
        if self.sphere is None:
            return self.period
        return tuple(360.0 if k == self.sphere[1] else p for k, p in enumerate(self.period))

    def _counts(self) -> list[int]:
        """How many features each coordinate becomes; latitude has those of the unit vector."""
        counts = [1 if p is None else 2 for p in self.period]
        if self.sphere is not None:
            latitude, longitude = self.sphere
            counts[latitude], counts[longitude] = 3, 0
        return counts

    def require_readable(self, fields: Fields) -> None:
        """Raise unless all positions of data can be encoded."""
        for name in ("x", "x_query")[: 1 if fields.same_points else 2]:
            for x in columns.samples(getattr(fields, name), len(fields)):
                self.require_encodable(name, torch.from_numpy(np.ascontiguousarray(x)))

    def require_encodable(self, name: str, x: Tensor) -> None:
        """Raise unless positions (..., d) are numbers that an encoding tells apart.

        Features are single precision, and far from zero neighbouring numbers of a periodic
        coordinate are many periods apart.
        """
        require_encodable(name, x, self.scale)
        for k, period in enumerate(self.period):
            if period is None or x.numel() == 0:
                continue
            far = float(x[..., k].abs().max())
            if far * torch.finfo(x.dtype).eps > COARSE * period:
                raise ValueError(
                    f"{name}, coordinate {k}: {far:g} lies too far away in a coordinate of period "
                    f"{period:g}: in {x.dtype} its place within the period is lost. Expected "
                    "positions near zero, x % period"
                )

    def encode(self, x: Tensor) -> Tensor:
        """Positions (..., d) to features (..., f)."""
        scaled = self.scale.encode(x)
        parts = []
        for k, period in enumerate(self.period):
            if self.sphere is not None and k in self.sphere:
                if k == self.sphere[0]:
                    parts.append(unit_vectors(*(x[..., j] for j in self.sphere)).float())
            elif period is None:
                parts.append(scaled[..., k : k + 1])
            else:
                angle = x[..., k : k + 1] * (2 * math.pi / period)
                parts += [torch.cos(angle).float(), torch.sin(angle).float()]
        return torch.cat(parts, dim=-1)

    @property
    def distance_axes(self) -> tuple[int, ...]:
        """The coordinate that each of the `distance_features` belongs to."""
        space = len(self.period) if self.space is None else self.space
        return tuple(axis for axis in self.axes if axis < space)

    def distance_features(self, x: Tensor) -> Tensor:
        """The features of positions (..., d) that count for distances: no covariates."""
        return self.encode(x)[..., : len(self.distance_axes)]


@dataclass(frozen=True)
class Normalizers:
    """The normalisers of positions, observed values, outputs and parameters."""

    x: Coordinates
    u: Standardizer
    y: Standardizer
    parameters: Standardizer | None = None

    @classmethod
    def fit(cls, fields: Fields) -> Normalizers:
        """Fit to training data, which must have outputs; those of y to y − background."""
        if fields.y is None:
            raise ValueError("the data have no outputs y: expected Fields(x, u, x_query, y)")
        count, parameters = len(fields), None
        if fields.parameters is not None:
            parameters = Standardizer.fit([fields.parameters[:, None]], count)
        u, y = Standardizer.fit([fields.u], count), Standardizer.fit([anomalies(fields)], count)
        for key, scale in (("u", u), ("y", y)):
            for name, mean, std in zip(fields.names[key], scale.mean, scale.std, strict=True):
                if not 1 / LARGEST < std < LARGEST or abs(mean) > LARGEST:
                    raise ValueError(
                        f"{key}, channel {name!r}: the mean is {mean:.3g} and the standard "
                        f"deviation {std:.3g}, out of the range of single precision: choose a unit "
                        "in which values are closer to 1"
                    )
        return cls(Coordinates.fit(fields), u, y, parameters)

    @property
    def in_channels(self) -> int:
        """How many numbers a model reads at a point, besides its position."""
        return len(self.u.mean) + len(self.parameters.mean if self.parameters else ())

    def require_readable(self, batch: Batch) -> None:
        """Raise unless all numbers of a batch in physical units can be encoded."""
        self.x.require_encodable("x", batch.x)
        if batch.x_query is not batch.x:
            self.x.require_encodable("x_query", batch.x_query)
        require_encodable("u", batch.u, self.u)
        if batch.parameters is not None and self.parameters is not None:
            require_encodable("parameters", batch.parameters, self.parameters)
        if batch.background is not None:
            unscaled = Standardizer.identity(batch.background.shape[-1])  # it is added as it is
            require_encodable("background", batch.background, unscaled)

    def encode(self, batch: Batch) -> Batch:
        """A batch in physical units as a model reads it.

        From y, and from u where it is observed of the same field, the background is subtracted; the
        background itself stays in physical units.
        """
        changed = batch.each(self.x.encode, ("x", "x_query"))
        u, y, parameters = batch.u, batch.y, batch.parameters
        if batch.observed_background is not None:
            u = u - batch.observed_background
        if y is not None:
            y = self.y.encode(y if batch.background is None else y - batch.background)
        if parameters is not None and self.parameters is not None:
            parameters = self.parameters.encode(parameters)
        return replace(changed, u=self.u.encode(u), y=y, parameters=parameters)

    def decode(self, prediction: Tensor, background: Tensor | None = None) -> Tensor:
        """A model's prediction (b, q, o) in physical units, with the background added."""
        values = self.y.decode(prediction)
        return values if background is None else values + background.to(values)

    def to_dict(self) -> dict[str, Any]:
        """All numbers, ready for JSON."""
        positions = {**to_dict(self.x.scale), "period": self.x.period, "space": self.x.space}
        positions |= {} if self.x.sphere is None else {"sphere": self.x.sphere}
        parameters = None if self.parameters is None else to_dict(self.parameters)
        others = {"u": to_dict(self.u), "y": to_dict(self.y), "parameters": parameters}
        return {"x": positions, **others}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Normalizers:
        """What `to_dict` gave."""
        positions = dict(values["x"])
        period, space = tuple(positions.pop("period")), positions.pop("space")
        sphere = positions.pop("sphere", None)
        sphere = None if sphere is None else (int(sphere[0]), int(sphere[1]))
        x = Coordinates(from_dict(Standardizer, positions), period, space, sphere)
        u, y = (from_dict(Standardizer, values[name]) for name in ("u", "y"))
        given = values["parameters"]
        return cls(x, u, y, None if given is None else from_dict(Standardizer, given))


def unit_vectors(latitude: Tensor, longitude: Tensor) -> Tensor:
    """Points of the unit sphere (..., 3) from degrees.

    >>> unit_vectors(torch.tensor([0.0, 90.0]), torch.tensor([0.0, 33.0])).round(decimals=6).abs()
    tensor([[1., 0., 0.],
            [0., 0., 1.]])
    """
    up, around = torch.deg2rad(latitude), torch.deg2rad(longitude)
    level = torch.cos(up)
    return torch.stack((level * torch.cos(around), level * torch.sin(around), torch.sin(up)), -1)


def require_encodable(name: str, values: Tensor, scale: Standardizer) -> None:
    """Raise unless standardised values (..., c) are single-precision numbers."""
    if values.numel() and not torch.isfinite(scale.encode(values)).all():
        bad = values.double().abs().max()
        raise ValueError(
            f"{name}: {bad:g} is too large to be standardised in single precision (mean "
            f"{scale.mean}, std {scale.std}): expected values like those of the training data"
        )


def anomalies(fields: Fields) -> Column:
    """The outputs minus the background, or the outputs where there is none."""
    if fields.y is None or fields.background is None:
        assert fields.y is not None
        return fields.y
    pairs = (columns.samples(c, len(fields)) for c in (fields.y, fields.background))
    return columns.stack([y - known for y, known in zip(*pairs, strict=True)])


def _like(numbers: tuple[float, ...], values: Tensor) -> Tensor:
    """One number a channel; where the channels are those of several frames, the numbers repeat."""
    frames = max(1, values.shape[-1] // max(1, len(numbers)))
    return torch.tensor(numbers * frames, dtype=values.dtype, device=values.device)
