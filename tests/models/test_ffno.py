from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from small_models import FFNO as SMALL
from small_models import FFNO_SHARED, GRID, build, close, count_parameters, inputs
from test_published_models import AIRFOIL, inputs_of, open_fixture

from lno import Spec
from lno.models import FFNO, FFNOConfig, build_model, from_reference
from lno.models.ffno import WeightNormLinear


@pytest.mark.parametrize(("layers", "count"), [(24, 10_247_938), (4, 1_715_458)])
def test_published_sizes_have_the_published_parameter_counts(layers: int, count: int) -> None:
    config = FFNOConfig(layers=layers, row_modes=32)
    assert count_parameters(AIRFOIL, config) == count


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
        assert close(model(x, shift(u), x), shift(model(x, u, x)), 1e-5) == (config.padding == 0)


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
    assert FFNO.embeds_time and FFNO.with_time(SMALL) is SMALL


@pytest.mark.parametrize("grid", [None, (60,), (3, 4, 5)])
def test_it_needs_a_grid_and_names_models_that_do_not(grid: tuple[int, ...] | None) -> None:
    with pytest.raises(ValueError, match=r"FFNO needs data on a 2-D grid.*, or use lno or "):
        build_model("ffno", None, Spec(2, 1, 1, grid))
