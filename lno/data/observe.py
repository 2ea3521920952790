"""Where a field is observed: patterns of sensors, and the window of the domain that they lie in."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from lno.config import require_count, require_range
from lno.data import columns
from lno.data.checks import described, require_instance, require_number
from lno.data.columns import Column
from lno.data.fields import Fields


class Pattern(Protocol):
    """Chooses which points of a field are observed."""

    def draw(
        self,
        real: Bool[Tensor, "b n"],
        grid: tuple[int, ...] | None,
        generator: torch.Generator,
        device: torch.device | None = None,
    ) -> tuple[Int[Tensor, "b k"], Bool[Tensor, "b k"]]:
        """Indices of observed points, on a device, and which of them are real, on the CPU."""


def require_pattern(name: str, value: Any) -> None:
    """Raise a TypeError unless an argument says which points are observed."""
    if isinstance(value, type) or not callable(getattr(value, "draw", None)):
        raise TypeError(
            f"{name}: expected which points are observed, like RandomRatio(0.01, 0.2) or "
            f"Intervals((2, 16)), got {described(value)}"
        )


@dataclass(frozen=True)
class RandomRatio:
    """A random share of the points, between `low` and `high`; log-uniform if they differ.

    Every sample gets its own share and its own points. At least one point is observed.

    >>> pattern = RandomRatio(0.01, 0.1)
    >>> index, mask = pattern.draw(torch.ones(2, 1000, dtype=torch.bool), None, torch.Generator())
    >>> index.shape, bool((mask.sum(1) >= 10).all())
    (torch.Size([2, 100]), True)
    """

    low: float
    high: float | None = None

    def __post_init__(self) -> None:
        require_range("RandomRatio.low", self.low, 1e-9, 1.0)
        if self.high is not None:
            require_range("RandomRatio.high", self.high, self.low, 1.0)

    def draw(
        self,
        real: Bool[Tensor, "b n"],
        grid: tuple[int, ...] | None,
        generator: torch.Generator,
        device: torch.device | None = None,
    ) -> tuple[Int[Tensor, "b k"], Bool[Tensor, "b k"]]:
        """Indices of observed points, on a device, and which of them are real, on the CPU."""
        b, n = real.shape
        low, high = math.log(self.low), math.log(self.high or self.low)
        ratio = torch.exp(low + (high - low) * torch.rand(b, generator=generator))
        ratio = ratio if self.high else torch.full((b,), self.low, dtype=torch.float64)
        points = real.sum(1)
        count = (ratio * points).round().long().clamp(min=1)
        # The largest of random keys are a random subset; its size is fixed by the pattern alone, so
        # that every step has the same shapes. A GPU finds them, and pinned keys make no one wait.
        on_gpu = device is not None and device.type == "cuda"
        keys = torch.rand(b, n, generator=generator, pin_memory=on_gpu).masked_fill_(~real, -1.0)
        k = max(1, round((self.high or self.low) * n))
        index = keys.to(device, non_blocking=True).topk(k, dim=1).indices
        return index, torch.arange(k) < torch.minimum(count, points)[:, None]


@dataclass(frozen=True)
class RandomCount:
    """So many points at random; all of a sample that has fewer.

    >>> real = torch.tensor([[True, True, True], [True, False, False]])
    >>> RandomCount(2).draw(real, None, torch.Generator())[1].tolist()
    [[True, True], [True, False]]
    """

    count: int

    def __post_init__(self) -> None:
        require_count("RandomCount.count", self.count, 10**9)

    def draw(
        self,
        real: Bool[Tensor, "b n"],
        grid: tuple[int, ...] | None,
        generator: torch.Generator,
        device: torch.device | None = None,
    ) -> tuple[Int[Tensor, "b k"], Bool[Tensor, "b k"]]:
        """Indices of observed points, on a device, and which of them are real, on the CPU."""
        keys = torch.rand(real.shape, generator=generator).masked_fill_(~real, -1.0)
        index = keys.topk(min(self.count, real.shape[1]), dim=1).indices
        return index.to(device), torch.arange(index.shape[1]) < real.sum(1, keepdim=True)


@dataclass(frozen=True)
class Intervals:
    """Every `steps[k]`-th point along axis k of the grid, beginning with the first.

    >>> real = torch.ones(1, 12, dtype=torch.bool)
    >>> Intervals((2, 3)).draw(real, (3, 4), torch.Generator())[0]
    tensor([[ 0,  3,  8, 11]])
    """

    steps: tuple[int, ...]

    def __post_init__(self) -> None:
        expected = "a step for each axis of the grid, like (2, 16)"
        require_instance("Intervals.steps", self.steps, tuple | list, expected)
        object.__setattr__(self, "steps", tuple(self.steps))
        for k, step in enumerate(self.steps):
            require_count(f"Intervals.steps[{k}]", step, 10**6)

    def draw(
        self,
        real: Bool[Tensor, "b n"],
        grid: tuple[int, ...] | None,
        generator: torch.Generator,
        device: torch.device | None = None,
    ) -> tuple[Int[Tensor, "b k"], Bool[Tensor, "b k"]]:
        """Indices of observed points, on a device, and which of them are real, on the CPU."""
        if grid is None or len(grid) != len(self.steps):
            raise ValueError(
                f"Intervals({self.steps}) observes a grid of {len(self.steps)} axes, but the data "
                f"have the grid {grid}: pass Fields(..., grid=...)"
            )
        every = tuple(slice(None, None, step) for step in self.steps)
        index = torch.arange(math.prod(grid)).view(grid)[every].flatten().expand(len(real), -1)
        return index.to(device), torch.ones(index.shape, dtype=torch.bool)


PATTERNS: dict[str, type] = {
    "random_ratio": RandomRatio,
    "random_count": RandomCount,
    "intervals": Intervals,
}


@dataclass(frozen=True)
class Window:
    """The points where low <= coordinate <= high.

    Args:
        coordinate: its name in the data.
        low: the lower end.
        high: the upper end.

    >>> t = np.linspace(0, 1, 5)[:, None]
    >>> Window("t", 0.25, 0.75).restrict(Fields(t, y=np.ones((2, 5, 1)), names={"x": ["t"]}))
    Fields(2 samples: no values at 3 points of t → y0 at the same points)
    """

    coordinate: str
    low: float
    high: float

    def __post_init__(self) -> None:
        expected = "the name of a coordinate of the data"
        require_instance("Window.coordinate", self.coordinate, str, expected)
        for name in ("low", "high"):
            require_number(f"Window.{name}", getattr(self, name))
        if not self.low <= self.high:
            raise ValueError(f"Window: expected low <= high, got {self.low} and {self.high}")

    def contains(self, x: np.ndarray, names: Sequence[str]) -> np.ndarray:
        """(n,) bool: which of the positions (n, d) lie inside."""
        if self.coordinate not in names:
            raise ValueError(
                f"Window of {self.coordinate!r}: the coordinates are {', '.join(names)}"
            )
        values = x[:, list(names).index(self.coordinate)]
        slack = 1e-6 * np.abs(values).max(initial=0.0)  # positions may come in single precision
        return (self.low - slack <= values) & (values <= self.high + slack)

    def restrict(self, fields: Fields) -> Fields:
        """The outputs inside the window, as data whose observations are still to be drawn."""
        if fields.y is None:
            raise ValueError("the data have no outputs y to restrict")
        names, count = fields.names["x"], len(fields)
        insides = [self.contains(x, names) for x in columns.samples(fields.x_query, count)]
        shared = columns.is_shared(fields.x_query)
        empty = [k for k, inside in enumerate(insides) if not inside.any()]
        if empty:
            raise ValueError(f"{self} contains no point of sample {empty[0]}")

        def part(column: Column | None) -> Any:
            if column is None:
                return None
            if columns.is_shared(column):
                return columns.sample(column, 0)[insides[0]]
            every = columns.samples(column, count)
            return [values[insides[0 if shared else k]] for k, values in enumerate(every)]

        sizes = fields.query_weights
        if sizes is None and fields.same_points:
            sizes = fields.weights
        geometry = fields.geometry if fields.geometry and "y" in fields.geometry else None
        return Fields(
            part(fields.x_query),
            y=part(fields.y),
            parameters=fields.parameters,
            weights=part(sizes),
            background=part(fields.background),
            grid=_subgrid(fields.spec.grid, insides[0]) if shared else None,
            geometry=geometry,
            space=fields.space,
            period=fields.period,
            sphere=fields.sphere,
            names={key: v for key, v in fields.names.items() if key != "u"},
            units={key: v for key, v in fields.units.items() if key != "u"},
            frame=fields.frame,
            provenance=fields.provenance,
        )


def _subgrid(grid: tuple[int, ...] | None, inside: np.ndarray) -> tuple[int, ...] | None:
    """The shape of the chosen points of a grid, if they form one."""
    if grid is None:
        return None
    index = np.argwhere(inside.reshape(grid))
    shape = tuple(len(np.unique(axis)) for axis in index.T)
    return shape if math.prod(shape) == len(index) else None
