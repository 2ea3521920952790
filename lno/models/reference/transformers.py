"""Weights of the library's transformers, Galerkin, FactFormer and ONO, renamed to ours.

A translator takes arrays by their names in the library, and a `config`: `args`, its arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from lno.data.fields import Spec
from lno.models.factformer import FactFormerConfig
from lno.models.galerkin import GalerkinConfig
from lno.models.ono import ONOConfig
from lno.models.reference.library import reference_of, sizes_of, spec_of
from lno.models.reference.weights import Published

# The published layers of an axis of FactFormer: its reducer, and its queries and keys.
AXES = {"rows": ("to_x.0", "attn_x"), "columns": ("to_y.1", "attn_y")}
ATTENTIONS = {"linear": "linear", "selfAttention": "softmax", "nystrom": "nystrom"}  # of ONO


def translate_galerkin(
    weights: Mapping[str, Any], config: Mapping[str, Any]
) -> tuple[GalerkinConfig, Spec, dict[str, Tensor]]:
    """The config, spec and state dictionary of the Galerkin Transformer with these weights."""
    args = config["args"]
    sizes = GalerkinConfig(**sizes_of(args), reference=reference_of(args))
    published = Published(weights, "Galerkin Transformer")
    published.stem()
    for k in range(sizes.layers):
        published.layer(f"blocks.{k}.norm_attention", f"blocks.{k}.ln_1")
        published.layer(f"blocks.{k}.norm_keys", f"blocks.{k}.ln_1a")
        _move_galerkin_attention(published, f"blocks.{k}.attention", f"blocks.{k}.Attn")
        published.block_mlp(f"blocks.{k}")
    published.last_layers(sizes.layers)
    return sizes, spec_of(args), published.state()


def translate_factformer(
    weights: Mapping[str, Any], config: Mapping[str, Any]
) -> tuple[FactFormerConfig, Spec, dict[str, Tensor]]:
    """The config, spec and state dictionary of the FactFormer with these weights."""
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


def translate_ono(
    weights: Mapping[str, Any], config: Mapping[str, Any]
) -> tuple[ONOConfig, Spec, dict[str, Tensor]]:
    """The config, spec and state dictionary of the ONO with these weights.

    Those of a model that was never trained have no running covariance.
    """
    args = config["args"]
    if args["unified_pos"] or args["attn_type"] not in ATTENTIONS:
        raise ValueError(
            f"expected unified_pos 0 and attn_type {', '.join(ATTENTIONS)}, which the library's "
            f"ONO can run, got {args['unified_pos']} and {args['attn_type']!r}"
        )
    attention = ATTENTIONS[args["attn_type"]]
    sizes = ONOConfig(**sizes_of(args), modes=args["psi_dim"], attention=attention)
    published = Published(weights, "ONO")
    published.stem("stem_functions", "preprocess_z")
    published.mlp("stem_points.mlp", "preprocess_x")
    for k in range(sizes.layers):
        block, last = f"blocks.{k}", k == sizes.layers - 1
        published.layer(f"{block}.points.norm_attention", f"{block}.ln_1")
        ours, theirs = f"{block}.points.attention", f"{block}.Attn"
        _move_ono_attention(published, sizes.attention, ours, theirs)
        published.block_mlp(f"{block}.points", block)
        published.layer(f"{block}.project", f"{block}.proj")
        scale = published.take(f"{block}.mu")
        published.put(f"{block}.scale", scale)
        none = scale.new_zeros(sizes.modes, sizes.modes)
        published.put(f"{block}.covariance", published.rest.pop(f"{block}.feature_cov", none))
        published.layer("norm" if last else f"mlps.{k}.0", f"{block}.ln_3")
        if not last:
            published.layer(f"mlps.{k}.1", f"{block}.mlp2.linear_pre.0")
            published.layer(f"mlps.{k}.3", f"{block}.mlp2.linear_post")
    published.layer("head", f"blocks.{sizes.layers - 1}.mlp2")
    return sizes, spec_of(args), published.state()


def _move_ono_attention(published: Published, kind: str, ours: str, theirs: str) -> None:
    if kind == "linear":
        _move_galerkin_attention(published, ours, theirs)
    elif kind == "softmax":
        names = (f"{theirs}.{name}" for name in ("to_q", "to_k", "to_v"))
        published.layer(f"{ours}.query_key_value", *names)
        published.layer(f"{ours}.output", f"{theirs}.to_out")
    else:
        published.layer(f"{ours}.query_key_value", f"{theirs}.to_qkv")
        published.layer(f"{ours}.convolution", f"{theirs}.res_conv")
        published.layer(f"{ours}.output", f"{theirs}.to_out.0")


def _move_galerkin_attention(published: Published, ours: str, theirs: str) -> None:
    """The weights of a `GalerkinAttention`."""
    published.layer(f"{ours}.query", f"{theirs}.query")
    published.layer(f"{ours}.key_value", f"{theirs}.key", f"{theirs}.value")
    published.layer(f"{ours}.output", f"{theirs}.proj")
