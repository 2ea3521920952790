"""Bounds that hold on average over fields: conformal risk control.

A bound is the mean of an ensemble ± λ times its uncertainty (`lno.ensemble`). The factor λ is
calibrated on n held-out fields. Points of one field are not exchangeable, fields are:
the loss of a field is the share of its points outside its bounds, and λ is the smallest factor with

    (Σ loss over the n held-out fields + 1) / (n + 1) ≤ 1 − level

(Angelopoulos et al., Conformal Risk Control, 2022). The guarantee at level 0.9: on average over new
fields of this kind, at least 90 % of the points lie inside. It needs 1 / (n + 1) ≤ 1 − level, which
is 9 held-out fields at level 0.9; with fewer there are no bounds.

Fields of another kind are recognised by two statistics, residual and disagreement. The threshold
of each is a conformal quantile over the same held-out fields (`lno.scores`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from lno.config import from_dict, require_count, require_range, to_dict
from lno.files import read_json, write_json
from lno.scores import threshold

FALSE_ALARMS = 0.005  # the share of fields like the held-out ones that are flagged, at most
GUARANTEE = (
    "on average over new fields from the same distribution, at least {level:g} % of the points lie "
    "inside"
)


class Limits(NamedTuple):
    """The factors and thresholds for one number of sensors."""

    inside: float
    outside: float
    residual: float
    disagreement: float


@dataclass(frozen=True)
class Calibration:
    """Factors that make bounds, and thresholds of the statistics, for some numbers of sensors.

    Args:
        level: the share of points that are to lie inside the bounds, on average over fields.
        fields: how many held-out fields the factors were calibrated on.
        sensors: numbers of sensors, increasing.
        inside: for each of them, the factor inside the completer's window.
        outside: the factor outside of the window; empty for a completer alone.
        residual: the threshold of the residual.
        disagreement: the threshold of the disagreement; empty for a completer alone.
    """

    level: float
    fields: int
    sensors: tuple[int, ...]
    inside: tuple[float, ...]
    outside: tuple[float, ...]
    residual: tuple[float, ...]
    disagreement: tuple[float, ...]

    def __post_init__(self) -> None:
        require_range("Calibration.level", self.level, 0.0, 1.0)
        require_count("Calibration.fields", self.fields, 10**9)
        require_fields(self.fields, self.level)
        for name in ("sensors", *Limits._fields):
            values = getattr(self, name)
            optional = values == () and name in ("outside", "disagreement")
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

    def at(self, sensors: float) -> Limits:
        """The factors and thresholds, interpolated in log(sensors); 0 where there are none.

        >>> Calibration(0.9, 20, (10, 1000), (2.0, 4.0), (1.0, 1.0), (7.0, 5.0), (3.0, 3.0)).at(100)
        Limits(inside=3.0, outside=1.0, residual=6.0, disagreement=3.0)
        """
        known, none = np.log(self.sensors), (0.0,) * len(self.sensors)
        values = (getattr(self, name) or none for name in Limits._fields)
        return Limits(*(float(np.interp(np.log(sensors), known, v)) for v in values))

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
class Nonconformity:
    """How held-out fields differ from their reconstructions, for one number of sensors.

    Args:
        sensors: the number of sensors.
        inside: |truth − mean| / uncertainty at the points inside the window, of each field; NaN at
            points where a field has no value.
        outside: the same at the points outside; no points for a completer alone.
        residual: the statistic of the completer, of each field.
        disagreement: the statistic of the propagator, of each field; none for a completer alone.
    """

    sensors: int
    inside: Float[np.ndarray, "s p"]
    outside: Float[np.ndarray, "s r"]
    residual: Float[np.ndarray, " k"]  # k: fields, times patterns where several are merged
    disagreement: Float[np.ndarray, " m"] = field(default_factory=lambda: np.zeros(0))


def calibrate(fields: Sequence[Nonconformity], level: float = 0.9) -> Calibration:
    """The smallest factors that keep the guarantee, and thresholds, for every number of sensors.

    The false alarm rate is divided equally among the statistics (Bonferroni).

    >>> errors = np.linspace(0, 1, 20)
    >>> found = Nonconformity(10, errors[:, None], np.zeros((20, 0)), errors)
    >>> calibrate([found], 0.9).inside  # one field in 20 may lie outside: (1 + 1) / 21 ≤ 0.1
    (0.947...,)
    """
    counts = sorted({one.sensors for one in fields})
    merged = [_merge([one for one in fields if one.sensors == count]) for count in counts]
    held_out = min((len(one.inside) for one in merged), default=0)
    require_fields(held_out, level)
    statistics = {
        name: [values for one in merged if len(values := getattr(one, name))]
        for name in ("residual", "disagreement")
    }
    rate = FALSE_ALARMS / sum(map(bool, statistics.values()))
    alone = all(one.outside.shape[1] == 0 for one in merged)
    return Calibration(
        level,
        held_out,
        tuple(counts),
        tuple(factor(_known(one.inside), level) for one in merged),
        () if alone else tuple(factor(_known(one.outside), level) for one in merged),
        *(tuple(threshold(v, rate) for v in each) for each in statistics.values()),
    )


def coverage(fields: Sequence[Nonconformity], calibration: Calibration) -> dict[str, float]:
    """The share of points inside the bounds, on average over fields.

    Inside the window, outside of it, and of all points; without those that there are none of.
    """
    hits: dict[str, list[np.ndarray]] = {"inside": [], "outside": [], "all": []}
    for one in fields:
        limits = calibration.at(one.sensors)
        pairs = ((one.inside, limits.inside), (one.outside, limits.outside))
        within, beyond = (np.where(np.isnan(v), np.nan, v <= most) for v, most in pairs)
        each = {"inside": within, "outside": beyond, "all": np.concatenate((within, beyond), 1)}
        for name, hit in each.items():
            if hit.shape[1]:
                hits[name].append(np.nanmean(hit, axis=1))
    return {name: float(np.concatenate(found).mean()) for name, found in hits.items() if found}


def flags(fields: Nonconformity, calibration: Calibration) -> Bool[np.ndarray, " s"]:
    """Which fields have a statistic above its threshold: out of distribution."""
    limits = calibration.at(fields.sensors)
    flagged = fields.residual > limits.residual
    if len(fields.disagreement):
        flagged = flagged | (fields.disagreement > limits.disagreement)
    return flagged


def factor(
    scores: Float[np.ndarray, "s p"] | Sequence[Float[np.ndarray, " _"]], level: float
) -> float:
    """The smallest λ with (Σ over fields of the share of scores above λ + 1) / (s + 1) ≤ 1 − level.

    Args:
        scores: of the points of each field; fields may differ in their number of points.
        level: the share of points that are to lie inside the bounds, on average over fields.

    >>> factor(np.arange(9.0)[:, None], 0.9), factor(np.arange(39.0)[:, None], 0.9)
    (8.0, 35.0)
    """
    require_fields(len(scores), level)
    allowed = (1 - level) * (len(scores) + 1) - 1  # fields' worth of points outside
    shares = np.concatenate([np.full(len(one), 1 / len(one)) for one in scores])
    every = np.concatenate(list(scores))
    order = np.argsort(-every)
    outside = np.cumsum(shares[order])
    above = int(np.searchsorted(outside, allowed + 1e-9, side="right"))
    return float(every[order[min(above, len(order) - 1)]])


def require_fields(fields: int, level: float) -> None:
    """Raise unless there are enough held-out fields for bounds of this level."""
    if (1 - level) * (fields + 1) < 1 - 1e-9:
        need = math.ceil(level / (1 - level) - 1e-9) if level < 1 else "infinitely many"
        raise ValueError(
            f"bounds of {100 * level:g} % need at least {need} held-out fields, got {fields}: hold "
            "out more fields, or choose a lower level"
        )


def guarantee(level: float) -> str:
    """What bounds of a level guarantee.

    >>> guarantee(0.9)
    'on average over new fields from the same distribution, at least 90 % of the points lie inside'
    """
    return GUARANTEE.format(level=100 * level)


def _known(scores: Float[np.ndarray, "s p"]) -> list[Float[np.ndarray, " _"]]:
    """The scores of each field where it has a value."""
    return [row[~np.isnan(row)] for row in scores]


def _merge(alike: Sequence[Nonconformity]) -> Nonconformity:
    """Several patterns with one number of sensors: a field stays one unit of the bounds."""
    sizes = {len(one.inside) for one in alike}
    if len(sizes) > 1:
        raise ValueError(
            f"{alike[0].sensors} sensors: expected errors of the same fields, got {sorted(sizes)} "
            "fields"
        )
    return Nonconformity(
        alike[0].sensors,
        *(np.concatenate([getattr(one, k) for one in alike], -1) for k in Limits._fields),
    )
