"""What an ensemble tells about its own reconstruction: how uncertain, and whether to trust it.

Members of an ensemble differ by the spread. What they get wrong alike shows in two statistics, one
for each stage of a reconstruction, relative to the spread:

- residual: of the completer at the sensors, before it is conditioned on them;
- disagreement: of the propagator, which predicts the window too, with the completer there.

Of a field of another kind, all members get the same wrong. So the statistics are scores that tell
what is out of distribution, and the width of bounds grows with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from lno.calibration import Calibration, Limits
from lno.scores import Score

FLOOR = 1e-3  # of the field's std, added to the spread: members may agree by chance
NEGLIGIBLE = 1e-4  # of the field's std, added to both parts of the ratio that is a statistic
FEWER = 2.0  # times fewer sensors than in the calibration are too few
USUAL = 0.5  # of the threshold is about the median of a statistic
# Widths grow with this power of the statistics. With the first power, bounds of fields that differ
# from the trained kind by too little to be flagged are too narrow.
GROWTH = 1.5
REASONS = {
    "residual": "the residuals of the completer at the sensors are {:.1f} times the threshold, "
    "which fields of the trained kind rarely exceed (if the sensors have errors, pass their "
    "standard deviation as noise)",
    "disagreement": "propagator and completer disagree inside the window by {:.1f} times the "
    "threshold, which fields of the trained kind rarely exceed: the dynamics may be others",
}


@dataclass(frozen=True)
class Ensemble:
    """Reconstructions of several samples by several members.

    Args:
        fields: the reconstructed fields.
        residuals: values at the sensors minus the completer's own prediction there.
        differences: propagator minus completer, at some points inside the window; None without a
            propagator.
        size: the standard deviation of the trained fields.
        deviation: the standard deviation that is left after a correction with a learned covariance
            (`lno.kernel_methods.covariance`); None: not known.
    """

    fields: Float[np.ndarray, "k b p"]
    residuals: Float[np.ndarray, "k b n"]
    differences: Float[np.ndarray, "k b c"] | None
    size: float
    deviation: Float[np.ndarray, "b p"] | None = None

    def mean(self) -> Float[np.ndarray, "b p"]:
        """The mean over the members."""
        return self.fields.mean(0)

    def statistics(self, noise: float = 0.0) -> dict[str, Float[np.ndarray, " b"]]:
        """The statistic of each stage: the mean size of what is wrong alike over that of the rest.

        Args:
            noise: the standard deviation of the sensors' errors, which count as nothing wrong.
        """
        least, found = NEGLIGIBLE * self.size, {}
        for name, errors in (("residual", self.residuals), ("disagreement", self.differences)):
            if errors is not None:
                alike = np.maximum(np.abs(errors.mean(0)).mean(1) - noise, 0.0)
                found[name] = (alike + least) / (_deviation(errors).mean(1) + least)
        return found

    def uncertainty(
        self, inside: np.ndarray, statistics: Mapping[str, np.ndarray]
    ) -> Float[np.ndarray, "b p"]:
        """The spread times a power of the residual; outside the window of the disagreement, too.

        The deviation that is left after a correction adds to the spread, as independent errors do.

        Args:
            inside: which points (p,) lie inside the window.
            statistics: of each sample.
        """
        both = np.prod(list(statistics.values()), axis=0)
        scale = np.where(inside, statistics["residual"][:, None], both[:, None]) ** GROWTH
        spread = _deviation(self.fields)
        spread = spread if self.deviation is None else np.hypot(spread, self.deviation)
        return scale * (spread + FLOOR * self.size)


def at_least_usual(
    statistics: Mapping[str, np.ndarray], limits: Limits
) -> dict[str, Float[np.ndarray, " b"]]:
    """Statistics for the width of bounds where noise hides what is wrong: no less than usual."""
    return {k: np.maximum(v, USUAL * getattr(limits, k)) for k, v in statistics.items()}


def scores(
    sensors: int, effective: float, statistics: Mapping[str, float], calibration: Calibration
) -> tuple[Score, ...]:
    """The out-of-distribution scores of one sample: too few sensors, residual, disagreement.

    Args:
        sensors: their number.
        effective: the effective number of sensors.
        statistics: of the sample.
        calibration: has the thresholds.

    >>> some = Calibration(0.9, 20, (10,), (2.0,), (2.0,), (1.5,), (1.5,))
    >>> [s.name for s in scores(9, 9.0, {"residual": 3.0, "disagreement": 1.0}, some) if s.flagged]
    ['residual']
    """
    fewest, limits = calibration.sensors[0], calibration.at(effective)
    few = f"{sensors}" if effective > 0.5 * sensors else f"{sensors} close to each other"
    reason = f"the bounds are calibrated for {fewest} sensors or more: with {few}, they may fail"
    found = [Score(fewest / effective, FEWER, reason, "sensors")]
    for name, value in statistics.items():
        most = getattr(limits, name)
        found.append(Score(value, most, REASONS[name].format(value / max(most, 1e-30)), name))
    return tuple(found)


def _deviation(members: Float[np.ndarray, " k *rest"]) -> Float[np.ndarray, "*rest"]:
    """The standard deviation over members; 0 where there is one."""
    return members.std(0, ddof=1) if len(members) > 1 else np.zeros(members.shape[1:])
