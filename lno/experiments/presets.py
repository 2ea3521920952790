"""Sizes and recipes per problem: what "paper", "fast" and "small" mean.

The paper gives L, D, M and H of LNO in its appendix D; the depths of the MLPs follow from the
parameter counts of its table on efficiency. Transolver is trained as its authors did.

The inverse problem has two stages, and presets for each: "completer" and "propagator" are the
paper's, for LNO, GNOT and DeepONet alike, "our-completer" and "our-propagator" our own for LNO.
One completer serves all ratios of observed points; "completer-5" serves 5 % alone, as the paper's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from lno.data import Fields
from lno.data.observe import RandomRatio, Window
from lno.models import DeepONetConfig, GNOTConfig, LNOConfig, TransolverConfig
from lno.tasks import Completion, Propagation, Rollout, Steady, Task
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
PAPER_RECIPE = Recipe(
    epochs=500, batch=4, optimizer="adamw", rate=1e-3, weight_decay=5e-5, loss="relative_l2"
)
STEADY, FILM = Steady(), Rollout(10)
WINDOW = Window("t", 0.25, 0.75)  # where Burgers' equation is observed
RATIOS = (0.2, 0.1, 0.05, 0.01, 0.005)  # of its points there
ANY_RATIO = RandomRatio(min(RATIOS), max(RATIOS))
# Ours passes through its sensors: with more of them than this, they decide rather than the model.
FEW_SENSORS = RandomRatio(0.0025, 0.05)


@dataclass(frozen=True)
class Preset:
    """A protocol, the sizes of a model and how to train it.

    Args:
        protocol: which data set of the problem, see `lno.experiments.datasets`.
        config: of the model.
        recipe: how to train.
        task: what a step means.
        symmetries: train on the symmetries of the problem.
        raw: read periodic coordinates as plain numbers, as the paper does, not as cos and sin.
    """

    protocol: str
    config: Any
    recipe: Recipe
    task: Task = STEADY
    symmetries: bool = False
    raw: bool = False

    def training_data(self, fields: Fields) -> Fields:
        """Samples as the model of this preset reads them."""
        return fields.without_period() if self.raw else fields


# The published code of Transolver: the rate and its cycle are torch's defaults, the loss is in
# physical units, and the gradient's relative error is taken for each axis, which counts twice ours.
_TRANSOLVER = replace(
    PAPER_RECIPE, weight_decay=1e-5, square_beta=0.999, schedule="onecycle_torch", physical=True
)
_SMALL = LNOConfig(width=64, latents=64, blocks=2, heads=4, layers=1)

# The paper's recipe for its inverse problem, but for larger batches and some of the query points in
# a step: a budget that all models share. Below it, ours.
_PROPAGATOR = replace(PAPER_RECIPE, batch=32, loss="mse", queries=2048)
_COMPLETER = replace(_PROPAGATOR, optimizer="adam", weight_decay=0.0, schedule="step")
_OURS = replace(_PROPAGATOR, epochs=200, optimizer="muon", loss="relative_mae", queries=1024)
_OUR_CONFIG = replace(PAPER_CONFIGS["burgers"], blocks=6, sharpness=LNOConfig().sharpness)


def _completer(config: Any, pattern: RandomRatio) -> dict[str, Preset]:
    """The paper's way to train the first stage of the inverse problem."""
    task = Completion(pattern, WINDOW)
    return {"burgers": Preset("standard", config, _COMPLETER, task, raw=True)}


def _stages(config: Any) -> dict[str, dict[str, Preset]]:
    """Both stages."""
    second = Preset("standard", config, _PROPAGATOR, Propagation(WINDOW), raw=True)
    return {"completer": _completer(config, ANY_RATIO), "propagator": {"burgers": second}}


def completer_of(ratio: float) -> str:
    """The preset that completes at one ratio.

    >>> completer_of(0.005)
    'completer-0.5'
    """
    return f"completer-{100 * ratio:g}"


PRESETS: dict[str, dict[str, dict[str, Preset]]] = {
    "lno": {
        "paper": {
            "darcy": Preset("standard", PAPER_CONFIGS["darcy"], PAPER_RECIPE),
            "ns2d": Preset("standard", PAPER_CONFIGS["ns2d"], PAPER_RECIPE, FILM, raw=True),
        },
        "fast": {
            "darcy": Preset(
                "standard",
                replace(PAPER_CONFIGS["darcy"], sharpness=LNOConfig().sharpness),
                replace(PAPER_RECIPE, epochs=200, optimizer="muon", physical=True, gradient=0.1),
                symmetries=True,
            ),
            "ns2d": Preset(
                "standard",
                PAPER_CONFIGS["ns2d"],
                replace(PAPER_RECIPE, epochs=100, optimizer="muon"),
                FILM,
                symmetries=True,
            ),
        },
        "small": {
            "darcy": Preset("small", _SMALL, Recipe(epochs=100, batch=4, queries=512)),
            "burgers": Preset(
                "small",
                _SMALL,
                Recipe(epochs=60, batch=8, loss="relative_mae", queries=256),
                Completion(FEW_SENSORS, WINDOW, exact=True),
            ),
        },
        **_stages(PAPER_CONFIGS["burgers"]),
        **{
            completer_of(ratio): _completer(PAPER_CONFIGS["burgers"], RandomRatio(ratio))
            for ratio in RATIOS
        },
        "our-completer": {
            "burgers": Preset(
                "standard",
                _OUR_CONFIG,
                _OURS,
                Completion(FEW_SENSORS, WINDOW, exact=True),
                symmetries=True,
            )
        },
        "our-propagator": {
            "burgers": Preset(
                "standard",
                _OUR_CONFIG,
                replace(_OURS, epochs=100),
                Propagation(WINDOW),
                symmetries=True,
            )
        },
    },
    "gnot": _stages(GNOTConfig(width=96, blocks=4, experts=1)),
    "deeponet": _stages(DeepONetConfig(width=128, blocks=4, layers=3)),
    "transolver": {
        "paper": {
            "darcy": Preset(
                "standard", TransolverConfig(), replace(_TRANSOLVER, gradient=0.2, clip=0.1)
            ),
            "ns2d": Preset(
                "standard",
                TransolverConfig(width=256, slices=32),
                replace(_TRANSOLVER, batch=2),
                FILM,
                raw=True,
            ),
        },
    },
}


def preset(problem: str, name: str, model: str = "lno") -> Preset:
    """A preset by name; an unknown one is an error that names those there are."""
    for what, key, table in (
        ("model", model, PRESETS),
        ("preset", name, PRESETS.get(model, {})),
        (f"preset {name!r} of {model} for", problem, PRESETS.get(model, {}).get(name, {})),
    ):
        if key not in table:
            raise ValueError(f"no {what} {key!r}: expected one of {', '.join(table)}")
    return PRESETS[model][name][problem]
