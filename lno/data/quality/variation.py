"""Whether there are enough samples for the variation of the outputs, by their POD spectrum."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from lno.data import columns
from lno.data.fields import Fields
from lno.data.quality.binned import bins_of, in_bins
from lno.data.quality.finding import Finding, spread_evenly

SAMPLES, VALUES = 1000, 4096  # at most, that are looked at
ENOUGH = 20  # samples, to say anything
ENERGY = 0.99  # of the variance, that the basis holds
LARGE = 1.5  # times the error of the samples that the basis was made of


def variation_findings(fields: Fields) -> list[Finding]:
    """Represent held-out outputs in the POD basis of the others.

    The rule: a fifth of the samples is held out. Of the others, the leading singular vectors (POD,
    PCA) that hold 99 % of the variance are a basis, in which they themselves have a relative error
    of sqrt(1 %) = 10 %. If the samples cover the variation of the outputs, held-out ones have
    nearly the same error. With an error above 15 %, they do not.
    """
    if fields.y is None or len(fields) < ENOUGH:
        return []
    y = outputs_matrix(fields)
    order = np.random.default_rng(0).permutation(len(y))
    held, kept = y[order[: len(y) // 5]], y[order[len(y) // 5 :]]
    modes, error = held_out_error(kept, held)
    _, with_half = held_out_error(kept[: len(kept) // 2], held)
    own = np.sqrt(1 - ENERGY)
    seen = (
        f"{modes} POD modes hold {100 * ENERGY:g} % of the variance of {len(kept)} outputs, which "
        f"have an error of {100 * own:.0f} % in this basis; held-out outputs have "
        f"{100 * error:.2g} % ({100 * with_half:.2g} % with the basis of half of the samples)"
    )
    if error <= LARGE * own:
        return [Finding("note", seen, "The samples cover the variation of the outputs")]
    return [
        Finding(
            "warning",
            seen,
            f"Above {100 * LARGE * own:.0f} % they are too few for the variation: more samples "
            "would help. What moves (fronts, shocks) needs many modes and may still be learned",
        )
    ]


def outputs_matrix(fields: Fields) -> Float[np.ndarray, "s v"]:
    """The standardised outputs of some samples, as rows of at most `VALUES` numbers.

    Where samples differ in their points: the means of the values in the bins of a coarse grid.
    """
    assert fields.y is not None
    chosen = spread_evenly(len(fields), SAMPLES)
    if columns.is_shared(fields.x_query):
        rows = np.stack([columns.sample(fields.y, k) for k in chosen]).astype(np.float64)
        points = spread_evenly(rows.shape[1], max(1, VALUES // rows.shape[2]))
        rows = rows[:, points]
    else:
        bins = bins_of(fields)
        rows = np.stack([in_bins(bins, fields[k].x_query, fields[k].y) for k in chosen])
    rows = rows - rows.mean((0, 1))
    scale = rows.std((0, 1))
    return (rows / np.where(scale > 0, scale, 1.0)).reshape(len(rows), -1)


def held_out_error(
    kept: Float[np.ndarray, "s v"], held: Float[np.ndarray, "h v"]
) -> tuple[int, float]:
    """How many POD modes hold `ENERGY` of the variance, and the error of held-out rows in them.

    The error is the root mean square, relative to the deviation from the mean.

    >>> random = np.random.default_rng(0)
    >>> rows = random.normal(size=(30, 2)) @ random.normal(size=(2, 50))
    >>> modes, error = held_out_error(rows[:20], rows[20:])
    >>> modes, error < 1e-6
    (2, True)
    """
    mean = kept.mean(0)
    _, size, basis = np.linalg.svd(kept - mean, full_matrices=False)
    share = np.cumsum(np.square(size)) / (np.square(size).sum() or 1.0)
    modes = min(int(np.searchsorted(share, ENERGY) + 1), len(basis))
    rest = held - mean
    outside = rest - rest @ basis[:modes].T @ basis[:modes]
    total = float(np.square(rest).sum())
    return modes, float(np.sqrt(np.square(outside).sum() / total)) if total > 0 else 0.0
