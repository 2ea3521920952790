"""Weights of the library's Galerkin Transformer, renamed to those of this package."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from lno.data.fields import Spec
from lno.models.galerkin import GalerkinConfig
from lno.models.reference.library import reference_of, sizes_of, spec_of
from lno.models.reference.weights import Published


def translate(
    weights: Mapping[str, Any], config: Mapping[str, Any]
) -> tuple[GalerkinConfig, Spec, dict[str, Tensor]]:
    """The config, spec and state dictionary of the Galerkin Transformer with these weights.

    Args:
        weights: arrays by their names in the library.
        config: `args`, the library's arguments.
    """
    args = config["args"]
    sizes = GalerkinConfig(**sizes_of(args), reference=reference_of(args))
    published = Published(weights, "Galerkin Transformer")
    published.stem()
    for k in range(sizes.layers):
        published.layer(f"blocks.{k}.norm_attention", f"blocks.{k}.ln_1")
        published.layer(f"blocks.{k}.norm_keys", f"blocks.{k}.ln_1a")
        move_attention(published, f"blocks.{k}.attention", f"blocks.{k}.Attn")
        published.block_mlp(f"blocks.{k}")
    published.last_layers(sizes.layers)
    return sizes, spec_of(args), published.state()


def move_attention(published: Published, ours: str, theirs: str) -> None:
    """The weights of a `GalerkinAttention`."""
    published.layer(f"{ours}.query", f"{theirs}.query")
    published.layer(f"{ours}.key_value", f"{theirs}.key", f"{theirs}.value")
    published.layer(f"{ours}.output", f"{theirs}.proj")
