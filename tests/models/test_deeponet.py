from __future__ import annotations

import numpy as np
import pytest
import torch
from by_hand import Layers, each_sample
from small_models import DEEPONET, build, close, count_parameters, inputs, mask_of_lengths

from lno import Spec
from lno.models.deeponet import DeepONet, DeepONetConfig


def by_hand(model: DeepONet, x: np.ndarray, u: np.ndarray, x_query: np.ndarray) -> np.ndarray:
    """The model's equations for one sample."""
    config, layers = model.config, Layers(model)
    z = layers.linear("embed", np.concatenate((x, u), -1))
    for k in range(config.blocks):
        z = layers.transformer_block(f"blocks.{k}", z, config.heads)
    a = layers.linear("coefficients", z.mean(0))
    phi = layers.mlp("trunk", x_query, config.layers - 2)
    channels = [slice(j * config.basis, (j + 1) * config.basis) for j in range(3)]
    return np.stack([phi[:, c] @ a[c] for c in channels], -1) + layers.weights["bias"]


@pytest.mark.parametrize("in_channels", [0, 1, 4])
@pytest.mark.parametrize("n", [60, 1])
def test_the_model_is_its_equations(n: int, in_channels: int) -> None:
    model = build(DEEPONET, torch.float64, in_channels)
    sample = inputs(n, i=in_channels, dtype=torch.float64)
    assert close(model(*sample), each_sample(by_hand, model, *sample), 1e-12)


def test_output_is_linear_in_the_basis_and_the_coefficients() -> None:
    model, (x, u, q) = build(DEEPONET, torch.float64), inputs(dtype=torch.float64)
    y = model(x, u, q) - model.bias
    with torch.no_grad():
        model.trunk.output.weight.mul_(3)
        model.trunk.output.bias.mul_(3)
        model.coefficients.weight.mul_(-2)
        model.coefficients.bias.mul_(-2)
    assert close(model(x, u, q) - model.bias, -6 * y, 1e-12)


def test_coefficients_and_basis_are_float32_inside_half_precision() -> None:
    model, (x, u, q) = build(DEEPONET), inputs()
    with torch.autocast("cpu", torch.bfloat16):
        parts = model.branch(x, u), model.branch(x, u, mask_of_lengths(60, 23)), model.basis(q)
    assert all(part.dtype == torch.float32 for part in parts)


@pytest.mark.parametrize(
    ("spec", "count"),
    [
        # embed 4·128, blocks 4·132,480, coefficients 129·128, trunk 3·128 + 2·129·128, bias 1
        (Spec(2, 1, 1), 580_353),
        (Spec(3, 1, 1), 580_609),
        (Spec(2, 0, 3), 646_275),
    ],
)
def test_parameter_counts(spec: Spec, count: int) -> None:
    assert count_parameters(spec, DeepONetConfig()) == count


def test_the_trunk_has_as_many_fully_connected_layers_as_asked_for() -> None:
    for layers in (2, 3, 7):
        trunk = DeepONet(Spec(2, 1, 1), DeepONetConfig(layers=layers)).trunk
        assert sum(isinstance(m, torch.nn.Linear) for m in trunk.modules()) == layers
