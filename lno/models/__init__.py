"""Models: each maps (x, u, x_query, mask) to predictions and is built from a `Spec`."""

from typing import Any

from torch import nn

from lno.models.lno import LNO, LatentBlock, LNOConfig, PhysicsCrossAttention
from lno.models.transolver import Transolver, TransolverConfig

MODELS: dict[str, tuple[type[nn.Module], Any]] = {
    "lno": (LNO, LNOConfig),
    "transolver": (Transolver, TransolverConfig),
}

__all__ = [
    "LNO",
    "MODELS",
    "LNOConfig",
    "LatentBlock",
    "PhysicsCrossAttention",
    "Transolver",
    "TransolverConfig",
]
