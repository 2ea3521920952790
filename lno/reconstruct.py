"""From a few sensors inside a window of time to the whole field, with honest bounds.

A completer sees the field inside its window from the sensors, a propagator goes on from there to
the whole domain. Each is an ensemble: where its members disagree, it knows little. How little is
measured on samples that neither was trained on: bounds are as wide as they have to be to contain a
stated share of the true values there (`lno.calibration`). Of fields unlike those nothing can be
promised: they are told by what the models miss at the sensors themselves.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lno.calibration import Calibration, Misses, calibrate, covered
from lno.config import from_dict, require_range
from lno.data import Fields
from lno.files import replacing
from lno.operator import Operator
from lno.tasks import Completion, Propagation

PRETRAINED = Path(__file__).parent / "pretrained" / "burgers"  # what comes with the package
FLOOR = 1e-3  # of the field's std: members that agree by chance are not that sure
DRAWS = 8  # of errors of the sensors, that tell how much these move the field
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
class Reconstructor:
    """A completer and a propagator that go on from each other."""

    completer: Operator
    propagator: Operator
    calibration: Calibration = field(default_factory=Calibration)

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
        if self.propagator.labels.grid is None or len(self.propagator.labels.names["y"]) != 1:
            raise ValueError("expected operators of one quantity, trained on fields on a grid")

    @property
    def grid(self) -> tuple[int, ...]:
        """The shape of the whole field."""
        return self.propagator.labels.grid or ()

    def axes(self) -> tuple[np.ndarray, ...]:
        """The coordinates of the grid of the whole field, which is taken to be regular."""
        return self.propagator.labels.axes(self.grid, self.propagator.normalizers.x.period)

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
        x, u = np.asarray(x, np.float64), np.asarray(u, np.float64)
        if x.ndim != 2 or u.shape != (len(x), 1):
            raise ValueError(f"expected x (n, d) and u (n, 1), got {x.shape} and {u.shape}")
        if noise:  # several measurements at one place are one, which is better
            x, which = np.unique(x, axis=0, return_inverse=True)
            which = which.ravel()
            u = (np.bincount(which, u[:, 0]) / np.bincount(which))[:, None]
        whole = self if noise == 0 else self._smoothed(noise)
        seen = whole.members(x, u)
        mean, spread = self._summary(seen)
        count = self.worth(x)
        inside, outside, usual = self.calibration.at(count)
        wide = np.where(self._inside(self._points()), inside, outside) * spread
        if noise:
            wide = np.hypot(wide, whole._moved(x, u, seen, noise, seed))
        mean, lower, upper = (v.reshape(self.grid) for v in (mean, mean - wide, mean + wide))
        surprise = float(self.missed(x, u, noise)) / max(usual, FLOOR)
        least = self.calibration.sensors[0]
        if 2 * count < least:  # far from all that was tried
            few = f"{len(u)}" if count > 0.5 * len(u) else f"{len(u)}, close to each other,"
            warnings.warn(
                f"the bounds are calibrated for {least} sensors and more: with {few} they may be "
                "too narrow",
                stacklevel=2,
            )
        elif surprise > STRANGE:  # with fewer, what is usual is not known
            warnings.warn(
                "these sensors do not belong to a field like those that the models know: they miss "
                f"the sensors {surprise:.0f} times as much as is usual at most. Trust neither the "
                "field nor its bounds; if the sensors are not exact, say so (noise)",
                stacklevel=2,
            )
        return Reconstruction(self.axes(), mean, lower, upper, surprise)

    def worth(self, x: np.ndarray) -> float:
        """How many sensors at random places leave gaps as wide as those at x (n, d) do.

        Many at few places see less than as many everywhere, and are worth less.
        """
        from scipy.spatial import cKDTree

        points = self._points()
        points = points[self._inside(points)]
        random = points[np.random.default_rng(0).integers(len(points), size=len(x))]
        wanted, *placed = (
            self.completer.normalizers.x.encode(torch.as_tensor(v)).numpy()
            for v in (points, x, random)
        )
        gaps = [np.square(cKDTree(p).query(wanted)[0]).mean() for p in placed]
        dimensions = np.linalg.matrix_rank(points - points[0])
        narrower = 1.0 if gaps[0] <= gaps[1] else gaps[1] / gaps[0]
        return float(len(x) * narrower ** (dimensions / 2))

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
        truth, points = np.asarray(samples.y)[..., 0], self._points()
        places = np.asarray(samples.x_query)
        if places.shape != points.shape or not np.allclose(places, points, atol=1e-5):
            raise ValueError(
                f"expected whole fields on the regular grid {self.grid} of the operators, got "
                f"{samples} on {samples.grid}"
            )
        inside, found = self._inside(points), []
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

    def _moved(
        self, x: np.ndarray, u: np.ndarray, seen: np.ndarray, noise: float, seed: int
    ) -> np.ndarray:
        """How far, at the level of the bounds, errors of the sensors move the field."""
        from scipy.stats import t

        random, squares = np.random.default_rng(seed), np.zeros(seen.shape[1:])
        for k in range(DRAWS):
            one = k % len(seen)
            operators = (self.completer, self.propagator)
            first, second = (op.member(one % len(op.members)) for op in operators)
            errors = noise * random.standard_normal(u.shape)
            moved = replace(self, completer=first, propagator=second).members(x, u + errors)
            squares += np.square(moved[0] - seen[one]) / DRAWS
        return t.ppf(0.5 + self.calibration.level / 2, DRAWS) * np.sqrt(squares)

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
        first, second = _files(folder)
        with replacing(first) as completer, replacing(second) as propagator:  # both or neither
            self.completer.save(completer, half=half)
            replace(self.propagator, provenance=told).save(propagator, half=half)

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
