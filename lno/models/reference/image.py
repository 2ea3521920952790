"""Weights of the library's image-based models, FNO, U-FNO and LSM, renamed to ours.

A translator takes arrays by their names in the library, and a `config`: `args`, the library's
settings, and `kwargs`, the sizes of a latent image.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from lno.data.fields import Spec
from lno.models import fno, ufno
from lno.models.fno import FNOConfig
from lno.models.geometry_map import LatentGrid
from lno.models.lsm import LSMConfig
from lno.models.reference.library import reference_of, spec_of
from lno.models.reference.weights import Published
from lno.models.ufno import UFNOConfig
from lno.models.unet import LEVELS

MAP = {
    "features": "fc0",
    "input": "fc_no_code",
    "hidden.0": "fc1",
    "hidden.1": "fc2",
    "hidden.2": "fc3",
    "output": "fc4",
}
# Each U-Net of the U-FNO is a whole model there. Its first and last layers have no effect.
IDLE = ("preprocess.", "time_fc.", "fc1.", "fc2.", "fftproject_in.", "fftproject_out.", "iphi.")
IMAGE_SIZE = 96  # rows and columns of a latent image, unless the settings say otherwise


def translate_fno(
    weights: Mapping[str, Any], config: Mapping[str, Any]
) -> tuple[FNOConfig, Spec, dict[str, Tensor]]:
    """The config, spec and state dictionary of the FNO with these weights."""
    published = Published(weights, "FNO")
    keys, spec = first_and_last(published, config)
    fourier_layers(published, fno.LAYERS)
    return FNOConfig(**keys, modes=config["args"]["modes"]), spec, published.state()


def translate_ufno(
    weights: Mapping[str, Any], config: Mapping[str, Any]
) -> tuple[UFNOConfig, Spec, dict[str, Tensor]]:
    """The config, spec and state dictionary of the U-FNO with these weights."""
    published, args = Published(weights, "U-FNO"), config["args"]
    keys, spec = first_and_last(published, config)
    fourier_layers(published, ufno.LAYERS)
    for k in range(ufno.UNETS):
        theirs = f"u_net{ufno.LAYERS - ufno.UNETS + k}."
        unet(published, f"unets.{k}", theirs)
        published.skip(*(f"{theirs}{part}" for part in IDLE))
    sizes = UFNOConfig(**keys, modes=args["modes"], batch_norm=args["task"] == "steady")
    return sizes, spec, published.state()


def translate_lsm(
    weights: Mapping[str, Any], config: Mapping[str, Any]
) -> tuple[LSMConfig, Spec, dict[str, Tensor]]:
    """The config, spec and state dictionary of the LSM with these weights."""
    published, args = Published(weights, "LSM"), config["args"]
    keys, spec = first_and_last(published, config)
    unet(published, "unet")
    heads, tokens, basis = args["n_heads"], 0, 0
    for k in range(len(LEVELS)):
        ours, theirs = f"unet.between.{k}", f"process{k + 1}"
        latent, series = published.take(f"{theirs}.latent"), published.take(f"{theirs}.weights")
        tokens, basis = latent.shape[1], series.shape[1] // 2
        published.put(f"{ours}.latent", latent)
        published.put(f"{ours}.waves", series.unflatten(1, (2, basis)).unflatten(0, (heads, -1)))
        for kind in ("weight", "bias"):
            both = published.take(f"{theirs}.encoder_attn.{kind}")
            queries = published.take(f"{theirs}.decoder_attn.{kind}")
            if kind == "weight":  # 1×1 convolutions are linear layers here
                both, queries = both.flatten(1), queries.flatten(1)
            # Keys and values alternate there.
            published.put(f"{ours}.keys_values.{kind}", torch.cat((both[::2], both[1::2])))
            published.put(f"{ours}.queries.{kind}", queries)
    sizes = LSMConfig(
        **keys, heads=heads, tokens=tokens, basis=basis, batch_norm=args["task"] == "steady"
    )
    return sizes, spec, published.state()


# -- what they share -------------------------------------------------------------------------------


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
