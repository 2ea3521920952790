"""Sizes and recipes of our own: LNO+, and LNO and Transolver trained in the same way.

"fast" ends after one or two minutes on an H200, "best" after ten or less. "best-grid" has a local
convolution, which needs a grid. What they have in common: Muon, a linear decay of the learning
rate, the loss in physical units, symmetries of the problem, periodic coordinates as cos and sin. On
Darcy the loss has a part for the gradient, as Transolver's has. On NS2d they learn increments.

In long runs on Darcy weights decay, because small models overfit there. On Elasticity, decay makes
errors larger (`benchmarks/small_overfitting.py`).

LNO keeps the one-cycle schedule, with which it is more accurate in short runs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lno.experiments.preset import FORGING, PAPER_RECIPE, STEADY, TRAJECTORY, Preset
from lno.models import LNOPlusConfig, TransolverConfig
from lno.tasks import Task
from lno.training.recipe import Recipe

RECIPE = replace(PAPER_RECIPE, optimizer="muon", schedule="linear", physical=True)
DARCY = replace(RECIPE, gradient=0.1)
LONG_DARCY = replace(DARCY, weight_decay=0.1)
INCREMENTS = replace(TRAJECTORY, increments=True)
POINTS = LNOPlusConfig()
WIDE = replace(POINTS, width=256)
MESH = TransolverConfig(mlp_ratio=2, reference=None)


def _preset(config: Any, recipe: Recipe, epochs: int, task: Task = STEADY) -> Preset:
    return Preset("standard", config, replace(recipe, epochs=epochs), task, symmetries=True)


LNO_PLUS: dict[str, dict[str, Preset]] = {
    "fast": {
        "darcy": _preset(POINTS, DARCY, 100),
        "ns2d": _preset(WIDE, RECIPE, 20, INCREMENTS),
        "airfoil": _preset(POINTS, RECIPE, 60),
        "elasticity": _preset(POINTS, RECIPE, 100),
        "plasticity": _preset(POINTS, RECIPE, 10),
        "pipe": _preset(POINTS, RECIPE, 50),
    },
    "best": {
        "darcy": _preset(replace(POINTS, rounds=8), LONG_DARCY, 300),
        "ns2d": _preset(replace(WIDE, rounds=8), RECIPE, 60, INCREMENTS),
        "airfoil": _preset(replace(POINTS, rounds=8), RECIPE, 200),
        "elasticity": _preset(replace(POINTS, rounds=8), RECIPE, 500),
        "plasticity": _preset(replace(POINTS, rounds=6), RECIPE, 30),
        "pipe": _preset(replace(POINTS, rounds=8), RECIPE, 150),
    },
    "best-grid": {
        "darcy": _preset(replace(POINTS, rounds=8, local=5), LONG_DARCY, 300),
        "ns2d": _preset(replace(WIDE, rounds=8, local=5), RECIPE, 60, INCREMENTS),
        "airfoil": _preset(replace(POINTS, rounds=8, local=5), RECIPE, 200),
        "pipe": _preset(replace(POINTS, rounds=8, local=5), RECIPE, 150),
    },
}

# Published sizes, with the recipe above: a comparison of models, not of recipes.
TRANSOLVER: dict[str, dict[str, Preset]] = {
    "fast": {
        "darcy": _preset(TransolverConfig(), DARCY, 100),
        "ns2d": _preset(TransolverConfig(width=256, slices=32), RECIPE, 20, INCREMENTS),
        "airfoil": _preset(MESH, RECIPE, 60),
        "elasticity": _preset(replace(MESH, convolution=False), RECIPE, 100),
        "plasticity": _preset(replace(MESH, mlp_ratio=1, time_input=True), RECIPE, 10, FORGING),
        "pipe": _preset(MESH, RECIPE, 50),
    }
}
