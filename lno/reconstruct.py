"""From a few sensors to a whole field, with calibrated bounds.

A completer reconstructs the field inside its window from the sensors there. A propagator, if there
is one, goes on from the window to the whole domain. Both are ensembles, which tell how uncertain
they are and whether the field is out of distribution (`lno.distribution`). Their uncertainty, times
a factor that is calibrated on held-out fields, gives bounds (`lno.calibration`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lno.calibration import Calibration, Nonconformity, calibrate, coverage, require_fields
from lno.config import require_count, require_range
from lno.data import Batch, Fields
from lno.data.checks import require_flag, require_path, require_type
from lno.data.observe import Pattern, require_pattern
from lno.data.sensors import validate_sensors
from lno.distribution import Ensemble, at_least_usual, scores
from lno.evaluation import batches
from lno.files import replacing
from lno.operator import Operator
from lno.scores import Score, warn_if_flagged
from lno.tasks import Completion, Propagation

NAMES = ("completer.safetensors", "propagator.safetensors", "calibration.json")
PRETRAINED = Path(__file__).parent / "pretrained" / "burgers"  # the models that come with `lno`
DRAWS = 8  # of the sensors' noise, to measure how far it moves the field
CHECKED = 1024  # points inside the window, at random, where the propagator is compared
BATCH = 16  # held-out fields at once


@dataclass(frozen=True)
class Reconstruction:
    """A field on a grid.

    Args:
        axes: the coordinates of the grid's axes.
        mean: the field, of the shape of the grid.
        lower, upper: its bounds; None without calibration.
        scores: whether the field is out of distribution; none without calibration.
    """

    axes: tuple[np.ndarray, ...]
    mean: np.ndarray
    lower: np.ndarray | None
    upper: np.ndarray | None
    scores: tuple[Score, ...] = ()

    @property
    def flagged(self) -> bool:
        """Whether any score is above its threshold: trust neither the field nor its bounds."""
        return any(score.flagged for score in self.scores)


@dataclass(frozen=True)
class Reconstructor:
    """A completer, and optionally a propagator and calibrated bounds.

    Args:
        completer: an operator trained for `Completion`, on fields of one quantity on a grid.
        propagator: an operator trained for `Propagation` from the same window; None: the field is
            reconstructed inside the window only.
        calibration: makes bounds, see `calibrated`; None: there are no bounds.
    """

    completer: Operator
    propagator: Operator | None = None
    calibration: Calibration | None = None

    def __post_init__(self) -> None:
        for name, kind, expected in (
            ("completer", Operator, "an operator trained for Completion, like Operator.load(...)"),
            ("propagator", Operator | None, "an operator trained for Propagation, or None"),
            ("calibration", Calibration | None, "a Calibration, see `calibrated`, or None"),
        ):
            require_type(name, getattr(self, name), kind, expected)
        first, second = self.completer.task, self.propagator and self.propagator.task
        if not isinstance(first, Completion) or not isinstance(second, Propagation | None):
            raise ValueError(
                "expected a completer and a propagator, got operators trained for "
                f"{type(first).__name__} and {type(second).__name__}"
            )
        if second is not None and first.window != second.window:
            raise ValueError(
                f"the completer was trained for {first.window}, the propagator for "
                f"{second.window}: expected the same window"
            )
        for operator in (self.completer, self.propagator or self.completer):
            names, grid = operator.labels.names, operator.labels.grid
            quantities = [*names["y"], *names.get("parameters", ())]
            if grid is None or len(grid) != len(names["x"]) or len(quantities) != 1:
                raise ValueError(
                    "expected operators of one quantity, trained on fields on a grid with an axis "
                    f"for each coordinate, got {', '.join(quantities)} of {', '.join(names['x'])} "
                    f"on the grid {grid}: use Operator.predict"
                )
        if self.propagator is None and not self._inside(self._points()).all():
            raise ValueError(f"{first.window} of a periodic coordinate: expected a propagator too")
        if self.propagator and self.calibration and not self.calibration.disagreement:
            raise ValueError("the calibration is that of a completer alone: calibrate again")

    @property
    def grid(self) -> tuple[int, ...]:
        """The shape of the reconstructed field."""
        return self._largest.labels.grid or ()

    def axes(self) -> tuple[np.ndarray, ...]:
        """The coordinates of the grid's axes; the grid is taken to be regular."""
        return self._largest.labels.axes(self.grid, self._largest.normalizers.x.period)

    def domain(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """The lower and upper ends of each coordinate, those of a window and a period included."""
        labels, period = self._largest.labels, self._largest.normalizers.x.period
        low, high = list(labels.low), list(labels.high)
        for k, length in enumerate(period):
            high[k] = high[k] if length is None else low[k] + length
        window = self._task.window
        if window is not None and np.isfinite([window.low, window.high]).all():
            k = labels.names["x"].index(window.coordinate)  # it may end between two grid points
            low[k], high[k] = min(low[k], window.low), max(high[k], window.high)
        return tuple(low), tuple(high)

    def __call__(self, x: Any, u: Any, noise: float = 0.0, seed: int = 0) -> Reconstruction:
        """Reconstruct the field, with bounds, from a few sensors.

        Args:
            x: positions (n, d) of the sensors.
            u: values (n, 1) there.
            noise: the standard deviation of the sensors' errors, in the units of u. The field is
                then smoothed instead of passing through the sensors, and its bounds are wider by
                how far such errors move it.
            seed: decides the random errors that measure that.
        """
        require_range("noise", noise, 0.0, 1e30)
        require_count("seed", seed, 2**63, least=0)
        noise = float(noise)
        x, u = self.validated(x, u, noise)
        found = self._predict(x[None], u[None], noise)
        field = found.mean()[0].reshape(self.grid)
        if self.calibration is None:
            return Reconstruction(self.axes(), field, None, None)
        count, statistics = self.effective_sensors(x), found.statistics(noise)
        limits, inside = self.calibration.at(count), self._inside(self._points())
        scale = at_least_usual(statistics, limits) if noise else statistics
        factors = np.where(inside, limits.inside, limits.outside)
        width = factors * found.uncertainty(inside, scale)[0]
        if noise:
            width = np.hypot(width, self._noise_width(x, u, found.fields[:, 0], noise, seed))
        width = width.reshape(self.grid)
        of_one = {name: float(value[0]) for name, value in statistics.items()}
        judged = scores(len(u), count, of_one, self.calibration)
        result = Reconstruction(self.axes(), field, field - width, field + width, judged)
        warn_if_flagged([judged])
        return result

    def validated(self, x: Any, u: Any, noise: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
        """The sensors that the completer reads; `SensorError` for one that it cannot use."""
        names, period = self._largest.labels.names["x"], self._largest.normalizers.x.period
        return validate_sensors(x, u, names, self.domain(), period, self._task.window, noise > 0)

    def effective_sensors(self, x: np.ndarray) -> float:
        """How many sensors at random places leave gaps as wide as those at x (n, d) do.

        Bounds are calibrated with sensors at random places. Many at a few places leave wider gaps.
        """
        from scipy.spatial import cKDTree

        points = self._points()
        points = points[self._inside(points)]
        random = points[np.random.default_rng(0).integers(len(points), size=len(x))]
        coordinates = self.completer.normalizers.x
        wanted, *placed = (
            coordinates.distance_features(torch.as_tensor(v)).numpy() for v in (points, x, random)
        )
        gaps = [np.square(cKDTree(p).query(wanted)[0]).mean() for p in placed]
        dimensions = np.linalg.matrix_rank(points - points[0])
        narrower = 1.0 if gaps[0] <= gaps[1] else gaps[1] / gaps[0]
        return float(len(x) * narrower ** (dimensions / 2))

    def calibrated(
        self, held_out: Fields, patterns: Iterable[Pattern], level: float = 0.9, seed: int = 0
    ) -> Reconstructor:
        """The same with bounds.

        Args:
            held_out: whole fields that neither operator was trained on, at least 9 for level 0.9.
            patterns: the sensors, for each of several numbers of them.
            level: on average over new fields, at least this share of the points lies inside.
            seed: decides the places of the sensors.
        """
        require_type("held_out", held_out, Fields, "whole fields with answers y, Fields(x, y=...)")
        require_range("level", level, 0.0, 1.0)
        require_fields(len(held_out), level)  # before the work
        measured = self.nonconformity(held_out, patterns, seed)
        return replace(self, calibration=calibrate(measured, level))

    def coverage(
        self, samples: Fields, patterns: Iterable[Pattern], seed: int = 0
    ) -> dict[str, float]:
        """The share of points inside the bounds on average over fields, inside and outside."""
        if self.calibration is None:
            raise ValueError(
                "there are no bounds without calibration: see Reconstructor.calibrated"
            )
        return coverage(self.nonconformity(samples, patterns, seed), self.calibration)

    def nonconformity(
        self,
        samples: Fields,
        patterns: Iterable[Pattern],
        seed: int = 0,
        report: Callable[[], None] = lambda: None,
    ) -> list[Nonconformity]:
        """How whole fields differ from their reconstructions, for each pattern.

        Args:
            samples: whole fields on the grid.
            patterns: the sensors, of a definite number.
            seed: decides their places.
            report: is called after every BATCH fields.
        """
        require_type("samples", samples, Fields, "whole fields with answers y, Fields(x, y=...)")
        require_type("patterns", patterns, Iterable, "a list of patterns, like [RandomRatio(0.01)]")
        patterns = list(patterns)
        for k, pattern in enumerate(patterns):
            require_pattern(f"patterns[{k}]", pattern)
        require_count("seed", seed, 2**63, least=0)
        if samples.y is None:
            raise ValueError("samples: the data have no fields y to compare with")
        points, whole = self._points(), samples if self.propagator else self._task.prepare(samples)
        places, truth = np.asarray(whole.x_query), np.asarray(whole.y)[..., 0]
        if places.shape != points.shape or not np.allclose(places, points, atol=1e-5):
            raise ValueError(
                f"expected whole fields on the regular grid {self.grid} of the operators, got "
                f"{samples} on {samples.grid}"
            )
        inside, measured = self._inside(points), []
        for pattern in patterns:
            task, parts = replace(self._task, pattern=pattern), []
            for index, batch in batches(task.prepare(samples), task, seed=seed, size=BATCH):
                if batch.mask is not None:
                    raise ValueError(
                        "bounds depend on the number of sensors: expected a pattern with a "
                        f"definite number of them, got {pattern}"
                    )
                found = self._predict(batch.x, batch.u)
                statistics = found.statistics()
                errors = np.abs(truth[index] - found.mean())
                errors /= found.uncertainty(inside, statistics)
                part = {"inside": errors[:, inside], "outside": errors[:, ~inside], **statistics}
                parts.append(part)
                report()
            each = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
            measured.append(Nonconformity(batch.u.shape[1], **each))
        return measured

    def save(self, folder: str | Path, *, half: bool = False) -> None:
        """Write `completer.safetensors`, `propagator.safetensors` and `calibration.json`.

        All or nothing; files of an earlier reconstructor are replaced or deleted.

        Args:
            folder: made if there is none.
            half: as in `Operator.save`.
        """
        require_path("folder", folder)
        require_flag("half", half)
        parts = (self.completer, self.propagator, self.calibration)
        pairs = list(zip(_files(folder), parts, strict=True))
        with ExitStack() as all_or_nothing:
            for path, part in pairs:
                options = {"half": half} if isinstance(part, Operator) else {}
                if part is not None:
                    part.save(all_or_nothing.enter_context(replacing(path)), **options)
        for path, part in pairs:
            if part is None:
                path.unlink(missing_ok=True)

    @staticmethod
    def load(folder: str | Path = PRETRAINED, device: str = "auto") -> Reconstructor:
        """Read what `save` wrote; by default the models that come with the package."""
        require_path("folder", folder)
        completer, propagator, calibration = _files(folder)
        if not completer.exists():
            ours = Path(folder) == PRETRAINED
            missing = "no model comes with this version" if ours else f"no {completer}"
            raise FileNotFoundError(
                f"{missing}: expected a folder with completer.safetensors and, if there are any, "
                "propagator.safetensors and calibration.json; make one with 'lno reproduce "
                "pretrained --out FOLDER' and pass it with --model FOLDER"
            )
        return Reconstructor(
            Operator.load(completer, device),
            Operator.load(propagator, device) if propagator.exists() else None,
            Calibration.load(calibration) if calibration.exists() else None,
        )

    @property
    def _largest(self) -> Operator:
        """The operator that decides the grid."""
        return self.propagator or self.completer

    @property
    def _task(self) -> Completion:
        return cast(Completion, self.completer.task)

    def _points(self) -> Float[np.ndarray, "p d"]:
        """The points of the grid."""
        return np.stack(np.meshgrid(*self.axes(), indexing="ij"), -1).reshape(-1, len(self.grid))

    def _inside(self, points: np.ndarray) -> np.ndarray:
        """Which points lie inside the window."""
        window = self._task.window
        if window is None:
            return np.ones(len(points), bool)
        return window.contains(points, self._largest.labels.names["x"])

    def _predict(self, x: Any, u: Any, noise: float = 0.0) -> Ensemble:
        """What pairs of members make of the sensors of several samples."""
        points = self._points()
        inside = self._inside(points)
        window, rest = (torch.as_tensor(points[where])[None] for where in (inside, ~inside))
        x, u = torch.as_tensor(x), torch.as_tensor(u)
        completed, residuals = self._complete(x, u, window, noise)
        others = self.propagator.members if self.propagator else []
        fields = np.empty((max(len(completed), len(others)), len(x), len(points)), np.float32)
        checked = np.random.default_rng(0).permutation(window.shape[1])[:CHECKED]
        asked, differences = torch.cat((rest, window[:, checked]), 1), []
        for k, field in enumerate(fields):
            known = completed[k % len(completed)]
            field[:, inside] = known[..., 0]  # not the propagator's: the completer read the sensors
            if self.propagator:
                member = self.propagator.member(k % len(others))
                predicted = member.predict_batch(Batch(window, known, asked)).members[0, ..., 0]
                beyond, again = predicted.split((rest.shape[1], len(checked)), 1)
                field[:, ~inside] = beyond
                differences.append((again - known[:, checked, 0]).numpy())
        if not np.isfinite(fields).all():
            raise RuntimeError(
                "the reconstruction is not finite: the sensors are far from the training data, or "
                "the weights are damaged"
            )
        compared = np.stack(differences) if differences else None
        size = float(self._largest.normalizers.y.std[0])
        return Ensemble(fields, residuals[..., 0].numpy(), compared, size)

    def _complete(
        self, x: Tensor, u: Tensor, queries: Tensor, noise: float
    ) -> tuple[Tensor, Tensor]:
        """Completed fields (k, b, q, 1), and residuals (k, b, n, 1) at the sensors."""
        if self.completer.conditional:
            found = self.completer.predict_batch(Batch(x, u, queries), noise)
            assert found.residuals is not None
            return found.members, found.residuals
        asked = torch.cat((queries.expand(len(x), -1, -1), x.to(queries)), 1)
        members = self.completer.predict_batch(Batch(x, u, asked)).members
        completed, at_sensors = members.split((queries.shape[1], x.shape[1]), 2)
        return completed, u - at_sensors

    def _noise_width(
        self, x: np.ndarray, u: np.ndarray, members: np.ndarray, noise: float, seed: int
    ) -> np.ndarray:
        """How far errors of the sensors move the field (p,), at the level of the bounds."""
        from scipy.stats import t

        assert self.calibration is not None
        errors = noise * np.random.default_rng(seed).standard_normal((DRAWS, *u.shape))
        squares = np.zeros(members.shape[1])
        for k in range(min(DRAWS, len(members))):
            drawn = u + errors[k :: len(members)]
            at = np.repeat(x[None], len(drawn), 0)
            moved = self._member(k)._predict(at, drawn, noise).fields[0]
            squares += np.square(moved - members[k]).sum(0) / DRAWS
        return t.ppf(0.5 + self.calibration.level / 2, DRAWS) * np.sqrt(squares)

    def _member(self, k: int) -> Reconstructor:
        """The k-th pair of members alone."""
        completer = self.completer.member(k % len(self.completer.members))
        if self.propagator is None:
            return replace(self, completer=completer)
        propagator = self.propagator.member(k % len(self.propagator.members))
        return replace(self, completer=completer, propagator=propagator)


def _files(folder: str | Path) -> list[Path]:
    return [Path(folder) / name for name in NAMES]
