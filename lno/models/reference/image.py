"""What the translators of the library's image-based models share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lno.data.fields import Spec
from lno.models.geometry_map import LatentGrid
from lno.models.reference.library import reference_of, spec_of
from lno.models.reference.weights import Published

MAP = {
    "features": "fc0",
    "input": "fc_no_code",
    "hidden.0": "fc1",
    "hidden.1": "fc2",
    "hidden.2": "fc3",
    "output": "fc4",
}
IMAGE_SIZE = 96  # rows and columns of a latent image, unless the settings say otherwise


def geometry_map(published: Published) -> int:
    """Move the weights of the geometry map; returns the number of its features."""
    width = len(published.rest.get("iphi.fc0.bias", ()))
    for ours, theirs in MAP.items():
        published.layer(f"geometry.map.{ours}", f"iphi.{theirs}")
    published.skip("iphi.fc_code.")  # reads the shape of an object, which no model here is given
    return width


def first_and_last(published: Published, config: Mapping[str, Any]) -> tuple[dict[str, Any], Spec]:
    """Move the layers around the model itself; returns keys of an `ImageConfig`, and the spec."""
    args = config["args"]
    published.stem()
    published.layer("head.input", "fc1")
    published.layer("head.output", "fc2")
    spec = spec_of(args)
    cloud = None
    if args["geotype"] == "unstructured":
        sizes = config.get("kwargs", {})
        published.waves("geometry.inward", "fftproject_in")
        published.waves("geometry.outward", "fftproject_out")
        cloud = LatentGrid(
            rows=sizes.get("s1", IMAGE_SIZE),
            columns=sizes.get("s2", IMAGE_SIZE),
            row_modes=args["modes"],
            column_modes=args["modes"],
            map_width=geometry_map(published),
            standardized=False,
        )
    keys = {
        "width": args["n_hidden"],
        "reference": reference_of(args),
        "time_input": bool(args["time_input"]),
        "cloud": cloud,
    }
    return keys, spec


def fourier_layers(published: Published, count: int, first: int = 0, prefix: str = "") -> None:
    """Move `FourierLayer`s, of which the library stores the two parts apart."""
    for k in range(count):
        published.waves(f"layers.{k}.spectral.mixing", f"{prefix}conv{k + first}")
        published.layer(f"layers.{k}.pointwise", f"{prefix}w{k + first}")


def unet(published: Published, ours: str, theirs: str = "") -> None:
    """Move a `UNet`."""
    published.move(f"{ours}.first", f"{theirs}inc.double_conv")
    for k in range(4):
        published.move(f"{ours}.down.{k}", f"{theirs}down{k + 1}.maxpool_conv.1.double_conv")
        published.move(f"{ours}.up.{k}", f"{theirs}up{k + 1}.conv.double_conv")
    published.layer(f"{ours}.output", f"{theirs}outc.conv")
