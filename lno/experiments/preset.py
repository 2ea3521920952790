"""`Preset`: the sizes of a model and how it is trained; and what several presets share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lno.data import Fields
from lno.tasks import Rollout, Snapshots, Steady, Task
from lno.training.recipe import Recipe

PAPER_RECIPE = Recipe(
    epochs=500,
    batch=4,
    optimizer="adamw",
    learning_rate=1e-3,
    schedule="onecycle",
    weight_decay=5e-5,
    loss="relative_l2",
)
STEADY, TRAJECTORY, FORGING = Steady(), Rollout(10), Snapshots(20)


@dataclass(frozen=True)
class Preset:
    """A protocol, the sizes of a model and how to train it.

    Args:
        protocol: which data set of the problem, a key of `Problem.protocols`.
        config: the sizes of the model; None: its defaults for the data.
        recipe: how to train.
        task: what a step means.
        symmetries: augment training with the symmetries of the problem.
        raw_coordinates: read periodic coordinates as plain numbers, as the paper does, not as cos
            and sin.
        conditional: condition predictions on the observations.
        adapted: how sizes, inputs or recipe differ from what was published; empty if they do not.
    """

    protocol: str
    config: Any
    recipe: Recipe
    task: Task = STEADY
    symmetries: bool = False
    raw_coordinates: bool = False
    conditional: bool = False
    adapted: str = ""

    def training_data(self, fields: Fields) -> Fields:
        """Samples as the model of this preset reads them."""
        return fields.without_period() if self.raw_coordinates else fields
