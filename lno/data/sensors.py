"""Which sensors a model can use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from lno.data.columns import as_real
from lno.data.observe import Window


class SensorError(ValueError):
    """A sensor that cannot be used.

    Args:
        reason: what is wrong, and what to do.
        sensors: the indices of the sensors, counted from 0.
    """

    def __init__(self, reason: str, *sensors: int) -> None:
        which = " and ".join(map(str, sensors))
        super().__init__(f"sensor{'s' * (len(sensors) > 1)} {which}: {reason}")
        self.reason, self.sensors = reason, sensors


def validate_sensors(
    x: Any,
    u: Any,
    names: Sequence[str],
    domain: tuple[Sequence[float], Sequence[float]],
    period: Sequence[float | None],
    window: Window | None = None,
    averaged: bool = False,
) -> tuple[Float[np.ndarray, "n d"], Float[np.ndarray, "n 1"]]:
    """Positions and values of sensors, each place once; `SensorError` for one that is of no use.

    Args:
        x: positions (n, d) of the sensors.
        u: values (n, 1) there.
        names: of the coordinates.
        domain: the lower and the upper end of each coordinate.
        period: of each coordinate; None for those that have none.
        window: the part of the domain that can be observed; None: all of it.
        averaged: take the mean of values at the same place; else they must not differ.

    >>> x, u = [[0.0], [0.5], [1.0]], [[1.0], [2.0], [3.0]]
    >>> validate_sensors(x, u, ["x"], ([0.0], [1.0]), [1.0], averaged=True)[1].tolist()
    [[2.0], [2.0]]
    >>> validate_sensors(x, u, ["x"], ([0.0], [1.0]), [1.0])
    Traceback (most recent call last):
    ...
    lno.data.sensors.SensorError: sensors 0 and 2: two values, 1 and 3, at the same place: ...
    """
    x, u = (as_real(name, v).astype(np.float64) for name, v in (("x", x), ("u", u)))
    if x.ndim != 2 or x.shape[1] != len(names) or u.shape != (len(x), 1) or len(x) == 0:
        raise ValueError(
            f"expected x (n, {len(names)}), the {', '.join(names)} of at least one sensor, and "
            f"u (n, 1), got {x.shape} and {u.shape}"
        )
    for k in np.flatnonzero(~np.isfinite(np.hstack((x, u))).all(1)):
        raise SensorError(f"expected finite numbers, got {x[k]} and {u[k]}: leave it out", int(k))
    low, high = (np.array(ends) for ends in domain)
    slack = 1e-6 * (high - low)  # positions may come in single precision
    for k, axis in np.argwhere((x < low - slack) | (x > high + slack)):
        raise SensorError(
            f"{names[axis]} = {x[k, axis]:g} lies outside the domain, {low[axis]:g} to "
            f"{high[axis]:g}: leave it out",
            int(k),
        )
    for k in () if window is None else np.flatnonzero(~window.contains(x, names)):
        assert window is not None
        raise SensorError(
            f"this model was trained to observe {window.coordinate} from {window.low:g} to "
            f"{window.high:g} only, and cannot use a sensor elsewhere: leave it out",
            int(k),
        )
    places = (x - low).round(12)
    for axis, length in enumerate(period):
        if length is not None:
            places[:, axis] = (places[:, axis] % length).round(12) % length
    _, first, place = np.unique(places, axis=0, return_index=True, return_inverse=True)
    place = place.ravel()
    values = np.bincount(place, u[:, 0]) / np.bincount(place) if averaged else u[first, 0]
    for k in () if averaged else np.flatnonzero(u[:, 0] != values[place]):
        raise SensorError(
            f"two values, {values[place[k]]:g} and {u[k, 0]:g}, at the same place: leave one out, "
            "or say how exact they are (noise)",
            int(first[place[k]]),
            int(k),
        )
    # Means are sorted by place: random draws of noise then do not depend on the order of sensors.
    order = np.arange(len(first)) if averaged else np.argsort(first)
    return x[first[order]], values[order, None]


def effective_count(
    points: Float[np.ndarray, "p f"], x: Float[np.ndarray, "n f"], dimensions: int
) -> float:
    """How many sensors at random places leave gaps as wide as those at x do.

    Args:
        points: all points of the field, as features whose distances are meaningful.
        x: the sensors, likewise.
        dimensions: of the domain.
    """
    from scipy.spatial import cKDTree

    random = points[np.random.default_rng(0).integers(len(points), size=len(x))]
    gaps = [np.square(cKDTree(p).query(points)[0]).mean() for p in (x, random)]
    narrower = 1.0 if gaps[0] <= gaps[1] else gaps[1] / gaps[0]
    return float(len(x) * narrower ** (dimensions / 2))
