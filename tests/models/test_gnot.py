from __future__ import annotations

import numpy as np
import pytest
import torch
from by_hand import Layers, each_sample, gelu
from scipy.special import softmax
from small_models import GNOT_ONE, GNOT_THREE, build, close, count_parameters, inputs

from lno import Spec
from lno.models.gnot import GNOT, GNOTConfig, LinearAttention, normalised_attention

FORMS = pytest.mark.parametrize(
    "config", [GNOT_ONE, GNOT_THREE], ids=["one expert", "three experts"]
)


def by_hand(model: GNOT, x: np.ndarray, u: np.ndarray, x_query: np.ndarray) -> np.ndarray:
    """The model's equations for one sample, attention written out as a matrix between points."""
    config, layers = model.config, Layers(model)

    def attention(name: str, to: np.ndarray, of: np.ndarray) -> np.ndarray:
        query = layers.linear(f"{name}.query", to)
        key, value = np.split(layers.linear(f"{name}.key_value", of), 2, -1)
        size, heads = config.width // config.heads, []
        for j in range(config.heads):
            part = slice(j * size, (j + 1) * size)
            q, k = softmax(query[:, part], -1), softmax(key[:, part], -1)
            weights = q @ k.T
            weights /= weights.sum(-1, keepdims=True)
            heads.append(q + weights @ value[:, part])
        return layers.linear(f"{name}.output", np.concatenate(heads, -1))

    def experts(name: str, v: np.ndarray, gate: np.ndarray) -> np.ndarray:
        names = [f"{name}.experts.{j}" for j in range(config.experts)]
        each = [layers.linear(f"{e}.2", gelu(layers.linear(f"{e}.0", v))) for e in names]
        return sum(gate[:, j, None] * e for j, e in enumerate(each))

    f = layers.mlp("trunk", x_query, config.layers)
    g = layers.mlp("branch", np.concatenate((x, u), -1), config.layers)
    for k in range(config.blocks):
        b = f"blocks.{k}"
        gate = np.ones((len(x_query), 1))
        if config.experts > 1:
            gate = softmax(layers.mlp(f"{b}.gate", x_query, layers=1), -1)
        observed = layers.norm(f"{b}.norm_observed", g)
        f = f + attention(f"{b}.cross_attention", layers.norm(f"{b}.norm_cross", f), observed)
        f = f + layers.norm(f"{b}.norm_experts_cross", experts(f"{b}.experts_cross", f, gate))
        normed = layers.norm(f"{b}.norm_self", f)
        f = f + attention(f"{b}.self_attention", normed, normed)
        f = f + layers.norm(f"{b}.norm_experts_self", experts(f"{b}.experts_self", f, gate))
    return layers.mlp("head", f, config.layers)


@FORMS
@pytest.mark.parametrize("in_channels", [0, 1, 4])
@pytest.mark.parametrize(("n", "q"), [(60, 40), (1, 1)])
def test_the_model_is_its_equations(config: GNOTConfig, in_channels: int, n: int, q: int) -> None:
    model = build(config, torch.float64, in_channels)
    sample = inputs(n, q, in_channels, dtype=torch.float64)
    assert close(model(*sample), each_sample(by_hand, model, *sample), 1e-12)


def test_normalised_attention_is_its_quadratic_form() -> None:
    generator = torch.Generator().manual_seed(5)
    q, k, v = (
        3 * torch.randn(2, points, 4, 8, generator=generator, dtype=torch.float64)
        for points in (7, 20, 20)
    )
    q, k = q.softmax(-1), k.softmax(-1)
    mask = torch.rand(2, 20, generator=generator) < 0.5
    for real in (None, mask):
        weights = torch.einsum("bqhe,bnhe->bhqn", q, k)
        if real is not None:
            weights = weights * real[:, None, None]
        weights = weights / weights.sum(-1, keepdim=True)
        expected = torch.einsum("bhqn,bnhe->bqhe", weights, v)
        assert close(normalised_attention(q, k, v, real), expected, 1e-13)


def test_attention_of_equal_values_returns_them() -> None:
    """Weights add up to one, whatever queries and keys are."""
    torch.manual_seed(0)
    q, k = torch.rand(2, 7, 4, 8), torch.rand(2, 20, 4, 8)
    value = torch.randn(4, 8)
    got = normalised_attention(q, k, value.expand(2, 20, 4, 8))
    assert close(got, value.expand(2, 7, 4, 8), 1e-5)


def test_queries_and_keys_without_common_features_give_no_nan() -> None:
    torch.manual_seed(0)
    attention = LinearAttention(width=8, heads=2)
    with torch.no_grad():
        attention.query.bias[0] = attention.key_value.bias[1] = 1e4
        attention.query.bias[4] = attention.key_value.bias[5] = 1e4
    out = attention(torch.randn(1, 5, 8), torch.randn(1, 9, 8))
    out.square().sum().backward()
    assert torch.isfinite(out).all()
    assert all(torch.isfinite(p.grad).all() for p in attention.parameters())


@FORMS
def test_queries_influence_each_other(config: GNOTConfig) -> None:
    """As published: among other queries the same one has another prediction."""
    model, (x, u, q) = build(config), inputs()
    assert not close(model(x, u, q[:, :5]), model(x, u, q)[:, :5], 1e-3)
    # By their mean alone: each query twice changes nothing.
    twice = model(x, u, torch.cat((q, q), 1))
    assert close(twice[:, :40], model(x, u, q), 1e-5)


def test_equal_experts_are_one_expert() -> None:
    """Gates add up to one everywhere."""
    model, (x, u, q) = build(GNOT_THREE), inputs()
    single = GNOT(model.spec, GNOT_ONE)
    state = {k: v for k, v in model.state_dict().items() if ".gate." not in k}
    for name in list(state):
        parts = name.split(".experts.")
        if len(parts) == 2:
            state[name] = state[f"{parts[0]}.experts.0.{parts[1][2:]}"]
    model.load_state_dict(state, strict=False)
    single.load_state_dict({k: v for k, v in state.items() if k in single.state_dict()})
    assert close(model(x, u, q), single(x, u, q), 1e-5)


@pytest.mark.parametrize(
    ("spec", "config", "count"),
    [
        # blocks 4·(2·37,248 attention + 2·74,208 expert + 5·192 norms), MLPs 37,536 37,632 37,345
        (Spec(2, 1, 1), GNOTConfig(), 1_008_001),
        (Spec(3, 1, 1), GNOTConfig(), 1_008_193),
        (Spec(2, 0, 3), GNOTConfig(experts=2), 2_200_811),
    ],
)
def test_parameter_counts(spec: Spec, config: GNOTConfig, count: int) -> None:
    assert count_parameters(spec, config) == count


def test_sizes_have_limits() -> None:
    with pytest.raises(ValueError, match="layers must be a whole number from 1 to 64, got 65"):
        GNOTConfig(layers=65)
    with pytest.raises(ValueError, match=r"blocks times experts must be .* 2048, got 131072"):
        GNOTConfig(blocks=512, experts=256)
