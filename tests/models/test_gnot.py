from __future__ import annotations

import numpy as np
import pytest
import torch

from lno import Spec
from lno.models.gnot import GNOT, GNOTConfig, LinearAttention, normalised_attention

ONE = GNOTConfig(width=32, blocks=2, heads=4, layers=2, experts=1)
THREE = GNOTConfig(width=32, blocks=2, heads=4, layers=2, experts=3)
FORMS = pytest.mark.parametrize("config", [ONE, THREE], ids=["one expert", "three experts"])


def build(
    config: GNOTConfig = THREE,
    dtype: torch.dtype = torch.float32,
    in_channels: int = 1,
    seed: int = 0,
) -> GNOT:
    """A model whose weights are larger than the initial ones, so that attention is not a mean."""
    torch.manual_seed(seed)
    model = GNOT(Spec(coordinates=2, in_channels=in_channels, out_channels=3), config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.to(dtype).eval()


def inputs(
    b: int = 2, n: int = 60, q: int = 40, i: int = 1, dtype: torch.dtype = torch.float32
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    shapes = ((b, n, 2), (b, n, i), (b, q, 2))
    x, u, x_query = (torch.randn(s, generator=generator, dtype=dtype) for s in shapes)
    return x, u, x_query


def close(a: torch.Tensor, b: torch.Tensor, tolerance: float) -> bool:
    return float((a - b).detach().abs().max() / b.detach().abs().max()) <= tolerance


def by_hand(model: GNOT, x: np.ndarray, u: np.ndarray, x_query: np.ndarray) -> np.ndarray:
    """The model's equations for one sample, in NumPy float64, sharing no code with it.

    Attention is written out as a matrix between points.
    """
    from scipy.special import erf, softmax

    w = {k: v.detach().double().numpy() for k, v in model.state_dict().items()}
    config = model.config

    def linear(name: str, v: np.ndarray) -> np.ndarray:
        return v @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def gelu(v: np.ndarray) -> np.ndarray:
        return v * (1 + erf(v / np.sqrt(2))) / 2

    def norm(name: str, v: np.ndarray) -> np.ndarray:
        scaled = (v - v.mean(-1, keepdims=True)) / np.sqrt(v.var(-1, keepdims=True) + 1e-5)
        return scaled * w[f"{name}.weight"] + w[f"{name}.bias"]

    def mlp(name: str, v: np.ndarray, layers: int = config.layers) -> np.ndarray:
        r = gelu(linear(f"{name}.input", v))
        for k in range(layers):
            r = r + gelu(linear(f"{name}.hidden.{k}", r))
        return linear(f"{name}.output", r)

    def attention(name: str, to: np.ndarray, of: np.ndarray) -> np.ndarray:
        query = linear(f"{name}.query", to)
        key, value = np.split(linear(f"{name}.key_value", of), 2, -1)
        size, heads = config.width // config.heads, []
        for j in range(config.heads):
            part = slice(j * size, (j + 1) * size)
            q, k = softmax(query[:, part], -1), softmax(key[:, part], -1)
            weights = q @ k.T
            weights /= weights.sum(-1, keepdims=True)
            heads.append(q + weights @ value[:, part])
        return linear(f"{name}.output", np.concatenate(heads, -1))

    def experts(name: str, v: np.ndarray, gate: np.ndarray) -> np.ndarray:
        names = [f"{name}.experts.{j}" for j in range(config.experts)]
        each = [linear(f"{e}.2", gelu(linear(f"{e}.0", v))) for e in names]
        return sum(gate[:, j, None] * e for j, e in enumerate(each))

    f, g = mlp("trunk", x_query), mlp("branch", np.concatenate((x, u), -1))
    for k in range(config.blocks):
        b = f"blocks.{k}"
        gate = np.ones((len(x_query), 1))
        if config.experts > 1:
            gate = softmax(mlp(f"{b}.gate", x_query, layers=1), -1)
        read = attention(
            f"{b}.cross_attention", norm(f"{b}.norm_cross", f), norm(f"{b}.norm_observed", g)
        )
        f = f + read
        f = f + norm(f"{b}.norm_experts_cross", experts(f"{b}.experts_cross", f, gate))
        normed = norm(f"{b}.norm_self", f)
        f = f + attention(f"{b}.self_attention", normed, normed)
        f = f + norm(f"{b}.norm_experts_self", experts(f"{b}.experts_self", f, gate))
    return mlp("head", f)


@FORMS
@pytest.mark.parametrize("in_channels", [0, 1, 4])
def test_the_model_is_its_equations(config: GNOTConfig, in_channels: int) -> None:
    model = build(config, torch.float64, in_channels)
    x, u, q = inputs(i=in_channels, dtype=torch.float64)
    expected = np.stack([by_hand(model, *(v[k].numpy() for v in (x, u, q))) for k in range(2)])
    assert close(model(x, u, q), torch.from_numpy(expected), 1e-12)
    everything = torch.ones(2, 60, dtype=torch.bool)
    assert close(model(x, u, q, everything), torch.from_numpy(expected), 1e-12)


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
def test_output_does_not_depend_on_the_order_of_observations(config: GNOTConfig) -> None:
    model, (x, u, q) = build(config), inputs()
    order = torch.randperm(x.shape[1], generator=torch.Generator().manual_seed(2))
    mask = torch.arange(60) < torch.tensor([60, 23])[:, None]
    assert close(model(x[:, order], u[:, order], q), model(x, u, q), 1e-5)
    mixed = model(x[:, order], u[:, order], q, mask[:, order])
    assert close(mixed, model(x, u, q, mask), 1e-5)


def test_observations_matter() -> None:
    """Were they not read, the invariances here would hold as well."""
    model, (x, u, q) = build(), inputs()
    y = model(x, u, q)
    assert not close(model(x, u + 1, q), y, 1e-3)
    assert not close(model(x + 1, u, q), y, 1e-3)
    assert not close(model(x[:, :30], u[:, :30], q), y, 1e-3)


@FORMS
def test_output_is_equivariant_to_the_order_of_queries(config: GNOTConfig) -> None:
    model, (x, u, q) = build(config), inputs()
    order = torch.randperm(q.shape[1], generator=torch.Generator().manual_seed(2))
    assert close(model(x, u, q[:, order]), model(x, u, q)[:, order], 1e-5)


def test_queries_influence_each_other() -> None:
    """As published: among other queries the same one has another answer."""
    model, (x, u, q) = build(), inputs()
    assert not close(model(x, u, q[:, :5]), model(x, u, q)[:, :5], 1e-3)
    # By their mean alone: each query twice changes nothing.
    twice = model(x, u, torch.cat((q, q), 1))
    assert close(twice[:, :40], model(x, u, q), 1e-5)


@FORMS
@pytest.mark.parametrize("lengths", [[60, 1], [23, 60], [59, 2]])
def test_padded_and_masked_batches_equal_single_samples(
    config: GNOTConfig, lengths: list[int]
) -> None:
    model, (x, u, q) = build(config), inputs()
    mask = torch.arange(60) < torch.tensor(lengths)[:, None]
    junk = 1e3 * torch.randn(2, 60, 2, generator=torch.Generator().manual_seed(3))
    padded_x = torch.where(mask[..., None], x, junk)
    padded_u = torch.where(mask[..., None], u, junk[..., :1])
    together = model(padded_x, padded_u, q, mask)
    for k, n in enumerate(lengths):
        alone = model(x[k : k + 1, :n], u[k : k + 1, :n], q[k : k + 1])
        assert close(together[k : k + 1], alone, 1e-5)


def test_masked_observations_influence_neither_values_nor_gradients() -> None:
    model, (x, u, q) = build(), inputs()
    mask = torch.rand(2, 60, generator=torch.Generator().manual_seed(4)) < 0.5
    results = []
    for scale in (0.0, 1e3):
        changed_x = torch.where(mask[..., None], x, scale * x).requires_grad_()
        changed_u = torch.where(mask[..., None], u, scale * u).requires_grad_()
        model.zero_grad()
        out = model(changed_x, changed_u, q, mask)
        out.square().mean().backward()
        assert not bool(changed_x.grad[~mask].any()) and not bool(changed_u.grad[~mask].any())
        assert bool(changed_u.grad[mask].all())
        results.append((out.detach(), [p.grad.clone() for p in model.parameters()]))
    (a, ga), (b, gb) = results
    assert torch.equal(a, b)
    assert all(torch.allclose(p, r, rtol=1e-5, atol=1e-6) for p, r in zip(ga, gb, strict=True))


@FORMS
def test_one_observation_and_one_query_are_enough(config: GNOTConfig) -> None:
    model, (x, u, q) = build(config, torch.float64), inputs(n=1, q=1, dtype=torch.float64)
    expected = np.stack([by_hand(model, *(v[k].numpy() for v in (x, u, q))) for k in range(2)])
    assert close(model(x, u, q), torch.from_numpy(expected), 1e-12)


@FORMS
def test_shared_positions_equal_repeated_ones_in_value_and_gradient(config: GNOTConfig) -> None:
    model, (x, u, q) = build(config, torch.float64), inputs(dtype=torch.float64)
    mask = torch.arange(60) < torch.tensor([60, 23])[:, None]
    results = []
    for repeat in (1, 2):
        model.zero_grad()
        out = model(x[:1].repeat(repeat, 1, 1), u, q[:1].repeat(repeat, 1, 1), mask)
        out.square().mean().backward()
        results.append((out.detach(), [p.grad.clone() for p in model.parameters()]))
    (a, ga), (b, gb) = results
    assert close(a, b, 1e-12)
    assert all(torch.allclose(p, r, rtol=1e-9, atol=1e-10) for p, r in zip(ga, gb, strict=True))


def test_positions_alone_are_enough() -> None:
    model, (x, u, q) = build(in_channels=0), inputs(b=3, i=0)
    shared = model(x[:1], u, q[:1])
    assert shared.shape == (3, 40, 3)
    assert close(shared[2], model(x[:1], u[:1], q[:1])[0], 1e-5)


def test_equal_experts_are_one_expert() -> None:
    """Gates add up to one everywhere."""
    model, (x, u, q) = build(THREE), inputs()
    single = GNOT(model.spec, ONE)
    state = {k: v for k, v in model.state_dict().items() if ".gate." not in k}
    for name in list(state):
        parts = name.split(".experts.")
        if len(parts) == 2:
            state[name] = state[f"{parts[0]}.experts.0.{parts[1][2:]}"]
    model.load_state_dict(state, strict=False)
    single.load_state_dict({k: v for k, v in state.items() if k in single.state_dict()})
    assert close(model(x, u, q), single(x, u, q), 1e-5)


@FORMS
@pytest.mark.parametrize("masked", [False, True])
def test_one_graph_holds_the_whole_model(config: GNOTConfig, masked: bool) -> None:
    model, (x, u, q) = build(config), inputs()
    mask = torch.arange(60) < torch.tensor([60, 23])[:, None] if masked else None
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    assert close(compiled(x, u, q, mask), model(x, u, q, mask), 1e-5)


@FORMS
def test_weights_are_the_whole_state(config: GNOTConfig) -> None:
    """A model built without memory and given weights computes the same, as model files need it."""
    model, (x, u, q) = build(config), inputs()
    assert not list(model.buffers())
    with torch.device("meta"):
        empty = GNOT(model.spec, config)
    empty.load_state_dict(model.state_dict(), assign=True)
    assert torch.equal(empty(x, u, q), model(x, u, q))


@FORMS
def test_every_weight_is_trained(config: GNOTConfig) -> None:
    model, (x, u, q) = build(config), inputs()
    model(x, u, q).square().mean().backward()
    assert all(p.grad is not None and bool(p.grad.any()) for p in model.parameters())


@FORMS
def test_outputs_are_float32_inside_half_precision(config: GNOTConfig) -> None:
    model, (x, u, q) = build(config), inputs()
    mask = torch.arange(60) < torch.tensor([60, 23])[:, None]
    full = model(x, u, q, mask)
    with torch.autocast("cpu", torch.bfloat16):
        half = model(x, u, q, mask)
    assert half.dtype == torch.float32
    assert close(half, full, 0.05)


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
    with torch.device("meta"):
        model = GNOT(spec, config)
    assert sum(p.numel() for p in model.parameters()) == count


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"width": 0}, "width must be a whole number from 1"),
        ({"blocks": 2.5}, "blocks must be a whole number"),
        ({"heads": 5}, "heads must divide the width 96"),
        ({"layers": 65}, "layers must be a whole number from 1 to 64"),
        ({"experts": 0}, "experts must be a whole number from 1"),
    ],
)
def test_impossible_sizes_are_errors(keys: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GNOTConfig(**keys)


@pytest.mark.gpu
@FORMS
def test_gpu_equals_cpu(config: GNOTConfig) -> None:
    model, (x, u, q) = build(config), inputs(n=1638, q=3000)
    mask = torch.arange(1638) < torch.tensor([1638, 23])[:, None]
    expected = model(x, u, q, mask)
    model, x, u, q, mask = model.cuda(), x.cuda(), u.cuda(), q.cuda(), mask.cuda()
    assert close(model(x, u, q, mask).cpu(), expected, 1e-4)
