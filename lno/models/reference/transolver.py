"""Weights of the published code of Transolver, renamed to those of this package."""

from __future__ import annotations

from collections.abc import Mapping
from math import isqrt
from typing import Any

from torch import Tensor

from lno.data.fields import Spec
from lno.models.reference.weights import Published
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
    weights: Mapping[str, Any], config: Mapping[str, Any]
) -> tuple[TransolverConfig, Spec, dict[str, Tensor]]:
    """The config, spec and state dictionary of the Transolver with these weights.

    Args:
        weights: arrays by their names in the published code.
        config: `heads`; `grid`, its shape, None for a point cloud; and `in_channels`, the number of
            input channels without time. The weights only determine how many there are together
            with coordinates or, on a grid, distances to reference points.
    """
    grid, in_channels = config["grid"], config["in_channels"]
    published = Published(weights, "Transolver")
    layers, timed = published.count("blocks."), "time_fc.0.weight" in published.rest
    published.put("placeholder", published.take("placeholder"))
    published.stem()
    for k in range(layers):
        temperature = published.take(f"blocks.{k}.Attn.temperature")
        published.put(f"blocks.{k}.attention.temperature", temperature.flatten())
        for ours, theirs in BLOCK.items():
            published.layer(f"blocks.{k}.{ours}", *(f"blocks.{k}.{name}" for name in theirs))
    published.last_layers(layers)
    state = published.state()
    width = state["placeholder"].shape[0]
    positions = state["stem.mlp.input.weight"].shape[1] - in_channels
    # On a grid, positions are two coordinates or distances to a square number of points.
    reference = None if grid is None or positions == 2 else isqrt(max(positions, 0))
    if positions < 1 or (reference is not None and reference**2 != positions):
        raise ValueError(
            f"the weights are for {positions + in_channels} inputs, of which {in_channels} cannot "
            "be values: pass the right in_channels"
        )
    sizes = TransolverConfig(
        width,
        layers,
        config["heads"],
        slices=state["blocks.0.attention.slice.weight"].shape[0],
        mlp_ratio=state["blocks.0.up.weight"].shape[0] // width,
        convolution=state["blocks.0.attention.keys_values.weight"].ndim == 4,
        reference=reference,
        time_input=timed,
    )
    coordinates = positions if reference is None else 2
    spec = Spec(coordinates, in_channels + timed, state["head.weight"].shape[0], grid)
    return sizes, spec, state
