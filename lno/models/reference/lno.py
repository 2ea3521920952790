"""Weights of the paper's code, renamed to those of this package."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from lno.data.fields import Spec
from lno.models.lno import LNOConfig

MODULES = {
    "trunk_projector": "trunk",
    "branch_projector": "branch",
    "attention_decoder": "untied_decoder.projector",
    "out_mlp": "head",
    "attn_blocks": "blocks",
}
INSIDE_BLOCK = {
    "self_attn.proj": "attention.output",
    "ln1": "norm_attention",
    "ln2": "norm_mlp",
    "mlp.0": "up",
    "mlp.2": "down",
}


def translate(
    weights: Mapping[str, Any], config: Mapping[str, Any]
) -> tuple[LNOConfig, Spec, dict[str, Tensor]]:
    """The config, spec and state dictionary of the LNO with these weights.

    Args:
        weights: arrays by their names in the paper's code.
        config: `heads`, the number of attention heads.
    """
    heads = config["heads"]
    tied = any(name.startswith("attention_projector.") for name in weights)
    encoder = "attention_projector" if tied else "attention_encoder"
    modules = {**MODULES, encoder: "encoder.projector"}
    tensors = {name: torch.as_tensor(value) for name, value in weights.items()}
    state: dict[str, Tensor] = {}
    for name, value in tensors.items():
        module, _, rest = name.partition(".")
        if module not in modules:
            raise ValueError(
                f"{name!r} is not a weight of the reference code: expected names that begin with "
                + ", ".join(modules)
            )
        if module == "attn_blocks":
            block, _, rest = rest.partition(".")
            part, _, kind = rest.rpartition(".")
            if part in ("self_attn.Wk", "self_attn.Wv"):
                continue  # joined below with Wq
            if part == "self_attn.Wq":
                qkv = [tensors[name.replace("Wq", w)] for w in ("Wq", "Wk", "Wv")]
                state[f"blocks.{block}.attention.query_key_value.{kind}"] = torch.cat(qkv)
                continue
            rest = f"{block}.{INSIDE_BLOCK.get(part, part)}.{kind}"
        state[f"{modules[module]}.{rest}"] = value

    def count(prefix: str) -> int:
        return len({name[len(prefix) :].split(".")[0] for name in state if name.startswith(prefix)})

    try:
        width, coordinates = state["trunk.input.weight"].shape
        spec = Spec(
            coordinates,
            state["branch.input.weight"].shape[1] - coordinates,
            state["head.output.weight"].shape[0],
        )
        latents = state["encoder.projector.output.weight"].shape[0]
    except KeyError as error:
        raise ValueError(f"the weights lack {error}: expected all weights of one LNO") from error
    blocks, layers = count("blocks."), count("trunk.hidden.")
    return LNOConfig(width, latents, blocks, heads, layers, tied, 1.0), spec, state
