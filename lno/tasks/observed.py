"""Tasks for partly observed fields: completion from some points, propagation from a window."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from lno.data import Batch, Fields
from lno.data.checks import require_instance
from lno.data.normalize import Normalizers
from lno.data.observe import Pattern, Window, require_pattern
from lno.tasks.task import Task


@dataclass(frozen=True)
class Completion(Task):
    """Reconstruct a field from a few observations of it, drawn anew in every training step.

    The data hold whole fields as outputs. Observations are values of the field itself, at points
    inside `window` that `pattern` chooses; the target is the field everywhere inside the window.

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

    observes_outputs: ClassVar[bool] = True
    queries_elsewhere: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_pattern("Completion.pattern", self.pattern)
        expected = "the part of the domain that is observed, like Window('t', 0.0, 0.5), or None"
        require_instance("Completion.window", self.window, Window | None, expected)

    def prepare(self, fields: Fields) -> Fields:
        """The fields inside the window."""
        everywhere = Window(fields.names["x"][0], float("-inf"), float("inf"))
        return (self.window or everywhere).restrict(fields)

    def normalizers(self, prepared: Fields) -> Normalizers:
        """Observations and outputs are the same quantity, so they share one normaliser."""
        fitted = Normalizers.fit(prepared)
        return replace(fitted, u=fitted.y)

    def observe(
        self, batch: Batch, grid: tuple[int, ...] | None, generator: torch.Generator
    ) -> Batch:
        """Observe the batch's outputs at the points that the pattern chooses."""
        if batch.y is None:
            raise ValueError("completion needs whole fields: the data have no outputs y")
        b, q, _ = batch.y.shape
        real = torch.ones(b, q, dtype=torch.bool)
        if batch.query_mask is not None:
            real = batch.query_mask.cpu()
        # Random numbers come from the CPU: a seed chooses the same points on every device.
        device = batch.y.device
        index, counted = self.pattern.draw(real, grid, generator, device)
        mask = None if counted.all() else counted.to(device, non_blocking=True)

        def chosen(values: Tensor) -> Tensor:
            return values.expand(b, -1, -1).gather(
                1, index[..., None].expand(-1, -1, values.shape[-1])
            )

        weights, background = batch.query_weights, batch.background
        return replace(
            batch,
            x=chosen(batch.x_query),
            u=chosen(batch.y),
            mask=mask,
            weights=None if weights is None else chosen(weights[..., None])[..., 0],
            observed_background=None if background is None else chosen(background),
        )


@dataclass(frozen=True)
class Propagation(Task):
    """Extrapolate a field that is known inside a window to the whole domain.

    The data hold whole fields as outputs; all of their points inside the window are observed.

    Args:
        window: the part of the domain that is known.

    >>> t = torch.linspace(0, 1, 9)[:, None]
    >>> fields = Fields(t, y=torch.rand(3, 9, 1), names={"x": ["t"]})
    >>> Propagation(Window("t", 0.25, 0.75)).prepare(fields)
    Fields(3 samples: y0 at 5 points of t → y0 at 9 points)
    """

    window: Window

    observes_outputs: ClassVar[bool] = True
    queries_elsewhere: ClassVar[bool] = True

    def __post_init__(self) -> None:
        expected = "the part of the domain that is known, like Window('t', 0.0, 0.5)"
        require_instance("Propagation.window", self.window, Window, expected)

    def prepare(self, fields: Fields) -> Fields:
        """The fields inside the window as observations of the whole."""
        if fields.background is not None:
            raise ValueError("propagation takes no background: predict y − background instead")
        inside = self.window.restrict(fields)
        return fields.replace(
            x=inside.x,
            u=inside.y,
            x_query=fields.x_query,
            weights=inside.weights,
            query_weights=fields.weights if fields.same_points else fields.query_weights,
            geometry=None,
            names={**fields.names, "u": fields.names["y"]},
            units={**fields.units, "u": fields.units["y"]},
        )

    def normalizers(self, prepared: Fields) -> Normalizers:
        """Observations and outputs are the same quantity, so they share one normaliser."""
        fitted = Normalizers.fit(prepared)
        return replace(fitted, u=fitted.y)
