from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from lno import Spec
from lno.experiments.presets import PAPER_CONFIGS
from lno.models import LNO, LNOConfig
from lno.models.streamed import Pooled

SMALL = LNOConfig(width=32, latents=16, blocks=2, heads=4, layers=2)
REFERENCE = Path(__file__).parents[3] / "shared" / "fixtures" / "lno_forward_reference.npz"


def build(config: LNOConfig = SMALL, dtype: torch.dtype = torch.float32, seed: int = 0) -> LNO:
    torch.manual_seed(seed)
    return LNO(Spec(coordinates=2, in_channels=1, out_channels=3), config).to(dtype).eval()


def inputs(
    b: int = 2, n: int = 60, q: int = 40, dtype: torch.dtype = torch.float32
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    shapes = ((b, n, 2), (b, n, 1), (b, q, 2))
    x, u, x_query = (torch.randn(s, generator=generator, dtype=dtype) for s in shapes)
    return x, u, x_query


def close(a: torch.Tensor, b: torch.Tensor, tolerance: float) -> bool:
    return float((a - b).detach().abs().max() / b.detach().abs().max()) <= tolerance


def by_hand(model: LNO, x: np.ndarray, u: np.ndarray, x_query: np.ndarray) -> np.ndarray:
    """The equations of the paper, one sample, in NumPy float64, sharing no code with the model."""
    from scipy.special import erf, softmax

    w = {k: v.detach().double().numpy() for k, v in model.state_dict().items()}

    def linear(name: str, v: np.ndarray) -> np.ndarray:
        return v @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def gelu(v: np.ndarray) -> np.ndarray:
        return v * (1 + erf(v / np.sqrt(2))) / 2

    def mlp(name: str, v: np.ndarray) -> np.ndarray:
        r = gelu(linear(f"{name}.input", v))
        for k in range(model.config.layers):
            r = r + gelu(linear(f"{name}.hidden.{k}", r))
        return linear(f"{name}.output", r)

    def norm(name: str, v: np.ndarray) -> np.ndarray:
        scaled = (v - v.mean(-1, keepdims=True)) / np.sqrt(v.var(-1, keepdims=True) + 1e-5)
        return scaled * w[f"{name}.weight"] + w[f"{name}.bias"]

    decoder = "encoder" if model.config.tied else "untied_decoder"
    scores = mlp("encoder.projector", mlp("trunk", x))
    z = softmax(scores, axis=0).T @ mlp("branch", np.concatenate((x, u), -1))
    c, h = model.config.width, model.config.heads
    for k in range(model.config.blocks):
        name = f"blocks.{k}"
        q, key, v = np.split(
            linear(f"{name}.query_key_value", norm(f"{name}.norm_attention", z)), 3, -1
        )
        heads = []
        for j in range(h):
            part = slice(j * c // h, (j + 1) * c // h)
            weights = softmax(q[:, part] @ key[:, part].T / np.sqrt(c // h), axis=-1)
            heads.append(weights @ v[:, part])
        z = z + linear(f"{name}.output", np.concatenate(heads, -1))
        z = z + linear(f"{name}.down", gelu(linear(f"{name}.up", norm(f"{name}.norm_mlp", z))))
    scores = mlp(f"{decoder}.projector", mlp("trunk", x_query))
    return mlp("head", softmax(scores, axis=-1) @ z)


@pytest.mark.parametrize("tied", [True, False])
def test_the_model_is_the_papers_equations(tied: bool) -> None:
    model = build(
        LNOConfig(width=32, latents=16, blocks=2, heads=4, layers=2, tied=tied), torch.float64
    )
    x, u, q = inputs(dtype=torch.float64)
    expected = np.stack([by_hand(model, *(v[k].numpy() for v in (x, u, q))) for k in range(2)])
    assert close(model(x, u, q), torch.from_numpy(expected), 1e-12)


@pytest.mark.skipif(not REFERENCE.exists(), reason="reference weights are not on this machine")
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
    assert translated.spec == model.spec
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
            name = name.replace(".output.", ".self_attn.proj.", 1)
        weights[name] = array
    return weights


def test_from_reference_refuses_what_does_not_fit() -> None:
    weights = reference_names(build())
    with pytest.raises(ValueError, match="lack 'trunk"):
        LNO.from_reference({k: v for k, v in weights.items() if "trunk" not in k}, heads=4)
    with pytest.raises(ValueError, match="'surprise' is not a weight"):
        LNO.from_reference({**weights, "surprise": np.zeros(3)}, heads=4)
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
    model = LNO(spec, PAPER_CONFIGS[problem])
    assert round(sum(p.numel() for p in model.parameters()) / 1e6, 2) == millions


def test_the_inverse_preset_has_the_papers_sizes() -> None:
    expected = LNOConfig(width=96, latents=256, blocks=4, heads=8, layers=3, sharpness=1.0)
    assert PAPER_CONFIGS["burgers"] == expected


def test_output_does_not_depend_on_the_order_of_observations() -> None:
    model, (x, u, q) = build(), inputs()
    order = torch.randperm(x.shape[1], generator=torch.Generator().manual_seed(2))
    assert close(model(x[:, order], u[:, order], q), model(x, u, q), 1e-5)


def test_queries_do_not_influence_each_other() -> None:
    model, (x, u, q) = build(), inputs()
    assert close(model(x, u, q[:, 5:9]), model(x, u, q)[:, 5:9], 1e-5)


def test_padded_and_masked_batches_equal_single_samples() -> None:
    model, (x, u, q) = build(), inputs()
    lengths = [60, 1]
    mask = torch.arange(60) < torch.tensor(lengths)[:, None]
    junk = 1e3 * torch.randn(2, 60, 2, generator=torch.Generator().manual_seed(3))
    padded_x = torch.where(mask[..., None], x, junk)
    padded_u = torch.where(mask[..., None], u, junk[..., :1])
    together = model(padded_x, padded_u, q, mask)
    for k, n in enumerate(lengths):
        alone = model(x[k : k + 1, :n], u[k : k + 1, :n], q[k : k + 1])
        assert close(together[k : k + 1], alone, 1e-5)


@pytest.mark.parametrize("chunk", [1, 7, 1000, None])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_chunks_equal_one_pass(chunk: int | None, dtype: torch.dtype, tolerance: float) -> None:
    model, (x, u, q) = build(dtype=dtype), inputs(n=120, q=90, dtype=dtype)
    mask = torch.rand(2, 120, generator=torch.Generator().manual_seed(4)) < 0.5
    mask[1, :30] = False  # whole chunks of padding
    weights = torch.randn(2, 120, generator=torch.Generator().manual_seed(5), dtype=dtype)
    whole = model.encode(x, u, mask, weights)
    parts = model.encode(x, u, mask, weights, chunk=chunk or 120)
    assert close(parts, whole, tolerance)
    z = model.process(whole)
    assert close(model.decode(z, q, chunk=chunk or 90), model.decode(z, q), tolerance)
    assert close(model.decode(z, q), model(x, u, q, mask, weights), tolerance)


def test_merging_is_associative_and_matches_all_points() -> None:
    generator = torch.Generator().manual_seed(6)
    scores = torch.randn(1, 30, 4, generator=generator, dtype=torch.float64) * 20
    values = torch.randn(1, 30, 3, generator=generator, dtype=torch.float64)
    attention = build().double().encoder
    a, b, c = (
        attention.pool(scores[:, s], values[:, s]) for s in (slice(9), slice(9, 10), slice(10, 30))
    )
    whole = attention.encode(scores, values)
    for merged in (a.merge(b).merge(c), a.merge(b.merge(c)), c.merge(a).merge(b)):
        assert isinstance(merged, Pooled)
        assert close(merged.mean(), whole, 1e-14)


@pytest.mark.parametrize("scale", [1e4, -1e4, 1e30])
def test_extreme_scores_give_no_nan(scale: float) -> None:
    attention = build().encoder
    scores = scale * torch.tensor([[[1.0, -1.0], [-1.0, 1.0], [0.5, 0.5]]])
    values = torch.tensor([[[1.0], [2.0], [3.0]]])
    mask = torch.tensor([[True, True, False]])
    encoded = attention.encode(scores, values, mask)
    streamed = attention.pool(scores, values, mask).mean()
    for z in (encoded, streamed, attention.decode(scores, encoded)):
        assert torch.isfinite(z).all()
    # The largest score takes all: latent 0 reads point 0 and latent 1 point 1, or the reverse.
    expected = [1.0, 2.0] if scale > 0 else [2.0, 1.0]
    assert encoded.flatten().tolist() == expected == streamed.flatten().tolist()


def test_scores_are_float32_inside_half_precision() -> None:
    model, (x, u, q) = build(), inputs()
    full = model(x, u, q)
    with torch.autocast("cpu", torch.bfloat16):
        assert model.encoder.scores(model.trunk(x)).dtype == torch.float32
        half = model(x, u, q)
    assert close(half.float(), full, 0.05)
    assert (
        build(dtype=torch.float64).encoder.scores(torch.randn(1, 3, 32).double()).dtype
        == torch.float64
    )


def test_log_weights_stand_for_repeated_points() -> None:
    model, (x, u, q) = build(), inputs()
    twice = torch.cat((x, x[:, :10]), 1), torch.cat((u, u[:, :10]), 1)
    weights = torch.zeros(2, 60)
    weights[:, :10] = np.log(2)
    assert close(model(x, u, q, weights=weights), model(*twice, q), 1e-5)


def test_shared_positions_equal_repeated_ones_in_value_and_gradient() -> None:
    model, (x, u, q) = build(dtype=torch.float64), inputs(dtype=torch.float64)
    x, q = x[:1], q[:1]
    gradients = []
    for positions, queries in ((x, q), (x.expand(2, -1, -1), q.expand(2, -1, -1))):
        out = model(positions, u, queries)
        model.zero_grad()
        out.square().sum().backward()
        gradients.append((out.detach(), [p.grad.clone() for p in model.parameters()]))
    (a, ga), (b, gb) = gradients
    assert close(a, b, 1e-12)
    assert all(torch.allclose(p, r, rtol=1e-9, atol=1e-10) for p, r in zip(ga, gb, strict=True))


def test_passing_x_as_x_query_changes_nothing_but_the_work() -> None:
    for tied in (True, False):
        model = build(LNOConfig(width=32, latents=16, blocks=1, heads=4, layers=1, tied=tied))
        x, u, _ = inputs()
        assert close(model(x, u, x), model(x, u, x.clone()), 1e-6)


def test_positions_alone_are_enough() -> None:
    torch.manual_seed(0)
    model = LNO(Spec(coordinates=2, in_channels=0, out_channels=1), SMALL)
    x = torch.randn(3, 20, 2)
    assert model(x, torch.zeros(3, 20, 0), x).shape == (3, 20, 1)
    # Shared positions of several samples without values are the same answer for each.
    shared = model(x[:1], torch.zeros(3, 20, 0), x[:1])
    assert shared.shape == (3, 20, 1)
    assert close(shared[2], model(x[:1], torch.zeros(1, 20, 0), x[:1])[0], 1e-5)


def test_initialisation_is_torchs_default() -> None:
    model = build()
    bound = 1 / np.sqrt(32)
    weights = model.trunk.hidden[0].weight.detach()
    assert float(weights.abs().max()) <= bound
    assert float(weights.std()) == pytest.approx(bound / np.sqrt(3), rel=0.1)


@pytest.mark.parametrize("tied", [True, False])
def test_sharpness_scales_the_initial_scores_and_nothing_else(tied: bool) -> None:
    plain, sharp = (
        build(LNOConfig(32, 16, 2, 4, 2, tied, sharpness)).state_dict() for sharpness in (1.0, 7.0)
    )
    for name, weight in plain.items():
        factor = 7.0 if name.endswith("projector.output.weight") else 1.0
        assert torch.equal(sharp[name], factor * weight), name


def test_all_latent_positions_begin_alike_unless_sharpened() -> None:
    """The saddle: with the paper's start, tokens of different latent positions are the same."""
    spreads = []
    for sharpness in (1.0, 10.0):
        model, (x, u, _) = build(LNOConfig(sharpness=sharpness)), inputs(n=500)
        z = model.encode(x, u)
        spreads.append(float((z.std(dim=1).norm() / z.mean(dim=1).norm()).detach()))
    assert spreads[0] < 0.05 < 4 * spreads[0] < spreads[1]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"sharpness": 0}, "sharpness must be a number from 0.001"),
        ({"width": 0}, "width must be a whole number from 1"),
        ({"width": 2.5}, "width must be a whole number"),
        ({"heads": 5}, "heads must divide the width 128"),
        ({"tied": "yes"}, "tied must be True or False"),
        ({"blocks": 10**9}, "blocks must be a whole number from 1 to 512"),
    ],
)
def test_impossible_sizes_are_errors(keys: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LNOConfig(**keys)


@pytest.mark.gpu
def test_gpu_equals_cpu() -> None:
    model, (x, u, q) = build(), inputs(n=5000, q=3000)
    expected = model(x, u, q)
    got = model.cuda()(x.cuda(), u.cuda(), q.cuda())
    assert close(got.cpu(), expected, 1e-4)
