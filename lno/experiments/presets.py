"""Sizes and recipes per problem.

The paper gives L, D, M and H in its appendix D; the depths of the MLPs follow from the parameter
counts of its table on efficiency.
"""

from __future__ import annotations

from dataclasses import replace

from lno.models import LNOConfig
from lno.training.recipe import Recipe

_FORWARD = LNOConfig(width=128, latents=256, blocks=8, heads=8, layers=3, sharpness=1.0)

PAPER_CONFIGS: dict[str, LNOConfig] = {
    "darcy": replace(_FORWARD, blocks=4, layers=2),
    "ns2d": replace(_FORWARD, width=256, layers=2),
    "airfoil": _FORWARD,
    "elasticity": replace(_FORWARD, layers=4),
    "plasticity": _FORWARD,
    "pipe": _FORWARD,
    "burgers": replace(_FORWARD, width=96, blocks=4),
}
PAPER_RECIPE = Recipe(epochs=500, batch=4, rate=1e-3, weight_decay=5e-5, loss="relative_l2")
