"""From a few sensors inside a window of time to the whole field, with honest bounds.

A completer sees the field inside its window from the sensors, a propagator goes on from there to
the whole domain. Each is an ensemble: where its members disagree, it knows little. How little is
measured on samples that neither was trained on: bounds are as wide as they have to be to contain a
stated share of the true values there (conformal prediction).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lno.data import Fields
from lno.operator import Operator
from lno.tasks import Completion, Propagation

FLOOR = 1e-3  # of the field's std: members that agree by chance are not that sure


@dataclass(frozen=True)
class Reconstruction:
    """A field on a grid, and bounds of it.

    Args:
        axes: the coordinates of the grid's axes.
        mean, lower, upper: arrays of the shape of the grid.
    """

    axes: tuple[np.ndarray, ...]
    mean: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


@dataclass(frozen=True)
class Calibration:
    """By how much to widen what members disagree by.

    Args:
        level: the share of true values that the bounds are to contain.
        inside, outside: factors of the standard deviation over members, inside the completer's
            window and outside of it.
    """

    level: float = 0.9
    inside: float = 2.0
    outside: float = 2.0


@dataclass(frozen=True)
class Misses:
    """Errors at many points in units of the members' spread there.

    >>> tried = Misses(np.linspace(0, 1, 101), np.linspace(0, 3, 101))
    >>> tried.covered(tried.calibration(0.5))["outside"]
    0.504950495049505
    """

    inside: np.ndarray
    outside: np.ndarray

    def calibration(self, level: float) -> Calibration:
        """The bounds that contain a share `level` of the values."""
        return Calibration(level, _quantile(self.inside, level), _quantile(self.outside, level))

    def covered(self, bounds: Calibration) -> dict[str, float]:
        """The share of the values that bounds contain."""
        hits = self.inside <= bounds.inside, self.outside <= bounds.outside
        inside, outside, every = (float(h.mean()) for h in (*hits, np.concatenate(hits)))
        return {"inside": inside, "outside": outside, "all": every}


@dataclass(frozen=True)
class Reconstructor:
    """A completer and a propagator that go on from each other."""

    completer: Operator
    propagator: Operator
    calibration: Calibration = Calibration()

    def __post_init__(self) -> None:
        first, second = self.completer.task, self.propagator.task
        if not isinstance(first, Completion) or not isinstance(second, Propagation):
            raise ValueError(
                "expected a completer and a propagator, got operators trained for "
                f"{type(first).__name__} and {type(second).__name__}"
            )
        if first.window != second.window:
            raise ValueError(
                f"the completer was trained for {first.window}, the propagator for {second.window}"
            )

    @property
    def grid(self) -> tuple[int, ...]:
        """The shape of the whole field."""
        grid = self.propagator.labels.grid
        assert grid is not None
        return grid

    def axes(self) -> tuple[np.ndarray, ...]:
        """The coordinates of the grid of the whole field."""
        labels, period = self.propagator.labels, self.propagator.normalizers.x.period
        return tuple(
            np.linspace(low, high, n) if p is None else low + p * np.arange(n) / n
            for low, high, n, p in zip(labels.low, labels.high, self.grid, period, strict=True)
        )

    def members(self, x: Any, u: Any) -> np.ndarray:
        """What each pair of members sees in sensors: (k, points of the grid).

        Args:
            x: positions (n, d) of the sensors.
            u: values (n, 1) there.
        """
        points = np.stack(np.meshgrid(*self.axes(), indexing="ij"), -1)
        points = points.reshape(-1, len(self.grid))
        inside = self._inside(points)
        fields = []
        for k in range(max(len(self.completer.members), len(self.propagator.members))):
            completer, propagator = (
                op.member(k % len(op.members)) for op in (self.completer, self.propagator)
            )
            seen = completer.predict(x, u, points[inside])
            field = propagator.predict(points[inside], seen, points)[:, 0]
            field[inside] = seen[:, 0]  # the completer has looked at the sensors themselves
            fields.append(field)
        return np.stack(fields)

    def __call__(self, x: Any, u: Any, noise: float = 0.0, seed: int = 0) -> Reconstruction:
        """The whole field and its bounds from a few sensors.

        Args:
            x: positions (n, d) of the sensors.
            u: values (n, 1) there.
            noise: the standard deviation of their errors, in their units. The field then does not
                pass through the sensors, and its bounds are wider by how much it moves when they
                are wrong once more.
            seed: decides by how much they are.
        """
        whole = self if noise == 0 else self._smoothed(noise)
        seen = whole.members(x, u)
        mean, spread = self._summary(seen)
        if noise:
            errors = noise * np.random.default_rng(seed).standard_normal(np.shape(u))
            moved = whole.members(x, np.asarray(u) + errors) - seen
            spread = np.sqrt(spread**2 + np.square(moved).mean(0))
        points = np.stack(np.meshgrid(*self.axes(), indexing="ij"), -1)
        inside = self._inside(points.reshape(-1, len(self.grid)))
        wide = np.where(inside, self.calibration.inside, self.calibration.outside) * spread
        parts = (v.reshape(self.grid) for v in (mean, mean - wide, mean + wide))
        return Reconstruction(self.axes(), *parts)

    def calibrated(
        self, samples: Fields, tasks: Iterable[Completion], level: float = 0.9, seed: int = 0
    ) -> Reconstructor:
        """The same with bounds that contain a share `level` of the true values of `samples`.

        Args:
            samples: whole fields that neither operator was trained on.
            tasks: what is observed of them, in turn.
            level: the share.
            seed: decides the sensors.
        """
        return replace(self, calibration=self.misses(samples, tasks, seed).calibration(level))

    def coverage(
        self, samples: Fields, tasks: Iterable[Completion], seed: int = 0
    ) -> dict[str, float]:
        """The share of true values of `samples` that the bounds contain, inside and outside."""
        return self.misses(samples, tasks, seed).covered(self.calibration)

    def misses(self, samples: Fields, tasks: Iterable[Completion], seed: int = 0) -> Misses:
        """How far true values of `samples` are from what is seen of them in a few sensors."""
        found: dict[bool, list[np.ndarray]] = {True: [], False: []}
        for inside, wrong, spread in self._trials(samples, tasks, seed):
            for where in (True, False):
                found[where].append((wrong / spread)[inside == where])
        return Misses(np.concatenate(found[True]), np.concatenate(found[False]))

    # -- inside ----------------------------------------------------------------------------------

    def _smoothed(self, noise: float) -> Reconstructor:
        """The same for sensors with errors."""
        task = self.completer.task
        assert isinstance(task, Completion)
        if not task.exact:  # it does not pass through its sensors anyway
            return self
        return replace(self, completer=replace(self.completer, task=replace(task, noise=noise)))

    def _trials(self, samples: Fields, tasks: Iterable[Completion], seed: int) -> Any:
        """For each sample and task: which points are inside, errors there and their spread."""
        generator = torch.Generator().manual_seed(seed)
        for task in tasks:
            prepared = task.prepare(samples)
            for k in range(len(samples)):
                batch = task.observe(prepared.batch([k]), prepared.grid, generator)
                real = slice(None) if batch.mask is None else batch.mask[0]
                mean, spread = self._summary(self.members(batch.x[0][real], batch.u[0][real]))
                sample = samples[k]
                assert sample.y is not None
                inside = self._inside(np.asarray(sample.x_query))
                yield inside, np.abs(np.asarray(sample.y)[:, 0] - mean), spread

    def _inside(self, points: np.ndarray) -> np.ndarray:
        task = self.propagator.task
        assert isinstance(task, Propagation)
        return task.window.contains(points, self.propagator.labels.names["x"])

    def _summary(self, fields: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        least = FLOOR * self.propagator.normalizers.y.std[0]
        spread = fields.std(0, ddof=1) if len(fields) > 1 else np.zeros(fields.shape[1])
        return fields.mean(0), spread + least

    @staticmethod
    def load(completer: str | Path, propagator: str | Path, device: str = "auto") -> Reconstructor:
        """From two model files; the propagator's holds the calibration, if there is one."""
        first, second = Operator.load(completer, device), Operator.load(propagator, device)
        told = second.provenance.get("calibration")
        return Reconstructor(first, second, Calibration(**told) if told else Calibration())


def _quantile(ratios: np.ndarray, level: float) -> float:
    """The conformal quantile: a little above the empirical one, for finitely many values."""
    n = len(ratios)
    return float(np.quantile(ratios, min(1.0, np.ceil((n + 1) * level) / n)))
