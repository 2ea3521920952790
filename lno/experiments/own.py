"""Runs on a user's own data file, with nothing to tune.

Model, sizes and recipe are chosen from the samples (`lno.training.defaults`) unless a preset is
named. Samples of a file that names no split are split at random.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from dataclasses import fields as fields_of
from typing import Any, ClassVar

import torch

from lno.config import did_you_mean, to_dict
from lno.data import Fields
from lno.data.division import Division, validation_count
from lno.data.quality import Finding, quick_findings, quick_neighbour_findings
from lno.experiments.preset import Preset
from lno.experiments.runs import RunSpec, Samples, own_split
from lno.models import MODELS
from lno.tasks import Completion, Rollout, Task
from lno.training.defaults import choose, rollout_for
from lno.training.recipe import Recipe
from lno.training.samples import split_validation

CHOSEN = "default"  # the name of what the rule chooses, beside those of presets


@dataclass(frozen=True)
class OwnRun(RunSpec):
    """A setup on a user's own data file.

    Args:
        chosen: sizes and recipe.
        division: how samples are split, if the file names no split.
        sphere: the coordinates that are latitude and longitude; None: as the file says.
        background: what is known beside the observations, as in `Operator.fit`.

    For the other arguments see `RunSpec`.
    """

    chosen: Preset | None = None
    division: Division = field(default_factory=Division)
    sphere: tuple[str, str] | None = None
    background: str | None = None

    validates_on_its_own: ClassVar[bool] = True

    def base(self) -> Preset:
        """Sizes, recipe and task before any changes."""
        assert self.chosen is not None
        return self.chosen

    def samples(self, device: str) -> Samples:
        """Samples to train on, to validate on (or 0: none) and to test on."""
        assert self.data is not None
        return parts_of(Fields.load(self.data), self.division)

    def adapted(self, fields: Fields) -> Fields:
        """Samples as the run trains and tests on them."""
        return fields if self.sphere is None else fields.replace(sphere=self.sphere)

    def options(self) -> dict[str, Any]:
        """Further arguments of `Operator.fit`."""
        return {} if self.background is None else {"background": self.background}

    def recorded(self) -> dict[str, Any]:
        """What else the file of an operator says about the run that made it."""
        return {"division": to_dict(self.division)}

    def findings(self) -> list[Finding]:
        """What a quick look at the data finds wrong."""
        assert self.data is not None
        fields = Fields.load(self.data, lazy=True)
        own = own_split(fields)
        found = quick_findings(fields, own, ordered=own is not None)
        if own is None and self.division.groups is None:
            found += quick_neighbour_findings(fields)
        return found

    def split_in_words(self) -> str:
        """How many samples are for what."""
        assert self.data is not None
        fields = Fields.load(self.data, lazy=True)
        train, validation, test = parts_of(fields, self.division)
        held_out = len(validation) if isinstance(validation, Fields) else 0
        if own_split(fields) is not None:
            how = "in the order of the file, as it says itself"
        else:
            how = f"at random, seed {self.division.seed}"
            if self.division.groups is not None:
                how += f", each {self.division.groups} as a whole"
        return f"{len(train)} train, {held_out} validation, {len(test)} test samples ({how})"


def parts_of(fields: Fields, division: Division) -> Samples:
    """Samples to train, to validate (or 0: none) and to test on.

    A file that names its split has consecutive samples for each. Where it names no validation
    samples, some of those for training are held out: as many as a random split has.
    """
    own = own_split(fields)
    if own is not None:
        if division.groups is not None:
            raise ValueError(
                f"--groups {division.groups}: the file names its own split, "
                f"{fields.provenance.get('split')}. Leave --groups out, or the split in the "
                "provenance"
            )
        train, *named, test = fields.split(*own)
        share = validation_count(len(train)) / len(train)
        train, validation = split_validation(train, named[0] if named else share)
    else:
        train, validation, test = division.split(fields)
    return train, 0.0 if validation is None else validation, test


def chosen_for(
    fields: Fields, division: Division, task: Task, device: str, model: str | None
) -> tuple[str, Preset]:
    """What the rule for defaults chooses for a file: model, sizes, recipe, increments or frames."""
    train, _, _ = parts_of(fields, division)
    if isinstance(task, Rollout):
        task = rollout_for(train, task)
    found = choose(train, task, torch.device(device), model)
    conditional = isinstance(task, Completion)
    return found.model, Preset(
        "standard", found.config, found.recipe, task, conditional=conditional
    )


def settings(texts: Sequence[str], model: str, task: Task) -> tuple[tuple[str, Any], ...]:
    """Keys of a config, a recipe or a rollout with their values, from `key=value`.

    Unknown keys are errors.

    >>> from lno import Steady
    >>> settings(["width=32", "loss=mse", "queries=none"], "lno", Steady())
    (('width', 32), ('loss', 'mse'), ('queries', None))
    >>> settings(["widht=32"], "lno", Steady())
    Traceback (most recent call last):
    ...
    ValueError: --set widht=32: neither lno nor a recipe has the key 'widht' (did you mean ...
    """
    recipe, config = (
        [field.name for field in fields_of(cls)] for cls in (Recipe, MODELS[model][1])
    )
    rollout = ["increments"] if isinstance(task, Rollout) else []
    found = []
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key or not value:
            raise ValueError(f"--set {text}: expected KEY=VALUE, like --set width=32")
        if key not in (*recipe, *config, *rollout):
            hint = did_you_mean(key, [*config, *recipe, *rollout])
            raise ValueError(
                f"--set {text}: neither {model} nor a recipe has the key {key!r}{hint}. Keys of "
                f"{model}: {', '.join(config)}. Keys of a recipe: {', '.join(recipe)}"
                f"{'. Keys of a rollout: increments' if rollout else ''}"
            )
        found.append((key, _value(value)))
    return tuple(found)


def _value(text: str) -> Any:
    """A number, true, false, none, a list in JSON, or else a text."""
    plain = {"none": None, "true": True, "false": False}
    if text.lower() in plain:
        return plain[text.lower()]
    try:
        return json.loads(text)
    except ValueError:
        return text
