"""Predictions with bounds, and the scores that tell whether to trust them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from lno.config import require_range
from lno.data import Fields, columns
from lno.prediction import Observations, groups, predict_groups
from lno.scores import Score, warn_if_flagged
from lno.trust.trust import NOT_CALIBRATED, distance, half_widths, scores

if TYPE_CHECKING:
    from lno.operator import Operator

FEW = 10  # times fewer points than any sample of training had are no such sample


@dataclass(frozen=True)
class BoundedPrediction:
    """A prediction, its bounds, and whether to trust them.

    Args:
        prediction: what `Operator.predict` gives without bounds.
        lower: its lower bounds, in the same form.
        upper: its upper bounds.
        scores: the out-of-distribution scores of each sample.
    """

    prediction: Any
    lower: Any
    upper: Any
    scores: list[tuple[Score, ...]]

    @property
    def flagged(self) -> bool:
        """Whether any sample is out of distribution: trust neither prediction nor bounds."""
        return any(score.flagged for sample in self.scores for score in sample)


def predict_bounded(operator: Operator, given: Observations, level: Any) -> BoundedPrediction:
    """Predictions with bounds of a level, with a warning where a sample is out of distribution."""
    require_range("bounds", level, 0.0, 1.0)
    bounds = operator.trust.bounds
    if bounds is None:
        raise ValueError(NOT_CALIBRATED)
    if abs(level - bounds.level) > 1e-9:
        raise ValueError(
            f"bounds: this operator is calibrated for bounds of {100 * bounds.level:g} %, got "
            f"{level!r}. For others: operator.calibrated(held_out, level={level!r})"
        )
    means, lower, upper, judged = [], [], [], []
    for batch, found in predict_groups(operator, given.fields, 0.0, deviation=True):
        far, mean = distance(operator, batch), found.mean()
        width = half_widths(operator, batch, found, far)
        means.append(mean)
        lower.append(mean - width)
        upper.append(mean + width)
        judged += scores(operator, batch, far)
    warn_if_flagged(judged, stacklevel=3)
    return BoundedPrediction(given.like(means), given.like(lower), given.like(upper), judged)


def distribution(operator: Operator, fields: Fields) -> list[tuple[Score, ...]]:
    """The out-of-distribution scores of each sample."""
    return [
        one
        for _, batch in groups(operator, fields)
        for one in scores(operator, batch, distance(operator, batch))
    ]


def warn_of_few_points(operator: Operator, fields: Fields) -> None:
    """Warn where the observed points look like query points.

    An operator reads all points of x as the sample itself: its geometry, or the field on it.
    """
    fewest = _fewest_points(operator)
    count = int(columns.sizes(fields.x, len(fields)).min())
    if fewest is None or not fields.same_points or FEW * count > fewest:
        return
    warnings.warn(
        f"x: a sample has {count:,} points, those of training had {fewest:,} or more, and x_query "
        "is not given: the points of x are read as a whole sample. If predictions are wanted "
        "at these points, pass the whole sample as x and them as x_query (--at of lno predict)",
        stacklevel=3,  # where `Operator.predict` is called
    )


def _fewest_points(operator: Operator) -> int | None:
    """The fewest points that a sample of training had, where that is known and samples are whole.

    Where outputs themselves are observed, a few points are what is wanted.
    """
    reference, grid = operator.trust.reference, operator.labels.grid
    if operator.task.observes_outputs:
        return None
    if reference is not None:
        return reference.fewest_points
    return None if grid is None else prod(grid)
