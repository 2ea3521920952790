"""Bounds of predictions: local widths times factors that are calibrated on held-out samples.

The bounds are prediction ± factor × width (`lno.trust.widths`), with a factor for each output
channel. Some of the held-out samples fit the widths; all others calibrate the factors by
conformal risk control (`lno.calibration`). For those, widths are fixed functions of a sample, so
the guarantee holds for any widths: on average over new samples of this kind, at least this
share of the points lies inside, of each channel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from lno.calibration import factor, require_fields
from lno.config import require_count, require_range
from lno.trust.reference import require_numbers
from lno.trust.widths import Errors, Widths

if TYPE_CHECKING:
    from lno.operator import Operator

SHARE = 3  # one of so many held-out samples fits the widths, where there are enough


@dataclass(frozen=True)
class Bounds:
    """What makes bounds of an operator's predictions.

    Args:
        level: the share of points that are to lie inside, on average over samples.
        samples: how many held-out samples calibrated the factors.
        factors: of the widths, for each channel.
        widths: at a point of a sample.
    """

    level: float
    samples: int
    factors: tuple[float, ...]
    widths: Widths

    def __post_init__(self) -> None:
        require_range("Bounds.level", self.level, 0.0, 1.0)
        require_count("Bounds.samples", self.samples, 10**9)
        require_fields(self.samples, self.level)
        require_numbers("Bounds.factors", self.factors)
        if len(self.factors) != self.widths.channels or min(self.factors) < 0:
            raise ValueError(
                f"Bounds.factors: expected {self.widths.channels} numbers of at least 0, got "
                f"{str(self.factors)[:80]}"
            )

    @classmethod
    def calibrate(
        cls, operator: Operator, to_fit: Sequence[Errors], others: Sequence[Errors], level: float
    ) -> Bounds:
        """Bounds whose widths fit some held-out samples and whose factors the others.

        Args:
            operator: the operator.
            to_fit: the samples for the widths; none: these depend on nothing that is fitted.
            others: the samples for the factors.
            level: the share of points that are to lie inside, on average over samples.
        """
        widths = Widths.fit(operator, to_fit) if to_fit else Widths.constant(operator)
        scores = [one.errors / widths.at(operator, one.x, one.terms) for one in others]
        channels = range(widths.channels)
        factors = [factor([score[:, c] for score in scores], level) for c in channels]
        return cls(level, len(others), tuple(factors), widths)

    def half_widths(
        self, operator: Operator, x: Float[np.ndarray, "p d"], terms: Float[np.ndarray, "4 p o"]
    ) -> Float[np.ndarray, "p o"]:
        """How far the bounds are from the prediction at positions of one sample."""
        return np.array(self.factors) * self.widths.at(operator, x, terms)

    def contained(self, operator: Operator, one: Errors) -> Float[np.ndarray, " o"]:
        """The share of the points of a sample inside its bounds, for each channel."""
        return (one.errors <= self.half_widths(operator, one.x, one.terms)).mean(0)


def samples_to_fit(samples: int, level: float) -> int:
    """How many held-out samples fit the widths; the others must be enough for the factors.

    >>> samples_to_fit(100, 0.9), samples_to_fit(18, 0.9), samples_to_fit(17, 0.9)
    (33, 6, 0)
    """
    require_fields(samples, level)
    enough = (1 - level) * (samples // 2 + 1) >= 1 - 1e-9
    return samples // SHARE if enough else 0
