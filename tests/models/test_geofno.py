from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from small_models import GEOFNO_CLOUD, GEOFNO_GRID, GRID, build, close, count_parameters, inputs
from test_published_models import AIRFOIL, ELASTICITY

from lno import Spec
from lno.models import Demand, GeoFNO, GeoFNOConfig, LatentGrid, build_model, require_capable

CODE = 42 * 32 + 32  # weights of the published map for the shape of an object, which is not given


@pytest.mark.parametrize(
    ("spec", "config", "count"),
    [
        (AIRFOIL, GeoFNOConfig(row_modes=24), 4_727_329),
        (Spec(2, 0, 1, (129, 129)), GeoFNOConfig(), 2_368_033),  # Pipe
        (ELASTICITY, GeoFNO.default_config(ELASTICITY), 3_020_963 - CODE),
    ],
)
def test_published_sizes_have_the_published_parameter_counts(
    spec: Spec, config: GeoFNOConfig, count: int
) -> None:
    assert count_parameters(spec, config) == count


def test_meshes_come_as_positions_or_as_values() -> None:
    """Positions in the unit square are appended where there are no values, and read where given."""
    alone, both = build(GEOFNO_GRID, in_channels=0), build(GEOFNO_GRID, in_channels=2)
    state = alone.state_dict()
    # Inputs are [mesh, unit square] there, [unit square, mesh] here.
    state["input.weight"] = state["input.weight"].roll(2, dims=1)
    both.load_state_dict(state)
    mesh, _, _ = inputs()
    axes = (torch.linspace(0, 1, n) for n in GRID)
    unit = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).reshape(1, -1, 2)
    assert close(both(unit, mesh, unit), alone(mesh, mesh[..., :0], mesh), 1e-5)


def test_on_grids_zeros_are_appended() -> None:
    """Without them, the model commutes with cyclic shifts, up to the values of the positions."""
    x, u, _ = inputs()
    x = torch.zeros_like(x)
    shifted = u.unflatten(1, GRID).roll((2, 1), (1, 2)).flatten(1, 2)
    for padding in (0, 2):
        model = build(replace(GEOFNO_GRID, padding=padding))
        expected = model(x, u, x).unflatten(1, GRID).roll((2, 1), (1, 2)).flatten(1, 2)
        assert close(model(x, shifted, x), expected, 1e-5) == (padding == 0)


def test_on_clouds_it_predicts_anywhere_and_on_grids_it_does_not() -> None:
    cloud, grid = build(GEOFNO_CLOUD), build(GEOFNO_GRID)
    x, u, q = inputs()
    assert cloud.predicts_anywhere and not cloud.needs_grid and cloud(x, u, q).shape == (2, 40, 3)
    both = cloud(x, u, torch.cat((x, q), dim=1))
    assert close(both, torch.cat((cloud(x, u, x), cloud(x, u, q)), dim=1), 1e-5)
    assert not grid.predicts_anywhere and grid.needs_grid
    with pytest.raises(ValueError, match="GeoFNO predicts at the observed points only"):
        grid(x, u, q)
    elsewhere = Demand(grid.spec, elsewhere=True)
    with pytest.raises(ValueError, match=r"geofno predicts only at the observed points.*use lno"):
        require_capable(grid, "geofno", elsewhere)
    other = GeoFNO(grid.spec, GeoFNO.for_other_points(grid.config))
    require_capable(other, "geofno", elsewhere)
    assert GeoFNO.for_other_points(other.config) is other.config


def test_time_is_an_input_channel() -> None:
    for config in (GEOFNO_GRID, GEOFNO_CLOUD):
        assert GeoFNO.embeds_time and GeoFNO.with_time(config) is config


@pytest.mark.parametrize(
    ("spec", "config", "message"),
    [
        (
            Spec(2, 1, 1),
            GeoFNOConfig(),
            r"GeoFNO needs .* got grid None: .*, or use GeoFNOConfig\(c",
        ),
        (
            Spec(3, 1, 1),
            GeoFNOConfig(cloud=LatentGrid()),
            "got 3 coordinates: .*, or use lno or ",
        ),
    ],
)
def test_what_it_cannot_take(spec: Spec, config: GeoFNOConfig, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_model("geofno", config, spec)
