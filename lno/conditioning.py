"""What a conditional operator learns beside its weights: how to correct them by the sensors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from lno.data import Batch, Fields
from lno.data.covariance import Covariance, Residuals
from lno.evaluation import batches, evaluate
from lno.prediction import predict_batch

if TYPE_CHECKING:
    from lno.operator import Operator

FIELDS = 32  # at random, at most: half of them decide the covariance, the others judge it


def learn_covariance(operator: Operator, prepared: Fields) -> Covariance | None:
    """The covariance of residuals that corrects predictions best; see `lno.data.covariance`.

    None where the most likely covariance of every single field is better: of smooth fields, it
    depends on the number of sensors.

    Args:
        operator: a conditional operator.
        prepared: whole fields, prepared by its task; best those that it was not trained on.
    """
    order = np.random.default_rng(0).permutation(len(prepared))[:FIELDS]
    half = len(order) // 2
    to_fit, to_judge = (
        prepared.subset(np.sort(part)) for part in (order[half:], order[:half] if half else order)
    )
    known = [
        one for _, batch in batches(to_fit, operator.task, seed=1) for one in _each(operator, batch)
    ]
    learned = Covariance.fit(known, operator.normalizers.x.distance_axes)

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
