"""The stem is its equations. That models use it as published is proved by their fixtures."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from by_hand import Layers
from small_models import FACTFORMER, GALERKIN, GRID, REGULAR, build, close, inputs

from lno import Spec
from lno.models import Galerkin, ModelConfig
from lno.models.stem import Stem


@pytest.mark.parametrize("width", [8, 9])
@pytest.mark.parametrize("reference", [None, 3])
@pytest.mark.parametrize("time_input", [False, True])
@pytest.mark.parametrize("placeholder", [False, True])
def test_the_stem_is_its_equations(
    width: int, reference: int | None, time_input: bool, placeholder: bool
) -> None:
    torch.manual_seed(0)
    stem = Stem(Spec(2, 2, 1, GRID), width, reference, time_input, placeholder).double()
    layers, (x, u, _) = Layers(stem), inputs(i=2, dtype=torch.float64)
    for k in range(2):
        position, values = x[k].numpy(), u[k].numpy()
        if reference is not None:
            near, far = (
                np.array([(p, q) for p in np.linspace(0, 1, n) for q in np.linspace(0, 1, m)])
                for n, m in (GRID, (reference, reference))
            )
            position = np.linalg.norm(near[:, None] - far, axis=-1)
        read = values[:, :1] if time_input else values
        f = layers.mlp("mlp", np.concatenate((position, read), -1), layers=0)
        if placeholder:
            f = f + layers.weights["placeholder"]
        if time_input:
            half = width // 2
            s = values[0, -1] * 10000.0 ** (-np.arange(half) / half)
            features = np.concatenate((np.cos(s), np.sin(s), np.zeros(width % 2)))
            hidden = layers.linear("time.0", features)
            f = f + layers.linear("time.2", hidden / (1 + np.exp(-hidden)))
        assert close(stem(x, u)[k], torch.from_numpy(f), 1e-12)


@pytest.mark.parametrize("config", [GALERKIN, FACTFORMER, REGULAR])
def test_models_with_a_stem_embed_time(config: ModelConfig) -> None:
    timed = Galerkin.with_time(config)
    assert timed == replace(config, time_input=True)
    model, (x, u, _) = build(timed, in_channels=2), inputs(i=2)
    later = u.clone()
    later[:, 1:, -1] += 1  # the time is read at the first point
    assert torch.equal(model(x, later, x), model(x, u, x))
    later[:, 0, -1] += 1
    assert not close(model(x, later, x), model(x, u, x), 1e-4)
    assert model.stem.time is not None


def test_what_a_stem_needs() -> None:
    with pytest.raises(
        ValueError, match=r"reference points need data on a 2-D grid, got grid None"
    ):
        Stem(Spec(2, 1, 1), 8, reference=3)
    with pytest.raises(ValueError, match=r"time_input: expected the time .* got no input channels"):
        Stem(Spec(2, 0, 1), 8, time_input=True)
