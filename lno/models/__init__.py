"""Models: each maps (x, u, x_query, mask) to predictions and is built from a `Spec`."""

from typing import Any

from torch import nn

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
]
