"""Out-of-distribution scores: whether an input is unlike the data of the calibration."""

from __future__ import annotations

import math
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
