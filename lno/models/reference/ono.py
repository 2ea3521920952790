"""Weights of the library's ONO, renamed to those of this package."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from lno.data.fields import Spec
from lno.models.ono import ONOConfig
from lno.models.reference.galerkin import move_attention
from lno.models.reference.library import sizes_of, spec_of
from lno.models.reference.weights import Published

ATTENTIONS = {"linear": "linear", "selfAttention": "softmax", "nystrom": "nystrom"}


def translate(
    weights: Mapping[str, Any], config: Mapping[str, Any]
) -> tuple[ONOConfig, Spec, dict[str, Tensor]]:
    """The config, spec and state dictionary of the ONO with these weights.

    Args:
        weights: arrays by their names in the library. Those of a model that was never trained
            have no running covariance.
        config: `args`, the library's arguments.
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
        _move_attention(published, sizes.attention, f"{block}.points.attention", f"{block}.Attn")
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


def _move_attention(published: Published, kind: str, ours: str, theirs: str) -> None:
    if kind == "linear":
        move_attention(published, ours, theirs)
    elif kind == "softmax":
        names = (f"{theirs}.{name}" for name in ("to_q", "to_k", "to_v"))
        published.layer(f"{ours}.query_key_value", *names)
        published.layer(f"{ours}.output", f"{theirs}.to_out")
    else:
        published.layer(f"{ours}.query_key_value", f"{theirs}.to_qkv")
        published.layer(f"{ours}.convolution", f"{theirs}.res_conv")
        published.layer(f"{ours}.output", f"{theirs}.to_out.0")
