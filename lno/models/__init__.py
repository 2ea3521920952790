"""Models: each maps (x, u, x_query, mask) to predictions and is built from a `Spec`."""

from typing import Any

import torch
from torch import nn

from lno.config import from_dict
from lno.data import Spec
from lno.models.deeponet import DeepONet, DeepONetConfig
from lno.models.gnot import GNOT, GNOTConfig
from lno.models.lno import LNO, LatentBlock, LNOConfig, PhysicsCrossAttention
from lno.models.transolver import Transolver, TransolverConfig

MODELS: dict[str, tuple[type[nn.Module], Any]] = {
    "lno": (LNO, LNOConfig),
    "deeponet": (DeepONet, DeepONetConfig),
    "gnot": (GNOT, GNOTConfig),
    "transolver": (Transolver, TransolverConfig),
}


def build_model(kind: str, config: Any, spec: Spec, seed: int = 0) -> nn.Module:
    """A new model by name, with initial weights that `seed` decides."""
    if kind not in MODELS:
        raise ValueError(f"no model {kind!r}: expected one of {', '.join(MODELS)}")
    model_class, config_class = MODELS[kind]
    if not isinstance(config, config_class):
        config = from_dict(config_class, config or {})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return model_class(spec, config)


__all__ = [
    "GNOT",
    "LNO",
    "MODELS",
    "DeepONet",
    "DeepONetConfig",
    "GNOTConfig",
    "LNOConfig",
    "LatentBlock",
    "PhysicsCrossAttention",
    "Transolver",
    "TransolverConfig",
    "build_model",
]
