from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from by_hand import Layers, each_sample
from scipy.special import softmax
from small_models import (
    LNO_TIED,
    LNO_UNTIED,
    build,
    close,
    count_parameters,
    initial,
    inputs,
)

from lno import Spec
from lno.experiments.presets import PAPER_CONFIGS
from lno.models import LNO, LNOConfig, SelfAttention, TransformerBlock
from lno.models.streamed import SoftmaxSums, slices

REFERENCE = Path(__file__).parents[1] / "fixtures" / "lno_forward_reference.npz"


def by_hand(model: LNO, x: np.ndarray, u: np.ndarray, x_query: np.ndarray) -> np.ndarray:
    """The equations of the paper for one sample."""
    config, layers = model.config, Layers(model)

    def mlp(name: str, v: np.ndarray) -> np.ndarray:
        return layers.mlp(name, v, config.layers)

    decoder = "encoder" if config.tied else "untied_decoder"
    scores = mlp("encoder.projector", mlp("trunk", x))
    z = softmax(scores, axis=0).T @ mlp("branch", np.concatenate((x, u), -1))
    for k in range(config.blocks):
        z = layers.transformer_block(f"blocks.{k}", z, config.heads)
    scores = mlp(f"{decoder}.projector", mlp("trunk", x_query))
    return mlp("head", softmax(scores, axis=-1) @ z)


@pytest.mark.parametrize("config", [LNO_TIED, LNO_UNTIED], ids=["tied", "untied"])
def test_the_model_is_the_papers_equations(config: LNOConfig) -> None:
    model, sample = build(config, torch.float64), inputs(dtype=torch.float64)
    assert close(model(*sample), each_sample(by_hand, model, *sample), 1e-12)


def test_reference_weights_give_the_reference_output() -> None:
    file = np.load(REFERENCE)
    weights = {k[7:]: file[k] for k in file.files if k.startswith("weight/")}
    model = LNO.from_reference(weights, heads=int(file["heads"]))
    x, u = torch.from_numpy(file["x"]), torch.from_numpy(file["y"])[..., 2:]
    assert close(model(x, u, x), torch.from_numpy(file["out"]), 1e-5)


@pytest.mark.parametrize("tied", [True, False])
def test_from_reference_reads_every_size_off_the_weights(tied: bool) -> None:
    config = LNOConfig(24, 10, blocks=3, heads=3, layers=1, tied=tied, sharpness=1.0)
    model = build(config)
    translated = LNO.from_reference(reference_names(model), heads=3)
    assert translated.config == config
    assert translated.spec == Spec(2, 1, 3)
    assert torch.equal(translated(*inputs()), model(*inputs()))


def reference_names(model: LNO) -> dict[str, np.ndarray]:
    """The model's weights as the paper's code names them."""
    weights = {}
    for name, value in model.state_dict().items():
        array = value.numpy()
        if "query_key_value" in name:
            kind = name.rsplit(".", 1)[1]
            for letter, part in zip("qkv", np.split(array, 3), strict=True):
                block = name.split(".")[1]
                weights[f"attn_blocks.{block}.self_attn.W{letter}.{kind}"] = part
            continue
        encoder = "attention_projector" if model.config.tied else "attention_encoder"
        for ours, theirs in (
            ("encoder.projector", encoder),
            ("untied_decoder.projector", "attention_decoder"),
            ("norm_attention", "ln1"),
            ("norm_mlp", "ln2"),
            (".up.", ".mlp.0."),
            (".down.", ".mlp.2."),
            ("head", "out_mlp"),
            ("trunk", "trunk_projector"),
            ("branch", "branch_projector"),
        ):
            name = name.replace(ours, theirs, 1)
        if name.startswith("blocks"):
            name = name.replace("blocks", "attn_blocks", 1)
            name = name.replace(".attention.output.", ".self_attn.proj.", 1)
        weights[name] = array
    return weights


def test_from_reference_refuses_what_does_not_fit() -> None:
    weights = reference_names(build(LNO_TIED))
    with pytest.raises(ValueError, match="lack 'trunk"):
        LNO.from_reference({k: v for k, v in weights.items() if "trunk" not in k}, heads=4)
    with pytest.raises(ValueError, match="'extra' is not a weight"):
        LNO.from_reference({**weights, "extra": np.zeros(3)}, heads=4)
    with pytest.raises(ValueError, match="heads must divide the width"):
        LNO.from_reference(weights, heads=5)
    broken = {**weights, "out_mlp.input.weight": np.zeros((3, 3), np.float32)}
    with pytest.raises(ValueError, match=r"(?s)do not fit one LNO.*head\.input\.weight"):
        LNO.from_reference(broken, heads=4)


@pytest.mark.parametrize(
    ("problem", "spec", "millions"),
    [
        ("darcy", Spec(2, 1, 1), 0.76),
        ("ns2d", Spec(2, 10, 1), 5.08),
        ("airfoil", Spec(2, 2, 1), 1.36),
        ("elasticity", Spec(2, 0, 1), 1.42),
        ("plasticity", Spec(3, 1, 4), 1.36),
        ("pipe", Spec(2, 2, 1), 1.36),
    ],
)
def test_presets_have_the_papers_parameter_counts(
    problem: str, spec: Spec, millions: float
) -> None:
    assert round(count_parameters(spec, PAPER_CONFIGS[problem]) / 1e6, 2) == millions


@pytest.mark.parametrize("chunk", [1, 7, 1000])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_chunks_equal_one_pass(chunk: int, dtype: torch.dtype, tolerance: float) -> None:
    model, (x, u, q) = build(LNO_TIED, dtype), inputs(n=120, q=90, dtype=dtype)
    mask = torch.rand(2, 120, generator=torch.Generator().manual_seed(4)) < 0.5
    mask[1, :30] = False  # whole chunks of padding
    weights = torch.rand(2, 120, generator=torch.Generator().manual_seed(5), dtype=dtype)
    weights[0, 60:90] = 0.0  # and of points of size zero
    parts = [(x[:, s], u[:, s], mask[:, s], weights[:, s]) for s in slices(120, chunk)]
    z = model.encode_parts(lambda: parts)
    y = torch.cat([model.decode(z, q[:, s]) for s in slices(90, chunk)], dim=1)
    assert close(y, model(x, u, q, mask, weights), tolerance)


def test_nothing_to_encode_is_an_error() -> None:
    with pytest.raises(ValueError, match="expected at least one observed point"):
        build(LNO_TIED).encode_parts(list)


def test_merging_is_associative_and_matches_all_points() -> None:
    generator = torch.Generator().manual_seed(6)
    scores = torch.randn(1, 30, 4, generator=generator, dtype=torch.float64) * 20
    values = torch.randn(1, 30, 3, generator=generator, dtype=torch.float64)
    attention = build(LNO_TIED, torch.float64).encoder
    a, b, c = (
        attention.sums(scores[:, s], values[:, s]) for s in (slice(9), slice(9, 10), slice(10, 30))
    )
    whole = attention.encode(scores, values)
    for merged in (a.merge(b).merge(c), a.merge(b.merge(c)), c.merge(a).merge(b)):
        assert isinstance(merged, SoftmaxSums)
        assert close(merged.mean(), whole, 1e-14)


@pytest.mark.parametrize("scale", [1e4, -1e4, 1e30])
def test_extreme_scores_give_no_nan(scale: float) -> None:
    attention = build(LNO_TIED).encoder
    scores = scale * torch.tensor([[[1.0, -1.0], [-1.0, 1.0], [0.5, 0.5]]])
    values = torch.tensor([[[1.0], [2.0], [3.0]]])
    mask = torch.tensor([[True, True, False]])
    encoded = attention.encode(scores, values, mask)
    streamed = attention.sums(scores, values, mask).mean()
    for z in (encoded, streamed, attention.decode(scores, encoded)):
        assert torch.isfinite(z).all()
    # The largest score takes all: latent 0 reads point 0 and latent 1 point 1, or the reverse.
    expected = [1.0, 2.0] if scale > 0 else [2.0, 1.0]
    assert encoded.flatten().tolist() == expected == streamed.flatten().tolist()


def test_scores_are_float32_inside_half_precision_and_float64_in_double() -> None:
    features = torch.randn(1, 3, 32, generator=torch.Generator().manual_seed(7))
    with torch.autocast("cpu", torch.bfloat16):
        assert build(LNO_TIED).encoder.scores(features).dtype == torch.float32
    double = build(LNO_TIED, torch.float64).encoder.scores(features.double())
    assert double.dtype == torch.float64


class PlainBlock(TransformerBlock):
    """A transformer block as in textbooks: biased keys of the tokens as they are."""

    def forward(self, z: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        part = self.attention
        joined = part.query_key_value(self.norm_attention(z))
        q, k, v = joined.unflatten(-1, (3, part.heads, -1)).permute(2, 0, 3, 1, 4)
        scores = torch.einsum("bhme,bhke->bhmk", q, k) / q.shape[-1] ** 0.5
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None, None], -torch.inf)
        heads = torch.einsum("bhmk,bhke->bmhe", torch.softmax(scores, -1), v).flatten(2)
        z = z + part.output(heads)
        return z + self.down(torch.nn.functional.gelu(self.up(self.norm_mlp(z))))


def masked_tokens(masked: bool) -> torch.Tensor | None:
    return torch.arange(9).expand(2, 9) < torch.tensor([[9], [5]]) if masked else None


@pytest.mark.parametrize("masked", [False, True])
def test_centred_keys_are_plain_attention_in_value_and_gradient(masked: bool) -> None:
    torch.manual_seed(0)
    ours = TransformerBlock(32, SelfAttention(32, heads=4)).double()
    plain = PlainBlock(32, SelfAttention(32, heads=4)).double()
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    plain.load_state_dict(ours.state_dict())
    mask, results = masked_tokens(masked), []
    for block in (ours, plain):
        z = torch.randn(2, 9, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        y = block(z.requires_grad_(), mask)
        weight = torch.randn(y.shape, dtype=y.dtype, generator=torch.Generator().manual_seed(2))
        slopes = torch.autograd.grad((weight * y).sum(), [z, *block.parameters()])
        results.append([y.detach(), *slopes])
    for got, expected in zip(*results, strict=True):
        assert (got - expected).abs().max() <= 1e-12 * max(1.0, float(expected.abs().max()))


@pytest.mark.parametrize("masked", [False, True])
def test_what_all_keys_have_in_common_is_neither_read_nor_trained(masked: bool) -> None:
    torch.manual_seed(0)
    block, z = TransformerBlock(32, SelfAttention(32, heads=4)), torch.rand(2, 9, 32)
    joined, mask = block.attention.query_key_value, masked_tokens(masked)
    plain = block(z, mask)
    of_keys = slice(32, 64)
    with torch.no_grad():
        joined.bias[of_keys] = 1e6
    assert torch.equal(block(z, mask), plain)
    with torch.autocast("cpu", torch.bfloat16):
        block(z, mask).float().square().sum().backward()
    slopes = joined.bias.grad
    assert not slopes[of_keys].any() and slopes[:32].all()
    with torch.no_grad():  # the first feature is the same in all tokens, and dominates their keys
        block.norm_attention.weight[0], block.norm_attention.bias[0] = 0.0, 1.0
        joined.weight[of_keys, 0] += 300
        joined.weight[:64, 1:] *= 5
        exact = block.double()(z.double(), mask)
        with torch.autocast("cpu", torch.bfloat16):
            assert (block.float()(z, mask) - exact).abs().max() < 0.1


def test_any_attention_can_be_part_of_a_block() -> None:
    class MeanOfAll(torch.nn.Module):
        def forward(self, z: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
            return z.mean(1, keepdim=True).expand_as(z)

    torch.manual_seed(0)
    block, z = TransformerBlock(16, MeanOfAll()), torch.rand(2, 5, 16)
    read = z + block.norm_attention(z).mean(1, keepdim=True)
    inner = torch.nn.functional.gelu(block.up(block.norm_mlp(read)))
    assert torch.equal(block(z), read + block.down(inner))


@pytest.mark.parametrize("shared", [False, True])
def test_weights_count_points(shared: bool) -> None:
    """A point of weight 3 is three points, one of weight 0 none; a common factor cancels."""
    model, (x, u, q) = build(LNO_TIED, torch.float64), inputs(dtype=torch.float64)
    times = torch.tensor([3] * 10 + [1] * 40 + [0] * 10)
    repeated = (torch.repeat_interleave(v, times, dim=1) for v in (x, u))
    weights = 0.01 * times.double().expand(1 if shared else 2, 60)
    assert close(model(x, u, q, weights=weights), model(*repeated, q), 1e-12)


def test_points_of_size_zero_have_no_gradient_and_give_no_nan() -> None:
    model, (x, u, q) = build(LNO_TIED), inputs()
    weights = torch.rand(2, 60, generator=torch.Generator().manual_seed(3))
    weights[0, ::2] = weights[1, 5:] = 0.0
    u.requires_grad_()
    model(x, u, q, weights=weights).square().sum().backward()
    assert torch.isfinite(u.grad).all()
    assert torch.equal(u.grad[..., 0] != 0, weights > 0)
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


def test_initialisation_is_torchs_default() -> None:
    model = initial(LNO_TIED)
    bound = 1 / np.sqrt(32)
    weights = model.trunk.hidden[0].weight.detach()
    assert float(weights.abs().max()) <= bound
    assert float(weights.std()) == pytest.approx(bound / np.sqrt(3), rel=0.1)


@pytest.mark.parametrize("tied", [True, False])
def test_sharpness_scales_the_initial_scores_and_nothing_else(tied: bool) -> None:
    plain, sharp = (
        initial(LNOConfig(32, 16, 2, 4, 2, tied, sharpness)).state_dict()
        for sharpness in (1.0, 7.0)
    )
    for name, weight in plain.items():
        factor = 7.0 if name.endswith("projector.output.weight") else 1.0
        assert torch.equal(sharp[name], factor * weight), name


def test_all_latent_positions_start_alike_without_sharpness() -> None:
    """The saddle point: with the paper's initial scores all tokens are nearly the same."""
    spreads = []
    for sharpness in (1.0, 10.0):
        model, (x, u, _) = initial(LNOConfig(sharpness=sharpness)), inputs(n=500)
        scores = model.encoder.scores(model.trunk(x))
        z = model.encoder.encode(scores, model.branch(torch.cat((x, u), dim=-1)))
        spreads.append(float((z.std(dim=1).norm() / z.mean(dim=1).norm()).detach()))
    assert spreads[0] < 0.05 < 4 * spreads[0] < spreads[1]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"sharpness": 0}, "sharpness must be a number from 0.001"),
        ({"tied": "yes"}, "tied must be True or False"),
        ({"blocks": 10**9}, "blocks must be a whole number from 1 to 512"),
    ],
)
def test_impossible_settings_are_errors(keys: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LNOConfig(**keys)
