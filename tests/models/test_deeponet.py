from __future__ import annotations

import numpy as np
import pytest
import torch

from lno import Spec
from lno.models.deeponet import DeepONet, DeepONetConfig

SMALL = DeepONetConfig(width=32, blocks=2, heads=4, layers=4, basis=10)


def build(dtype: torch.dtype = torch.float32, in_channels: int = 1, seed: int = 0) -> DeepONet:
    torch.manual_seed(seed)
    model = DeepONet(Spec(coordinates=2, in_channels=in_channels, out_channels=3), SMALL)
    with torch.no_grad():
        model.bias.copy_(torch.randn(3))
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


def by_hand(model: DeepONet, x: np.ndarray, u: np.ndarray, x_query: np.ndarray) -> np.ndarray:
    """The model's equations for one sample, in NumPy float64, sharing no code with it."""
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

    z = linear("embed", np.concatenate((x, u), -1))
    size = config.width // config.heads
    for k in range(config.blocks):
        name = f"blocks.{k}"
        joined = linear(f"{name}.query_key_value", norm(f"{name}.norm_attention", z))
        query, key, value = np.split(joined, 3, -1)
        heads = []
        for j in range(config.heads):
            part = slice(j * size, (j + 1) * size)
            weights = softmax(query[:, part] @ key[:, part].T / np.sqrt(size), axis=-1)
            heads.append(weights @ value[:, part])
        z = z + linear(f"{name}.output", np.concatenate(heads, -1))
        z = z + linear(f"{name}.down", gelu(linear(f"{name}.up", norm(f"{name}.norm_mlp", z))))
    a = linear("coefficients", z.mean(0))
    r = gelu(linear("trunk.input", x_query))
    for k in range(config.layers - 2):
        r = r + gelu(linear(f"trunk.hidden.{k}", r))
    phi = linear("trunk.output", r)
    channels = [slice(j * config.basis, (j + 1) * config.basis) for j in range(3)]
    return np.stack([phi[:, part] @ a[part] for part in channels], -1) + w["bias"]


@pytest.mark.parametrize("in_channels", [0, 1, 4])
def test_the_model_is_its_equations(in_channels: int) -> None:
    model = build(torch.float64, in_channels)
    x, u, q = inputs(i=in_channels, dtype=torch.float64)
    expected = np.stack([by_hand(model, *(v[k].numpy() for v in (x, u, q))) for k in range(2)])
    assert close(model(x, u, q), torch.from_numpy(expected), 1e-12)
    everything = torch.ones(2, 60, dtype=torch.bool)
    assert close(model(x, u, q, everything), torch.from_numpy(expected), 1e-12)


def test_output_is_linear_in_the_basis_and_the_coefficients() -> None:
    model, (x, u, q) = build(torch.float64), inputs(dtype=torch.float64)
    y = model(x, u, q) - model.bias
    with torch.no_grad():
        model.trunk.output.weight.mul_(3)
        model.trunk.output.bias.mul_(3)
        model.coefficients.weight.mul_(-2)
        model.coefficients.bias.mul_(-2)
    assert close(model(x, u, q) - model.bias, -6 * y, 1e-12)


def test_output_does_not_depend_on_the_order_of_observations() -> None:
    model, (x, u, q) = build(), inputs()
    order = torch.randperm(x.shape[1], generator=torch.Generator().manual_seed(2))
    mask = torch.arange(60) < torch.tensor([60, 23])[:, None]
    assert close(model(x[:, order], u[:, order], q), model(x, u, q), 1e-5)
    mixed = model(x[:, order], u[:, order], q, mask[:, order])
    assert close(mixed, model(x, u, q, mask), 1e-5)


def test_observations_matter() -> None:
    """Were the branch constant, the invariances above would hold as well."""
    model, (x, u, q) = build(), inputs()
    y = model(x, u, q)
    assert not close(model(x, u + 1, q), y, 1e-3)
    assert not close(model(x + 1, u, q), y, 1e-3)
    assert not close(model(x[:, :30], u[:, :30], q), y, 1e-3)


def test_queries_do_not_influence_each_other() -> None:
    model, (x, u, q) = build(), inputs()
    assert close(model(x, u, q[:, 5:9]), model(x, u, q)[:, 5:9], 1e-5)


@pytest.mark.parametrize("lengths", [[60, 1], [23, 60], [59, 2]])
def test_padded_and_masked_batches_equal_single_samples(lengths: list[int]) -> None:
    model, (x, u, q) = build(), inputs()
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
        out.square().sum().backward()
        assert not bool(changed_x.grad[~mask].any()) and not bool(changed_u.grad[~mask].any())
        assert bool(changed_u.grad[mask].all())
        results.append((out.detach(), [p.grad.clone() for p in model.parameters()]))
    (a, ga), (b, gb) = results
    assert torch.equal(a, b)
    assert all(torch.allclose(p, r, rtol=1e-5, atol=1e-6) for p, r in zip(ga, gb, strict=True))


def test_repeated_observations_change_nothing() -> None:
    """Coefficients come from a mean: how many observations there are does not scale them."""
    model, (x, u, q) = build(), inputs()
    twice = model(torch.cat((x, x), 1), torch.cat((u, u), 1), q)
    assert close(twice, model(x, u, q), 1e-5)


def test_one_observation_is_enough() -> None:
    model, (x, u, q) = build(torch.float64), inputs(n=1, dtype=torch.float64)
    expected = np.stack([by_hand(model, *(v[k].numpy() for v in (x, u, q))) for k in range(2)])
    assert close(model(x, u, q), torch.from_numpy(expected), 1e-12)


def test_shared_positions_equal_repeated_ones_in_value_and_gradient() -> None:
    model, (x, u, q) = build(torch.float64), inputs(dtype=torch.float64)
    mask = torch.arange(60) < torch.tensor([60, 23])[:, None]
    results = []
    for repeat in (1, 2):
        model.zero_grad()
        out = model(x[:1].repeat(repeat, 1, 1), u, q[:1].repeat(repeat, 1, 1), mask)
        out.square().sum().backward()
        results.append((out.detach(), [p.grad.clone() for p in model.parameters()]))
    (a, ga), (b, gb) = results
    assert close(a, b, 1e-12)
    assert all(torch.allclose(p, r, rtol=1e-9, atol=1e-10) for p, r in zip(ga, gb, strict=True))


def test_positions_alone_are_enough() -> None:
    model, (x, u, q) = build(in_channels=0), inputs(b=3, i=0)
    shared = model(x[:1], u, q[:1])
    assert shared.shape == (3, 40, 3)
    assert close(shared[2], model(x[:1], u[:1], q[:1])[0], 1e-5)


@pytest.mark.parametrize("masked", [False, True])
def test_one_graph_holds_the_whole_model(masked: bool) -> None:
    model, (x, u, q) = build(), inputs()
    mask = torch.arange(60) < torch.tensor([60, 23])[:, None] if masked else None
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    assert close(compiled(x, u, q, mask), model(x, u, q, mask), 1e-5)


def test_weights_are_the_whole_state() -> None:
    """A model built without memory and given weights computes the same, as model files need it."""
    model, (x, u, q) = build(), inputs()
    assert not list(model.buffers())
    with torch.device("meta"):
        empty = DeepONet(model.spec, SMALL)
    empty.load_state_dict(model.state_dict(), assign=True)
    assert torch.equal(empty(x, u, q), model(x, u, q))


def test_coefficients_basis_and_outputs_are_float32_inside_half_precision() -> None:
    model, (x, u, q) = build(), inputs()
    mask = torch.arange(60) < torch.tensor([60, 23])[:, None]
    full = model(x, u, q, mask)
    with torch.autocast("cpu", torch.bfloat16):
        parts = model.branch(x, u, mask), model.basis(q), model(x, u, q, mask)
    assert all(part.dtype == torch.float32 for part in parts)
    assert close(parts[2], full, 0.05)


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
    with torch.device("meta"):
        model = DeepONet(spec)
    assert sum(p.numel() for p in model.parameters()) == count


def test_the_trunk_has_as_many_fully_connected_layers_as_asked_for() -> None:
    for layers in (2, 3, 7):
        trunk = DeepONet(Spec(2, 1, 1), DeepONetConfig(layers=layers)).trunk
        assert sum(isinstance(m, torch.nn.Linear) for m in trunk.modules()) == layers


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"width": 0}, "width must be a whole number from 1"),
        ({"blocks": 2.5}, "blocks must be a whole number"),
        ({"heads": 5}, "heads must divide the width 128"),
        ({"layers": 1}, "layers must be a whole number from 2"),
        ({"basis": True}, "basis must be a whole number"),
    ],
)
def test_impossible_sizes_are_errors(keys: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DeepONetConfig(**keys)


@pytest.mark.gpu
@pytest.mark.parametrize("masked", [False, True])
def test_gpu_equals_cpu(masked: bool) -> None:
    model, (x, u, q) = build(), inputs(n=1638, q=3000)
    mask = torch.arange(1638) < torch.tensor([1638, 23])[:, None] if masked else None
    expected = model(x, u, q, mask)
    model, x, u, q = model.cuda(), x.cuda(), u.cuda(), q.cuda()
    got = model(x, u, q, None if mask is None else mask.cuda())
    assert close(got.cpu(), expected, 1e-4)
