"""Bounds that hold on average over fields: conformal risk control.

A bound is the mean of an ensemble ± λ times the standard deviation of its members (the spread). The
factor λ is calibrated on n held-out fields. Points of one field are not exchangeable, fields are:
the loss of a field is the share of its points outside its bounds, and λ is the smallest factor with

    (Σ loss over the n held-out fields + 1) / (n + 1) ≤ 1 − level

(Angelopoulos et al., Conformal Risk Control, 2022). The promise, at level 0.9: on average over new
fields of this kind, at least 90 % of the points lie inside. It needs 1 / (n + 1) ≤ 1 − level, which
is 9 held-out fields at level 0.9; with fewer there are no bounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float

from lno.config import from_dict, require_count, require_range, to_dict
from lno.files import read_json, write_json

OUTLIERS = 0.01  # of held-out fields lie above the threshold of the out-of-distribution score
PROMISE = "on average over new fields of this kind, at least {level:g} % of the points lie inside"


@dataclass(frozen=True)
class Calibration:
    """Factors of the spread that make bounds, for some numbers of sensors.

    Args:
        level: the share of points that are to lie inside the bounds, on average over fields.
        fields: how many held-out fields the factors were calibrated on.
        sensors: numbers of sensors, increasing.
        inside: for each of them, the factor inside the completer's window.
        outside: the factor outside of the window; empty for a completer alone.
        threshold: for each number of sensors, the 99 % quantile of the out-of-distribution score
            over held-out fields.
    """

    level: float
    fields: int
    sensors: tuple[int, ...]
    inside: tuple[float, ...]
    outside: tuple[float, ...]
    threshold: tuple[float, ...]

    def __post_init__(self) -> None:
        require_range("Calibration.level", self.level, 0.0, 1.0)
        require_count("Calibration.fields", self.fields, 10**9)
        require_fields(self.fields, self.level)
        for name in ("sensors", "inside", "outside", "threshold"):
            values = getattr(self, name)
            optional = name == "outside" and values == ()
            if not isinstance(values, tuple) or not (
                0 < len(values) == len(self.sensors) or optional
            ):
                raise ValueError(
                    f"Calibration.{name}: expected a value for every number of sensors, "
                    f"got {values!r} for {self.sensors!r}"
                )
            for k, value in enumerate(values):
                if name == "sensors":
                    require_count(f"Calibration.sensors[{k}]", value, 10**9)
                else:
                    require_range(f"Calibration.{name}[{k}]", value, 0.0, 1e30)
        if list(self.sensors) != sorted(set(self.sensors)):
            raise ValueError(f"Calibration.sensors must increase, got {self.sensors}")

    def at(self, sensors: float) -> tuple[float, float, float]:
        """The factors inside and outside and the threshold, interpolated in log(sensors).

        The factor outside is 0 for a completer alone.

        >>> Calibration(0.9, 20, (10, 1000), (2.0, 4.0), (1.0, 1.0), (0.1, 0.1)).at(100)
        (3.0, 1.0, 0.1)
        """
        values = (self.inside, self.outside or (0.0,) * len(self.sensors), self.threshold)
        known = np.log(self.sensors)
        inside, outside, threshold = (float(np.interp(np.log(sensors), known, v)) for v in values)
        return inside, outside, threshold

    def save(self, path: str | Path) -> None:
        """Write a JSON file, atomically."""
        write_json(path, to_dict(self))

    @staticmethod
    def load(path: str | Path) -> Calibration:
        """Read a file of `save`; unknown, missing or impossible values are errors."""
        try:
            return from_dict(Calibration, read_json(path))
        except ValueError as error:
            raise ValueError(f"{path} is not a calibration: {error}") from error


@dataclass(frozen=True)
class Scores:
    """How far reconstructions of held-out fields are from the truth, for one number of sensors.

    Args:
        sensors: the number of sensors.
        inside: |truth − mean| / spread at the points inside the window, of each field.
        outside: the same at the points outside; no points for a completer alone.
        residual: the out-of-distribution score of each field: the residual of the completer at the
            sensors, relative to the values there.
    """

    sensors: int
    inside: Float[np.ndarray, "s p"]
    outside: Float[np.ndarray, "s r"]
    residual: Float[np.ndarray, " k"]  # k: fields, times patterns where several are merged


def calibrate(scores: Sequence[Scores], level: float = 0.9) -> Calibration:
    """The smallest factors that keep the promise, for every number of sensors.

    >>> fields = [Scores(10, np.linspace([0], [1], 20), np.zeros((20, 0)), np.ones(20))]
    >>> calibrate(fields, 0.9).inside  # one field in 20 may lie outside: (1 + 1) / 21 ≤ 0.1
    (0.947...,)
    """
    counts = sorted({one.sensors for one in scores})
    merged = [_merge([one for one in scores if one.sensors == count]) for count in counts]
    fields = min((len(one.inside) for one in merged), default=0)
    require_fields(fields, level)
    alone = all(one.outside.shape[1] == 0 for one in merged)
    return Calibration(
        level,
        fields,
        tuple(counts),
        tuple(factor(one.inside, level) for one in merged),
        () if alone else tuple(factor(one.outside, level) for one in merged),
        tuple(_quantile(one.residual, 1 - OUTLIERS) for one in merged),
    )


def coverage(scores: Sequence[Scores], calibration: Calibration) -> dict[str, float]:
    """The share of points inside the bounds, on average over fields.

    Inside the window, outside of it, and of all points; without those that there are none of.
    """
    hits: dict[str, list[np.ndarray]] = {"inside": [], "outside": [], "all": []}
    for one in scores:
        inside, outside, _ = calibration.at(one.sensors)
        within, beyond = one.inside <= inside, one.outside <= outside
        each = {"inside": within, "outside": beyond, "all": np.concatenate((within, beyond), 1)}
        for name, hit in each.items():
            if hit.shape[1]:
                hits[name].append(hit.mean(1))
    return {name: float(np.concatenate(found).mean()) for name, found in hits.items() if found}


def factor(scores: Float[np.ndarray, "s p"], level: float) -> float:
    """The smallest λ with (Σ over fields of the share of scores above λ + 1) / (s + 1) ≤ 1 − level.

    >>> factor(np.arange(9.0)[:, None], 0.9), factor(np.arange(39.0)[:, None], 0.9)
    (8.0, 35.0)
    """
    fields, points = scores.shape
    require_fields(fields, level)
    allowed = (1 - level) * (fields + 1) - 1  # fields' worth of points outside
    above = math.floor(allowed * points + 1e-6)
    return float(-np.partition(-scores, above, axis=None)[above])


def require_fields(fields: int, level: float) -> None:
    """Raise unless there are enough held-out fields for bounds of this level."""
    if (1 - level) * (fields + 1) < 1 - 1e-9:
        need = math.ceil(level / (1 - level) - 1e-9) if level < 1 else "infinitely many"
        raise ValueError(
            f"bounds of {100 * level:g} % need at least {need} held-out fields, got {fields}: hold "
            "out more fields, or choose a lower level"
        )


def promise(level: float) -> str:
    """What bounds of a level promise.

    >>> promise(0.9)
    'on average over new fields of this kind, at least 90 % of the points lie inside'
    """
    return PROMISE.format(level=100 * level)


def _merge(alike: Sequence[Scores]) -> Scores:
    """Several patterns with one number of sensors: a field stays one unit."""
    sizes = {len(one.inside) for one in alike}
    if len(sizes) > 1:
        raise ValueError(
            f"{alike[0].sensors} sensors: expected scores of the same fields, got {sorted(sizes)} "
            "fields"
        )
    inside, outside = (
        np.concatenate([getattr(one, k) for one in alike], 1) for k in ("inside", "outside")
    )
    residual = np.concatenate([one.residual for one in alike])
    return Scores(alike[0].sensors, inside, outside, residual)


def _quantile(values: np.ndarray, level: float) -> float:
    """The conformal quantile: slightly above the empirical one."""
    n = len(values)
    return float(np.quantile(values, min(1.0, np.ceil((n + 1) * level) / n)))
