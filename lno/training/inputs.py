"""What training needs: the right arguments, inputs that tell samples apart, a capable model."""

from __future__ import annotations

import copy
import numbers
import os
from collections.abc import Mapping, Sequence
from types import UnionType
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from lno import limits
from lno.config import from_dict, require_count, require_json, require_range, to_dict
from lno.data import Fields, Spec, columns
from lno.data.checks import described, require_flag, require_instance
from lno.data.normalize import Normalizers
from lno.data.symmetry import Symmetry
from lno.models import MODELS, Demand, Model, ModelConfig, build_model
from lno.tasks import Steady, Task
from lno.training.precision import PRECISIONS
from lno.training.recipe import Recipe

STEADY = Steady()
POSITION_SAMPLES, MOST_POSITIONS = 32, 20_000  # whose positions initial weights adapt to
# Arguments of `Operator.fit`: what they may be, and what to pass, in words.
ARGUMENTS: dict[str, tuple[type | UnionType, str]] = {
    "train_data": (Fields, "samples with outputs, Fields(x, u, y=...)"),
    "task": (Task | None, "a task like lno.Steady() or lno.Rollout(10)"),
    "model": (str | None, f"one of {', '.join(MODELS)}, or None"),
    "config": (
        ModelConfig | Mapping | None,
        "the config of the model, like lno.models.LNOConfig(width=64), or a mapping of its keys",
    ),
    "recipe": (
        Recipe | Mapping | None,
        "lno.Recipe(...) or a mapping of its keys, like {'learning_rate': 1e-3}",
    ),
    "validation": (
        numbers.Real | Fields,
        "the share of samples that is held out, like 0.1, or other samples (Fields)",
    ),
    "device": (str | torch.device, "'auto', 'cpu', 'cuda' or 'mps'"),
    "precision": (str, f"'auto', {', '.join(map(repr, PRECISIONS))}"),
    "folder": (str | os.PathLike | None, "the path of a folder, or None"),
    "split": (str, "'samples' or 'points'"),
    "background": (
        str | None,
        "'climatology:NAME' with a parameter or a coordinate, or the name of an input",
    ),
}


def check_arguments(**given: Any) -> None:
    """Raise unless the arguments of `Operator.fit` are what they should be."""
    for name, (kind, expected) in ARGUMENTS.items():
        require_instance(name, given[name], kind, expected)
    for name in ("conditional", "progress", "resume", "tensorboard", "early_stop"):
        require_flag(name, given[name])
    symmetries = given["symmetries"]
    listed = isinstance(symmetries, list | tuple)
    if not listed or not all(isinstance(g, Symmetry) for g in symmetries):
        called = isinstance(symmetries, Symmetry) or not callable(symmetries)
        advice = "" if called else ": call it"
        raise TypeError(
            "symmetries: expected a list of symmetries, like Darcy.symmetries or square(), got "
            f"{described(symmetries)}{advice}"
        )
    if given["model"] is not None and given["model"] not in MODELS:
        raise ValueError(f"no model {given['model']!r}: expected one of {', '.join(MODELS)}")
    if isinstance(given["config"], ModelConfig) and given["model"] is not None:
        own = MODELS[given["model"]][1]
        require_instance(
            "config", given["config"], own, f"{own.__name__}(...) for {given['model']}"
        )
    require_count("members", given["members"], 1024)
    require_count("seed", given["seed"], 2**31, least=0)
    for name in ("minutes", "pause_after"):
        require_range(name, 0.0 if given[name] is None else given[name], 0.0, 1e9)
    if isinstance(given["validation"], bool):
        raise TypeError("validation: expected a share like 0.1, or Fields, got a bool")
    if given["steps"] is not None:
        require_count("steps", given["steps"], limits.STEPS)
    lengths = [name for name in ("epochs", "minutes", "steps") if given[name] is not None]
    if len(lengths) > 1:
        raise ValueError(f"{' and '.join(lengths)} both say how long to train: pass one of them")
    require_json("provenance of the data", given["train_data"].provenance)
    if isinstance(given["recipe"], Mapping):
        from_dict(Recipe, given["recipe"])
    if given["epochs"] is not None:
        Recipe(epochs=given["epochs"])


def model_spec(prepared: Fields, normalizers: Normalizers, task: Task = STEADY) -> Spec:
    """What the model sees: encoded positions and normalised channels, as the task gives them."""
    channels = (normalizers.in_channels, len(normalizers.y.mean))
    data = prepared.spec
    return task.model_spec(Spec(normalizers.x.features, *channels, data.grid, data.periodic))


def model_config(
    kind: str,
    config: ModelConfig | Mapping[str, Any] | None,
    spec: Spec,
    task: Task,
    elsewhere: bool = False,
) -> ModelConfig:
    """The config of a model: what was asked for, or its defaults for these data and this task.

    Args:
        kind: the model's name in `MODELS`.
        config: what was asked for; a mapping has keys that differ from the defaults.
        spec: what the model sees.
        task: what a step means.
        elsewhere: predictions are wanted where nothing is observed.
    """
    if isinstance(config, ModelConfig):
        return config
    model, config_class = MODELS[kind]
    defaults = model.default_config(spec)
    if task.time_as_input:
        defaults = model.with_time(defaults)
    defaults = model.for_other_points(defaults) if elsewhere else defaults
    return from_dict(config_class, {**to_dict(defaults), **config}) if config else defaults


def training_positions(
    prepared: Fields, normalizers: Normalizers, task: Task
) -> Float[np.ndarray, "n d"]:
    """Some positions of training samples, observed and asked for, as models read them."""
    count = min(len(prepared), POSITION_SAMPLES)
    found = []
    for k in np.linspace(0, len(prepared) - 1, count).astype(int):
        drawn = task.observe(prepared.batch([k]), prepared.spec.grid, torch.Generator())
        encoded = task.model_input(normalizers.encode(drawn))
        for x in dict.fromkeys((encoded.x, encoded.x_query)):
            every = -(-x.shape[1] * count // MOST_POSITIONS)
            found.append(x[0, ::every].numpy())
    return np.concatenate(found)


def new_models(
    kind: str,
    config: ModelConfig | Mapping[str, Any] | None,
    seeds: Sequence[int],
    prepared: Fields,
    normalizers: Normalizers,
    task: Task,
) -> list[Model]:
    """Models for these data, with the initial weights that their seeds give."""
    spec = model_spec(prepared, normalizers, task)
    config = model_config(kind, config, spec, task, queries_elsewhere(prepared, task))
    models = [build_model(kind, config, spec, seed) for seed in seeds]
    positions = training_positions(prepared, normalizers, task)
    for model, seed in zip(models, seeds, strict=True):
        model.initialise(positions, seed)
    return models


def demand(model: Model, prepared: Fields, task: Task, recipe: Recipe) -> Demand:
    """What the data, the task and the recipe ask of a model."""
    elsewhere, subset = queries_elsewhere(prepared, task), recipe.queries is not None
    moved, dropout = recipe.jitter > 0, recipe.point_dropout > 0
    return Demand(model.spec, elsewhere, prepared.is_ragged, subset, dropout, moved)


def queries_elsewhere(prepared: Fields, task: Task) -> bool:
    """Whether predictions are wanted where nothing is observed."""
    return task.queries_elsewhere or not prepared.same_points


def require_inputs(data: Fields, task: Task, recipe: Recipe) -> None:
    """Raise where a model could only predict a constant, or where the recipe needs other data."""
    if recipe.jitter and (data.spec.grid is None or queries_elsewhere(data, task)):
        raise ValueError(
            "Recipe.jitter: moves the points of a grid. Pass Fields(..., grid=...) with outputs at "
            f"the observed points, or set it to 0; the grid is {data.spec.grid}"
        )
    if recipe.jitter and task.time_as_input:
        raise ValueError(
            f"Recipe.jitter: moves points in time as well, and {type(task).__name__} predicts each "
            "time separately: set it to 0"
        )
    if recipe.weighted and data.weights is None and data.query_weights is None:
        raise ValueError(
            "Recipe.weighted: the data have no weights of points. Pass Fields(..., weights=...), "
            "the size that each point stands for"
        )
    if task.observes_outputs:
        return
    if data.spec.in_channels == 0 and columns.is_shared(data.x) and len(data) > 1:
        raise ValueError(
            "the samples have no observed values u and share their positions: nothing tells them "
            "apart. To learn to reconstruct these fields from some of their points, pass "
            "task=Completion(RandomRatio(0.01, 0.2))"
        )
    if columns.sizes(data.x, len(data)).max() == 1:
        raise ValueError(
            "every sample observes one point only: a prediction could not depend on the position. "
            "Pass the numbers of a whole sample as Fields(..., parameters=array (samples, "
            "numbers)), with the points of the outputs as x"
        )


def require_alike(data: Fields, other: Fields) -> Fields:
    """Validation samples, unless a model for the training samples cannot read them."""
    expected, got = (fields.spec.of_points for fields in (data, other))
    if expected != got:
        raise ValueError(f"validation: expected samples with {expected}, got {got}")
    return other


def copies(
    members: Sequence[Model], normalizers: Normalizers, count: int, prepared: Fields, task: Task
) -> list[Model]:
    """Models to fine-tune: copies of the members of an operator, in turn."""
    expected = model_spec(prepared, normalizers, task)
    own = task.normalizers(prepared)
    got = model_spec(prepared, own, task)
    if expected.of_points != got.of_points:
        raise ValueError(
            f"cannot fine-tune: the operator was trained for {expected}, the data are {got}"
        )
    if normalizers.x.period != own.x.period:
        raise ValueError(
            f"cannot fine-tune: the operator's coordinates have periods "
            f"{normalizers.x.period}, those of the data {own.x.period}"
        )
    return [copy.deepcopy(members[k % len(members)]) for k in range(count)]
