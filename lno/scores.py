"""Out-of-distribution scores: whether an input is unlike the data of the calibration."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Score:
    """A statistic of one input, and the threshold above which the prediction cannot be trusted.

    Args:
        value: the statistic.
        threshold: see `threshold`.
        reason: what a value above the threshold means, for a warning.
        name: of the statistic, one word.

    >>> Score(3.0, 1.5, "the residuals are too large", "residual").flagged
    True
    """

    value: float
    threshold: float
    reason: str
    name: str

    @property
    def flagged(self) -> bool:
        """Whether the input is out of distribution, by this score; a value that is NaN is."""
        return not self.value <= self.threshold


def threshold(values: Sequence[float] | np.ndarray, false_alarms: float) -> float:
    """The conformal threshold: new samples of the same kind exceed it at this rate at most.

    A sample is flagged if its conformal p-value among the n held-out values is at most
    `false_alarms`. That needs n ≥ 1 / false_alarms − 1. With fewer, the threshold is the largest
    value, and the false alarm rate is 1 / (n + 1).

    Args:
        values: the statistic of held-out samples.
        false_alarms: the false alarm rate.

    >>> threshold(range(199), 0.01), threshold(range(9), 0.01)
    (197.0, 8.0)
    """
    rank = math.ceil((len(values) + 1) * (1 - false_alarms) - 1e-9)
    return float(np.sort(np.asarray(values, float))[min(rank, len(values)) - 1])


def prediction_limit(values: Sequence[float] | np.ndarray, false_alarms: float) -> float:
    """A threshold for positive values where there are too few for `threshold` to keep the rate.

    With fewer than 1 / false_alarms − 1 held-out values it is the upper prediction limit of a
    log-normal distribution, though not below the largest value: the false alarm rate is then a
    nominal one. With more it is the conformal threshold.

    Args:
        values: the statistic of held-out samples, positive.
        false_alarms: the false alarm rate.

    >>> logs = np.random.default_rng(0).standard_normal((2, 150))
    >>> few, many = np.exp(logs[0, :30]), np.exp(logs[1])
    >>> prediction_limit(few, 0.01) > few.max(), prediction_limit(many, 0.01) == many.max()
    (np.True_, np.True_)
    """
    from scipy.stats import t

    count, conformal = len(values), threshold(values, false_alarms)
    if count < 2 or count + 1 >= 1 / false_alarms - 1e-9:
        return conformal
    logs = np.log(values)
    quantile = t.ppf(1 - false_alarms, count - 1) * logs.std(ddof=1) * math.sqrt(1 + 1 / count)
    return max(conformal, math.exp(min(logs.mean() + quantile, 600.0)))


def warn_if_flagged(samples: Sequence[Sequence[Score]], stacklevel: int = 2) -> None:
    """One warning for all samples that are out of distribution, with the reasons of the first."""
    flagged = [k for k, scores in enumerate(samples) if any(score.flagged for score in scores)]
    if not flagged:
        return
    reasons = "; ".join(score.reason for score in samples[flagged[0]] if score.flagged)
    several = f"{len(flagged)} of {len(samples)} samples, the first of them sample {flagged[0]}: "
    which = several if len(samples) > 1 else ""
    warnings.warn(f"out of distribution: {which}{reasons}", stacklevel=stacklevel + 1)
