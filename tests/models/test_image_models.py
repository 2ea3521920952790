"""FNO, U-FNO and LSM: what the common tests and the published outputs do not show."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from small_models import (
    FNO_CLOUD,
    FNO_GRID,
    FNO_RAW,
    GRID,
    LSM_CLOUD,
    LSM_GRID,
    UFNO_CLOUD,
    UFNO_GRID,
    build,
    close,
    disturb,
    inputs,
    make,
    make_without_memory,
)
from test_published_models import (
    AIRFOIL,
    DARCY,
    ELASTICITY,
    NS2D,
    PIPE,
    PLASTICITY,
    inputs_of,
    load,
)
from torch import nn

from lno import Spec
from lno.models import (
    FNO,
    LSM,
    MODELS,
    UFNO,
    FNOConfig,
    LatentGrid,
    LSMConfig,
    UFNOConfig,
    build_model,
)

CLOUD = LatentGrid()
CODE = 42 * 32 + 32  # weights of the published map for the shape of an object, which is not given
PARAMETERS = [
    (DARCY, FNOConfig(), 37_881_217),
    (NS2D, FNOConfig(64, None), 9_467_969),
    (AIRFOIL, FNOConfig(32, None), 2_366_881),
    (ELASTICITY, FNOConfig(32, None, cloud=CLOUD), 3_610_275),
    (PIPE, FNOConfig(128, None), 37_865_601),
    (PLASTICITY, FNOConfig(128, None, time_input=True), 37_898_756),
    (DARCY, LSMConfig(), 19_195_969),
    (NS2D, LSMConfig(batch_norm=False), 19_197_121),
    (AIRFOIL, LSMConfig(32), 4_812_769),
    (ELASTICITY, LSMConfig(32, cloud=CLOUD), 6_056_163),
    (replace(PIPE, in_channels=0), LSMConfig(32), 4_812_769),
    (PLASTICITY, LSM.with_time(LSMConfig(32)), 4_815_140),
    (DARCY, UFNOConfig(), 11_041_251),
    (NS2D, UFNOConfig(64, None, batch_norm=False), 44_100_675),
    (AIRFOIL, UFNOConfig(reference=None), 11_029_155),
    (ELASTICITY, UFNOConfig(128, None, cloud=CLOUD), 233_162_121),
    (PIPE, UFNOConfig(128, None), 176_349_315),
    (PLASTICITY, UFNO.with_time(UFNOConfig(128, None)), 176_448_780),
]


def count(module: nn.Module | None) -> int:
    return 0 if module is None else sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize(("spec", "config", "published"), PARAMETERS)
def test_published_sizes_have_the_published_parameter_counts(
    spec: Spec, config: Any, published: int
) -> None:
    model = make_without_memory(spec, config)
    idle = code = CODE if config.cloud else 0
    if isinstance(model, UFNO):  # each U-Net there has first and last layers that are not used
        around = count(model.stem) + count(model.head) + count(model.geometry)
        idle += 2 * (around + code)
    assert count(model) == published - idle


@pytest.mark.parametrize("name", ["lsm_grid", "lsm_cloud", "ufno_grid"])
def test_training_normalises_by_the_batch_as_published(name: str) -> None:
    file, model = load(name)
    before = {key: value.clone() for key, value in model.named_buffers()}
    with torch.no_grad():
        out = model.train()(*inputs_of(file))
    assert close(out, torch.from_numpy(file["out_train"]).reshape(out.shape), 1e-9)
    assert model.keeps_statistics and before
    assert all(not torch.equal(value, before[key]) for key, value in model.named_buffers())


@pytest.mark.parametrize("config", [LSM_CLOUD, UFNO_CLOUD], ids=["lsm", "ufno"])
def test_without_batch_norm_there_are_no_statistics(config: Any) -> None:
    """Of one image, the statistics of the batch are its own."""
    of_batch, (x, u, _) = build(config, torch.float64), inputs(b=1, dtype=torch.float64)
    of_image = make(of_batch.spec, replace(config, batch_norm=False)).double()
    of_image.load_state_dict(of_batch.state_dict(), strict=False)
    assert not of_image.keeps_statistics and not list(of_image.buffers())
    expected = of_batch.train()(x, u, x)
    assert close(of_image.train()(x, u, x), expected, 1e-9)
    assert close(of_image.eval()(x, u, x), expected, 1e-9)


@pytest.mark.parametrize("kind", [FNO, UFNO, LSM])
@pytest.mark.parametrize("grid", [(16, 6), (10, 32), (32, 16), (17, 33)])
def test_grids_that_are_multiples_of_16_along_some_axes(kind: Any, grid: tuple[int, int]) -> None:
    """The image is what it would be if the zeros were points of a larger grid without features."""
    config = {FNO: FNO_RAW, UFNO: UFNO_GRID, LSM: LSM_GRID}[kind]
    model = disturb(make(Spec(2, 1, 3, grid), config)).double().eval()
    x, u, _ = inputs(n=grid[0] * grid[1], dtype=torch.float64)
    f = model.stem(x, u).unflatten(1, grid).movedim(-1, 1)
    larger = torch.zeros(*f.shape[:2], *(16 * -(-n // 16) for n in grid), dtype=f.dtype)
    larger[..., : grid[0], : grid[1]] = f
    image = model.process(larger)[..., : grid[0], : grid[1]]
    assert close(model(x, u, x), model.head(image.movedim(1, -1).flatten(1, 2)), 1e-12)


@pytest.mark.parametrize(
    "config",
    [FNO_GRID, FNO_CLOUD, UFNO_CLOUD, LSM_CLOUD],
    ids=["fno on a grid", "fno", "ufno", "lsm"],
)
def test_time_is_embedded_and_not_read_at_points(config: Any) -> None:
    kind = type(make_without_memory(Spec(2, 1, 3, GRID), config))
    timed = kind.with_time(config)
    assert timed.time_input and not getattr(timed, "batch_norm", False)
    model, (x, u, _) = build(timed, torch.float64, in_channels=2), inputs(i=2, dtype=torch.float64)
    u[..., -1] = torch.tensor([[0.3], [-1.7]], dtype=torch.float64)  # one time a sample
    y = model(x, u, x)
    later = u.clone()
    later[1, :, -1] += 0.5
    assert torch.equal(model(x, later, x)[0], y[0]) and not close(model(x, later, x)[1], y[1], 1e-4)
    later[:, 1:, -1] = 9.0  # only the first point's time is read
    assert torch.equal(model(x, later, x)[0], y[0])
    with pytest.raises(ValueError, match=r"time_input: expected the time .* got no input channels"):
        make(Spec(2, 0, 3, GRID), timed)


@pytest.mark.parametrize(
    ("kind", "spec", "keys", "message"),
    [
        (
            "fno",
            Spec(2, 1, 1),
            {"cloud": None},
            r"FNO needs .* got grid None: .*use FNOConfig\(",
        ),
        ("fno", Spec(2, 1, 1), {"reference": 8}, "FNOConfig: reference points need a 2-D grid"),
        ("lsm", Spec(3, 1, 1), {}, "got 3 coordinates: .* or use lno or"),
        ("ufno", Spec(2, 1, 1), {"cloud": LatentGrid(24, 32)}, "multiples of 16, got 24 × 32"),
        (
            "lsm",
            Spec(2, 1, 1, GRID),
            {"batch_norm": False},
            "more than 16 × 16 pixels, got 16",
        ),
    ],
)
def test_what_a_model_cannot_take(kind: str, spec: Spec, keys: dict, message: str) -> None:
    config = replace(MODELS[kind][0].default_config(spec), **keys)
    with pytest.raises(ValueError, match=message):
        build_model(kind, config, spec)
