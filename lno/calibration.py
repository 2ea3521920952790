"""Bounds that contain as many of the true values as they say.

By how much members of an ensemble disagree is widened by factors that are measured on samples which
they were not trained on: as large as they have to be for a stated share of the true values there to
lie inside (conformal prediction).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lno.config import require_count, require_range


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
        if list(self.sensors) != sorted(set(self.sensors)):
            raise ValueError(f"Calibration.sensors must grow, got {self.sensors}")

    def at(self, sensors: float) -> tuple[float, float, float]:
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
    counts = sorted({one.sensors for one in tried})
    tried = [_together([one for one in tried if one.sensors == count]) for count in counts]
    return Calibration(
        level,
        tuple(counts),
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


def _together(alike: Sequence[Misses]) -> Misses:
    """Several tries with one number of sensors as one."""
    every = (np.concatenate([getattr(m, k) for m in alike]) for k in ("inside", "outside", "here"))
    return Misses(alike[0].sensors, *every)


def _quantile(ratios: np.ndarray, level: float) -> float:
    """The conformal quantile: a little above the empirical one, for finitely many values."""
    n = len(ratios)
    return float(np.quantile(ratios, min(1.0, np.ceil((n + 1) * level) / n)))
