"""Weights of the authors' OFormer for Darcy, renamed to those of this package."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from lno.data.fields import Spec
from lno.models.oformer import OFormerConfig
from lno.models.reference.weights import Published


def translate(
    weights: Mapping[str, Any], config: Mapping[str, Any]
) -> tuple[OFormerConfig, Spec, dict[str, Tensor]]:
    """The config, spec and state dictionary of the OFormer with these weights.

    Args:
        weights: arrays by their names in the authors' code.
        config: `encoder` and `decoder`, the arguments of their classes.
    """
    encoder, decoder = config["encoder"], config["decoder"]
    sizes = OFormerConfig(
        encoder["in_emb_dim"],
        encoder["out_seq_emb_dim"],
        encoder["depth"],
        encoder["heads"],
        encoder["res"],
        bool(encoder["use_ln"]),
    )
    if (decoder["latent_channels"], decoder["res"]) != (sizes.latent, sizes.resolution):
        raise ValueError(
            "expected one width and one resolution of encoder and decoder, got "
            f"{sizes.latent} and {decoder['latent_channels']}, {sizes.resolution} and "
            f"{decoder['res']}"
        )
    published = Published(weights, "OFormer")
    published.layer("embed", "encoder.to_embedding.0")
    for k in range(sizes.layers):
        ours, theirs = f"blocks.{k}", f"encoder.s_transformer.layers.{k}"
        if sizes.norm:
            published.layer(f"{ours}.norm_attention", f"{theirs}.0")
            published.layer(f"{ours}.norm_mlp", f"{theirs}.2")
        attention, mlp = (f"{theirs}.{j}" for j in ((1, 3) if sizes.norm else (0, 1)))
        joined, rows = published.take(f"{attention}.to_qkv.weight"), sizes.heads * sizes.width
        published.put(f"{ours}.attention.query.weight", joined[:rows])
        published.put(f"{ours}.attention.key_value.weight", joined[rows:])
        if sizes.heads > 1:
            published.layer(f"{ours}.attention.output", f"{attention}.to_out.0")
        published.skip(f"{attention}.emb_module.inv_freq")  # computed
        _move_mlp(published, f"{ours}.mlp", mlp)
    published.layer("to_latent", "encoder.to_out.0")
    published.put("frequencies", published.take("decoder.coordinate_projection.0._B"))
    published.layer("query_input", "decoder.coordinate_projection.1")
    published.layer("query_output", "decoder.coordinate_projection.3")
    cross = "decoder.decoding_transformer.cross_attn_module"
    for ours, theirs in {"query": "to_q", "key_value": "to_kv", "output": "to_out.0"}.items():
        published.layer(f"cross_attention.{ours}", f"{cross}.{theirs}")
    published.skip(f"{cross}.emb_module.inv_freq")
    _move_mlp(published, "mlp", "decoder.decoding_transformer.ffn")
    for k in (0, 2, 4):
        published.layer(f"head.{k}", f"decoder.to_out.{k}")
    state = published.state()
    coordinates = len(state["frequencies"])
    spec = Spec(
        coordinates, encoder["input_channels"] - coordinates, decoder["out_channels"], grid=None
    )
    return sizes, spec, state


def _move_mlp(published: Published, ours: str, theirs: str) -> None:
    published.layer(f"{ours}.up", f"{theirs}.net.0")
    published.layer(f"{ours}.down", f"{theirs}.net.3")
