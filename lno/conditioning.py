"""What a conditional operator learns beside its weights: how to correct them by the sensors."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from lno.data import Fields
from lno.data.covariance import Covariance, Residuals
from lno.evaluation import batches
from lno.prediction import predict_batch

if TYPE_CHECKING:
    from lno.operator import Operator

FIELDS = 32  # at random, that decide it


def learn_covariance(operator: Operator, prepared: Fields) -> Covariance:
    """The covariance of residuals that corrects predictions best; see `lno.data.covariance`.

    Args:
        operator: a conditional operator.
        prepared: whole fields, prepared by its task; best those that it was not trained on.
    """
    order = np.random.default_rng(0).permutation(len(prepared))[:FIELDS]
    scale, found = operator.normalizers.x, []
    plain = replace(operator, conditional=False)
    for _, batch in batches(prepared.subset(np.sort(order)), operator.task, seed=1):
        assert batch.y is not None
        at_sensors = batch.at_observed()
        residuals = []
        for asked, truth in ((replace(at_sensors, query_mask=None), batch.u), (batch, batch.y)):
            members = truth - predict_batch(plain, asked).members  # (k, b, n, o)
            residuals.append(members.permute(1, 2, 0, 3).flatten(2))
        places = [
            scale.distance_features(x).expand(len(batch), -1, -1) for x in (batch.x, batch.x_query)
        ]
        for k in range(len(batch)):
            here, there = (
                torch.ones(v.shape[1], dtype=torch.bool) if mask is None else mask[k]
                for v, mask in zip(residuals, (batch.mask, batch.query_mask), strict=True)
            )
            x, others = places[0][k][here], places[1][k][there]
            free = torch.cdist(others, x).min(1).values > 0
            values = residuals[0][k][here], residuals[1][k][there]
            found.append(Residuals(x, values[0], others[free], values[1][free]))
    return Covariance.fit(found, scale.distance_axes)
