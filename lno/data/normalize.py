"""Bringing positions and values to a common scale, and predictions back.

Fitted on training data alone and kept inside the model file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lno.config import from_dict, to_dict
from lno.data import columns
from lno.data.batch import Batch
from lno.data.columns import Column
from lno.data.fields import Fields


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
    def fit_pooled(cls, columns_: Sequence[Column], count: int) -> Standardizer:
        """Like `fit`, with one mean and one std for all channels.

        >>> Standardizer.fit_pooled([np.array([[[1.0, 3.0]]])], 1)
        Standardizer(mean=(2.0,), std=(1.0,))
        """
        return cls._fit(columns_, count, lambda values: values.reshape(-1, 1))

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

    >>> c = Coordinates(Standardizer((0.5, 0.0), (0.25, 1.0)), period=(None, 2.0))
    >>> c.axes, c.encode(torch.tensor([[1.0, 1.0]])).round(decimals=3)
    ((0, 1, 1), tensor([[ 2., -1., -0.]]))
    """

    scale: Standardizer
    period: tuple[float | None, ...]

    @classmethod
    def fit(cls, fields: Fields) -> Coordinates:
        """Fit to the observed and the query positions of `fields` together."""
        both = [fields.x] if fields.same_points else [fields.x, fields.x_query]
        period = tuple(fields.period or (None,) * fields.spec.coordinates)
        return cls(Standardizer.fit(both, len(fields)), period)

    @property
    def features(self) -> int:
        """How many numbers a position becomes."""
        return len(self.axes)

    @property
    def axes(self) -> tuple[int, ...]:
        """The coordinate that each feature belongs to."""
        return tuple(k for k, p in enumerate(self.period) for _ in range(1 if p is None else 2))

    def encode(self, x: Tensor) -> Tensor:
        """Positions (..., d) to features (..., f)."""
        scaled = self.scale.encode(x)
        parts = []
        for k, period in enumerate(self.period):
            if period is None:
                parts.append(scaled[..., k : k + 1])
            else:
                angle = x[..., k : k + 1] * (2 * math.pi / period)
                parts += [torch.cos(angle).float(), torch.sin(angle).float()]
        return torch.cat(parts, dim=-1)


@dataclass(frozen=True)
class Normalizers:
    """The normalisers of positions, observed values and answers."""

    x: Coordinates
    u: Standardizer
    y: Standardizer

    @classmethod
    def fit(cls, fields: Fields) -> Normalizers:
        """Fit to training data, which must have answers."""
        if fields.y is None:
            raise ValueError("the data have no answers y: expected Fields(x, u, x_query, y)")
        count = len(fields)
        u, y = Standardizer.fit([fields.u], count), Standardizer.fit([fields.y], count)
        return cls(Coordinates.fit(fields), u, y)

    def encode(self, batch: Batch) -> Batch:
        """A batch in physical units as the model reads it."""
        return batch.map(self.x.encode, self.u.encode, self.y.encode)

    def to_dict(self) -> dict[str, Any]:
        """All numbers, ready for JSON."""
        positions = {**to_dict(self.x.scale), "period": self.x.period}
        return {"x": positions, "u": to_dict(self.u), "y": to_dict(self.y)}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Normalizers:
        """What `to_dict` gave."""
        positions = {k: v for k, v in values["x"].items() if k != "period"}
        x = Coordinates(from_dict(Standardizer, positions), tuple(values["x"]["period"]))
        return cls(x, *(from_dict(Standardizer, values[name]) for name in ("u", "y")))


def _like(numbers: tuple[float, ...], values: Tensor) -> Tensor:
    return torch.tensor(numbers, dtype=values.dtype, device=values.device)
