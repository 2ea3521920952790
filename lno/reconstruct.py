"""From a few sensors to a whole field, with calibrated bounds.

A completer reconstructs the field inside its window from the sensors there. A propagator, if there
is one, goes on from the window to the whole domain. Both are ensembles, which tell how uncertain
they are and whether the field is out of distribution (`lno.ensemble`). Their uncertainty, times
a factor that is calibrated on held-out fields, gives bounds (`lno.calibration`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from lno.calibration import Calibration, Nonconformity, calibrate, coverage, require_fields
from lno.config import require_count, require_range
from lno.data import Fields, columns
from lno.data.checks import require_flag, require_instance, require_path
from lno.data.columns import as_real
from lno.data.domain import Domain
from lno.data.observe import Pattern, require_pattern
from lno.data.sensors import effective_count, validate_sensors
from lno.ensemble import at_least_usual, scores
from lno.evaluation import batches
from lno.files import replacing
from lno.operator import Operator
from lno.prediction import as_trained
from lno.scores import Score, warn_if_flagged
from lno.stages import Stages
from lno.tasks import Completion, Propagation

NAMES = ("completer.safetensors", "propagator.safetensors", "calibration.json", "domain.h5")
OF_A_RUN = "model.safetensors"  # the completer in the folder of a run
PRETRAINED = Path(__file__).parent / "pretrained" / "burgers"  # the models that come with `lno`
DRAWS = 8  # of the sensors' noise, to measure how far it moves the field
BATCH = 16  # held-out fields at once


@dataclass(frozen=True)
class Reconstruction:
    """A field on a grid.

    Args:
        axes: the coordinates of the grid's axes; none for points that form no regular grid.
        mean: the field, of the shape of the grid, with NaN where it has no point (land); without a
            grid, at the points of the domain.
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
class Reconstructor(Stages):
    """A completer, and optionally a propagator and calibrated bounds.

    Args:
        completer: an operator trained for `Completion`, on fields of one quantity.
        propagator: an operator trained for `Propagation` from the same window; None: the field is
            reconstructed inside the window only.
        calibration: makes bounds, see `calibrated`; None: there are no bounds.
        where: the points of the field; None: those of the regular grid of the training data.
    """

    completer: Operator
    propagator: Operator | None = None
    calibration: Calibration | None = None
    where: Domain | None = None

    def __post_init__(self) -> None:
        for name, kind, expected in (
            ("completer", Operator, "an operator trained for Completion, like Operator.load(...)"),
            ("propagator", Operator | None, "an operator trained for Propagation, or None"),
            ("calibration", Calibration | None, "a Calibration, see `calibrated`, or None"),
            ("where", Domain | None, "a Domain, like Domain.of(fields), or None"),
        ):
            require_instance(name, getattr(self, name), kind, expected)
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
            quantities, d = [*names["y"]], len(names["x"])
            if self.propagator is not None:
                quantities += names.get("parameters", ())
            placed = (grid is not None and len(grid) == d) if self.where is None else True
            if not placed or len(quantities) != 1:
                raise ValueError(
                    "expected operators of one quantity, trained on fields on a grid with an axis "
                    f"for each coordinate, got {', '.join(quantities)} of {', '.join(names['x'])} "
                    f"on the grid {grid}: use Operator.predict"
                )
        if isinstance(self.completer.background, str):
            raise ValueError(
                "the completer adds to a background that comes with every field "
                f"({self.completer.background or 'of the data'}): use Operator.predict(..., "
                "background=...)"
            )
        if self.propagator is None and not self._inside(self.points).all():
            raise ValueError(f"{first.window} of a periodic coordinate: expected a propagator too")
        if self.propagator and self.calibration and not self.calibration.disagreement:
            raise ValueError("the calibration is that of a completer alone: calibrate again")

    def __call__(
        self, x: Any, u: Any, noise: float = 0.0, seed: int = 0, parameters: Any = None
    ) -> Reconstruction:
        """Reconstruct the field, with bounds, from a few sensors.

        Args:
            x: positions (n, d) of the sensors. Covariates may be left out: they are those of the
                nearest point of the domain.
            u: values (n, 1) there.
            noise: the standard deviation of the sensors' errors, in the units of u. The field is
                then smoothed instead of passing through the sensors, and its bounds are wider by
                how far such errors move it.
            seed: decides the random errors that measure that.
            parameters: numbers (p,) of the field, where the completer was trained with some.
        """
        require_range("noise", noise, 0.0, 1e30)
        require_count("seed", seed, 2**63, least=0)
        noise = float(noise)
        x, u = self.validated(x, u, noise)
        numbers = (
            np.atleast_2d(as_real("parameters", parameters)) if parameters is not None else None
        )
        self.completer.labels.require("parameters", 0 if numbers is None else numbers.shape[1])
        found = self._predict(x[None], u[None], noise, numbers)
        field = self._domain.on_grid(found.mean()[0])
        if self.calibration is None:
            return Reconstruction(self.axes(), field, None, None)
        count, statistics = self.effective_sensors(x), found.statistics(noise)
        limits, inside = self.calibration.at(count), self._inside(self.points)
        scale = at_least_usual(statistics, limits) if noise else statistics
        factors = np.where(inside, limits.inside, limits.outside)
        width = factors * found.uncertainty(inside, scale)[0]
        if noise:
            moved = self._noise_width(x, u, found.fields[:, 0], noise, seed, numbers)
            width = np.hypot(width, moved)
        width = self._domain.on_grid(width)
        of_one = {name: float(value[0]) for name, value in statistics.items()}
        judged = scores(len(u), count, of_one, self.calibration)
        result = Reconstruction(self.axes(), field, field - width, field + width, judged)
        warn_if_flagged([judged])
        return result

    def validated(self, x: Any, u: Any, noise: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
        """The sensors that the completer reads; `SensorError` for one that it cannot use."""
        labels, scale = self._largest.labels, self.completer.normalizers.x
        x = as_real("x", x).astype(np.float64)
        if x.ndim == 2 and x.shape[1] == labels.space < len(labels.names["x"]):
            beside = self._domain.points[self._nearest(x), labels.space :]
            x = np.hstack((x, beside))
        ends = self.domain()
        if scale.sphere is not None and x.ndim == 2 and x.shape[1] > max(scale.sphere):
            east = scale.sphere[1]
            x = x.copy()
            x[:, east] = ends[0][east] + (x[:, east] - ends[0][east]) % 360.0
        names, period = labels.names["x"], self._largest.normalizers.x.period
        return validate_sensors(x, u, names, ends, period, self._task.window, noise > 0)

    def effective_sensors(self, x: np.ndarray) -> float:
        """How many randomly placed sensors leave gaps as wide as those at x (n, d).

        Bounds are calibrated with randomly placed sensors. Many sensors at few places leave gaps.
        """
        points = self.points
        points = points[self._inside(points)]
        space = self._largest.labels.space
        dimensions = np.linalg.matrix_rank((points - points[0])[:, :space])
        return effective_count(self._features(points), self._features(x), int(dimensions))

    def calibrated(
        self, held_out: Fields, patterns: Iterable[Pattern], level: float = 0.9, seed: int = 0
    ) -> Reconstructor:
        """The same with bounds.

        Args:
            held_out: whole fields that neither operator was trained on, at least 9 for level 0.9.
            patterns: the sensors, for each of several numbers of them.
            level: on average over new fields, at least this share of the points lies inside.
            seed: of the sensor positions.
        """
        require_instance(
            "held_out", held_out, Fields, "whole fields with outputs y, Fields(x, y=...)"
        )
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
            seed: of their positions.
            report: is called after every BATCH fields.
        """
        require_instance(
            "samples", samples, Fields, "whole fields with outputs y, Fields(x, y=...)"
        )
        require_instance(
            "patterns", patterns, Iterable, "a list of patterns, like [RandomRatio(0.01)]"
        )
        patterns = list(patterns)
        for k, pattern in enumerate(patterns):
            require_pattern(f"patterns[{k}]", pattern)
        require_count("seed", seed, 2**63, least=0)
        if samples.y is None:
            raise ValueError("samples: the data have no fields y to compare with")
        samples = as_trained(self.completer, samples)
        trimmed = self.propagator is None and self._task.window is not None
        whole = self._task.prepare(samples) if trimmed else samples
        try:
            located = [self._domain.locate(whole, k) for k in range(len(whole))]
        except ValueError as error:
            raise ValueError(
                f"expected whole fields on the regular grid {self.grid} of the operators, or at "
                f"points of the domain, got {samples} on {samples.grid}: {error}"
            ) from error
        inside, measured = self._inside(self.points), []
        for pattern in patterns:
            task, parts = replace(self._task, pattern=pattern), []
            for index, batch in batches(task.prepare(samples), task, seed=seed, size=BATCH):
                if batch.mask is not None:
                    raise ValueError(
                        "bounds depend on the number of sensors: expected a pattern with a "
                        f"definite number of them, got {pattern}"
                    )
                found = self._predict(batch.x, batch.u, parameters=batch.parameters)
                statistics = found.statistics()
                errors = np.full(found.mean().shape, np.nan)  # at points without a value
                for row, k in enumerate(range(index.start, index.stop)):
                    truth = columns.sample(whole.y, k)[:, 0]  # type: ignore[arg-type]
                    errors[row, located[k]] = np.abs(truth - found.mean()[row, located[k]])
                errors /= found.uncertainty(inside, statistics)
                part = {"inside": errors[:, inside], "outside": errors[:, ~inside], **statistics}
                parts.append(part)
                report()
            each = {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}
            measured.append(Nonconformity(batch.u.shape[1], **each))
        return measured

    def save(self, folder: str | Path, *, half: bool = False) -> None:
        """Write `completer.safetensors`, `propagator.safetensors`, `calibration.json`, `domain.h5`.

        All or nothing; files of an earlier reconstructor are replaced or deleted.

        Args:
            folder: made if there is none.
            half: as in `Operator.save`.
        """
        require_path("folder", folder)
        require_flag("half", half)
        parts = (self.completer, self.propagator, self.calibration, self.where)
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
        """Read what `save` wrote; by default the models shipped with the package."""
        require_path("folder", folder)
        completer, propagator, calibration, where = _files(folder)
        if not completer.exists() and (Path(folder) / OF_A_RUN).exists():
            completer = Path(folder) / OF_A_RUN
        if not completer.exists():
            ours = Path(folder) == PRETRAINED
            missing = "no model comes with this version" if ours else f"no {completer}"
            raise FileNotFoundError(
                f"{missing}: expected a folder with completer.safetensors and, if there are any, "
                "propagator.safetensors and calibration.json; make one with 'lno train FILE --task "
                "complete --out FOLDER' and pass it with --model FOLDER"
            )
        return Reconstructor(
            Operator.load(completer, device),
            Operator.load(propagator, device) if propagator.exists() else None,
            Calibration.load(calibration) if calibration.exists() else None,
            Domain.load(where) if where.exists() else None,
        )

    def _noise_width(
        self,
        x: np.ndarray,
        u: np.ndarray,
        members: np.ndarray,
        noise: float,
        seed: int,
        parameters: Any,
    ) -> np.ndarray:
        """How far errors of the sensors move the field (p,), at the level of the bounds."""
        from scipy.stats import t

        assert self.calibration is not None
        errors = noise * np.random.default_rng(seed).standard_normal((DRAWS, *u.shape))
        squares = np.zeros(members.shape[1])
        for k in range(min(DRAWS, len(members))):
            drawn = u + errors[k :: len(members)]
            at = np.repeat(x[None], len(drawn), 0)
            moved = self._member(k)._predict(at, drawn, noise, parameters).fields[0]
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
