"""Whether there are enough samples for the variation of the outputs, by their POD spectrum."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy.spatial import cKDTree

from lno.data import columns
from lno.data.fields import Fields
from lno.data.quality.finding import Finding, spread_evenly
from lno.data.spec import Sample

SAMPLES, VALUES = 1000, 4096  # at most, that are looked at
PLACES = 512  # where samples that differ in their points are compared
ENOUGH = 20  # samples, to say anything
FOLDS = 5
ENERGY = 0.99  # of the variance, that the basis holds
LARGE = 1.5  # times the largest error of the samples that the basis was made of


def variation_findings(fields: Fields) -> list[Finding]:
    """Represent held-out outputs in the POD basis of the others.

    The rule: a fifth of the samples is held out. Of the others, the leading singular vectors (POD,
    PCA) that hold 99 % of the variance are a basis, in which they themselves have a relative error
    of sqrt(1 %) = 10 % at most. If the samples cover the variation of the outputs, held-out ones
    have nearly the same error. With an error above 15 %, root mean square over five such parts,
    they do not.
    """
    if fields.y is None or len(fields) < ENOUGH:
        return []
    y = outputs_matrix(fields, spread_evenly(len(fields), SAMPLES))
    order = np.random.default_rng(0).permutation(len(y))
    squares, halves, modes = 0.0, 0.0, []
    for held in np.array_split(order, FOLDS):
        kept = np.setdiff1d(order, held, assume_unique=True)
        count, error = held_out_error(y[kept], y[held])
        half = np.random.default_rng(0).permutation(kept)[: len(kept) // 2]
        squares += error**2 / FOLDS
        halves += held_out_error(y[half], y[held])[1] ** 2 / FOLDS
        modes.append(count)
    typical = int(np.median(modes))
    if typical == 0:  # all outputs are the same
        return []
    subject = f"{typical} POD modes hold" if typical > 1 else "1 POD mode holds"
    own, error = np.sqrt(1 - ENERGY), np.sqrt(squares)
    with_half = 100 * np.sqrt(halves)
    seen = (
        f"{subject} {100 * ENERGY:g} % of the variance of the outputs, up to "
        f"an error of {100 * own:.0f} %; held-out outputs have an error of "
        f"{100 * error:.2g} % in this basis ({with_half:.2g} % with half of the samples)"
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


def outputs_matrix(fields: Fields, chosen: columns.Index) -> Float[np.ndarray, "s v"]:
    """The standardised outputs of the chosen samples, as rows of at most `VALUES` numbers.

    Where samples differ in their points: the values at those of the first one, by linear fits to
    their neighbours.
    """
    assert fields.y is not None
    if columns.is_shared(fields.x_query):
        count, channels = columns.sample(fields.y, 0).shape
        points = spread_evenly(count, max(1, VALUES // channels))
        rows = np.stack([columns.sample(fields.y, k)[points] for k in chosen]).astype(np.float64)
    else:
        places = columns.sample(fields.x_query, 0)[:, : fields.space]
        places = places[spread_evenly(len(places), PLACES)]
        rows = np.stack([_at(places, fields[k], fields.space) for k in chosen])
    rows = rows - rows.mean((0, 1))
    scale = rows.std((0, 1))
    return (rows / np.where(scale > 0, scale, 1.0)).reshape(len(rows), -1)


def _at(places: Float[np.ndarray, "p d"], sample: Sample, space: int) -> Float[np.ndarray, "p o"]:
    """The values of a sample at other places: of a linear function fitted to the nearest points."""
    x, y = sample.x_query[:, :space].astype(np.float64), np.asarray(sample.y, np.float64)
    count = min(len(x), 3 * (space + 1))
    found = cKDTree(x).query(places, count)
    gap, near = (np.asarray(part).reshape(len(places), -1) for part in found)
    weights = np.exp(-np.square(gap / (gap.max(1, keepdims=True) + 1e-300)))
    terms = np.concatenate((np.ones((*near.shape, 1)), x[near] - places[:, None]), -1)
    normal = np.einsum("pk,pki,pkj->pij", weights, terms, terms)
    # Points on a line leave the slope across it open: the flattest one is taken.
    scale = np.einsum("pii->p", normal)[:, None, None]
    normal += 1e-9 * scale * np.eye(normal.shape[-1])
    right = np.einsum("pk,pki,pko->pio", weights, terms, y[near])
    value = np.linalg.solve(normal, right)[:, 0]
    return np.clip(value, y[near].min(1), y[near].max(1))  # no extrapolation


def held_out_error(
    kept: Float[np.ndarray, "s v"], held: Float[np.ndarray, "h v"]
) -> tuple[int, float]:
    """How many POD modes hold `ENERGY` of the variance, and the error of held-out rows in them.

    The error is the root mean square, relative to the deviation from the mean.

    >>> random = np.random.default_rng(0)
    >>> rows = random.normal(size=(30, 2)) @ random.normal(size=(2, 50))
    >>> modes, error = held_out_error(rows[:20], rows[20:])
    >>> modes, error < 1e-4
    (2, True)
    """
    mean = kept.mean(0)
    rows, rest = kept - mean, held - mean
    total = float(np.square(rest).sum())
    # The eigenvectors of the small matrix of products give the singular vectors.
    squares, vectors = np.linalg.eigh(rows @ rows.T)
    squares, vectors = np.clip(squares[::-1], 0, None), vectors[:, ::-1]
    share = np.cumsum(squares) / (squares.sum() or 1.0)
    modes = min(int(np.searchsorted(share, ENERGY) + 1), int((squares > 0).sum()))
    inside = np.square(rest @ (rows.T @ vectors[:, :modes]) / np.sqrt(squares[:modes])).sum()
    return modes, float(np.sqrt(max(0.0, 1 - inside / total))) if total > 0 else 0.0
