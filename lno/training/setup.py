"""From the arguments of `Operator.fit` to a training run that is ready to start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from lno.data import Fields
from lno.data.climatology import GIVEN, Background, fitted, with_background
from lno.data.normalize import Normalizers
from lno.data.symmetry import Symmetry
from lno.models import MODELS, Model, ModelConfig, require_capable
from lno.tasks import Steady, Task
from lno.training.defaults import Choice, choose
from lno.training.device import pick_device
from lno.training.distributed import join
from lno.training.inputs import copies, demand, new_models, require_alike, require_inputs
from lno.training.precision import pick_precision
from lno.training.recipe import Recipe
from lno.training.samples import split_validation
from lno.training.state import Training

if TYPE_CHECKING:
    from lno.operator import Operator


@dataclass(frozen=True)
class Setup:
    """A run that is ready to start.

    Args:
        training: the run.
        kind: the name of the model.
        used: the samples to train on, as they came.
        background: what is known beside them.
    """

    training: Training
    kind: str
    used: Fields
    background: Background = None

    @property
    def prepared(self) -> Fields:
        """The samples to train on, prepared by the task."""
        return self.training.data

    @property
    def normalizers(self) -> Normalizers:
        """Fitted to them."""
        return self.training.normalizers


def set_up(
    train_data: Fields,
    *,
    epochs: int | None = None,
    task: Task | None = None,
    model: str | None = None,
    config: ModelConfig | Mapping[str, Any] | None = None,
    recipe: Recipe | Mapping[str, Any] | None = None,
    validation: float | Fields = 0.1,
    members: int = 1,
    init: Operator | None = None,
    symmetries: Sequence[Symmetry] = (),
    device: str = "auto",
    seed: int = 0,
    precision: str = "auto",
    steps: int | None = None,
    split: str = "samples",
    early_stop: bool = False,
    background: str | None = None,
) -> Setup:
    """A new run; for the arguments see `lno.Operator.fit`."""
    if init and config is not None:
        raise ValueError("init brings its model with it: pass either init or config")
    where = pick_device(device)
    processes = join(split, where)  # first: it decides which of several GPUs to use
    task = task or (init.task if init else Steady())
    used, held_out = split_validation(train_data, validation)
    if early_stop and held_out is None:
        raise ValueError(
            "early_stop: needs validation samples, and none are held out. Pass validation=0.1, or "
            "validation samples"
        )
    known: Background = init.background if init else None
    if background is not None:
        if init is not None:
            raise ValueError("init brings its background with it: leave background out")
        known = fitted(used, background)
    if known is None and used.background is not None:
        known = GIVEN
    if known is not None:
        used = with_background(used, known)
        held_out = None if held_out is None else with_background(held_out, known)
    prepared = task.prepare(used)
    chosen = choice(prepared, task, where, init.kind if init else model, config, recipe)
    how = chosen.recipe if epochs is None else replace(chosen.recipe, epochs=epochs)
    require_inputs(prepared, task, how)
    normalizers = init.normalizers if init else task.normalizers(prepared)
    normalizers.x.require_readable(prepared)
    nets: list[Model]
    if init:
        nets = copies(init.members, init.normalizers, members, prepared, task)
    else:
        sizes = chosen.config if config is None else config
        seeds = range(seed, seed + members)
        nets = new_models(chosen.model, sizes, seeds, prepared, normalizers, task)
    if nets[0].needs_grid:
        how = on_the_grid(how, recipe)
    require_capable(nets[0], chosen.model, demand(nets[0], prepared, task, how))
    validated = None if held_out is None else require_alike(prepared, task.prepare(held_out))
    training = Training(
        [net.to(where) for net in nets],
        task,
        normalizers,
        how,
        prepared,
        validated,
        where,
        seed,
        pick_precision(precision, where),
        processes,
        symmetries,
        early_stop=early_stop,
        total_steps=steps or 0,
    )
    return Setup(training, chosen.model, used, known)


def on_the_grid(chosen: Recipe, asked: Recipe | Mapping[str, Any] | None) -> Recipe:
    """A recipe without what a model that needs the whole grid cannot take, unless it was asked for.

    >>> on_the_grid(Recipe(jitter=0.5, point_dropout=0.3), {"point_dropout": 0.3})
    Recipe(...point_dropout=0.3, jitter=0.0...)
    """
    if isinstance(asked, Recipe):
        return chosen
    keys = [key for key in ("jitter", "point_dropout") if key not in (asked or {})]
    return chosen.changed(dict.fromkeys(keys, 0.0))


def choice(
    prepared: Fields,
    task: Task,
    where: torch.device,
    model: str | None,
    config: ModelConfig | Mapping[str, Any] | None,
    recipe: Recipe | Mapping[str, Any] | None,
) -> Choice:
    """What the rule for defaults chooses where nothing was asked for; see `Operator.fit`.

    Sizes without a model are those of the model that they belong to; as a mapping, of LNO. Of the
    recipe, a mapping has the keys that differ from what the rule chooses.
    """
    if model is None and isinstance(config, ModelConfig):
        model = next(name for name, (_, cls) in MODELS.items() if type(config) is cls)
    elif model is None and config is not None:
        model = "lno"
    chosen = choose(prepared, task, where, model)
    if isinstance(recipe, Recipe):
        return replace(chosen, recipe=recipe)
    return replace(chosen, recipe=chosen.recipe.changed(recipe or {}))
