"""Weights of the published code of F-FNO, renamed to those of this package."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from lno.data.fields import Spec
from lno.models.ffno import FFNOConfig
from lno.models.reference.weights import Published

PADDING = 8  # of meshes, as published


def translate(
    weights: Mapping[str, Any], config: Mapping[str, Any]
) -> tuple[FFNOConfig, Spec, dict[str, Tensor]]:
    """The config, spec and state dictionary of the F-FNO with these weights.

    Args:
        weights: arrays by their names in the published code.
        config: `args`, the arguments of that code, and `shape`, the grid.
    """
    published, args = Published(weights, "F-FNO"), config["args"]
    mesh, layers = "modes_x" in args, args["n_layers"]
    modes = (args["modes_x"], args["modes_y"]) if mesh else (args["modes"], args["modes"])
    shared = bool(args["share_weight"])
    _linear(published, "input", "in_proj")
    for k in range(layers):
        theirs = f"spectral_layers.{k}"
        _linear(published, f"layers.{k}.up", f"{theirs}.backcast_ff.layers.0.0")
        _linear(published, f"layers.{k}.down", f"{theirs}.backcast_ff.layers.1.0")
        if args["layer_norm"]:
            published.layer(f"layers.{k}.norm", f"{theirs}.backcast_ff.layers.1.3")
        if shared:
            published.skip(f"{theirs}.fourier_weight.")  # other names of the same arrays
    for k in range(1 if shared else layers):
        theirs = "fourier_weight" if shared else f"spectral_layers.{k}.fourier_weight"
        for axis in (0, 1):
            # The first array is that of the rows' index on meshes, of the columns' index on grids.
            weight = published.take(f"{theirs}.{axis if mesh else 1 - axis}")
            published.put(f"convolutions.{k}.{axis}.weight", weight.permute(2, 0, 1, 3))
    _linear(published, "hidden", "out.0")
    _linear(published, "output", "out.1")
    state = published.state()
    if not mesh:  # values, then two coordinates
        state["input.direction"] = state["input.direction"].roll(2, dims=1)
    inputs = state["input.direction"].shape[1]
    sizes = FFNOConfig(
        args["width"],
        layers,
        *modes,
        mlp_ratio=args["factor"],
        shared=shared,
        layer_norm=bool(args["layer_norm"]),
        padding=PADDING if mesh else 0,
    )
    # On meshes, the last two inputs are the unit grid, which the model appends itself.
    channels = 0 if mesh else inputs - 2
    coordinates = inputs - 2 if mesh else 2
    outputs = state["output.direction"].shape[0]
    return sizes, Spec(coordinates, channels, outputs, tuple(config["shape"])), state


def _linear(published: Published, ours: str, theirs: str) -> None:
    if f"{theirs}.weight" in published.rest:  # without weight normalisation
        weight = published.take(f"{theirs}.weight")
        published.put(f"{ours}.direction", weight)
        published.put(f"{ours}.length", weight.norm(dim=1))
    else:
        published.put(f"{ours}.direction", published.take(f"{theirs}.weight_v"))
        published.put(f"{ours}.length", published.take(f"{theirs}.weight_g").flatten())
    published.put(f"{ours}.bias", published.take(f"{theirs}.bias"))
