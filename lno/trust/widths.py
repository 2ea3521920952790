"""How uncertain a prediction is at a point, up to a factor.

The width at a point is a sum with non-negative weights of what grows with errors:

    width = local (w₁ + w₂ distance) + w₃ |prediction| + w₄ spread

- local: the mean absolute residual around the position, on a coarse grid, which is the profile. Of
  conditional operators: the standard deviation of the kriging error, which is 0 at a sensor. There
  w₃ = 0;
- distance: that of the sample's latent tokens from those of training (`lno.trust.reference`);
- spread: the standard deviation over the members.

What an operator does not have is left out. The weights fit the residuals of held-out samples by
non-negative least squares. Each output channel has a profile and weights of its own, and so
has each frame of a rollout.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float

from lno.config import require_count, require_type
from lno.data import Batch
from lno.prediction import Prediction
from lno.trust.reference import require_numbers, rounded

if TYPE_CHECKING:
    from lno.operator import Operator

CELLS, MOST_CELLS = 256, 2**14  # of the coarse grid; of all channels together
MOST_ALONG_AXIS = 32
FLOOR = 1e-3  # of a channel's std, added to the widths: residuals may be zero by chance
WEIGHTS = 4


@dataclass(frozen=True)
class Errors:
    """What a prediction got wrong at some points of one held-out sample.

    Args:
        x: the positions.
        errors: |truth − prediction|.
        terms: what `terms` gives there.
    """

    x: Float[np.ndarray, "p d"]
    errors: Float[np.ndarray, "p o"]
    terms: Float[np.ndarray, "4 p o"]


def terms(
    batch: Batch, found: Prediction, distance: Float[np.ndarray, " b"] | None
) -> Float[np.ndarray, "4 b q o"]:
    """Kriging deviation, distance, |prediction| and spread at the queries; 0: not known."""
    prediction = found.mean().double()
    size = prediction if batch.background is None else prediction - batch.background
    far = torch.zeros(len(batch)) if distance is None else torch.from_numpy(distance)
    known = [
        found.deviation,
        far[:, None, None].expand_as(prediction),
        size.abs() if found.deviation is None else None,
        found.spread(),
    ]
    none = torch.zeros_like(prediction)
    return torch.stack([none if value is None else value.double() for value in known]).numpy()


@dataclass(frozen=True)
class Widths:
    """The local widths of an operator's bounds.

    Args:
        cells: the shape of the coarse grid over the box of training, an axis for each position.
        profile: the mean absolute residual in each cell, of each channel.
        weights: w₁ to w₄, each for all channels.
    """

    cells: tuple[int, ...]
    profile: tuple[float, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        require_type("Widths.cells", self.cells, tuple[int, ...])
        for k, count in enumerate(self.cells):
            require_count(f"Widths.cells[{k}]", count, MOST_ALONG_AXIS)
        require_count("Widths.cells, their product", math.prod(self.cells), CELLS)
        for name, least in (("profile", math.prod(self.cells)), ("weights", WEIGHTS)):
            values = getattr(self, name)
            require_numbers(f"Widths.{name}", values)
            if len(values) != least * self.channels or not values or min(values) < 0:
                raise ValueError(
                    f"Widths.{name}: expected {least} numbers of at least 0 for each channel, got "
                    f"{len(values)}: {str(values)[:60]}"
                )

    @property
    def channels(self) -> int:
        """Of the outputs."""
        return len(self.weights) // WEIGHTS

    @classmethod
    def constant(cls, operator: Operator) -> Widths:
        """Without any fit: the spread of several members, the kriging deviation, or constants."""
        several, std = len(operator.members) > 1, _std(operator)
        weights = (0.0 if several and not operator.conditional else 1.0, 0.0, 0.0, float(several))
        cells = (1,) * operator.labels.space
        return cls(cells, rounded(std), rounded(np.repeat(weights, len(std))))

    @classmethod
    def fit(cls, operator: Operator, samples: Sequence[Errors]) -> Widths:
        """Profile and weights that fit the residuals of held-out samples."""
        from scipy.optimize import nnls

        x = np.concatenate([one.x for one in samples])
        errors = np.concatenate([one.errors for one in samples])
        known = np.concatenate([one.terms for one in samples], 1)
        channels, axes = errors.shape[1], operator.labels.space
        cells = (1,) * axes if operator.conditional else _cells(axes, channels)
        size, most = math.prod(cells), np.array(cells) - 1
        index = np.minimum(_in_cells(operator, x, cells).astype(int), most)  # the end of the box
        flat = np.ravel_multi_index(tuple(index.T), cells)
        counts = np.bincount(flat, minlength=size)[:, None]
        sums = np.stack([np.bincount(flat, column, size) for column in errors.T], -1)
        one_more = len(x) / size / len(samples)  # sample, of mean residuals: cells may be empty
        profile = (sums + one_more * errors.mean(0)) / (counts + one_more)
        smooth = cls(cells, rounded(profile.ravel()), (1.0,) * WEIGHTS * channels)
        local = smooth._local(operator, x, known)
        std = _std(operator)
        design = np.stack((local, local * known[1], *known[2:]), 1) / std
        weights = [
            nnls(design[..., c], errors[:, c] / std[c], maxiter=1000)[0] for c in range(channels)
        ]
        return cls(cells, smooth.profile, rounded(np.stack(weights, -1).ravel()))

    def at(
        self, operator: Operator, x: Float[np.ndarray, "p d"], terms: Float[np.ndarray, "4 p o"]
    ) -> Float[np.ndarray, "p o"]:
        """The widths at positions of one sample, from the `terms` there."""
        near, far, *others = np.array(self.weights).reshape(WEIGHTS, -1)
        width = self._local(operator, x, terms) * (near + far * terms[1])
        for weight, term in zip(others, terms[2:], strict=True):
            width += weight * term
        return width + FLOOR * _std(operator)

    def require_fit(self, operator: Operator) -> None:
        """Raise unless these are widths for an operator's channels and positions."""
        expected = (len(operator.labels.names["y"]), operator.labels.space)
        if (self.channels, len(self.cells)) != expected:
            raise ValueError(
                f"Widths: expected {expected[0]} channels and {expected[1]} axes of cells, as the "
                f"operator has, got {self.channels} and {len(self.cells)}"
            )

    def _local(
        self, operator: Operator, x: np.ndarray, terms: np.ndarray
    ) -> Float[np.ndarray, "p o"]:
        """The kriging deviation, or the profile at positions, linear between centres of cells."""
        from scipy.ndimage import map_coordinates

        if operator.conditional:
            return terms[0]
        several = [k for k, count in enumerate(self.cells) if count > 1]
        shape = tuple(self.cells[k] for k in several)
        grids = np.array(self.profile).reshape(*shape, -1)
        if not several:
            return np.repeat(grids[None], len(x), 0)
        at = _in_cells(operator, x, self.cells)[:, several] - 0.5  # from the first centre
        for column, k in enumerate(several):
            if operator.normalizers.x.period[k] is None:
                at[:, column] = np.clip(at[:, column], 0, self.cells[k] - 1)
        every = range(grids.shape[-1])
        return np.stack(
            [map_coordinates(grids[..., c], at.T, order=1, mode="grid-wrap") for c in every], -1
        )


def _in_cells(operator: Operator, x: np.ndarray, cells: tuple[int, ...]) -> np.ndarray:
    """Positions (p, d) counted in cells from the lower end of the box; those outside at its end."""
    labels, found = operator.labels, []
    for k, count in enumerate(cells):
        length, period = labels.high[k] - labels.low[k], operator.normalizers.x.period[k]
        from_low = x[:, k] - labels.low[k]
        if period is None:
            found.append(count * np.clip(from_low / (length or 1.0), 0.0, 1.0))
        else:
            found.append(count * np.mod(from_low / period, 1.0))
    return np.stack(found, -1)


def _cells(axes: int, channels: int) -> tuple[int, ...]:
    """The shape of the coarse grid: about CELLS of them, fewer where there are many channels.

    >>> _cells(1, 1), _cells(2, 1), _cells(3, 4), _cells(2, 1000), _cells(9, 1)
    ((32,), (16, 16), (6, 6, 6), (4, 4), (1, 1, 1, 1, 1, 1, 1, 1, 1))
    """
    most = max(1, min(CELLS, MOST_CELLS // channels))
    return (min(MOST_ALONG_AXIS, int(most ** (1 / axes) + 1e-9)),) * axes


def _std(operator: Operator) -> Float[np.ndarray, " o"]:
    """The standard deviation of each output channel, of every frame."""
    std = operator.normalizers.y.std
    return np.array(std * (len(operator.labels.names["y"]) // len(std)))
