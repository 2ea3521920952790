"""Models with published weights give the published outputs, in float64."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_models import close, count_parameters

from lno import Spec
from lno.models import (
    FactFormerConfig,
    GalerkinConfig,
    Model,
    OFormerConfig,
    ONOConfig,
    from_reference,
)

FIXTURES = Path(__file__).parents[1] / "fixtures" / "baselines"
FILES = sorted(path.stem for path in FIXTURES.glob("*.npz"))
Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def open_fixture(name: str) -> tuple[Any, dict[str, np.ndarray], dict[str, Any]]:
    """The file, its weights in double precision, and the settings of the published code."""
    file = np.load(FIXTURES / f"{name}.npz")
    weights = {key[7:]: file[key] for key in file.files if key.startswith("weight/")}
    wide = {"f": "float64", "c": "complex128"}
    weights = {k: v.astype(wide.get(v.dtype.kind, v.dtype)) for k, v in weights.items()}
    config = json.loads(str(file["config"]))
    if "input/x" in file.files and file["input/x"].ndim == 4:
        config["shape"] = file["input/x"].shape[1:3]
    return file, weights, config


def inputs_of(file: Any, part: str = "input") -> Inputs:
    """Observed positions and values, and queries, from the arguments of the published code."""
    given = {
        key.split("/")[1]: torch.from_numpy(file[key]).double()
        for key in file.files
        if key.startswith(f"{part}/")
    }
    if "propagate_pos" in given:  # OFormer: values come before positions
        return given["input_pos"], given["x"][..., :-2], given["propagate_pos"]
    if "x_out" in given:  # Geo-FNO: reads positions alone, predicts at others
        return given["u"], given["u"][..., :0], given["x_out"]
    x = given["x"]
    if x.ndim == 4 and x.shape[-1] == 3:  # F-FNO on grids: a value, then two coordinates
        x, values = x[..., 1:].flatten(1, 2), x[..., :1].flatten(1, 2)
        return x, values, x
    x = x.flatten(1, 2) if x.ndim == 4 else x
    return x, given.get("fx", x[..., :0]), x


def load(name: str) -> tuple[Any, Model]:
    file, weights, config = open_fixture(name)
    return file, from_reference(name.split("_")[0], weights, config)


@pytest.mark.parametrize("name", FILES)
def test_published_weights_give_the_published_output(name: str) -> None:
    file, model = load(name)
    assert all(p.dtype in (torch.float64, torch.complex128) for p in model.parameters())
    assert all(b.dtype != torch.float32 for b in model.buffers())
    with torch.no_grad():
        out = model.eval()(*inputs_of(file))
    assert close(out, torch.from_numpy(file["out"]).reshape(out.shape), 1e-9)


@pytest.mark.parametrize("name", FILES)
def test_weights_of_single_precision_give_models_of_it(name: str) -> None:
    file, weights, config = open_fixture(name)
    narrow = {"f": "float32", "c": "complex64"}
    weights = {k: v.astype(narrow.get(v.dtype.kind, v.dtype)) for k, v in weights.items()}
    model = from_reference(name.split("_")[0], weights, config).eval()
    with torch.no_grad():
        out = model(*(v.float() for v in inputs_of(file)))
    assert out.dtype == torch.float32
    # The published code itself in float32 is the measure of what rounding costs.
    exact = torch.from_numpy(file["out"]).reshape(out.shape)
    rounding = (torch.from_numpy(file["out_float32"]).reshape(out.shape) - exact).abs().max()
    assert (out - exact).abs().max() <= 10 * rounding + 1e-5 * exact.abs().max()


@pytest.mark.parametrize("name", FILES)
def test_weights_that_do_not_fit_are_refused(name: str) -> None:
    _, weights, config = open_fixture(name)
    kind, first = name.split("_")[0], next(k for k in weights if "weight" in k)
    with pytest.raises(ValueError, match=r"'zzz\.weight' is not a weight of the published code"):
        from_reference(kind, {**weights, "zzz.weight": np.zeros(3)}, config)
    with pytest.raises(ValueError, match=f"the weights lack '{first}': expected all weights of"):
        from_reference(kind, {k: v for k, v in weights.items() if k != first}, config)
    with pytest.raises(ValueError, match="the weights do not fit one"):
        from_reference(kind, {**weights, first: np.zeros((3, 3))}, config)
    with pytest.raises(ValueError, match=r"the settings of the published .* lack .*: got none"):
        from_reference(kind, weights, {})


def test_only_known_models_have_published_weights() -> None:
    with pytest.raises(
        ValueError, match=r"no published weights of 'deeponet': expected one of lno"
    ):
        from_reference("deeponet", {}, {})


DARCY, NS2D = Spec(2, 1, 1, (85, 85)), Spec(2, 10, 1, (64, 64))
AIRFOIL, ELASTICITY = Spec(2, 0, 1, (221, 51)), Spec(2, 0, 1)
PIPE, PLASTICITY = Spec(2, 2, 1, (129, 129)), Spec(2, 2, 4, (101, 31))  # with the time as a value


@pytest.mark.parametrize(
    ("spec", "config", "count"),
    [
        (DARCY, GalerkinConfig(), 1_112_193),
        (NS2D, GalerkinConfig(width=256), 4_391_681),
        (AIRFOIL, GalerkinConfig(mlp_ratio=1, reference=None), 832_897),
        (ELASTICITY, GalerkinConfig(reference=None), 1_096_065),
        (PIPE, GalerkinConfig(reference=None), 1_096_577),
        (PLASTICITY, GalerkinConfig(mlp_ratio=1, reference=None, time_input=True), 866_564),
        (DARCY, FactFormerConfig(), 1_782_913),
        (NS2D, FactFormerConfig(width=256), 7_064_321),
        (AIRFOIL, FactFormerConfig(width=32, mlp_ratio=1, reference=None), 97_505),
        (PIPE, FactFormerConfig(reference=None), 1_767_297),
        (DARCY, OFormerConfig(), 2_556_321),
        (DARCY, ONOConfig(128, 10, 8, 32, 2, "nystrom"), 2_029_137),
        (NS2D, ONOConfig(), 1_116_161),
        (PIPE, ONOConfig(128, 8, 8, 8, 2, "nystrom"), 1_599_297),
        (PLASTICITY, ONOConfig(32, 8, 8, 8, 1, "nystrom", time_input=True), 77_476),
    ],
)
def test_published_sizes_have_the_published_parameter_counts(
    spec: Spec, config: Any, count: int
) -> None:
    assert count_parameters(spec, config) == count
