"""Sizes and recipes: the one table of what "paper", "fast" and "small" mean.

The paper gives L, D, M and H of LNO in its appendix D. The depths of the MLPs follow from the
parameter counts of its table on efficiency. The models that it compares with are trained as they
were published (`published`).

The inverse problem has two stages with presets of their own: "completer" and "propagator" are the
paper's, for LNO, GNOT and DeepONet alike; "our-completer" and "our-propagator" are our own for LNO.
One completer serves all ratios of observed points; "completer-5" serves 5 % alone, as the paper's.

For other data and models there are general presets. They ask for nothing that a model cannot do.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from lno.data.observe import RandomRatio, Window
from lno.experiments import ours
from lno.experiments.preset import FORGING, PAPER_RECIPE, STEADY, TRAJECTORY, Preset
from lno.experiments.published import PUBLISHED
from lno.models import MODELS, DeepONetConfig, GNOTConfig, LNOConfig, SlicedLNOConfig
from lno.problems import PROBLEMS
from lno.tasks import Completion, Propagation, Task
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
WINDOW = Window("t", 0.25, 0.75)  # where Burgers' equation is observed
RATIOS = (0.2, 0.1, 0.05, 0.01, 0.005)  # of its points there
ANY_RATIO = RandomRatio(min(RATIOS), max(RATIOS))
# Our completer is conditioned on its sensors: with more of them than this, the sensors determine
# the field, and the model contributes little.
FEW_SENSORS = RandomRatio(0.0025, 0.05)

_PHYSICAL = replace(PAPER_RECIPE, physical=True)
_SMALL = LNOConfig(width=64, latents=64, blocks=2, heads=4, layers=1)

# The paper's recipe for its inverse problem, with larger batches and a random subset of the query
# points in a step: a budget that all models share. Our own recipe is below it. Predictions of
# GNOT depend on the other queries of a call: they are made in random sets of the same size.
_PROPAGATOR = replace(PAPER_RECIPE, batch=32, loss="mse", queries=2048)
_COMPLETER = replace(_PROPAGATOR, optimizer="adam", weight_decay=0.0, schedule="step")
_OURS = replace(_PROPAGATOR, epochs=200, optimizer="muon", loss="relative_mae", queries=1024)
_OUR_CONFIG = replace(PAPER_CONFIGS["burgers"], blocks=6, sharpness=LNOConfig().sharpness)


def _like_lno_plus(problem: str) -> Preset:
    """LNO with the recipe of LNO+, but for the schedule."""
    chosen = ours.LNO_PLUS["fast"][problem]
    return replace(
        chosen,
        config=replace(PAPER_CONFIGS[problem], sharpness=LNOConfig().sharpness),
        recipe=replace(chosen.recipe, schedule="onecycle"),
    )


def _completer(config: Any, pattern: RandomRatio) -> dict[str, Preset]:
    """The paper's way to train the first stage of the inverse problem."""
    task = Completion(pattern, WINDOW)
    return {"burgers": Preset("standard", config, _COMPLETER, task, raw_coordinates=True)}


def _stages(config: Any) -> dict[str, dict[str, Preset]]:
    """Both stages."""
    second = Preset("standard", config, _PROPAGATOR, Propagation(WINDOW), raw_coordinates=True)
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
            "ns2d": Preset(
                "standard", PAPER_CONFIGS["ns2d"], PAPER_RECIPE, TRAJECTORY, raw_coordinates=True
            ),
            # The paper does not normalise Airfoil and Pipe: their loss is in physical units.
            "airfoil": Preset("standard", PAPER_CONFIGS["airfoil"], _PHYSICAL),
            "pipe": Preset("standard", PAPER_CONFIGS["pipe"], _PHYSICAL),
            "elasticity": Preset("standard", PAPER_CONFIGS["elasticity"], PAPER_RECIPE),
            # Time is a coordinate of the data: all frames are predicted at once.
            "plasticity": Preset("standard", PAPER_CONFIGS["plasticity"], PAPER_RECIPE),
        },
        "fast": {problem: _like_lno_plus(problem) for problem in ours.LNO_PLUS["fast"]},
        "small": {
            "darcy": Preset("small", _SMALL, Recipe(epochs=100, batch=4, queries=512)),
            "burgers": Preset(
                "small",
                _SMALL,
                Recipe(epochs=60, batch=8, loss="relative_mae", queries=256),
                Completion(FEW_SENSORS, WINDOW),
                conditional=True,
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
                Completion(FEW_SENSORS, WINDOW),
                symmetries=True,
                conditional=True,
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
    "gnot": {**_stages(GNOTConfig(width=96, blocks=4, experts=1)), "paper": PUBLISHED["gnot"]},
    "deeponet": _stages(DeepONetConfig(width=128, blocks=4, layers=3)),
    **{model: {"paper": own} for model, own in PUBLISHED.items() if model != "gnot"},
    "lno_plus": ours.LNO_PLUS,
}
PRESETS["transolver"] |= ours.TRANSOLVER


# LNO with Physics-Attention: what it shares with LNO is the same.
PRESETS["sliced_lno"] = {
    "paper": {
        problem: replace(
            chosen,
            config=SlicedLNOConfig(
                *(getattr(chosen.config, field.name) for field in fields(SlicedLNOConfig))
            ),
        )
        for problem, chosen in PRESETS["lno"]["paper"].items()
    }
}

# What a step means where a general preset is used.
TASKS: dict[str, Task] = {"ns2d": TRAJECTORY, "burgers": Completion(FEW_SENSORS, WINDOW)}
# The same for models that read grids in space and time one time after the other.
TASKS_IN_TIME: dict[str, Task] = {"plasticity": FORGING}
# Sizes of general presets; a model that is not listed has defaults of its own.
GENERAL_CONFIGS: dict[str, dict[str, Any]] = {
    "lno": {
        "small": _SMALL,
        "fast": replace(_FORWARD, sharpness=LNOConfig().sharpness),
        "paper": _FORWARD,
    }
}
GENERAL_RECIPES: dict[str, Recipe] = {
    "small": Recipe(epochs=100, batch=4, queries=512),
    "fast": replace(PAPER_RECIPE, epochs=200, optimizer="muon"),
    "paper": PAPER_RECIPE,
}
NAMES = tuple(dict.fromkeys((*GENERAL_RECIPES, *(n for own in PRESETS.values() for n in own))))


def preset(problem: str, name: str, model: str = "lno") -> Preset:
    """The preset of a name: that of the problem, or else a general one.

    An unknown name is an error that lists those there are.
    """
    if model not in MODELS:
        raise ValueError(f"no model {model!r}: expected one of {', '.join(MODELS)}")
    own = own_presets(problem, model)
    if name in own:
        return own[name]
    if name in GENERAL_RECIPES:
        return general_preset(problem, name, model)
    known = ", ".join(dict.fromkeys((*own, *GENERAL_RECIPES)))
    raise ValueError(f"no preset {name!r} of {model} for {problem}: expected one of {known}")


def usual_preset(model: str) -> str:
    """The preset by which models are compared: as published, or our own where nothing is.

    >>> usual_preset("fno"), usual_preset("lno_plus")
    ('paper', 'fast')
    """
    own = PRESETS.get(model, {})
    return "fast" if "fast" in own and "paper" not in own else "paper"


def own_presets(problem: str, model: str) -> dict[str, Preset]:
    """The presets that are made for a problem and a model, by name."""
    table = PRESETS.get(model, {})
    return {name: table[name][problem] for name in table if problem in table[name]}


def general_preset(problem: str, name: str, model: str) -> Preset:
    """Sizes and recipe for any data, which ask for nothing that the model cannot do."""
    recipe, cls = GENERAL_RECIPES[name], MODELS[model][0]
    # A query point of LNO+ runs through all rounds and costs as much as an observed one.
    if cls.queries_interact or not cls.predicts_anywhere or model == "lno_plus":
        recipe = replace(recipe, queries=None)
    task = TASKS.get(problem, STEADY)
    if cls.embeds_time:
        task = TASKS_IN_TIME.get(problem, task)
    protocols = PROBLEMS[problem].protocols if problem in PROBLEMS else {}
    return Preset(
        "small" if name == "small" and "small" in protocols else "standard",
        GENERAL_CONFIGS.get(model, {}).get(name),
        recipe,
        task,
        conditional=isinstance(task, Completion),
    )


def default_preset(problem: str, model: str) -> str:
    """The preset that is used if none is asked for.

    >>> default_preset("darcy", "lno"), default_preset("pipe", "lno"), default_preset("mine", "lno")
    ('small', 'paper', 'small')
    """
    own = own_presets(problem, model)
    return "paper" if "paper" in own and "small" not in own else "small"
