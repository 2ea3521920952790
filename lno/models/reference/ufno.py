"""Weights of the library's U-FNO, renamed to those of this package."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from lno.data.fields import Spec
from lno.models.reference import image
from lno.models.reference.weights import Published
from lno.models.ufno import LAYERS, UNETS, UFNOConfig

# Each U-Net there is a whole model. Its first and last layers have no effect.
IDLE = ("preprocess.", "time_fc.", "fc1.", "fc2.", "fftproject_in.", "fftproject_out.", "iphi.")


def translate(
    weights: Mapping[str, Any], config: Mapping[str, Any]
) -> tuple[UFNOConfig, Spec, dict[str, Tensor]]:
    """The config, spec and state dictionary of the U-FNO with these weights.

    Args:
        weights: arrays by their names in the published code.
        config: `args`, the library's settings, and `kwargs`, the sizes of a latent image.
    """
    published, args = Published(weights, "U-FNO"), config["args"]
    keys, spec = image.first_and_last(published, config)
    image.fourier_layers(published, LAYERS)
    for k in range(UNETS):
        theirs = f"u_net{LAYERS - UNETS + k}."
        image.unet(published, f"unets.{k}", theirs)
        published.skip(*(f"{theirs}{part}" for part in IDLE))
    sizes = UFNOConfig(**keys, modes=args["modes"], batch_norm=args["task"] == "steady")
    return sizes, spec, published.state()
