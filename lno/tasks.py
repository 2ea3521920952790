"""What a training step and a prediction mean.

A task prepares data once, fits their normalisers, and draws what a model sees in one step:

    prepared = task.prepare(fields)                                          once
    batch = task.draw(prepared.batch(index), prepared.spec.grid, generator)  every step

and says what is observed in an evaluation and how a prediction is made:

    batch = task.observe(prepared.batch(index), prepared.spec.grid, generator)
    y = task.predict(apply, batch)         `apply` is the model, in physical units

A task never touches a model; a model never knows its task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from lno.config import from_dict, from_tagged, require_count, to_dict, to_tagged
from lno.data import Batch, Fields, columns
from lno.data.checks import require_type
from lno.data.normalize import Normalizers, Standardizer
from lno.data.observe import PATTERNS, Pattern, Window, require_pattern

Apply = Callable[[Batch], Tensor]


@dataclass(frozen=True)
class Steady:
    """From the observed values straight to the answers, as the data have them.

    >>> to_json(Steady())
    {'kind': 'steady'}
    """

    observes_answers: ClassVar[bool] = False  # u is drawn from y
    asks_elsewhere: ClassVar[bool] = False  # answers are wanted where nothing was observed

    def prepare(self, fields: Fields) -> Fields:
        """The data that batches are taken from."""
        return fields

    def normalizers(self, prepared: Fields) -> Normalizers:
        """Normalisers fitted to prepared training data."""
        return Normalizers.fit(prepared)

    def draw(
        self,
        batch: Batch,
        grid: tuple[int, ...] | None,
        generator: torch.Generator,
        queries: int | None = None,
    ) -> Batch:
        """What the model sees in one step, at `queries` random query points; None: at all."""
        return random_queries(self.observe(batch, grid, generator), queries, generator)

    def observe(
        self, batch: Batch, grid: tuple[int, ...] | None, generator: torch.Generator
    ) -> Batch:
        """What is observed, and the whole answer."""
        return batch

    def predict(self, apply: Apply, batch: Batch) -> Tensor:
        """The prediction (b, q, o) from what is observed; `apply` maps batches to values."""
        return apply(batch)


@dataclass(frozen=True)
class Rollout(Steady):
    """From some frames of a trajectory to the next frame, and so on, step by step.

    The data hold the observed frames as channels of u and those that follow as channels of y, at
    the same points, frame by frame. A model learns one step: from as many frames as u has to the
    next one. In training every window of a trajectory is a sample, with true frames as its input
    (teacher forcing); in prediction a model reads its own frames.

    Args:
        frames: how many frames to predict.
        channels: how many channels a frame has.

    >>> data = Fields(torch.rand(50, 2), u=torch.rand(3, 50, 4), y=torch.rand(3, 50, 2))
    >>> task = Rollout(2)
    >>> batch = task.draw(task.prepare(data).batch([0, 1]), None, torch.Generator())
    >>> batch.u.shape, batch.y.shape
    (torch.Size([4, 50, 4]), torch.Size([4, 50, 1]))
    """

    frames: int
    channels: int = 1

    def __post_init__(self) -> None:
        require_count("Rollout.frames", self.frames, 100_000)
        require_count("Rollout.channels", self.channels, 100_000)

    def prepare(self, fields: Fields) -> Fields:
        """The trajectories, checked: the frames that are asked for, at the observed points."""
        expected, got = self.frames * self.channels, fields.spec.out_channels
        if fields.y is not None and got != expected:
            raise ValueError(
                f"expected {expected} channels of y, {self.frames} frames of {self.channels}, as "
                f"the rollout says; got {got}"
            )
        observed = columns.channels(fields.u)
        if observed == 0 or observed % self.channels:
            raise ValueError(
                f"expected whole frames of {self.channels} channels in u, got {observed} channels"
            )
        if not fields.same_points:
            raise ValueError(
                "frames are predicted at the points where they are observed: leave out x_query"
            )
        if fields.background is not None:
            raise ValueError("a rollout takes no background: predict y − background instead")
        return fields

    def normalizers(self, prepared: Fields) -> Normalizers:
        """Each channel of a frame has one mean and one std for all frames."""
        if prepared.y is None:
            raise ValueError("the data have no frames y to learn from")
        frame = Standardizer.fit_frames([prepared.u, prepared.y], len(prepared), self.channels)
        observed = columns.channels(prepared.u) // self.channels
        u = Standardizer(frame.mean * observed, frame.std * observed)
        return replace(Normalizers.fit(prepared), u=u, y=frame)

    def draw(
        self,
        batch: Batch,
        grid: tuple[int, ...] | None,
        generator: torch.Generator,
        queries: int | None = None,
    ) -> Batch:
        """All windows of the trajectories as samples, trajectory by trajectory."""
        if batch.y is None:
            raise ValueError("the data have no frames y to learn from")
        seen, step = batch.u.shape[-1], self.channels
        frames = torch.cat((batch.u, batch.y), -1)
        windows = frames.unfold(-1, seen + step, step).permute(0, 2, 1, 3).flatten(0, 1)

        def repeated(values: Tensor) -> Tensor:
            return values if len(values) == 1 else values.repeat_interleave(self.frames, 0)

        others = ("x", "x_query", "mask", "query_mask", "parameters", "weights", "query_weights")
        samples = batch.each(repeated, others)
        samples = replace(samples, u=windows[..., :seen], y=windows[..., seen:])
        return random_queries(samples, queries, generator)

    def predict(self, apply: Apply, batch: Batch) -> Tensor:
        """Frame by frame, each read by the steps that follow."""
        seen, answers = batch.at_observed(), []
        elsewhere = batch.x_query is not batch.x and not torch.equal(batch.x_query, batch.x)
        for _ in range(self.frames):
            frame = apply(seen)
            asked = replace(seen, x_query=batch.x_query, query_mask=batch.query_mask)
            answers.append(apply(asked) if elsewhere else frame)
            seen = replace(seen, u=torch.cat((seen.u[..., self.channels :], frame), -1))
        return torch.cat(answers, -1)


@dataclass(frozen=True)
class Completion(Steady):
    """Reconstruct a whole field from a few observations of it, drawn anew in every step.

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
    asks_elsewhere: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_pattern("Completion.pattern", self.pattern)
        expected = "the part of the domain that is observed, like Window('t', 0.0, 0.5), or None"
        require_type("Completion.window", self.window, Window | None, expected)

    def prepare(self, fields: Fields) -> Fields:
        """The fields inside the window."""
        everywhere = Window(fields.names["x"][0], float("-inf"), float("inf"))
        return (self.window or everywhere).restrict(fields)

    def normalizers(self, prepared: Fields) -> Normalizers:
        """Observations and answers are the same quantity, so they share one normaliser."""
        fitted = Normalizers.fit(prepared)
        return replace(fitted, u=fitted.y)

    def observe(
        self, batch: Batch, grid: tuple[int, ...] | None, generator: torch.Generator
    ) -> Batch:
        """Observe the batch's answers at the points that the pattern chooses."""
        if batch.y is None:
            raise ValueError("completion needs whole fields: the data have no answers y")
        b, q, _ = batch.y.shape
        real = torch.ones(b, q, dtype=torch.bool)
        if batch.query_mask is not None:
            real = batch.query_mask.cpu()
        # Decided on the CPU: the same seed observes the same points on every device.
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
class Propagation(Steady):
    """From a field inside a window to the whole field, beyond the window too.

    The data hold whole fields as answers; all of their points inside the window are observed.

    Args:
        window: the part of the domain that is known.

    >>> t = torch.linspace(0, 1, 9)[:, None]
    >>> fields = Fields(t, y=torch.rand(3, 9, 1), names={"x": ["t"]})
    >>> Propagation(Window("t", 0.25, 0.75)).prepare(fields)
    Fields(3 samples: y0 at 5 points of t → y0 at 9 points)
    """

    window: Window

    observes_answers: ClassVar[bool] = True
    asks_elsewhere: ClassVar[bool] = True

    def __post_init__(self) -> None:
        expected = "the part of the domain that is known, like Window('t', 0.0, 0.5)"
        require_type("Propagation.window", self.window, Window, expected)

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
        """Observations and answers are the same quantity, so they share one normaliser."""
        fitted = Normalizers.fit(prepared)
        return replace(fitted, u=fitted.y)


Task = Steady
TASKS: dict[str, type[Steady]] = {
    "steady": Steady,
    "rollout": Rollout,
    "completion": Completion,
    "propagation": Propagation,
}


def random_queries(batch: Batch, count: int | None, generator: torch.Generator) -> Batch:
    """The batch at `count` random query points, the same for all of its samples; None: at all."""
    available = batch.x_query.shape[1]
    if count is None or count >= available:
        return batch
    chosen = torch.randperm(available, generator=generator)[:count]
    return batch.at_queries(chosen.to(batch.x_query.device, non_blocking=True))


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
