"""Whether samples next to each other are alike, as in a time series."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from lno.data import columns
from lno.data.fields import Fields
from lno.data.quality.finding import Finding, spread_evenly
from lno.data.quality.variation import outputs_matrix

PAIRS, QUICK_PAIRS = 128, 32  # of samples, at most, that are compared; that a quick look compares
ENOUGH = 10  # pairs, to say anything
DRAWS = 999  # random pairings, none of which may be as alike: p <= 0.001
CLOSE = 0.75  # of the distance of random pairs, below which neighbours are alike


def neighbour_findings(fields: Fields) -> list[Finding]:
    """Whether the outputs of neighbours are more alike than those of random pairs.

    A test sample of a random split then has nearly equal samples among those of training.

    Rule: at most 128 pairs of neighbours, spread over the data, which share no sample. The median
    distance of their standardised outputs is below three quarters of that of the same samples in
    random pairs, and below that of each of 999 random pairings (p <= 0.001).
    """
    return _findings(fields, PAIRS)


def quick_neighbour_findings(fields: Fields) -> list[Finding]:
    """The same from 32 pairs; nothing where samples differ in their points."""
    return _findings(fields, QUICK_PAIRS) if columns.is_shared(fields.x_query) else []


def _findings(fields: Fields, most: int) -> list[Finding]:
    first = 2 * spread_evenly(len(fields) // 2, most)
    if fields.y is None or len(first) < ENOUGH:
        return []
    chosen = np.stack((first, first + 1), 1).ravel()
    neighbours, others = median_distances(outputs_matrix(fields, chosen))
    usual = float(np.median(others))
    if neighbours >= CLOSE * usual or neighbours >= others.min():
        return []
    return [
        Finding(
            "warning",
            "samples next to each other are more alike than random pairs, as in a time series "
            f"(their outputs have {100 * neighbours / usual:.0f} % of the distance of random pairs,"
            " median): a random split trains on the neighbours of its test samples, and the test "
            "error would be too small for what comes later",
            "Test on what comes last: 'lno data import --split TRAIN,VALIDATION,TEST'. If runs "
            "follow each other: 'lno train --groups NAME'. For a sweep of parameters, a random "
            "split is right if new cases lie between these",
        )
    ]


def median_distances(rows: Float[np.ndarray, "s v"]) -> tuple[float, Float[np.ndarray, " draws"]]:
    """The median distance of rows 0 and 1, 2 and 3, …, and those of random pairings of all rows.

    >>> walk = np.cumsum(np.random.default_rng(0).normal(size=(40, 5)), 0)
    >>> neighbours, others = median_distances(walk)
    >>> neighbours < others.min()
    np.True_
    """
    varying = rows - rows.mean(0)  # what all have would only be rounded
    squares = np.square(varying).sum(1)
    distance = np.sqrt(np.clip(squares[:, None] + squares - 2 * varying @ varying.T, 0, None))
    random = np.random.default_rng(0)
    order = random.permuted(np.tile(np.arange(len(rows)), (DRAWS, 1)), axis=1)
    others = np.median(distance[order[:, ::2], order[:, 1::2]], axis=1)
    return float(np.median(np.diagonal(distance, 1)[::2])), others
