"""What a conditional operator learns beside its weights: how to correct them by the sensors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from lno.data import Batch, Fields, columns
from lno.evaluation import batches, evaluate
from lno.kernel_methods.covariance import Covariance, FieldsAtPoints, Residuals
from lno.prediction import predict_batch

if TYPE_CHECKING:
    from lno.operator import Operator

FEWEST, MOST_FIELDS, VALUES = 32, 256, 2**22  # training fields, and values of all of them
FIELDS = 32  # at random, at most: half of them decide the covariance, the others judge it


def learn_covariance(
    operator: Operator, trained: Fields, held_out: Fields | None
) -> Covariance | None:
    """The covariance of residuals that corrects predictions best (`lno.kernel_methods.covariance`).

    None where kriging with the most likely covariance of every single field is better (of smooth
    fields, it depends on the number of sensors), and for fields of several quantities.

    Args:
        operator: a conditional operator.
        trained: the fields that it was trained on, prepared by its task.
        held_out: others. None: those of training take their place, without a sample covariance,
            which would know them already.
    """
    if trained.spec.out_channels != 1:
        return None
    prepared = trained if held_out is None else held_out
    order = np.random.default_rng(0).permutation(len(prepared))[:FIELDS]
    half = len(order) // 2
    to_fit, to_judge = (
        prepared.subset(np.sort(part)) for part in (order[half:], order[:half] if half else order)
    )
    known = [
        one for _, batch in batches(to_fit, operator.task, seed=1) for one in _each(operator, batch)
    ]
    axes = operator.normalizers.x.distance_axes
    fields = None if held_out is None else _fields_at_points(operator, trained)
    learned = Covariance.fit(known, axes, fields)

    def errors(covariance: Covariance | None) -> np.ndarray:
        corrected = replace(operator, covariance=covariance)
        found = evaluate(
            lambda batch: predict_batch(corrected, batch).mean(),
            to_judge,
            operator.task,
            seed=1,
            weighted=operator.weighted,
        )
        return np.log(np.maximum(found.samples["mse"], 1e-300))  # fields of any size count alike

    return learned if np.mean(errors(learned) - errors(None)) < 0 else None


def _fields_at_points(operator: Operator, trained: Fields) -> FieldsAtPoints | None:
    """What training fields add to their background; None where they are few or share no points."""
    if not columns.is_shared(trained.x_query):
        return None
    x = columns.sample(trained.x_query, 0)
    count = min(len(trained), MOST_FIELDS, VALUES // len(x))
    if count < FEWEST:
        return None
    chosen = np.random.default_rng(0).permutation(len(trained))[:count]
    values = np.stack([columns.sample(trained.y, k)[:, 0] for k in chosen])  # type: ignore[arg-type]
    if trained.background is not None:
        values = values - np.stack([columns.sample(trained.background, k)[:, 0] for k in chosen])
    values = (values - values.mean(0)).astype(np.float32)
    places = operator.normalizers.x.distance_features(torch.as_tensor(x)).double().numpy()
    return FieldsAtPoints(places, values) if np.ptp(values) > 0 else None


def _each(operator: Operator, batch: Batch) -> Iterator[Residuals]:
    """Residuals of the models in each field of a batch, at its sensors and at all other points."""
    assert batch.y is not None
    plain, features = replace(operator, conditional=False), operator.normalizers.x.distance_features
    at_sensors = replace(batch.at_observed(), query_mask=None)
    sides = []
    for asked, truth, mask in (
        (at_sensors, batch.u, batch.mask),
        (batch, batch.y, batch.query_mask),
    ):
        members = truth - predict_batch(plain, asked).members  # (k, b, n, o)
        places = features(asked.x_query).expand(len(batch), -1, -1)
        real = torch.ones(truth.shape[:2], dtype=torch.bool) if mask is None else mask
        sides.append((places, members.permute(1, 2, 0, 3).flatten(2), real))
    for k in range(len(batch)):
        (x, values), (others, wanted) = ((v[k][real[k]], r[k][real[k]]) for v, r, real in sides)
        free = torch.cdist(others, x).min(1).values > 0
        yield Residuals(x, values, others[free], wanted[free])
