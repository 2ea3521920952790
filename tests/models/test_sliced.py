"""LNO with Physics-Attention: its equations, and how it differs from LNO."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from by_hand import Layers, each_sample
from scipy.special import softmax
from small_models import (
    DEEPONET,
    LNO_TIED,
    LNO_UNTIED,
    PLUS,
    PLUS_WITHOUT_PLACES,
    SLICED,
    build,
    close,
    inputs,
    mask_of_lengths,
)

from lno.models import SlicedLNO
from lno.models.transolver import EPSILON


def by_hand(model: SlicedLNO, x: np.ndarray, u: np.ndarray) -> np.ndarray:
    """The equations for one sample."""
    config, layers = model.config, Layers(model)
    f = layers.mlp("branch", np.concatenate((x, u), -1), config.layers)
    weights = softmax(f @ layers.weights["slice.weight"].T, axis=-1)
    z = weights.T @ f / (weights.sum(0)[:, None] + EPSILON)
    for k in range(config.blocks):
        z = layers.transformer_block(f"blocks.{k}", z, config.heads)
    return layers.mlp("head", weights @ z, config.layers)


def test_the_model_is_its_equations() -> None:
    model, (x, u, _) = build(SLICED, torch.float64), inputs(dtype=torch.float64)
    assert close(model(x, u, x), each_sample(by_hand, model, x, u), 1e-12)


def test_it_predicts_at_the_observed_points_only() -> None:
    model, (x, u, q) = build(SLICED), inputs()
    with pytest.raises(ValueError, match="at the observed points only: expected x_query to be x"):
        model(x, u, q)


def test_its_slices_depend_on_values_and_those_of_lno_do_not() -> None:
    for config, coupled in ((SLICED, True), (LNO_TIED, False)):
        model, (x, u, _) = build(config), inputs()
        before, after = model.latent_weights(x, u, x), model.latent_weights(x, u + 1, x)
        for a, b in zip(before, after, strict=True):
            assert close(a, b, 1e-3) != coupled


WITH_LATENTS = {
    "tied": LNO_TIED,
    "untied": LNO_UNTIED,
    "sliced": SLICED,
    "plus": PLUS,
    "plus without places": PLUS_WITHOUT_PLACES,
}


@pytest.mark.parametrize("config", WITH_LATENTS.values(), ids=WITH_LATENTS)
@pytest.mark.parametrize("masked", [False, True])
def test_latent_weights_sum_to_one(config: object, masked: bool) -> None:
    """Over the observations that are real, and over the latent positions."""
    model, (x, u, q) = build(config, torch.float64), inputs(dtype=torch.float64)
    mask = mask_of_lengths(60, 23) if masked else None
    places = q if model.predicts_anywhere else x
    read, write = model.latent_weights(x, u, places, mask)
    assert read.shape == (2, 60, 16) and write.shape == (2, places.shape[1], 16)
    torch.testing.assert_close(read.sum(1), torch.ones(2, 16, dtype=torch.float64))
    if masked:
        assert not read[1, 23:].any()
    if model.predicts_anywhere or not masked:
        ones = torch.ones(write.shape[:2], dtype=torch.float64)
        torch.testing.assert_close(write.sum(2), ones)


@pytest.mark.parametrize("config", [LNO_TIED, LNO_UNTIED], ids=["tied", "untied"])
@pytest.mark.parametrize("shared", [False, True])
def test_latent_weights_are_those_of_the_prediction(config: object, shared: bool) -> None:
    model, (x, u, q) = build(config, torch.float64), inputs(dtype=torch.float64)
    x, q = (x[:1], q[:1]) if shared else (x, q)
    read, write = model.latent_weights(x, u, q, mask := mask_of_lengths(60, 23))
    values = model.branch(torch.cat((x.expand(2, -1, -1), u), -1))
    z = model.process(torch.einsum("bnm,bnc->bmc", read, values))
    predicted = model.head(torch.einsum("bqm,bmc->bqc", write, z))
    assert close(predicted, model(x, u, q, mask), 1e-12)


@pytest.mark.parametrize("shared", [False, True])
def test_latent_weights_of_rounds_are_those_of_the_first(
    shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, (x, u, q) = build(PLUS, torch.float64), inputs(dtype=torch.float64)
    x, q = (x[:1], q[:1]) if shared else (x, q)
    read, write = model.latent_weights(x, u, q, mask := mask_of_lengths(60, 23))
    attention, seen = model.rounds[0].attention, []
    encode, decode = attention.encode, attention.decode

    def encoded(scores: torch.Tensor, values: torch.Tensor, *which: torch.Tensor) -> torch.Tensor:
        seen.append(encode(scores, torch.eye(60, dtype=values.dtype).expand(2, -1, -1), *which))
        return encode(scores, values, *which)

    def decoded(scores: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        seen.append(decode(scores, torch.eye(16, dtype=z.dtype).expand(2, -1, -1)))
        return decode(scores, z)

    monkeypatch.setattr(attention, "encode", encoded)
    monkeypatch.setattr(attention, "decode", decoded)
    model(x, u, q, mask)
    assert close(read.mT, seen[0], 1e-12)
    assert close(write, next(found for found in seen if found.shape == write.shape), 1e-12)


def test_a_tied_decoder_has_the_scores_of_its_encoder() -> None:
    """Up to a factor for each latent position, encoder and decoder look at the same places."""
    (x, u, _), ratios = inputs(dtype=torch.float64), []
    for config in (LNO_TIED, LNO_UNTIED):
        read, write = build(config, torch.float64).latent_weights(x, u, x)
        ratio = (read.log() - write.log()).diff(dim=2)  # of two latent positions, point by point
        ratios.append(float((ratio - ratio[:, :1]).detach().abs().max()))
    assert ratios[0] < 1e-9 < 0.1 < ratios[1]


def test_models_without_latent_positions_say_so() -> None:
    model, (x, u, q) = build(replace(DEEPONET, blocks=1)), inputs()
    assert not model.has_latents
    with pytest.raises(ValueError, match="DeepONet has no latent positions"):
        model.latent_weights(x, u, q)
