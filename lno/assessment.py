"""Where an operator errs on held-out samples, and whether something simple would do as well.

`assess` predicts the samples once, through the one evaluation loop, and keeps what is needed to
break the errors down: by channel, parameter, distance from the nearest observation, spacing of the
points, frame, bounds and out-of-distribution scores. Errors of samples are relative L2 errors.
Errors at points are absolute ones in standard deviations of the channel, the mean over channels;
distances are those of standardised coordinates.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from scipy.spatial import cKDTree
from scipy.special import bdtrc
from torch import Tensor

from lno import evaluation
from lno.calibration import factor
from lno.data import Batch, Fields
from lno.data.spec import Sample
from lno.evaluation import Errors
from lno.metrics import METRICS
from lno.operator import Operator
from lno.prediction import as_trained
from lno.simple_methods import SimpleMethods, nearest_distance, predict_simply
from lno.tasks import Rollout
from lno.trust.trust import Checked, compared, measure

POINTS = 2048  # of a sample, at random, that errors at points are taken at
CLEAR = 2.0  # standard errors between methods that differ
SIGN_TEST = 0.025  # the p-value of a one-sided sign test, up to which they differ, too
UNIFORM = 1.25  # spacings that differ by less, from the 5 % to the 95 % quantile, are equal
BINS, FEWEST = 10, 5  # bins of a curve, at most, and samples or points in each
LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)  # of the calibration curve
OPERATOR = "operator"


class Curve(NamedTuple):
    """Values in bins: median and quartiles, at the median of what they are binned by."""

    at: Float[np.ndarray, " k"]
    median: Float[np.ndarray, " k"]
    low: Float[np.ndarray, " k"]
    high: Float[np.ndarray, " k"]


@dataclass(frozen=True)
class Rival:
    """The errors of a method, of each sample and metric; NaN where it was not computed."""

    name: str
    errors: dict[str, Float[np.ndarray, " s"]]
    note: str = ""


@dataclass(frozen=True)
class Trusted(Checked):
    """Bounds and scores on test samples.

    Args:
        samples, contained, scores: see `Checked`.
        level: of the operator's bounds.
        levels: other levels, for whose factors half of the samples were used.
        shares: of points of the other half inside bounds of these levels, of each channel.
    """

    level: float
    levels: tuple[float, ...]
    shares: Float[np.ndarray, "l o"]


@dataclass(frozen=True)
class Assessment:
    """Errors of an operator on held-out samples, and what they depend on.

    Args:
        fields: the samples, prepared by the task.
        samples: what was observed of each, and the outputs.
        predictions: the operator's, at the query points of each sample.
        errors: of each sample and, for a rollout, of each frame.
        channels: the relative L2 error of each sample, by output channel (of a frame).
        distances: error at points by the distance from the nearest observation; None where
            predictions are wanted at the observed points.
        spacings: error at points by the mean distance of the nearest neighbours; None where points
            are equally dense.
        rivals: the operator, then simple baselines.
        left_out: simple baselines that the data do not allow, with the reason.
        seen: how many of the samples are training samples as well.
        trusted: None for an operator without bounds.
    """

    fields: Fields
    samples: list[Sample]
    predictions: list[np.ndarray]
    errors: Errors
    channels: dict[str, Float[np.ndarray, " s"]]
    distances: Curve | None
    spacings: Curve | None
    rivals: list[Rival]
    left_out: dict[str, str]
    seen: int
    trusted: Trusted | None

    @property
    def relative(self) -> Float[np.ndarray, " s"]:
        """The relative L2 error of each sample."""
        return np.array(self.errors.samples["relative_l2"])

    def by_parameter(self) -> dict[str, tuple[np.ndarray, Curve | None]]:
        """For each parameter, its value in every sample, and the binned error where it varies."""
        if self.fields.parameters is None:
            return {}
        values = self.fields.parameters
        return {
            name: (values[:, k], binned(values[:, k], self.relative))
            for k, name in enumerate(self.fields.names["parameters"])
        }

    def verdict(self) -> str:
        """One sentence: whether a simple baseline is as good."""
        count = len(self.samples)
        on = "on one held-out sample" if count == 1 else f"on {count} held-out samples"
        own, *others = self.rivals
        mine = f"{_percent(own.errors['relative_l2'].mean())}"
        if not others:
            return f"The operator has a mean relative L2 error of {mine} {on}."
        found = []
        for other in others:
            known = ~np.isnan(other.errors["relative_l2"])
            pair = (rival.errors["relative_l2"][known] for rival in (other, own))
            found.append((*pair, other.name))
        theirs, ours, name = min(found, key=lambda m: m[0].mean() / max(m[1].mean(), 1e-300))
        more = theirs - ours
        both = f"has a mean relative L2 error of {_percent(theirs.mean())}, the operator "
        both += f"{_percent(ours.mean())}, {on}"
        if len(more) > 1 and not _clear(more):
            word = "may be better" if theirs.mean() < 0.9 * ours.mean() else "is about as good"
            return f"A simple baseline {word}: {name} {both}, too few to tell them apart."
        if more.mean() <= 0:
            return f"A simple baseline is better: {name} {both}."
        return f"The operator beats the simple baselines: the best of them, {name}, {both}."


def _clear(more: Float[np.ndarray, " s"]) -> bool:
    """Whether the differences of two methods are clearly positive or negative.

    By their mean in standard errors, or by a sign test: one sample with a large error increases the
    standard error, but a method that is better on 8 of 8 samples is better. Ties do not count.

    >>> _clear(np.array([0.1] * 7 + [9.0])), _clear(np.array([0.0, 0.0]))
    (True, False)
    """
    signs = np.sign(more[more != 0])
    if len(signs) == 0:
        return False
    by_mean = abs(more.mean()) >= CLEAR * more.std(ddof=1) / np.sqrt(len(more))
    agree = int((signs == np.sign(more.mean())).sum())
    by_chance = bdtrc(agree - 1, len(signs), 0.5)  # of so many equal signs or more
    return bool(by_mean or by_chance <= SIGN_TEST)


def assess(operator: Operator, test: Fields, train: Fields | None = None) -> Assessment:
    """Predict held-out samples and break the errors down.

    Args:
        operator: the operator.
        test: samples with outputs, that it was not trained on.
        train: those that it was trained on, for the simple baselines; None: none are made.
    """
    task, recorded = operator.task, []
    if test.y is None:
        raise ValueError("the data have no outputs y to compare with")
    operator.labels.compare(test, "x", "y")
    test = as_trained(operator, test)

    def predict(batch: Batch) -> Tensor:
        operator.labels.require_batch(batch)
        prediction = operator.predict_batch(batch).mean()
        if not torch.isfinite(prediction).all():
            raise RuntimeError(
                "a prediction is not finite, so that it has no error: the samples are far from the "
                "training data, or the weights are damaged"
            )
        recorded.append((batch, prediction))
        return prediction

    fields = task.prepare(test)
    errors = evaluation.evaluate(predict, fields, task, weighted=operator.weighted)
    pairs = [pair for batch, found in recorded for pair in _unpadded(batch, found)]
    samples, predictions = [one for one, _ in pairs], [found for _, found in pairs]
    if fields.cells is not None:
        samples = [one._replace(cells=fields[k].cells) for k, one in enumerate(samples)]
    own = {name: np.array(values) for name, values in errors.samples.items()}
    rivals, simple, seen = [Rival(OPERATOR, own)], SimpleMethods([], {}), 0
    if train is not None:
        prepared = task.prepare(as_trained(operator, train))
        simple = predict_simply(prepared, samples, operator.normalizers.x, task)
        known = {_content(one.y) for one in prepared}
        seen = sum(_content(one.y) in known for one in samples)
    for method in simple.methods:
        found = _errors(method.predictions, samples, operator.weighted)
        rivals.append(Rival(method.name, found, method.note))
    return Assessment(
        fields,
        samples,
        predictions,
        errors,
        _by_channel(operator, samples, predictions),
        *_at_points(operator, samples, predictions),
        rivals,
        simple.left_out,
        seen,
        None if operator.trust.bounds is None else _trusted(operator, test),
    )


def binned(x: Float[np.ndarray, " n"], values: Float[np.ndarray, " n"]) -> Curve | None:
    """Median and quartiles of values in bins of about equal numbers.

    None where x is constant, or there are too few values.

    >>> curve = binned(np.arange(20.0), np.arange(20.0) ** 2)
    >>> curve.at.tolist(), curve.median.tolist()
    ([2.0, 7.0, 12.0, 17.0], [4.0, 49.0, 144.0, 289.0])
    """
    count = min(BINS, len(x) // FEWEST)
    if count < 2 or np.ptp(x) == 0:
        return None
    rounded = np.round(x / np.ptp(x), 6)  # equal distances on a grid differ by rounding
    edges = np.unique(rounded)  # few values are bins of their own
    if len(edges) > BINS:
        edges = np.unique(np.quantile(rounded, np.linspace(0, 1, count + 1)))[:-1]
    number = np.searchsorted(edges, rounded, "right")
    groups = [number == k for k in np.unique(number)]
    at = np.array([np.median(x[group]) for group in groups])
    quartiles = [np.quantile(values[group], (0.5, 0.25, 0.75)) for group in groups]
    return Curve(at, *np.array(quartiles).T)


# -- inside ----------------------------------------------------------------------------------------


def _content(values: np.ndarray | None) -> bytes:
    """Equal for equal values, in single or in double precision."""
    return hashlib.sha256(np.ascontiguousarray(values, np.float32).tobytes()).digest()


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _unpadded(batch: Batch, found: Tensor) -> list[tuple[Sample, np.ndarray]]:
    """Each sample of a batch without padding, and what is predicted for it."""
    pairs = []
    assert batch.y is not None
    for k in range(len(batch)):

        def real(values: Tensor | None, mask: Tensor | None, k: int = k) -> np.ndarray | None:
            if values is None:
                return None
            one = values[k % len(values)]
            return (one if mask is None else one[mask[k]]).numpy()

        seen, asked = batch.mask, batch.query_mask
        given = (real(batch.x, seen), real(batch.u, seen), real(batch.x_query, asked))
        numbers = None if batch.parameters is None else batch.parameters[k].numpy()
        weights = (real(batch.weights, seen), real(batch.query_weights, asked))
        known = (real(batch.y, asked), numbers, *weights, real(batch.background, asked))
        prediction = real(found, asked)
        assert prediction is not None
        pairs.append((Sample(*given, *known), prediction))  # type: ignore[arg-type]
    return pairs


def _errors(
    predictions: Sequence[np.ndarray | None], samples: Sequence[Sample], weighted: bool
) -> dict[str, Float[np.ndarray, " s"]]:
    """The errors of predictions, as the evaluation loop measures them."""
    found = {name: np.full(len(samples), np.nan) for name in METRICS}
    for k, (prediction, one) in enumerate(zip(predictions, samples, strict=True)):
        if prediction is None or one.y is None:
            continue
        pair = [torch.from_numpy(np.asarray(v, np.float64))[None] for v in (prediction, one.y)]
        sizes = one.query_weights if weighted else None
        weights = None if sizes is None else torch.from_numpy(sizes)[None]
        for name, metric in METRICS.items():
            found[name][k] = float(metric(*pair, None, weights)[0])
    return found


def _by_channel(
    operator: Operator, samples: Sequence[Sample], predictions: Sequence[np.ndarray]
) -> dict[str, Float[np.ndarray, " s"]]:
    """Relative L2 errors by output channel; of a rollout by channel of all frames."""
    names, found = operator.labels.names["y"], {}
    step = operator.task.channels if isinstance(operator.task, Rollout) else len(names)
    for c in range(step):
        some = [one._replace(y=one.y[:, c::step]) for one in samples if one.y is not None]
        parts = [prediction[:, c::step] for prediction in predictions]
        name = names[c] if step == len(names) else f"channel {c} of a frame"
        found[name] = _errors(parts, some, operator.weighted)["relative_l2"]
    return found


def _at_points(
    operator: Operator, samples: Sequence[Sample], predictions: Sequence[np.ndarray]
) -> tuple[Curve | None, Curve | None]:
    """Errors at points by the distance from the nearest observation, and by their spacing."""
    std, place = np.array(operator.normalizers.y.std), operator.normalizers.x.distance_features
    random, elsewhere = np.random.default_rng(0), False
    errors, distances, spacings = [], [], []
    for one, prediction in zip(samples, predictions, strict=True):
        assert one.y is not None
        at, seen = (place(torch.from_numpy(x)).double().numpy() for x in (one.x_query, one.x))
        some = random.permutation(len(at))[:POINTS]
        scale = np.resize(std, prediction.shape[1])
        errors.append((np.abs(prediction - one.y)[some] / scale).mean(1))
        elsewhere |= at.shape != seen.shape or not np.array_equal(at, seen)
        distances.append(nearest_distance(seen, at[some]) if elsewhere else np.zeros(len(some)))
        near = min(at.shape[1], len(at) - 1)  # more neighbours would see the ends of a regular grid
        apart = np.asarray(cKDTree(at).query(at[some], k=np.arange(1, near + 2))[0])
        spacings.append(apart[:, 1:].mean(1) if near else np.zeros(len(some)))
    wrong, far, apart = (np.concatenate(parts) for parts in (errors, distances, spacings))
    low, high = np.quantile(apart, (0.05, 0.95))
    uneven = high > UNIFORM * low
    return binned(far, wrong) if elsewhere else None, binned(apart, wrong) if uneven else None


def _trusted(operator: Operator, test: Fields) -> Trusted:
    """Bounds and scores on test samples, which are predicted again with widths."""
    bounds = operator.trust.bounds
    assert bounds is not None
    values, errors = measure(operator, test)
    checked = compared(operator, values, errors)
    ratios = [one.errors / bounds.widths.at(operator, one.x, one.terms) for one in errors]
    order = np.random.default_rng(0).permutation(len(ratios))
    half = len(ratios) // 2
    to_fit, others = ([ratios[k] for k in part] for part in (order[:half], order[half:]))
    highest = 1 - 1 / (half + 1)  # that so many samples can guarantee
    levels = tuple(level for level in LEVELS if level < highest + 1e-9)
    channels, shares = len(checked.contained), []
    for level in levels:
        factors = [factor([one[:, c] for one in to_fit], level) for c in range(channels)]
        shares.append(np.mean([(one <= factors).mean(0) for one in others], axis=0))
    table = np.reshape(shares, (len(levels), channels))
    return Trusted(**vars(checked), level=bounds.level, levels=levels, shares=table)
