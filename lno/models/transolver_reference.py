"""Weights of the published code of Transolver, renamed to those of this package."""

from __future__ import annotations

from collections.abc import Mapping
from math import isqrt
from typing import Any

import torch
from torch import Tensor

from lno.data.fields import Spec
from lno.models.transolver import TransolverConfig

# Layers of a block and their names in the published code. Keys (in_project_x) and values are one
# layer here, and so are queries, keys and values of the attention between slices.
BLOCK = {
    "norm_attention": ["ln_1"],
    "attention.keys_values": ["Attn.in_project_x", "Attn.in_project_fx"],
    "attention.slice": ["Attn.in_project_slice"],
    "attention.query_key_value": ["Attn.to_q", "Attn.to_k", "Attn.to_v"],
    "attention.output": ["Attn.to_out.0"],
    "norm_mlp": ["ln_2"],
    "up": ["mlp.linear_pre.0"],
    "down": ["mlp.linear_post"],
}


def translate(
    weights: Mapping[str, Any], heads: int, grid: tuple[int, int] | None, in_channels: int
) -> tuple[TransolverConfig, Spec, dict[str, Tensor]]:
    """The config, spec and state dictionary of the Transolver with these weights."""
    rest = {name: torch.as_tensor(value) for name, value in weights.items()}
    layers = len({name.split(".")[1] for name in rest if name.startswith("blocks.")})
    modules = {
        "preprocess.input": ["preprocess.linear_pre.0"],
        "preprocess.output": ["preprocess.linear_post"],
        "norm": [f"blocks.{layers - 1}.ln_3"],
        "head": [f"blocks.{layers - 1}.mlp2"],
    }
    timed = "time_fc.0.weight" in rest
    if timed:
        modules |= {f"time.{k}": [f"time_fc.{k}"] for k in (0, 2)}
    for k in range(layers):
        for ours, theirs in BLOCK.items():
            modules[f"blocks.{k}.{ours}"] = [f"blocks.{k}.{name}" for name in theirs]
    state: dict[str, Tensor] = {}
    try:
        state["placeholder"] = rest.pop("placeholder")
        for k in range(layers):
            temperature = rest.pop(f"blocks.{k}.Attn.temperature")
            state[f"blocks.{k}.attention.temperature"] = temperature.flatten()
        for ours, names in modules.items():
            for kind in ("weight", "bias"):
                if not (kind == "bias" and ours.endswith("query_key_value")):
                    parts = [rest.pop(f"{name}.{kind}") for name in names]
                    state[f"{ours}.{kind}"] = torch.cat(parts)
    except KeyError as error:
        raise ValueError(
            f"the weights lack {error}: expected all weights of one Transolver"
        ) from error
    if rest:
        raise ValueError(f"{min(rest)!r} is not a weight of the published code")
    width = state["placeholder"].shape[0]
    positions = state["preprocess.input.weight"].shape[1] - in_channels
    # On a grid, positions are two coordinates or distances to a square number of points.
    reference = None if grid is None or positions == 2 else isqrt(max(positions, 0))
    if positions < 1 or (reference is not None and reference**2 != positions):
        raise ValueError(
            f"the weights are for {positions + in_channels} inputs, of which {in_channels} cannot "
            "be values: pass the right in_channels"
        )
    config = TransolverConfig(
        width,
        layers,
        heads,
        slices=state["blocks.0.attention.slice.weight"].shape[0],
        mlp_ratio=state["blocks.0.up.weight"].shape[0] // width,
        convolution=state["blocks.0.attention.keys_values.weight"].ndim == 4,
        reference=reference,
        time_input=timed,
    )
    coordinates = positions if reference is None else 2
    spec = Spec(coordinates, in_channels + timed, state["head.weight"].shape[0], grid)
    return config, spec, state
