"""Small data, models and recipes that the tests of training share."""

from __future__ import annotations

import numpy as np
import tiny
import torch

from lno import Fields, Operator, Recipe

lines = tiny.lines
SMALL = {"width": 32, "latents": 8, "blocks": 1, "heads": 2, "layers": 1}
EVERYTHING = Recipe(
    epochs=4,
    batch=3,
    optimizer="muon",
    learning_rate=2e-3,
    clip=1.0,
    ema=0.9,
    queries=10,
    decay_all=False,
)


def weights(operator: Operator) -> torch.Tensor:
    return torch.cat([p.detach().cpu().flatten() for p in operator.model.parameters()])


def all_columns(ragged: bool = False) -> Fields:
    """Samples with everything that data may bring: parameters, weights, a background."""
    random = np.random.default_rng(0)
    sizes = random.integers(6, 12, 16) if ragged else np.full(16, 9)
    x = [random.uniform(size=(n, 2)) for n in sizes]
    parameters = random.normal(size=(16, 2))
    u = [np.sin(3 * p[:, :1]) for p in x]
    y = [v * k[0] + k[1] + 5 for v, k in zip(u, parameters, strict=True)]
    background = [5 + 0.1 * p[:, 1:] for p in x]
    area = [random.uniform(0.5, 2, n) for n in sizes]
    columns = (x, u, y, background, area)
    x, u, y, background, area = columns if ragged else map(np.stack, columns)
    return Fields(x, u, y=y, parameters=parameters, weights=area, background=background)


def fit(data: Fields, **keys: object) -> Operator:
    settings = {"config": SMALL, "progress": False, "device": "cpu", **keys}
    return Operator.fit(data, **settings)  # type: ignore[arg-type]
