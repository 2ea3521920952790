"""Weights of the published code of F-FNO, renamed to those of this package."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from lno.data.fields import Spec
from lno.models.ffno import FFNOConfig
from lno.models.geometry_map import LatentGrid
from lno.models.reference import image
from lno.models.reference.weights import Published

PADDING = 8  # of meshes, as published


def translate(
    weights: Mapping[str, Any], config: Mapping[str, Any]
) -> tuple[FFNOConfig, Spec, dict[str, Tensor]]:
    """The config, spec and state dictionary of the F-FNO with these weights.

    Args:
        weights: arrays by their names in the published code.
        config: `args`, the arguments of that code, and for grids `shape`, the grid.
    """
    published, args = Published(weights, "F-FNO"), config["args"]
    if any(name.startswith("iphi.") for name in published.rest):
        return _cloud(published, args)
    mesh, layers = "modes_x" in args, args["n_layers"]
    modes = (args["modes_x"], args["modes_y"]) if mesh else (args["modes"], args["modes"])
    shared = bool(args["share_weight"])
    _linear(published, "input", "in_proj")
    for k in range(layers):
        theirs = f"spectral_layers.{k}"
        _feed_forward(published, k, theirs)
        if args["layer_norm"]:
            published.layer(f"layers.{k}.norm", f"{theirs}.backcast_ff.layers.1.3")
        if shared:
            published.skip(f"{theirs}.fourier_weight.")  # other names of the same arrays
    for k in range(1 if shared else layers):
        theirs = "fourier_weight" if shared else f"spectral_layers.{k}.fourier_weight"
        # The first array is that of the rows' index on meshes, of the columns' index on grids.
        _convolutions(published, k, theirs, (0, 1) if mesh else (1, 0))
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
        image=PADDING if mesh else 0,
    )
    # On meshes, the last two inputs are the unit grid, which the model appends itself.
    channels = 0 if mesh else inputs - 2
    coordinates = inputs - 2 if mesh else 2
    outputs = state["output.direction"].shape[0]
    return sizes, Spec(coordinates, channels, outputs, tuple(config["shape"])), state


def _cloud(
    published: Published, args: Mapping[str, Any]
) -> tuple[FFNOConfig, Spec, dict[str, Tensor]]:
    prefix, layers = "model.", args["n_layers"] - 1
    for ours, theirs in {"input": "fc0", "head.input": "fc1", "head.output": "fc2"}.items():
        published.layer(ours, prefix + theirs)
    for ours, theirs in {"pixels": "bs.0", "queries": "bs.1"}.items():
        # Convolutions whose kernels are points
        published.put(f"{ours}.weight", published.take(f"{prefix}{theirs}.weight").flatten(1))
        published.put(f"{ours}.bias", published.take(f"{prefix}{theirs}.bias"))
    for k in range(layers):  # the published layer 0 is the map to the image, without weights
        theirs = f"{prefix}convs.{k + 1}"
        _feed_forward(published, k, theirs)
        _convolutions(published, k, f"{theirs}.fourier_weight", (1, 0))
    published.waves("geometry.outward", f"{prefix}convs.{layers + 1}")
    width = image.geometry_map(published)
    published.skip(f"{prefix}ws.")  # of layers that the published code makes and does not use
    state = published.state()
    modes = args["modes1"], args["modes2"]
    sizes = FFNOConfig(
        args["width"],
        layers,
        row_modes=args["modes1"],
        column_modes=args["modes1"],
        mlp_ratio=2,
        image=LatentGrid(args["s1"], args["s2"], *modes, map_width=width, standardized=False),
    )
    return sizes, Spec(2, args["in_channels"] - 2, args["out_channels"]), state


def _feed_forward(published: Published, k: int, theirs: str) -> None:
    _linear(published, f"layers.{k}.up", f"{theirs}.backcast_ff.layers.0.0")
    _linear(published, f"layers.{k}.down", f"{theirs}.backcast_ff.layers.1.0")


def _convolutions(published: Published, k: int, theirs: str, order: tuple[int, int]) -> None:
    """Along the rows' and along the columns' index, which have these places in the list."""
    for axis, place in enumerate(order):
        weight = published.take(f"{theirs}.{place}")
        published.put(f"convolutions.{k}.{axis}.weight", weight.permute(2, 0, 1, 3))


def _linear(published: Published, ours: str, theirs: str) -> None:
    if f"{theirs}.weight" in published.rest:  # without weight normalisation
        weight = published.take(f"{theirs}.weight")
        published.put(f"{ours}.direction", weight)
        published.put(f"{ours}.length", weight.norm(dim=1))
    else:
        published.put(f"{ours}.direction", published.take(f"{theirs}.weight_v"))
        published.put(f"{ours}.length", published.take(f"{theirs}.weight_g").flatten())
    published.put(f"{ours}.bias", published.take(f"{theirs}.bias"))
