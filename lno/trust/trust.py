"""How far an operator's predictions can be trusted, learned from samples of training and others.

`Trust` holds what the samples of training are like (`reference`), bounds, and the thresholds above
which a sample is out of distribution. The last two come from held-out samples, in `calibrate`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float

from lno.config import from_dict, require_range, require_type, to_dict
from lno.data import Batch, Fields
from lno.evaluation import batches
from lno.prediction import Prediction, as_trained, predict_batch
from lno.scores import Score, prediction_limit, threshold
from lno.trust.bounds import Bounds, samples_to_fit
from lno.trust.reference import Reference, describe, descriptors, pooled_tokens
from lno.trust.widths import Errors, Widths, terms

if TYPE_CHECKING:
    from lno.operator import Operator

FALSE_ALARMS = 0.01  # the share of samples like the held-out ones that are flagged, at most
LATENT = "latent"  # the score of the tokens; those of descriptors are named by `descriptors`
NOT_CALIBRATED = (
    "bounds: this operator is not calibrated. Pass at least 9 samples with outputs that it was not "
    "trained on to operator.calibrated(held_out), and use or save what that returns. "
    "'lno train' does so by itself with 9 validation samples: 'lno data import --split "
    "TRAIN,VALIDATION,TEST'"
)
# Departures from ranges of training that never count: standard deviations; of points, doublings.
SLACK = {"inputs": 0.05, "parameters": 0.05, "positions": 0.05, "points": 0.25}
POINTS, VALUES = 2048, 2**21  # of a held-out sample, at random, and of all of them, that count
UNFAMILIAR = (
    "the latent tokens are {:.1f} times as far from those of training as the threshold, which "
    "samples of the trained kind rarely exceed"
)


@dataclass(frozen=True)
class Trust:
    """What is known about the predictions of an operator.

    Args:
        reference: what the samples of training are like; None: not known.
        thresholds: of the scores, by name; none before calibration.
        bounds: None before calibration.
    """

    reference: Reference | None = None
    thresholds: dict[str, float] = field(default_factory=dict)
    bounds: Bounds | None = None

    def __post_init__(self) -> None:
        for name, value in self.thresholds.items():
            require_range(f"Trust.thresholds[{name!r}]", value, 0.0, 1e300)
        if self.thresholds and self.reference is None:
            raise ValueError("Trust.thresholds: expected a reference that the scores refer to")

    def require_fit(self, operator: Operator) -> None:
        """Raise unless the parts belong to an operator of this kind."""
        if self.reference is not None:
            self.reference.require_fit(operator)
            known = [*(one.score for one in descriptors(operator)), LATENT]
            for name in self.thresholds:
                if name not in known or (name == LATENT and not self.reference.mean):
                    raise ValueError(f"Trust.thresholds: the operator has no score {name!r}")
        if self.bounds is not None:
            self.bounds.widths.require_fit(operator)

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        reference, bounds = self.reference, self.bounds
        return {
            "reference": None if reference is None else to_dict(reference),
            "thresholds": self.thresholds,
            "bounds": None
            if bounds is None
            else {**to_dict(bounds), "widths": to_dict(bounds.widths)},
        }

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> Trust:
        """What `to_json` gave; unknown, missing and impossible values are errors."""
        found = dict(values)
        for key in ("reference", "thresholds", "bounds"):
            if key not in found:
                raise ValueError(f"Trust needs the key {key!r}, which is missing")
        if found.get("reference") is not None:
            found["reference"] = from_dict(Reference, found["reference"])
        if found.get("bounds") is not None:
            require_type("Trust.bounds", found["bounds"], dict[str, Any])
            widths = from_dict(Widths, found["bounds"].get("widths"))
            found["bounds"] = from_dict(Bounds, {**found["bounds"], "widths": widths})
        return from_dict(Trust, found)


def distance(operator: Operator, batch: Batch) -> Float[np.ndarray, " b"] | None:
    """How far each sample's latent tokens are from those of training; None where it is not known.

    >>> from lno import Fields, Operator
    >>> x, a = np.linspace(0, 1, 9)[:, None], np.linspace(1, 2, 40)[:, None, None]
    >>> data = Fields(x, a * x, y=a * x**2)
    >>> op = Operator.fit(data, epochs=1, config={"width": 8, "latents": 4}, progress=False)
    >>> far = Fields(x, 100 * data.u)
    >>> bool(distance(op, far.batch([7])) > 5 * distance(op, data.batch([7])))
    True
    """
    reference = operator.trust.reference
    if reference is None or not reference.mean:
        return None
    tokens = pooled_tokens(operator, batch)
    return None if tokens is None else reference.distance(tokens)


def scores(
    operator: Operator, batch: Batch, distances: Float[np.ndarray, " b"] | None
) -> list[tuple[Score, ...]]:
    """The out-of-distribution scores of each sample; none of an operator without thresholds.

    Args:
        operator: the operator.
        batch: what is observed, in physical units.
        distances: of the latent tokens.
    """
    trust = operator.trust
    if not trust.thresholds or trust.reference is None:
        return [()] * len(batch)
    known, described = descriptors(operator), describe(operator, batch)
    excess, found = trust.reference.excess(operator, described), []
    for k in range(len(batch)):
        judged = []
        for name, limit in trust.thresholds.items():
            if name == LATENT:
                value = math.nan if distances is None else float(distances[k])
                reason = UNFAMILIAR.format(value / max(limit, 1e-30))
            else:
                mine = [j for j, one in enumerate(known) if one.score == name]
                worst = mine[int(np.argmax(excess[k, mine]))]
                value, one = float(excess[k, worst]), known[worst]
                ends = (trust.reference.low[worst], trust.reference.high[worst])
                low, high = (one.shown(v) for v in ends)
                reason = f"{one.text} is {one.shown(described[k, worst])}"
                reason += f", in training {low if low == high else f'{low} to {high}'}"
            judged.append(Score(value, limit, reason, name))
        found.append(tuple(judged))
    return found


def statistics(
    operator: Operator, batch: Batch, distances: Float[np.ndarray, " b"] | None
) -> dict[str, Float[np.ndarray, " b"]]:
    """The value of every score of each sample, by name."""
    reference = operator.trust.reference
    if reference is None:
        return {}
    excess, names = reference.excess(operator, describe(operator, batch)), descriptors(operator)
    found = {
        name: excess[:, [one.score == name for one in names]].max(1)
        for name in dict.fromkeys(one.score for one in names)
    }
    return found if distances is None else {**found, LATENT: distances}


def half_widths(
    operator: Operator,
    batch: Batch,
    found: Prediction,
    distances: Float[np.ndarray, " b"] | None,
) -> torch.Tensor:
    """How far the bounds are from a prediction (b, q, o)."""
    bounds, known = operator.trust.bounds, terms(batch, found, distances)
    assert bounds is not None
    places = batch.x_query.double().cpu().numpy()
    rows = [
        bounds.half_widths(operator, places[0 if len(places) == 1 else k], known[:, k])
        for k in range(len(batch))
    ]
    return torch.from_numpy(np.stack(rows)).to(found.members)


def calibrate(operator: Operator, held_out: Fields, level: float) -> Trust:
    """Bounds and thresholds from held-out samples.

    A third of many held-out samples fits the widths of the bounds. It also takes the place of a
    reference where the operator has none, being of an earlier version.
    """
    count = samples_to_fit(len(held_out), level)  # before the work
    order = np.random.default_rng(0).permutation(len(held_out))
    first, rest = order[:count], order[count:]
    judges = order
    if operator.trust.reference is None and count:
        prepared = operator.task.prepare(held_out.subset(np.sort(first)))
        operator = replace(operator, trust=Trust(Reference.of(operator, prepared)))
        judges = rest
    values, errors = measure(operator, held_out)
    rate, limits = FALSE_ALARMS / max(1, len(values)), {}
    for name, all_values in values.items():
        each = all_values[judges]
        if name == LATENT:
            # Samples that are all alike have distances near zero; those of training are about one.
            limits[name] = max(prediction_limit(each, rate), 1.0)
        else:
            limits[name] = max(threshold(each, rate), SLACK[name])
    to_fit, others = ([errors[k] for k in chosen] for chosen in (first, rest))
    bounds = Bounds.calibrate(operator, to_fit, others, level)
    return Trust(operator.trust.reference, limits, bounds)


def measure(
    operator: Operator, samples: Fields
) -> tuple[dict[str, Float[np.ndarray, " s"]], list[Errors]]:
    """The scores' values and the errors of samples with outputs, as the task observes them."""
    if samples.y is None:
        raise ValueError("held_out: the data have no outputs y to compare with")
    operator.labels.require("y", samples.spec.out_channels)
    operator.labels.compare(samples, "x", "y")
    prepared = operator.task.prepare(samples)
    values: list[dict[str, np.ndarray]] = []
    errors: list[Errors] = []
    random = np.random.default_rng(0)
    most = max(64, min(POINTS, VALUES // (len(prepared) * prepared.spec.out_channels)))
    for _, batch in batches(prepared, operator.task):
        assert batch.y is not None
        operator.labels.require_batch(batch)
        far = distance(operator, batch)
        found = predict_batch(operator, batch, deviation=True)
        values.append(statistics(operator, batch, far))
        known, wrong = terms(batch, found, far), (batch.y - found.mean()).abs().double().numpy()
        if not np.isfinite(wrong).all():
            raise RuntimeError("held_out: a prediction is not finite, so that it has no bounds")
        places = batch.x_query.double().numpy()
        for k in range(len(batch)):
            real = torch.ones(wrong.shape[1]) if batch.query_mask is None else batch.query_mask[k]
            some = random.permutation(np.flatnonzero(real.numpy()))[:most]
            x = places[0 if len(places) == 1 else k, some]
            errors.append(Errors(x, wrong[k, some], known[:, k, some]))
    return {name: np.concatenate([v[name] for v in values]) for name in values[0]}, errors


@dataclass(frozen=True)
class Checked:
    """What bounds and scores of a calibrated operator say of samples with outputs.

    Args:
        samples: how many there are.
        contained: the share of points inside the bounds, of each channel, on average over samples.
        scores: of each sample, in units of their thresholds, by name.
    """

    samples: int
    contained: Float[np.ndarray, " o"]
    scores: dict[str, Float[np.ndarray, " s"]]

    @property
    def worst(self) -> Float[np.ndarray, " s"]:
        """The largest score of each sample, in units of its threshold; above 1 it is flagged."""
        return np.max([np.zeros(self.samples), *self.scores.values()], axis=0)

    @property
    def flagged(self) -> Bool[np.ndarray, " s"]:
        """Which samples are out of distribution; a score that is not a number flags, too."""
        return ~(self.worst <= 1)


def check(operator: Operator, samples: Fields) -> Checked:
    """Compare the bounds of a calibrated operator with samples that it has not seen.

    Args:
        operator: the operator.
        samples: with outputs, neither trained nor calibrated on.
    """
    return compared(operator, *measure(operator, as_trained(operator, samples)))


def compared(
    operator: Operator, values: Mapping[str, np.ndarray], errors: Sequence[Errors]
) -> Checked:
    """What `measure` gave, compared with the bounds and thresholds of a calibrated operator."""
    bounds, limits = operator.trust.bounds, operator.trust.thresholds
    if bounds is None:
        raise ValueError(NOT_CALIBRATED)
    scores = {name: v / max(limits[name], 1e-30) for name, v in values.items() if name in limits}
    contained = np.mean([bounds.contained(operator, one) for one in errors], axis=0)
    return Checked(len(errors), contained, scores)
