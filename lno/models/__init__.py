"""Models: each maps (x, u, x_query, mask) to predictions and is built from a `Spec`."""

from lno.models.lno import LNO, LatentBlock, LNOConfig, PhysicsCrossAttention

MODELS = {"lno": (LNO, LNOConfig)}

__all__ = ["LNO", "MODELS", "LNOConfig", "LatentBlock", "PhysicsCrossAttention"]
