"""What a training step and a prediction mean.

A task prepares data once, fits their normalisers, and draws what a model sees in one step:

    prepared = task.prepare(fields)                                          once
    batch = task.draw(prepared.batch(index), prepared.spec.grid, generator)  every step

and says what is observed in an evaluation and how a prediction is made:

    batch = task.observe(prepared.batch(index), prepared.spec.grid, generator)
    y = task.predict(apply, batch)         `apply` is the model, in physical units

Where a model reads data in another form than the user has them, `model_spec` and `model_input` say
in which.

`Task` is the base class. A task never touches a model; a model never knows its task.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lno.config import from_dict, from_tagged, to_dict, to_tagged
from lno.data.observe import PATTERNS, Window
from lno.tasks.frames import Rollout, Snapshots
from lno.tasks.observed import Completion, Propagation
from lno.tasks.steady import Steady
from lno.tasks.task import Task

__all__ = [
    "TASKS",
    "Completion",
    "Propagation",
    "Rollout",
    "Snapshots",
    "Steady",
    "Task",
    "from_json",
    "to_json",
]

TASKS: dict[str, type[Task]] = {
    "steady": Steady,
    "rollout": Rollout,
    "snapshots": Snapshots,
    "completion": Completion,
    "propagation": Propagation,
}


def to_json(task: Task) -> dict[str, Any]:
    """A task as plain data."""
    described = to_tagged(task, TASKS)
    if isinstance(task, Completion):
        described["pattern"] = to_tagged(task.pattern, PATTERNS)
    if isinstance(task, Completion | Propagation):
        described["window"] = None if task.window is None else to_dict(task.window)
    return described


def from_json(described: Mapping[str, Any]) -> Task:
    """The task that `to_json` described."""
    values = dict(described)
    if values.get("pattern") is not None:
        values["pattern"] = from_tagged(values["pattern"], PATTERNS)
    if values.get("window") is not None:
        values["window"] = from_dict(Window, values["window"])
    return from_tagged(values, TASKS)
