"""Weights of the published code of Geo-FNO, renamed to those of this package."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from lno.data.fields import Spec
from lno.models.geofno import LAYERS, GeoFNOConfig
from lno.models.geometry_map import LatentGrid
from lno.models.reference import image
from lno.models.reference.weights import Published


def translate(
    weights: Mapping[str, Any], config: Mapping[str, Any]
) -> tuple[GeoFNOConfig, Spec, dict[str, Tensor]]:
    """The config, spec and state dictionary of the Geo-FNO with these weights.

    Args:
        weights: arrays by their names in the published code.
        config: `args`, the arguments of that code, and for structured meshes `shape`, the grid.
    """
    published, args = Published(weights, "Geo-FNO"), config["args"]
    modes = args["modes1"], args["modes2"]
    if any(name.startswith("iphi.") for name in published.rest):
        return _cloud(published, args, modes)
    _first_and_last(published, "")
    image.fourier_layers(published, LAYERS)
    state = published.state()
    # The mesh's coordinates, then those of the unit grid, which the model appends itself
    coordinates, outputs = state["input.weight"].shape[1] - 2, len(state["head.output.bias"])
    spec = Spec(coordinates, 0, outputs, tuple(config["shape"]))
    return GeoFNOConfig(args["width"], *modes), spec, state


def _first_and_last(published: Published, prefix: str) -> None:
    for ours, theirs in {"input": "fc0", "head.input": "fc1", "head.output": "fc2"}.items():
        published.layer(ours, prefix + theirs)


def _cloud(
    published: Published, args: Mapping[str, Any], modes: tuple[int, int]
) -> tuple[GeoFNOConfig, Spec, dict[str, Tensor]]:
    prefix = "model."
    _first_and_last(published, prefix)
    published.waves("geometry.inward", f"{prefix}conv0")
    image.fourier_layers(published, LAYERS - 1, first=1, prefix=prefix)
    published.waves("geometry.outward", f"{prefix}conv{LAYERS}")
    for k in range(LAYERS):
        published.layer(f"pixels.{k}", f"{prefix}b{k}")
    published.put("queries.weight", published.take(f"{prefix}b{LAYERS}.weight").squeeze(-1))
    published.put("queries.bias", published.take(f"{prefix}b{LAYERS}.bias"))
    width = image.geometry_map(published)
    state = published.state()
    cloud = LatentGrid(args["s1"], args["s2"], *modes, map_width=width, standardized=False)
    spec = Spec(2, args["in_channels"] - 2, args["out_channels"])
    return GeoFNOConfig(args["width"], *modes, cloud=cloud), spec, state
