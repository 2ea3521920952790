"""Weights of the library's FactFormer, renamed to those of this package."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from lno.data.fields import Spec
from lno.models.factformer import FactFormerConfig
from lno.models.reference.library import reference_of, sizes_of, spec_of
from lno.models.reference.weights import Published

# The published layers of an axis: its reducer, and its queries and keys.
AXES = {"rows": ("to_x.0", "attn_x"), "columns": ("to_y.1", "attn_y")}


def translate(
    weights: Mapping[str, Any], config: Mapping[str, Any]
) -> tuple[FactFormerConfig, Spec, dict[str, Tensor]]:
    """The config, spec and state dictionary of the FactFormer with these weights.

    Args:
        weights: arrays by their names in the library.
        config: `args`, the library's arguments.
    """
    args = config["args"]
    sizes = FactFormerConfig(**sizes_of(args), reference=reference_of(args))
    published = Published(weights, "FactFormer")
    published.stem()
    for k in range(sizes.layers):
        ours, theirs = f"blocks.{k}.attention", f"blocks.{k}.Attn"
        published.layer(f"blocks.{k}.norm_attention", f"blocks.{k}.ln_1")
        for axis, (reducer, kernel) in AXES.items():
            published.layer(f"{ours}.{axis}.input", f"{theirs}.{reducer}.to_in")
            published.layer(f"{ours}.{axis}.norm", f"{theirs}.{reducer}.out_ffn.norm")
            published.mlp(f"{ours}.{axis}.mlp", f"{theirs}.{reducer}.out_ffn.fn")
            names = (f"{theirs}.{kernel}.{name}" for name in ("to_q", "to_k"))
            published.layer(f"{ours}.{axis}.query_key", *names)
        published.layer(f"{ours}.value", f"{theirs}.to_v")
        published.layer(f"{ours}.output", f"{theirs}.to_out.0")
        published.block_mlp(f"blocks.{k}")
    published.last_layers(sizes.layers)
    return sizes, spec_of(args), published.state()
