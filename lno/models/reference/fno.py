"""Weights of the library's FNO, renamed to those of this package."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from lno.data.fields import Spec
from lno.models.fno import LAYERS, FNOConfig
from lno.models.reference import image
from lno.models.reference.weights import Published


def translate(
    weights: Mapping[str, Any], config: Mapping[str, Any]
) -> tuple[FNOConfig, Spec, dict[str, Tensor]]:
    """The config, spec and state dictionary of the FNO with these weights.

    Args:
        weights: arrays by their names in the published code.
        config: `args`, the library's settings, and `kwargs`, the sizes of a latent image.
    """
    published = Published(weights, "FNO")
    keys, spec = image.first_and_last(published, config)
    image.fourier_layers(published, LAYERS)
    return FNOConfig(**keys, modes=config["args"]["modes"]), spec, published.state()
