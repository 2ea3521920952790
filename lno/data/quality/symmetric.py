"""Whether a symmetry that is claimed is in the data: a test of the moments of the samples.

If the equation and the distribution of the inputs have a symmetry g, a sample and its image have
the same distribution. So means of any function of the samples are equal to those of their images.
Tested are the first and second moments of inputs and outputs at every point, against random signs
of the differences (a sign-flip test).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from lno.data import columns
from lno.data.fields import Fields
from lno.data.quality.binned import Bins, bins_of, in_bins, share_in_bins
from lno.data.quality.finding import Finding, spread_evenly
from lno.data.symmetry import Symmetry

SAMPLES, VALUES = 1000, 1024  # at most, that are looked at
ENOUGH = 20  # samples, to say anything
FLIPS = 999  # random signs
LEVEL = 0.001  # of significance: one false alarm in a thousand tests


@dataclass(frozen=True)
class Asymmetry:
    """How far the moments of samples and of their images are apart.

    Args:
        size: root mean square over points and moments, in standard deviations of the moment.
        by_chance: the same for random signs, on average.
        p: how likely such a size, or a larger one, is by chance.
    """

    size: float
    by_chance: float
    p: float


def symmetry_findings(fields: Fields, symmetries: Sequence[Symmetry]) -> list[Finding]:
    """A finding for each symmetry that the data do not have."""
    others = [g for g in symmetries if g.matrix != ((1, 0), (0, 1)) or any(g.shift) or g.sign != 1]
    if not others or fields.y is None:
        return []
    if len(fields) < ENOUGH:
        return [
            Finding(
                "note",
                f"{len(fields)} samples are too few to test {len(others)} symmetries",
                f"At least {ENOUGH} are needed",
            )
        ]
    found = []
    for g in others:
        try:
            tested = {"inputs": asymmetry(fields, g, "u"), "outputs": asymmetry(fields, g, "y")}
        except ValueError as error:
            found.append(
                Finding("error", f"the symmetry {g.name!r} does not fit: {error}", "Leave it out")
            )
            continue
        for what, result in tested.items():
            if result is not None and result.p <= LEVEL:
                found.append(
                    Finding(
                        "error",
                        f"the symmetry {g.name!r} is not in the {what}: moments at the points "
                        f"change by {result.size:.2g} standard deviations, "
                        f"{result.by_chance:.2g} by chance (p = {result.p:.3g})",
                        "Train without it; or a channel changes its sign: channel_signs",
                    )
                )
    return found


def asymmetry(fields: Fields, g: Symmetry, key: str) -> Asymmetry | None:
    """How asymmetric inputs ("u") or outputs ("y") are; None where there are no values."""
    column = fields.column(key)
    empty = column is None or columns.channels(column) == 0
    if empty and (key != "u" or columns.is_shared(fields.x_query)):
        return None
    chosen = spread_evenly(len(fields), SAMPLES)
    grid = fields.spec.grid
    if grid is not None and len(grid) == 2 and columns.is_shared(fields.x_query):
        if column is None or not (key == "y" or fields.same_points):
            return None
        moments, images = _on_grid(column, chosen, grid, g, key)
    else:
        moments, images = _on_clouds(fields, chosen, g, key)
    return sign_flip_test(moments, images)


def sign_flip_test(
    moments: Float[np.ndarray, "s f"], images: Float[np.ndarray, "s f"]
) -> Asymmetry:
    """Compare the mean of the differences with means of the differences with random signs.

    >>> random = np.random.default_rng(0)
    >>> a, b = random.normal(size=(2, 200, 30))
    >>> sign_flip_test(a, b).p > 0.01, sign_flip_test(a, b + 1).p <= 0.001
    (True, True)
    """
    scale = np.sqrt((moments.var(0) + images.var(0)) / 2)
    used = np.flatnonzero(scale > 1e-6 * (scale.max() or 1.0))
    used = used[spread_evenly(len(used), VALUES)]
    if len(used) == 0:
        return Asymmetry(0.0, 0.0, 1.0)
    gap = (moments[:, used] - images[:, used]) / scale[used]
    signs = np.random.default_rng(0).choice((-1.0, 1.0), size=(FLIPS, len(gap)))
    random = np.sqrt(np.square(signs @ gap / len(gap)).mean(1))
    size = float(np.sqrt(np.square(gap.mean(0)).mean()))
    p = (1 + int((random >= size * (1 - 1e-12)).sum())) / (1 + FLIPS)
    return Asymmetry(size, float(random.mean()), p)


def _on_grid(
    column: columns.Column, chosen: np.ndarray, grid: tuple[int, ...], g: Symmetry, key: str
) -> tuple[np.ndarray, np.ndarray]:
    values = np.stack([columns.sample(column, k) for k in chosen]).astype(np.float64)
    mean = values.mean((0, 1))
    i, j = g.source(grid)
    moved = values.reshape(len(values), *grid, -1)[:, i, j].reshape(values.shape)
    images = moved * np.array(g.signs(key, values.shape[-1]), np.float64)
    return _moments(values, mean), _moments(images, mean)


def _moments(values: Float[np.ndarray, "s n c"], mean: np.ndarray) -> Float[np.ndarray, "s f"]:
    """Values and their squared deviations from the mean, of all points."""
    flat = values.reshape(len(values), -1)
    return np.concatenate((flat, np.square(values - mean).reshape(len(values), -1)), 1)


def _on_clouds(
    fields: Fields, chosen: np.ndarray, g: Symmetry, key: str
) -> tuple[np.ndarray, np.ndarray]:
    """Where points lie, and the means of values there, in the bins of a coarse grid."""
    if fields.space < 2:
        raise ValueError("expected two coordinates that are positions")
    bins = bins_of(fields)
    inverse = np.linalg.inv(np.array(g.matrix, np.float64))
    shift = np.array([float(s) for s in g.shift])
    plain, images = [], []
    for k in chosen:
        sample = fields[k]
        x, values = (sample.x, sample.u) if key == "u" else (sample.x_query, sample.y)
        assert values is not None
        moved = x.astype(np.float64)
        moved[:, :2] = (moved[:, :2] - shift) @ inverse.T
        signs = np.array(g.signs(key, values.shape[1]), np.float64)
        plain.append(_cloud_moments(bins, x, values))
        images.append(_cloud_moments(bins, moved, values * signs))
    return np.stack(plain), np.stack(images)


def _cloud_moments(bins: Bins, x: np.ndarray, values: np.ndarray) -> np.ndarray:
    share = share_in_bins(bins, x)[:, None]
    if values.shape[1] == 0:
        return share.ravel()
    means = in_bins(bins, x, values) * (share > 0)
    return np.concatenate((share, means), 1).ravel()
