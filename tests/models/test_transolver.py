from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from by_hand import Layers, each_sample
from scipy.special import softmax
from small_models import CLOUD, GRID, RAW, REGULAR, build, close, count_parameters, inputs

from lno import Spec
from lno.models import Model, from_reference
from lno.models.stem import reference_distances
from lno.models.transolver import Transolver, TransolverConfig

FIXTURES = Path(__file__).parents[1] / "fixtures"
TIMED = replace(RAW, time_input=True)
TIMED_CLOUD = replace(CLOUD, width=33, heads=3, time_input=True)  # an odd number of features
FORMS = pytest.mark.parametrize("config", [CLOUD, REGULAR, RAW], ids=["cloud", "grid", "raw grid"])


def by_hand(model: Transolver, x: np.ndarray, u: np.ndarray) -> np.ndarray:
    """The model's equations for one sample."""
    config, layers, (rows, columns) = model.config, Layers(model), GRID
    w = layers.weights

    def convolution(name: str, v: np.ndarray) -> np.ndarray:
        padded = np.pad(v.reshape(rows, columns, -1), ((1, 1), (1, 1), (0, 0)))
        out = np.zeros((rows, columns, len(w[f"{name}.bias"]))) + w[f"{name}.bias"]
        for a in range(3):
            for b in range(3):
                near = padded[a : a + rows, b : b + columns]
                out += near @ w[f"{name}.weight"][:, :, a, b].T
        return out.reshape(rows * columns, -1)

    if config.reference is not None:
        near, far = (
            np.array([(p, q) for p in np.linspace(0, 1, n) for q in np.linspace(0, 1, m)])
            for n, m in (GRID, (config.reference, config.reference))
        )
        x = np.linalg.norm(near[:, None] - far, axis=-1)
    time = u[0, -1] if config.time_input else None
    u = u[:, :-1] if config.time_input else u
    f = layers.mlp("stem.mlp", np.concatenate((x, u), -1), layers=0)
    if not config.convolution or u.shape[-1] == 0:
        f = f + w["placeholder"]
    if time is not None:
        features, half = np.zeros(config.width), config.width // 2
        for k in range(half):
            angle = time * np.exp(-np.log(10000) * k / half)
            features[k], features[half + k] = np.cos(angle), np.sin(angle)
        hidden = layers.linear("stem.time.0", features)
        f = f + layers.linear("stem.time.2", hidden / (1 + np.exp(-hidden)))  # SiLU between them
    size = config.width // config.heads
    for k in range(config.layers):
        name = f"blocks.{k}"
        project = convolution if config.convolution else layers.linear
        both = project(f"{name}.attention.keys_values", layers.norm(f"{name}.norm_attention", f))
        keys, values = np.split(both, 2, -1)
        heads = []
        for j in range(config.heads):
            part = slice(j * size, (j + 1) * size)
            temperature = float(w[f"{name}.attention.temperature"][j])
            if config.convolution:
                temperature = min(max(temperature, 0.1), 5)
            scores = layers.linear(f"{name}.attention.slice", keys[:, part])
            slices = softmax(scores / temperature, -1)
            z = slices.T @ values[:, part] / (slices.sum(0)[:, None] + 1e-5)
            joined = z @ w[f"{name}.attention.query_key_value.weight"].T
            query, key, value = np.split(joined, 3, -1)
            heads.append(slices @ softmax(query @ key.T / np.sqrt(size), -1) @ value)
        f = f + layers.linear(f"{name}.attention.output", np.concatenate(heads, -1))
        f = layers.feed_forward(name, f)
    return layers.linear("head", layers.norm("norm", f))


@FORMS
@pytest.mark.parametrize("in_channels", [0, 1, 4])
def test_the_model_is_its_equations(config: TransolverConfig, in_channels: int) -> None:
    model = build(config, torch.float64, in_channels)
    with torch.no_grad():  # on both sides of the range that grids have
        model.blocks[0].attention.temperature[:2] = torch.tensor([0.04, 9.0])
    x, u, _ = inputs(i=in_channels, dtype=torch.float64)
    assert close(model(x, u, x), each_sample(by_hand, model, x, u), 1e-12)


@pytest.mark.parametrize("config", [TIMED, TIMED_CLOUD], ids=["grid", "cloud"])
@pytest.mark.parametrize("values", [0, 1, 3])
def test_time_is_embedded_and_added_to_every_point(config: TransolverConfig, values: int) -> None:
    model = build(config, torch.float64, values + 1)
    x, u, _ = inputs(i=values + 1, dtype=torch.float64)
    u[..., -1] = torch.tensor([[0.3], [-1.7]], dtype=torch.float64)  # one time a sample
    assert close(model(x, u, x), each_sample(by_hand, model, x, u), 1e-12)
    grid = GRID if config.convolution else None
    theirs = reference_names(model)
    assert {"time_fc.0.weight", "time_fc.2.bias"} <= set(theirs)
    translated = translated_from(theirs, config.heads, grid, values)
    assert translated.config == config
    assert translated.spec == Spec(2, values + 1, 3, grid)
    assert close(translated.double()(x, u, x), model(x, u, x), 1e-5)  # its weights were rounded


def test_time_needs_a_channel() -> None:
    with pytest.raises(ValueError, match=r"time_input: expected the time .* got no input channels"):
        Transolver(Spec(2, 0, 3, GRID), TIMED)


@pytest.mark.parametrize("form", ["irregular", "structured"])
def test_reference_weights_give_the_reference_output(form: str) -> None:
    file = np.load(FIXTURES / f"transolver_{form}_reference.npz")
    weights = {k[7:]: file[k] for k in file.files if k.startswith("weight/")}
    grid = tuple(file["grid"].tolist()) if "grid" in file.files else None
    model = translated_from(weights, int(file["heads"]), grid)
    sizes = [int(file[name]) for name in ("width", "layers", "heads", "slices", "mlp_ratio")]
    assert model.config == TransolverConfig(*sizes, convolution=grid is not None, reference=None)
    x, u, out = (torch.from_numpy(file[name]) for name in ("x", "u", "out"))
    assert close(model(x, u, x), out, 1e-5)


def translated_from(
    weights: dict[str, np.ndarray],
    heads: int,
    grid: tuple[int, ...] | None = None,
    in_channels: int = 1,
) -> Model:
    settings = {"heads": heads, "grid": grid, "in_channels": in_channels}
    return from_reference("transolver", weights, settings)


def reference_names(model: Transolver) -> dict[str, np.ndarray]:
    """The model's weights as the published code names them."""
    last = f"blocks.{model.config.layers - 1}"
    parts = {
        "keys_values": ["Attn.in_project_x", "Attn.in_project_fx"],
        "query_key_value": ["Attn.to_q", "Attn.to_k", "Attn.to_v"],
    }
    names = {
        "attention.slice": "Attn.in_project_slice",
        "attention.output": "Attn.to_out.0",
        "attention.temperature": "Attn.temperature",
        "norm_attention": "ln_1",
        "norm_mlp": "ln_2",
        "up.": "mlp.linear_pre.0.",
        "down.": "mlp.linear_post.",
        "stem.mlp.input": "preprocess.linear_pre.0",
        "stem.mlp.output": "preprocess.linear_post",
        "stem.time.": "time_fc.",
    }
    weights = {}
    for name, value in model.state_dict().items():
        array = value.numpy()
        joined = next((key for key in parts if key in name), None)
        if joined is not None:
            for theirs, part in zip(
                parts[joined], np.split(array, len(parts[joined])), strict=True
            ):
                weights[name.replace(f"attention.{joined}", theirs)] = part
            continue
        if name.startswith("norm."):
            name = f"{last}.ln_3{name[4:]}"
        if name.startswith("head."):
            name = f"{last}.mlp2{name[4:]}"
        for ours, theirs in names.items():
            name = name.replace(ours, theirs)
        weights[name] = array.reshape(1, -1, 1, 1) if name.endswith("temperature") else array
    return weights


@FORMS
@pytest.mark.parametrize("in_channels", [0, 1, 4])
def test_from_reference_reads_every_other_size_off_the_weights(
    config: TransolverConfig, in_channels: int
) -> None:
    model, (x, u, _) = build(config, in_channels=in_channels), inputs(i=in_channels)
    grid = GRID if config.convolution else None
    translated = translated_from(reference_names(model), 4, grid, in_channels)
    assert translated.config == config
    assert translated.spec == Spec(2, in_channels, 3, grid)
    assert torch.equal(translated(x, u, x), model(x, u, x))


def test_from_reference_refuses_what_does_not_fit() -> None:
    weights = reference_names(build(REGULAR))
    with pytest.raises(ValueError, match="lack 'placeholder'"):
        translated_from({k: v for k, v in weights.items() if k != "placeholder"}, 4, GRID)
    with pytest.raises(ValueError, match="'extra' is not a weight"):
        translated_from({**weights, "extra": np.zeros(3)}, 4, GRID)
    with pytest.raises(ValueError, match="pass the right in_channels"):
        translated_from(weights, 4, GRID, in_channels=2)
    with pytest.raises(ValueError, match=r"convolution and \.reference need data on a 2-D grid"):
        translated_from(weights, 4)
    broken = {**weights, "blocks.1.ln_3.bias": np.zeros(3, np.float32)}
    with pytest.raises(ValueError, match=r"(?s)do not fit one Transolver.*norm\.bias"):
        translated_from(broken, 4, GRID)


@pytest.mark.parametrize(
    ("spec", "config", "count"),
    [
        (Spec(2, 1, 1, (85, 85)), TransolverConfig(), 2_826_945),  # Darcy: 2.83 M
        (Spec(2, 10, 1, (64, 64)), TransolverConfig(width=256, slices=32), 11_232_321),  # NS2d
    ],
)
def test_published_sizes_have_the_published_parameter_counts(
    spec: Spec, config: TransolverConfig, count: int
) -> None:
    assert count_parameters(spec, config) == count


def test_reference_distances_of_a_small_grid() -> None:
    half, diagonal, skew = 0.5, 2**0.5, (1 + 0.25) ** 0.5
    expected = [  # rows at 0, 1/2, 1 and columns at 0, 1; corners 00, 01, 10, 11
        [0, 1, 1, diagonal],
        [1, 0, diagonal, 1],
        [half, skew, half, skew],
        [skew, half, skew, half],
        [1, diagonal, 0, 1],
        [diagonal, 1, 1, 0],
    ]
    got = reference_distances((3, 2), 2, like=torch.zeros(0, dtype=torch.float64))
    assert torch.allclose(got, torch.tensor(expected, dtype=torch.float64), atol=1e-15)


def test_reference_distances_replace_positions() -> None:
    model, (x, u, _) = build(REGULAR), inputs()
    elsewhere = 3 * x + 1
    assert torch.equal(model(x, u, x), model(elsewhere, u, elsewhere))


@FORMS
def test_slice_weights_are_float32_inside_half_precision(config: TransolverConfig) -> None:
    keys = torch.randn(2, 4, 60, 8, generator=torch.Generator().manual_seed(2))
    with torch.autocast("cpu", torch.bfloat16):
        weights = build(config).blocks[0].attention.weights(keys.bfloat16())
    assert weights.dtype == torch.float32


def test_a_slice_without_points_gives_no_nan() -> None:
    model, (x, u, _) = build(CLOUD), inputs()
    with torch.no_grad():
        for block in model.blocks:
            block.attention.slice.bias[0] = -1e30
    model(x, u, x).square().sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in model.parameters())


def test_initial_weights() -> None:
    torch.manual_seed(0)
    model = Transolver(Spec(2, 1, 1, (85, 85)))
    attention = model.blocks[3].attention
    assert attention.temperature.tolist() == [0.5] * 8
    for layer in (attention.slice, attention.output, model.blocks[0].up, model.stem.mlp.input):
        assert float(layer.weight.detach().std()) == pytest.approx(0.02, rel=0.1)
        assert not bool(layer.bias.any())
    bound = (9 * 128) ** -0.5  # torch's default for 3×3 convolutions of 128 channels
    spread = float(attention.keys_values.weight.detach().std())
    assert spread == pytest.approx(bound / 3**0.5, rel=0.05)
    assert float(model.placeholder.detach().min()) >= 0
    assert float(model.placeholder.detach().max()) <= 1 / 128


@FORMS
def test_it_predicts_only_at_the_observed_points(config: TransolverConfig) -> None:
    model, (x, u, _) = build(config), inputs()
    expected = model(x, u, x)
    assert torch.equal(model(x, u, x.clone()), expected)  # the same values are the same points
    assert torch.equal(model(x[:1], u, x[:1].repeat(2, 1, 1)), model(x[:1], u, x[:1]))
    for elsewhere in (x + 1e-3, x[:, :7], x[:, [1, 0, *range(2, 60)]]):
        with pytest.raises(ValueError, match="predicts at the observed points only"):
            model(x, u, elsewhere)


@pytest.mark.parametrize("config", [REGULAR, RAW])
def test_every_point_of_the_grid_is_needed(config: TransolverConfig) -> None:
    model, (x, u, _) = build(config), inputs()
    with pytest.raises(ValueError, match="takes no mask"):
        model(x, u, x, torch.ones(2, 60, dtype=torch.bool))
    part = x[:, :59]
    with pytest.raises(ValueError, match=r"grid \(10, 6\) of 60 points, got 59"):
        model(part, u[:, :59], part)


@pytest.mark.parametrize("grid", [None, (30,), (3, 2, 5)])
@pytest.mark.parametrize("keys", [{"reference": None}, {"convolution": False}, {}])
def test_convolutions_and_reference_points_need_a_grid(
    grid: tuple[int, ...] | None, keys: dict
) -> None:
    with pytest.raises(ValueError, match="need data on a 2-D grid"):
        Transolver(Spec(2, 1, 1, grid), TransolverConfig(**keys))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"mlp_ratio": 1000}, "mlp_ratio must be a whole number from 1 to 64"),
        ({"convolution": 1}, "convolution must be True or False"),
        ({"reference": 0}, "reference must be a whole number from 1"),
    ],
)
def test_impossible_settings_are_errors(keys: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TransolverConfig(**keys)
