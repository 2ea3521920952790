"""Weights of the library's LSM, renamed to those of this package."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from lno.data.fields import Spec
from lno.models.lsm import LSMConfig
from lno.models.reference import image
from lno.models.reference.weights import Published
from lno.models.unet import LEVELS


def translate(
    weights: Mapping[str, Any], config: Mapping[str, Any]
) -> tuple[LSMConfig, Spec, dict[str, Tensor]]:
    """The config, spec and state dictionary of the LSM with these weights.

    Args:
        weights: arrays by their names in the published code.
        config: `args`, the library's settings, and `kwargs`, the sizes of a latent image.
    """
    published, args = Published(weights, "LSM"), config["args"]
    keys, spec = image.first_and_last(published, config)
    image.unet(published, "unet")
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
