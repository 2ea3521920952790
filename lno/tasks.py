"""What a training step and a prediction mean.

A task prepares data once, fits their normalisers, and draws what a model sees in one step:

    prepared = task.prepare(fields)               once
    batch = task.draw(prepared.batch(index), prepared.grid, generator)    every step

A task never touches a model; a model never knows its task.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from lno.config import from_dict, from_tagged, to_dict, to_tagged
from lno.data import Batch, Fields
from lno.data.normalize import Normalizers
from lno.data.observe import PATTERNS, Pattern, Window


@dataclass(frozen=True)
class Steady:
    """From the observed values straight to the answers, as the data have them.

    >>> to_json(Steady())
    {'kind': 'steady'}
    """

    observes_answers: ClassVar[bool] = False  # whether u is drawn from y

    def prepare(self, fields: Fields) -> Fields:
        """The data that batches are taken from."""
        return fields

    def normalizers(self, prepared: Fields) -> Normalizers:
        """Normalisers fitted to prepared training data."""
        return Normalizers.fit(prepared)

    def draw(self, batch: Batch, grid: tuple[int, ...] | None, generator: torch.Generator) -> Batch:
        """What the model sees in one step."""
        return batch


@dataclass(frozen=True)
class Completion(Steady):
    """See a whole field from a few observations of it, drawn anew in every step.

    The data hold whole fields as answers. Observations are points of the field itself, chosen by
    `pattern` inside `window`; the answer is wanted everywhere inside the window.

    Args:
        pattern: which points are observed.
        window: the part of the domain that is observed and completed; None: all of it.

    >>> from lno import RandomRatio
    >>> fields = Fields(torch.rand(50, 2), y=torch.rand(3, 50, 1))
    >>> task = Completion(RandomRatio(0.1))
    >>> batch = task.draw(task.prepare(fields).batch([0, 1]), None, torch.Generator())
    >>> batch.x.shape, batch.u.shape, batch.x_query.shape
    (torch.Size([2, 5, 2]), torch.Size([2, 5, 1]), torch.Size([1, 50, 2]))
    """

    pattern: Pattern
    window: Window | None = None

    observes_answers: ClassVar[bool] = True

    def prepare(self, fields: Fields) -> Fields:
        """The fields inside the window."""
        everywhere = Window(fields.names["x"][0], float("-inf"), float("inf"))
        return (self.window or everywhere).restrict(fields)

    def normalizers(self, prepared: Fields) -> Normalizers:
        """Observations and answers are the same quantity, so they share one normaliser."""
        points = Normalizers.fit(prepared)
        return replace(points, u=points.y)

    def draw(self, batch: Batch, grid: tuple[int, ...] | None, generator: torch.Generator) -> Batch:
        """Observe the batch's answers at the points that the pattern chooses."""
        if batch.y is None:
            raise ValueError("completion needs whole fields: the data have no answers y")
        b, q, _ = batch.y.shape
        real = torch.ones(b, q, dtype=torch.bool)
        if batch.query_mask is not None:
            real = batch.query_mask.cpu()
        # Drawn on the CPU: the same seed observes the same points on every device.
        index, mask = self.pattern.draw(real, grid, generator)
        complete = bool(mask.all())
        index, mask = index.to(batch.y.device), mask.to(batch.y.device)
        x = batch.x_query.expand(b, -1, -1)
        x, u = (v.gather(1, index[..., None].expand(-1, -1, v.shape[-1])) for v in (x, batch.y))
        return replace(batch, x=x, u=u, mask=None if complete else mask)


Task = Steady
TASKS: dict[str, type[Steady]] = {"steady": Steady, "completion": Completion}


def to_json(task: Task) -> dict[str, Any]:
    """A task as plain data."""
    described = to_tagged(task, TASKS)
    if isinstance(task, Completion):
        described["pattern"] = to_tagged(task.pattern, PATTERNS)
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
