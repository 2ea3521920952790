from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from by_hand import gelu
from small_models import FFNO as SMALL
from small_models import FFNO_CLOUD, FFNO_SHARED, GRID, build, close, count_parameters, inputs
from test_published_models import AIRFOIL, ELASTICITY, inputs_of, open_fixture

from lno import Spec
from lno.config import from_dict, to_dict
from lno.models import (
    FFNO,
    Demand,
    FFNOConfig,
    LatentGrid,
    build_model,
    from_reference,
    require_capable,
)
from lno.models.ffno import WeightNormLinear

# Of the published model for point clouds: a layer for the shape of an object, which is not given,
# and convolutions that it does not call.
UNUSED = 42 * 64 + 64 + 23 * (64 * 64 + 64)


@pytest.mark.parametrize(("layers", "count"), [(24, 10_247_938), (4, 1_715_458)])
def test_published_sizes_have_the_published_parameter_counts(layers: int, count: int) -> None:
    config = FFNOConfig(layers=layers, row_modes=32)
    assert count_parameters(AIRFOIL, config) == count


def test_the_default_for_point_clouds_has_the_published_parameter_count() -> None:
    assert count_parameters(ELASTICITY, FFNO.default_config(ELASTICITY)) == 10_964_355 - UNUSED


def test_shared_weights_are_stored_once() -> None:
    apart, shared = build(replace(SMALL, layers=3)), build(replace(SMALL, layers=3, shared=True))
    weights = {name for name in shared.state_dict() if "convolutions" in name}
    assert weights == {f"convolutions.0.{axis}.weight" for axis in (0, 1)}
    state = shared.state_dict()
    for name in [name for name in apart.state_dict() if "convolutions" in name]:
        state[name] = state[f"convolutions.0.{name.split('.')[2]}.weight"]
    apart.load_state_dict(state)
    x, u, _ = inputs()
    assert torch.equal(apart(x, u, x), shared(x, u, x))


def test_rows_of_a_matrix_are_lengths_times_directions() -> None:
    torch.manual_seed(0)
    layer, f = WeightNormLinear(3, 5), torch.randn(7, 3)
    torch.manual_seed(0)
    plain = torch.nn.Linear(3, 5)  # initial weights are those of an ordinary layer
    assert close(layer(f), plain(f), 1e-6)
    expected = layer(f)
    with torch.no_grad():
        layer.direction.mul_(torch.rand(5, 1) + 1)
    assert close(layer(f), expected, 1e-6)
    with torch.no_grad():
        layer.length.mul_(2)
    assert close(layer.weight.norm(dim=1), 2 * plain.weight.norm(dim=1), 1e-6)


def test_what_comes_after_the_last_layer_is_linear() -> None:
    """As published, nothing is between the last two layers: one matrix could replace them."""
    model, (x, u, _) = build(SMALL, torch.float64), inputs(dtype=torch.float64)
    seen = []
    model.layers[-1].register_forward_hook(lambda module, given, b: seen.append(b))
    y = model(x, u, x)
    b = seen[0][:, : GRID[0], : GRID[1]].flatten(1, 2)
    matrix = model.output.weight @ model.hidden.weight
    bias = model.output.weight @ model.hidden.bias + model.output.bias
    assert close(y, b @ matrix.T + bias, 1e-12)


def test_without_padding_it_commutes_with_shifts() -> None:
    x, u, _ = inputs()
    x = torch.zeros_like(x)

    def shift(v: torch.Tensor) -> torch.Tensor:
        return v.unflatten(1, GRID).roll((2, 1), (1, 2)).flatten(1, 2)

    for config in (SMALL, FFNO_SHARED):
        model = build(config)
        assert close(model(x, shift(u), x), shift(model(x, u, x)), 1e-5) == (config.image == 0)


def test_meshes_come_as_positions_or_as_values() -> None:
    """Positions in the unit square are appended where there are no values, and read where given."""
    alone, both = build(SMALL, in_channels=0), build(SMALL, in_channels=2)
    state = alone.state_dict()
    # Inputs are [mesh, unit square] there, [unit square, mesh] here.
    state["input.direction"] = state["input.direction"].roll(2, dims=1)
    both.load_state_dict(state)
    mesh, _, _ = inputs()
    axes = (torch.linspace(0, 1, n) for n in GRID)
    unit = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).reshape(1, -1, 2)
    assert close(both(unit, mesh, unit), alone(mesh, mesh[..., :0], mesh), 1e-5)


@pytest.mark.parametrize("name", ["ffno_orig_grid", "ffno_orig_mesh"])
def test_published_layers_without_weight_normalisation(name: str) -> None:
    file, weights, config = open_fixture(name)
    plain = {k: v for k, v in weights.items() if "weight_" not in k or "fourier" in k}
    for key, v in weights.items():
        if key.endswith("weight_v"):
            g = weights[key[:-1] + "g"]
            plain[key[:-2]] = g * v / np.linalg.norm(v, axis=1, keepdims=True)
    model = from_reference("ffno", plain, config)
    out = model(*inputs_of(file))
    assert close(out, torch.from_numpy(file["out"]).reshape(out.shape), 1e-9)


def test_time_is_an_input_channel() -> None:
    for config in (SMALL, FFNO_CLOUD):
        assert FFNO.embeds_time and FFNO.with_time(config) is config


# -- point clouds ----------------------------------------------------------------------------------

ARGS = {"modes1": 3, "modes2": 4, "s1": 8, "s2": 9, "n_layers": 4, "width": 5}
ARGS |= {"in_channels": 2, "out_channels": 2, "is_mesh": True}
MAP = 8  # features of the map


def published_weights() -> dict[str, np.ndarray]:
    """Random weights by the names and in the shapes of the published code, in float64."""
    random, w, m1, m2 = np.random.default_rng(0), ARGS["width"], ARGS["modes1"], ARGS["modes2"]
    weights: dict[str, np.ndarray] = {}

    def layer(name: str, read: int, made: int, kernel: tuple[int, ...] = ()) -> None:
        matrix = random.normal(size=(made, read, *kernel))
        weights[f"{name}.weight"] = 1.3 / np.sqrt(read) * matrix
        weights[f"{name}.bias"] = 0.2 * random.normal(size=made)

    layer("model.fc0", 2, w)
    layer("model.fc1", w, 128)
    layer("model.fc2", 128, ARGS["out_channels"])
    layer("model.bs.0", 2, w, (1, 1))
    layer("model.bs.1", 2, w, (1,))
    for k in range(1, ARGS["n_layers"]):
        layer(f"model.ws.{k - 1}", w, w, (1, 1))
        for axis in (0, 1):
            fourier = random.normal(size=(w, w, m1, 2)) / np.sqrt(w)
            weights[f"model.convs.{k}.fourier_weight.{axis}"] = fourier
        for part, (read, made) in enumerate(((w, 2 * w), (2 * w, w))):
            name = f"model.convs.{k}.backcast_ff.layers.{part}.0"
            layer(name, read, made)
            weights[f"{name}.weight_v"] = weights.pop(f"{name}.weight")
            weights[f"{name}.weight_g"] = 1 + 0.25 * random.normal(size=(made, 1))
    for part in (1, 2):
        real, imaginary = random.normal(size=(2, w, w, m1, m2)) / w
        weights[f"model.convs.{ARGS['n_layers']}.weights{part}"] = real + 1j * imaginary
    layer("iphi.fc0", 4, MAP)
    layer("iphi.fc_code", 42, MAP)
    layer("iphi.fc_no_code", 3 * MAP, 4 * MAP)
    for k in (1, 2, 3):
        layer(f"iphi.fc{k}", 4 * MAP, 4 * MAP)
    layer("iphi.fc4", 4 * MAP, 2)
    return weights


def cloud_by_hand(weights: dict[str, np.ndarray], x: np.ndarray, x_query: np.ndarray) -> np.ndarray:
    """The published model for one sample: every wave is a sum over points or pixels."""
    m1, m2, height, width = (ARGS[key] for key in ("modes1", "modes2", "s1", "s2"))
    k1 = [*range(m1), *range(-m1, 0)]  # of the rows of coefficients

    def linear(name: str, v: np.ndarray) -> np.ndarray:
        matrix = weights[f"{name}.weight"]
        return v @ matrix.reshape(matrix.shape[:2]).T + weights[f"{name}.bias"]

    def weight_normed(name: str, v: np.ndarray) -> np.ndarray:
        direction = weights[f"{name}.weight_v"]
        direction = direction / np.sqrt((direction**2).sum(1, keepdims=True))
        return v @ (weights[f"{name}.weight_g"] * direction).T + weights[f"{name}.bias"]

    def move(p: np.ndarray) -> np.ndarray:
        a, b = (p - 1e-4).T
        f = np.stack((*p.T, np.arctan2(b, a), np.hypot(a, b)), 1)
        angles = [f[:, j] * np.pi * 2**k for j in range(4) for k in range(MAP // 4)]
        r = np.concatenate((linear("iphi.fc0", f), np.sin(angles).T, np.cos(angles).T), 1)
        r = linear("iphi.fc_no_code", r)
        for k in (1, 2, 3):
            r = np.tanh(linear(f"iphi.fc{k}", r))
        return p * (1 + linear("iphi.fc4", r))

    def along_columns(v: np.ndarray, fourier: np.ndarray) -> np.ndarray:
        """The second axis: the lowest waves, mixed over channels; negative ones are conjugate."""
        n, out = v.shape[1], np.zeros_like(v)
        for k in range(m1):
            wave = np.exp(2j * np.pi * k * np.arange(n) / n)
            matrix = fourier[:, :, k, 0] + 1j * fourier[:, :, k, 1]
            mixed = np.einsum("hwi,w,io->ho", v, wave.conj(), matrix) / n
            out += (1 if k == 0 else 2) * (mixed[:, None] * wave[:, None]).real
        return out

    xi, f = move(x), linear("model.fc0", x)
    rows, columns = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
    pixels = np.stack((rows / (height - 1), columns / (width - 1)), -1)
    bias = linear("model.bs.0", pixels)
    image = bias.copy()
    for k in k1:
        for m in range(m2):
            sums = np.exp(-2j * np.pi * (k * xi[:, 0] + m * xi[:, 1])) @ f / (height * width)
            wave = np.exp(2j * np.pi * (k * rows / height + m * columns / width))
            image += (1 if m == 0 else 2) * (wave[..., None] * sums).real
    for layer in range(1, ARGS["n_layers"]):
        theirs = f"model.convs.{layer}"
        s = along_columns(image, weights[f"{theirs}.fourier_weight.0"])
        turned = image.swapaxes(0, 1)
        s += along_columns(turned, weights[f"{theirs}.fourier_weight.1"]).swapaxes(0, 1)
        hidden = np.maximum(weight_normed(f"{theirs}.backcast_ff.layers.0.0", s), 0)
        image = image + weight_normed(f"{theirs}.backcast_ff.layers.1.0", hidden) + bias
    last = f"model.convs.{ARGS['n_layers']}"
    half = np.concatenate([weights[f"{last}.weights{part}"] for part in (1, 2)], 2)
    mixed = np.zeros((2 * m1, m2, ARGS["width"]), complex)
    for r, k in enumerate(k1):
        for m in range(m2):
            wave = np.exp(-2j * np.pi * (k * rows / height + m * columns / width))
            mixed[r, m] = np.einsum("hwi,hw->i", image, wave) @ half[:, :, r, m]
    xi, y = move(x_query), linear("model.bs.1", x_query)
    for r, k in enumerate(k1):
        for m in range(-m2 + 1, m2):  # of negative ones, the rows are in reversed order
            coefficient = mixed[r, m] if m >= 0 else mixed[2 * m1 - 1 - r, -m].conj()
            wave = np.exp(2j * np.pi * (k * xi[:, 0] + m * xi[:, 1]))
            y = y + (wave[:, None] * coefficient).real
    return linear("model.fc2", gelu(linear("model.fc1", y)))


def test_on_clouds_it_is_the_published_equations() -> None:
    weights = published_weights()
    model = from_reference("ffno", weights, {"args": ARGS})
    assert all(p.dtype == torch.float64 for p in model.parameters())
    random = np.random.default_rng(1)
    x, q = random.uniform(size=(2, 17, 2)), random.uniform(size=(2, 9, 2))
    expected = np.stack([cloud_by_hand(weights, *sample) for sample in zip(x, q, strict=True)])
    x, q = torch.from_numpy(x), torch.from_numpy(q)
    assert close(model(x, x[..., :0], q), torch.from_numpy(expected), 1e-10)


def test_published_weights_of_clouds_that_do_not_fit_are_refused() -> None:
    weights, config = published_weights(), {"args": ARGS}
    last = f"model.convs.{ARGS['n_layers']}.weights2"
    with pytest.raises(ValueError, match=r"'model\.zzz' is not a weight of the published code"):
        from_reference("ffno", {**weights, "model.zzz": np.zeros(3)}, config)
    with pytest.raises(ValueError, match=f"the weights lack '{last}': expected all weights of"):
        from_reference("ffno", {k: v for k, v in weights.items() if k != last}, config)
    with pytest.raises(ValueError, match="the weights do not fit one FFNO"):
        from_reference("ffno", {**weights, "model.fc0.weight": np.zeros((3, 3))}, config)
    fewer = {key: value for key, value in ARGS.items() if key != "s1"}
    with pytest.raises(ValueError, match="the settings of the published FFNO lack 's1'"):
        from_reference("ffno", weights, {"args": fewer})


def test_on_clouds_it_predicts_anywhere_and_on_grids_it_does_not() -> None:
    cloud, grid = build(FFNO_CLOUD), build(SMALL)
    x, u, q = inputs()
    assert cloud.predicts_anywhere and not cloud.needs_grid and cloud(x, u, q).shape == (2, 40, 3)
    both = cloud(x, u, torch.cat((x, q), dim=1))
    assert close(both, torch.cat((cloud(x, u, x), cloud(x, u, q)), dim=1), 1e-5)
    assert not grid.predicts_anywhere and grid.needs_grid
    with pytest.raises(ValueError, match="FFNO predicts at the observed points only"):
        grid(x, u, q)
    elsewhere = Demand(grid.spec, elsewhere=True)
    with pytest.raises(ValueError, match=r"ffno predicts only at the observed points.*use lno"):
        require_capable(grid, "ffno", elsewhere)
    other = FFNO(grid.spec, FFNO.for_other_points(grid.config))
    require_capable(other, "ffno", elsewhere)
    assert FFNO.for_other_points(other.config) is other.config


@pytest.mark.parametrize("grid", [None, (60,), (3, 4, 5)])
def test_data_without_a_2d_grid_get_a_latent_image_and_others_do_not(
    grid: tuple[int, ...] | None,
) -> None:
    assert isinstance(FFNO.default_config(Spec(2, 1, 1, grid)).image, LatentGrid)
    assert FFNO.default_config(Spec(2, 1, 1, (12, 5))) == FFNOConfig(image=8)


def test_configs_of_both_forms_are_read_back() -> None:
    for config in (SMALL, FFNO_CLOUD):
        assert from_dict(FFNOConfig, to_dict(config)) == config


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (-1, "image must be a whole number from 0 to 4096, got -1"),
        (10**9, "image must be a whole number from 0 to 4096"),
        (True, r"image: expected LatentGrid\(...\) or a whole number, got True"),
        (2.5, r"image: expected LatentGrid\(...\) or a whole number, got 2.5"),
        (None, r"image: expected LatentGrid\(...\) or a whole number, got None"),
    ],
)
def test_impossible_images_are_errors(image: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FFNOConfig(image=image)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("spec", "config", "message"),
    [
        (
            Spec(2, 1, 1),
            FFNOConfig(),
            r"FFNO needs .* got grid None: .*, or use FFNOConfig\(image=LatentGrid\(\)\)",
        ),
        (Spec(3, 1, 1), None, "got 3 coordinates: .*, or use lno or "),
    ],
)
def test_what_it_cannot_take(spec: Spec, config: FFNOConfig | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_model("ffno", config, spec)
