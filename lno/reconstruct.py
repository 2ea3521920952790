"""From a few sensors inside a window of time to the whole field, with honest bounds.

A completer sees the field inside its window from the sensors, a propagator goes on from there to
the whole domain. Each is an ensemble: where its members disagree, it knows little. How little is
measured on samples that neither was trained on: bounds are as wide as they have to be to contain a
stated share of the true values there (conformal prediction). Of fields unlike those nothing can be
promised: they are told by what the models miss at the sensors themselves.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lno.config import from_dict, require_count, require_range
from lno.data import Fields
from lno.operator import Operator
from lno.tasks import Completion, Propagation

PRETRAINED = Path(__file__).parent / "pretrained" / "burgers"  # what comes with the package
FLOOR = 1e-3  # of the field's std: members that agree by chance are not that sure
STRANGE = 2.0  # a surprise beyond which a field is unlike all that the models know


@dataclass(frozen=True)
class Reconstruction:
    """A field on a grid, and bounds of it.

    Args:
        axes: the coordinates of the grid's axes.
        mean, lower, upper: arrays of the shape of the grid.
        surprise: what the models miss at the sensors before they are made to pass through them, in
            units of what they miss of 99 % of fields like those that they know. Far above 1,
            neither field nor bounds are to be trusted.
    """

    axes: tuple[np.ndarray, ...]
    mean: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    surprise: float


@dataclass(frozen=True)
class Calibration:
    """By how much to widen what members disagree by, for some numbers of sensors.

    Args:
        level: the share of true values that the bounds are to contain.
        sensors: how many there are, growing.
        inside, outside: for each number, factors of the standard deviation over members, inside
            the completer's window and outside of it; in between they are interpolated.
        usual: for each number, what completers alone miss at most at the sensors of 99 % of the
            fields that they know, as a share of the values there.
    """

    level: float = 0.9
    sensors: tuple[int, ...] = (1,)
    inside: tuple[float, ...] = (2.0,)
    outside: tuple[float, ...] = (2.0,)
    usual: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        require_range("Calibration.level", self.level, 0.0, 1.0)
        for name in ("inside", "outside", "usual"):
            values = getattr(self, name)
            if not len(values) == len(self.sensors) > 0:
                raise ValueError(
                    f"Calibration.{name}: expected a value for every number of sensors"
                )
            for k, value in enumerate(values):
                require_range(f"Calibration.{name}[{k}]", value, 0.0, 1e30)
        for k, count in enumerate(self.sensors):
            require_count(f"Calibration.sensors[{k}]", count, 10**9)

    def at(self, sensors: int) -> tuple[float, float, float]:
        """Inside, outside and usual, for so many sensors.

        >>> Calibration(0.9, (10, 1000), (2.0, 4.0), (1.0, 1.0), (0.1, 0.1)).at(100)
        (3.0, 1.0, 0.1)
        """
        count, known = np.log(sensors), np.log(self.sensors)
        values = (self.inside, self.outside, self.usual)
        inside, outside, usual = (float(np.interp(count, known, v)) for v in values)
        return inside, outside, usual


@dataclass(frozen=True)
class Misses:
    """What is missed of fields that are seen by so many sensors.

    Args:
        sensors: how many.
        inside, outside: errors at many points, in units of the members' spread there.
        here: of each field, what completers alone miss at the sensors, as a share of the values.
    """

    sensors: int
    inside: np.ndarray
    outside: np.ndarray
    here: np.ndarray


def calibrate(tried: Sequence[Misses], level: float) -> Calibration:
    """The bounds that contain a share `level` of the values, for every number of sensors.

    >>> tried = [Misses(10, np.linspace(0, 1, 101), np.linspace(0, 3, 101), np.ones(5))]
    >>> calibrate(tried, 0.5).outside
    (1.5148514851485149,)
    >>> covered(tried, calibrate(tried, 0.5))["inside"]
    0.504950495049505
    """
    tried = sorted(tried, key=lambda one: one.sensors)
    return Calibration(
        level,
        tuple(one.sensors for one in tried),
        tuple(_quantile(one.inside, level) for one in tried),
        tuple(_quantile(one.outside, level) for one in tried),
        tuple(_quantile(one.here, 0.99) for one in tried),
    )


def covered(tried: Sequence[Misses], bounds: Calibration) -> dict[str, float]:
    """The share of the values that bounds contain: inside, outside, and of all."""
    hits: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    for one in tried:
        inside, outside, _ = bounds.at(one.sensors)
        hits[0].append(one.inside <= inside)
        hits[1].append(one.outside <= outside)
    shares = {"inside": hits[0], "outside": hits[1], "all": [*hits[0], *hits[1]]}
    return {name: float(np.concatenate(found).mean()) for name, found in shares.items()}


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
            x: positions (n, d) of the sensors; of several samples (b, n, d).
            u: values (n, 1) there, or (b, n, 1), which give (k, b, points).
        """
        points = self._points()
        inside = self._inside(points)
        fields = []
        for k in range(max(len(self.completer.members), len(self.propagator.members))):
            completer, propagator = (
                op.member(k % len(op.members)) for op in (self.completer, self.propagator)
            )
            seen = np.asarray(completer.predict(x, u, points[inside]))
            field = np.empty((*seen.shape[:-2], len(points)), seen.dtype)
            field[..., inside] = seen[..., 0]  # the completer has looked at the sensors themselves
            beyond = propagator.predict(points[inside], seen, points[~inside])
            field[..., ~inside] = np.asarray(beyond)[..., 0]
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
        require_range("noise", noise, 0.0, 1e30)
        whole = self if noise == 0 else self._smoothed(noise)
        seen = whole.members(x, u)
        mean, spread = self._summary(seen)
        if noise:
            errors = noise * np.random.default_rng(seed).standard_normal(np.shape(u))
            moved = whole.members(x, np.asarray(u) + errors) - seen
            spread = np.sqrt(spread**2 + np.square(moved).mean(0))
        inside, outside, usual = self.calibration.at(len(u))
        wide = np.where(self._inside(self._points()), inside, outside) * spread
        mean, lower, upper = (v.reshape(self.grid) for v in (mean, mean - wide, mean + wide))
        surprise = float(self.missed(x, u, noise)) / max(usual, FLOOR)
        least = self.calibration.sensors[0]
        if 2 * len(u) < least:  # far from all that was tried
            warnings.warn(
                f"the bounds are calibrated for {least} sensors and more: with {len(u)} they may "
                "be too narrow",
                stacklevel=2,
            )
        elif surprise > STRANGE:
            warnings.warn(
                "these sensors do not belong to a field like those that the models know: they miss "
                f"the sensors {surprise:.0f} times as much as is usual at most. Trust neither the "
                "field nor its bounds; if the sensors are not exact, say so (noise)",
                stacklevel=2,
            )
        return Reconstruction(self.axes(), mean, lower, upper, surprise)

    def missed(self, x: Any, u: Any, noise: float = 0.0) -> np.ndarray:
        """What completers alone miss at the sensors, as a share of the values; see `members`."""
        alone = replace(self.completer, task=self.completer.task.learned())
        values = np.asarray(u)
        wrong = np.abs(np.asarray(alone.predict(x, u, x)) - values).mean((-2, -1))
        least = FLOOR * self.propagator.normalizers.y.std[0]
        return np.maximum(wrong - noise, 0.0) / (np.abs(values).mean((-2, -1)) + least)

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
        return replace(self, calibration=calibrate(self.misses(samples, tasks, seed), level))

    def coverage(
        self, samples: Fields, tasks: Iterable[Completion], seed: int = 0
    ) -> dict[str, float]:
        """The share of true values of `samples` that the bounds contain, inside and outside."""
        return covered(self.misses(samples, tasks, seed), self.calibration)

    def misses(
        self,
        samples: Fields,
        tasks: Iterable[Completion],
        seed: int = 0,
        report: Callable[[], None] = lambda: None,
    ) -> list[Misses]:
        """How far true values are from what is seen of them, for each task.

        Args:
            samples: whole fields on the grid.
            tasks: what is observed of each of them, a definite number of points.
            seed: decides the sensors.
            report: is called after each of several parts of a task.
        """
        truth = np.asarray(samples.y)[..., 0]
        inside, found = self._inside(self._points()), []
        generator = torch.Generator().manual_seed(seed)
        for task in tasks:
            prepared, wrong, here = task.prepare(samples), [], []
            for index in np.array_split(np.arange(len(samples)), -(-len(samples) // 16)):
                batch = task.observe(prepared.batch(index), prepared.grid, generator)
                if batch.mask is not None:
                    raise ValueError(
                        f"bounds depend on the number of sensors: expected a pattern that says how "
                        f"many there are, got {task.pattern}"
                    )
                mean, spread = self._summary(self.members(batch.x, batch.u))
                wrong.append(np.abs(truth[index] - mean) / spread)
                here.append(self.missed(batch.x, batch.u))
                report()
            every = np.concatenate(wrong)
            within, beyond = (every[:, where].ravel() for where in (inside, ~inside))
            found.append(Misses(batch.u.shape[1], within, beyond, np.concatenate(here)))
        return found

    # -- inside ----------------------------------------------------------------------------------

    def _smoothed(self, noise: float) -> Reconstructor:
        """The same for sensors with errors."""
        task = self.completer.task
        assert isinstance(task, Completion)
        if not task.exact:  # it does not pass through its sensors anyway
            return self
        return replace(self, completer=replace(self.completer, task=replace(task, noise=noise)))

    def _points(self) -> np.ndarray:
        """The points of the grid, (n, d)."""
        return np.stack(np.meshgrid(*self.axes(), indexing="ij"), -1).reshape(-1, len(self.grid))

    def _inside(self, points: np.ndarray) -> np.ndarray:
        task = self.propagator.task
        assert isinstance(task, Propagation)
        return task.window.contains(points, self.propagator.labels.names["x"])

    def _summary(self, fields: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        least = FLOOR * self.propagator.normalizers.y.std[0]
        spread = fields.std(0, ddof=1) if len(fields) > 1 else np.zeros(fields.shape[1:])
        return fields.mean(0), spread + least

    def save(self, folder: str | Path, *, half: bool = False) -> None:
        """Write `completer.safetensors` and `propagator.safetensors`; the latter has the bounds.

        Args:
            folder: where to; made if there is none.
            half: as in `Operator.save`.
        """
        told = {**self.propagator.provenance, "calibration": asdict(self.calibration)}
        operators = (self.completer, replace(self.propagator, provenance=told))
        for path, operator in zip(_files(folder), operators, strict=True):
            operator.save(path, half=half)

    @staticmethod
    def load(folder: str | Path = PRETRAINED, device: str = "auto") -> Reconstructor:
        """Read what `save` wrote; by default the models that come with the package."""
        paths = _files(folder)
        for path in paths:
            if not path.exists():
                ours = Path(folder) == PRETRAINED
                missing = "no model comes with this version" if ours else f"no {path}"
                raise FileNotFoundError(
                    f"{missing}: expected a folder with completer.safetensors and "
                    "propagator.safetensors; make one with 'lno reproduce pretrained --out FOLDER' "
                    "and pass it with --model FOLDER"
                )
        completer, propagator = (Operator.load(path, device) for path in paths)
        told = propagator.provenance.get("calibration", {})
        return Reconstructor(completer, propagator, from_dict(Calibration, told))


def _files(folder: str | Path) -> list[Path]:
    return [Path(folder) / f"{name}.safetensors" for name in ("completer", "propagator")]


def _quantile(ratios: np.ndarray, level: float) -> float:
    """The conformal quantile: a little above the empirical one, for finitely many values."""
    n = len(ratios)
    return float(np.quantile(ratios, min(1.0, np.ceil((n + 1) * level) / n)))
