"""Findings about samples: sorted, doubled, contradictory, too few; points that are doubled."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from lno.data import columns
from lno.data.fields import Fields
from lno.data.quality.finding import Finding, listed
from lno.data.spec import Sample

SORTED = 0.5  # rank correlation with the number of the sample, from which on they are sorted
ENOUGH = 10  # samples, to say anything of their order
NEAR = 1e-6  # of the extent of the points: the same place, up to rounding


def default_split(count: int) -> tuple[int, int]:
    """Training and test samples of data that name no split: the last tenth is for testing."""
    tests = max(1, count // 10)
    return count - tests, tests


def order_findings(fields: Fields, split: tuple[int, int], ordered: bool = True) -> list[Finding]:
    """Whether samples are sorted by a parameter: then the test samples are none of the training's.

    That is worth a note even where the split is random (`ordered=False`).

    Rule: the rank correlation (Spearman) of a parameter with the number of the sample is above one
    half in absolute value.
    """
    if fields.parameters is None or len(fields) < ENOUGH:
        return []
    found = []
    train, test = split
    for p, name in enumerate(fields.names["parameters"]):
        values = np.asarray(fields.parameters)[:, p]
        if np.ptp(values) == 0:
            continue
        rank = rank_correlation(np.arange(len(values)), values)
        if abs(rank) > SORTED:
            first, last = values[:train], values[train : train + test]
            if not ordered:
                text = f"samples are sorted by the parameter {name!r} (rank correlation {rank:.2f})"
                advice = (
                    "lno train splits at random. Before Fields.split, use fields.shuffle(0), "
                    "unless they are a time series"
                )
                found.append(Finding("note", text, advice))
                continue
            found.append(
                Finding(
                    "warning",
                    f"samples are sorted by the parameter {name!r} (rank correlation {rank:.2f}): "
                    f"it goes from {first.min():.4g} to {first.max():.4g} in the training samples, "
                    f"from {last.min():.4g} to {last.max():.4g} in the test samples",
                    "Put them in random order: --shuffle 0 of 'lno data import', fields.shuffle(0)."
                    " If you want to test on values beyond, leave it",
                )
            )
    return found


def rank_correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Spearman's: the correlation of the ranks, equal values having their mean rank.

    >>> rank_correlation(np.arange(4.0), np.array([1.0, 10.0, 100.0, 1000.0]))
    1.0
    """
    ranks = []
    for values in (a, b):
        _, place, count = np.unique(values, return_inverse=True, return_counts=True)
        ranks.append((np.cumsum(count) - (count + 1) / 2)[place.ravel()])
    first, second = ranks
    return round(float(np.corrcoef(first, second)[0, 1]), 12)


def duplicate_findings(fields: Fields, split: tuple[int, int]) -> list[Finding]:
    """Equal samples, and samples with equal inputs and different outputs."""
    train, test = split
    whole, given = defaultdict(list), defaultdict(list)
    nothing = columns.channels(fields.u) == 0 and fields.parameters is None
    for k, sample in enumerate(fields):
        inputs = _hash(fields, sample)
        outputs = b"" if sample.y is None else np.ascontiguousarray(sample.y).tobytes()
        given[inputs].append(k)
        whole[inputs + hashlib.sha256(outputs).digest()].append(k)
    found = []
    equal = [group for group in whole.values() if len(group) > 1]
    across = [k for g in equal for k in g if train <= k < train + test and g[0] < train]
    if across:
        found.append(
            Finding(
                "error",
                f"{len(across)} of {test} test samples are also training samples ({listed(across)})"
                ": the test error would be too small",
                "Leave the copies out, or split so that equal samples stay together",
            )
        )
    copies = [k for g in equal for k in g[1:] if k < train]
    if copies:
        found.append(
            Finding(
                "warning",
                f"{len(copies)} of {train} training samples are copies of others "
                f"({listed(copies)})",
                "Leave them out, unless they are meant to count more",
            )
        )
    positions = columns.is_shared(fields.x) and columns.is_shared(fields.x_query)
    if fields.y is not None and not (nothing and positions):
        found += _contradictions(fields, [g for g in given.values() if len(g) > 1])
    return found


def _contradictions(fields: Fields, groups: Sequence[Sequence[int]]) -> list[Finding]:
    clashes, worst = [], 0.0
    for group in groups:
        first = fields[group[0]].y
        for k in group[1:]:
            other = fields[k].y
            assert first is not None and other is not None
            if not np.array_equal(first, other):
                size = float(np.linalg.norm(first)) or 1.0
                worst = max(worst, float(np.linalg.norm(other - first)) / size)
                clashes.append(k)
    if not clashes:
        return []
    alone = columns.channels(fields.u) == 0
    observed = ", unless it observes some of their points ('lno train --task complete')" * alone
    return [
        Finding(
            "warning",
            f"{len(clashes)} samples have the inputs of another one and other outputs "
            f"({listed(clashes)}), which differ by up to {100 * worst:.3g} %",
            "Something that the outputs depend on is not among the inputs, or they are noisy: no "
            f"model can tell these samples apart{observed}",
        )
    ]


def _hash(fields: Fields, sample: Sample) -> bytes:
    """A digest of all that a model is given of a sample."""
    digest = hashlib.sha256()
    parts = [sample.u, sample.parameters, sample.background]
    parts += [] if columns.is_shared(fields.x) else [sample.x]
    parts += [] if columns.is_shared(fields.x_query) else [sample.x_query]
    for part in parts:
        if part is not None:
            digest.update(str(part.shape).encode() + np.ascontiguousarray(part).tobytes())
    return digest.digest()


def point_findings(fields: Fields) -> list[Finding]:
    """Points of a sample at the same place, up to rounding and periods, with other values."""
    shared = columns.is_shared(fields.x_query)
    doubled, clashing, worst, where = 0, 0, 0.0, ""
    pairs = None
    for k in range(len(fields)):
        sample = fields[k]
        if pairs is None or not shared:
            pairs = _near_pairs(sample.x_query, fields.period)
        first, second = pairs
        if shared and len(first) == 0:
            break
        doubled += len(first)
        if sample.y is None or len(first) == 0:
            continue
        gap = np.abs(sample.y[first] - sample.y[second]).max(1)
        scale = float(sample.y.std()) or 1.0
        clash = gap > 1e-3 * scale
        clashing += int(clash.sum())
        if clash.any() and not where:
            a = first[clash][0]
            place = ", ".join(f"{v:g}" for v in sample.x_query[a])
            where = f"sample {k}, points {a} and {second[clash][0]} at ({place})"
        worst = max(worst, float(gap.max()) / scale)
    if clashing:
        return [
            Finding(
                "warning",
                f"{clashing:,} pairs of points lie at the same place and have different outputs, "
                f"by up to {worst:.2g} standard deviations; first: {where}",
                "Keep one of them, or their mean",
            )
        ]
    if doubled:
        return [
            Finding(
                "note",
                f"{doubled:,} points lie where another one of the sample is",
                "They count twice. At the ends of a periodic coordinate, leave one end out",
            )
        ]
    return []


def _near_pairs(
    x: np.ndarray, period: Sequence[float | None] | None
) -> tuple[np.ndarray, np.ndarray]:
    """Indices of points that lie at the same place, up to rounding."""
    span = np.ptp(x, axis=0)
    step = NEAR * np.where(span > 0, span, 1.0)
    place = np.round((x - x.min(0)) / step)
    for axis, length in enumerate(period or ()):
        if length is not None:
            place[:, axis] %= np.round(length / step[axis])
    order = np.lexsort(place.T)
    equal = np.all(place[order[1:]] == place[order[:-1]], axis=1)
    return order[:-1][equal], order[1:][equal]


def count_findings(fields: Fields) -> list[Finding]:
    """Whether there is anything to test on."""
    if len(fields) > 1:
        return []
    return [
        Finding(
            "error",
            "there is one sample: nothing is left to test on",
            "Import several samples, or use it for predictions only",
        )
    ]
