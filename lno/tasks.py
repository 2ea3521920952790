"""What a training step and a prediction mean.

A task prepares data once, fits their normalisers, and draws what a model sees in one step:

    prepared = task.prepare(fields)               once
    batch = task.draw(prepared.batch(index), prepared.grid, generator)    every step

and says how a prediction is made and measured:

    batch = task.observe(prepared.batch(index), prepared.grid, generator)
    y = task.predict(apply, batch, coordinates, device)    `apply` is the model, in physical units

A task never touches a model; a model never knows its task.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from lno.config import from_dict, from_tagged, require_count, require_range, to_dict, to_tagged
from lno.data import Batch, Fields
from lno.data.krige import krige
from lno.data.normalize import Coordinates, Normalizers, Standardizer
from lno.data.observe import PATTERNS, Pattern, Window

Apply = Callable[[Batch], Tensor]


def some_queries(batch: Batch, count: int | None, generator: torch.Generator) -> Batch:
    """The batch at random query points, the same for all of its samples; None: at all."""
    there = batch.x_query.shape[1]
    if count is None or count >= there:
        return batch
    chosen = torch.randperm(there, generator=generator)[:count]
    return batch.at_queries(chosen.to(batch.x_query.device, non_blocking=True))


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

    def draw(
        self,
        batch: Batch,
        grid: tuple[int, ...] | None,
        generator: torch.Generator,
        queries: int | None = None,
    ) -> Batch:
        """What the model sees in one step, at so many random query points; None: at all."""
        return some_queries(self.observe(batch, grid, generator), queries, generator)

    def observe(
        self, batch: Batch, grid: tuple[int, ...] | None, generator: torch.Generator
    ) -> Batch:
        """What is observed, and the whole answer."""
        return batch

    def predict(
        self, apply: Apply, batch: Batch, coordinates: Coordinates, device: torch.device
    ) -> Tensor:
        """The prediction (b, q, o) for what is observed.

        Args:
            apply: a model, from batches to values.
            batch: what is observed, and where the answer is wanted.
            coordinates: from positions to what the model sees of them.
            device: where to compute what takes long.
        """
        return apply(batch)

    def learned(self) -> Task:
        """The same task as far as a model learns it, which is what training watches."""
        return self


@dataclass(frozen=True)
class Rollout(Steady):
    """From some frames of a film to the next one, and from there on and on.

    The data hold the observed frames as channels of u and those that follow as channels of y, at
    the same points. A model learns one step: from as many frames as u has to the next. In training
    every window of a film is a sample, with true frames before it (teacher forcing); in prediction
    a model reads its own frames.

    Args:
        frames: how many frames to predict.

    >>> films = Fields(torch.rand(50, 2), u=torch.rand(3, 50, 4), y=torch.rand(3, 50, 2))
    >>> task = Rollout(2)
    >>> batch = task.draw(task.prepare(films).batch([0, 1]), None, torch.Generator())
    >>> batch.u.shape, batch.y.shape
    (torch.Size([4, 50, 4]), torch.Size([4, 50, 1]))
    """

    frames: int

    def __post_init__(self) -> None:
        require_count("Rollout.frames", self.frames, 100_000)

    def prepare(self, fields: Fields) -> Fields:
        """The films, which must have the frames that are asked for at the points of those given."""
        found = fields.spec.out_channels
        if fields.y is not None and found != self.frames:
            raise ValueError(
                f"expected {self.frames} frames to predict, as Rollout.frames says, got {found} "
                "channels of y"
            )
        if not fields.same_points:
            raise ValueError(
                "a film is predicted at the points where it is seen: leave out x_query"
            )
        return fields

    def normalizers(self, prepared: Fields) -> Normalizers:
        """All frames are the same quantity and share one mean and one std."""
        if prepared.y is None:
            raise ValueError("the data have no frames y to learn from")
        one = Standardizer.fit_pooled([prepared.u, prepared.y], len(prepared))
        count = prepared.spec.in_channels
        return Normalizers(
            Coordinates.fit(prepared), Standardizer(one.mean * count, one.std * count), one
        )

    def draw(
        self,
        batch: Batch,
        grid: tuple[int, ...] | None,
        generator: torch.Generator,
        queries: int | None = None,
    ) -> Batch:
        """All windows of the films as samples, film by film."""
        if batch.y is None:
            raise ValueError("the data have no frames y to learn from")
        seen = batch.u.shape[-1]
        film = torch.cat((batch.u, batch.y), -1)
        windows = film.unfold(-1, seen + 1, 1).permute(0, 2, 1, 3).flatten(0, 1)
        count = self.frames

        def repeated(values: Tensor) -> Tensor:
            return values if len(values) == 1 else values.repeat_interleave(count, 0)

        masks = (batch.mask, batch.query_mask)
        mask, query_mask = (None if m is None else m.repeat_interleave(count, 0) for m in masks)
        x = repeated(batch.x)
        x_query = x if batch.x_query is batch.x else repeated(batch.x_query)
        u, y = windows[..., :seen], windows[..., seen:]
        return some_queries(Batch(x, u, x_query, y, mask, query_mask), queries, generator)

    def predict(
        self, apply: Apply, batch: Batch, coordinates: Coordinates, device: torch.device
    ) -> Tensor:
        """Frame by frame, each read by the steps that follow."""
        seen, answers = replace(batch, y=None, x_query=batch.x, query_mask=batch.mask), []
        elsewhere = batch.x_query is not batch.x and not torch.equal(batch.x_query, batch.x)
        for _ in range(self.frames):
            frame = apply(seen)
            asked = replace(seen, x_query=batch.x_query, query_mask=batch.query_mask)
            answers.append(apply(asked) if elsewhere else frame)
            seen = replace(seen, u=torch.cat((seen.u[..., 1:], frame), -1))
        return torch.cat(answers, -1)


@dataclass(frozen=True)
class Completion(Steady):
    """See a whole field from a few observations of it, drawn anew in every step.

    The data hold whole fields as answers. Observations are points of the field itself, chosen by
    `pattern` inside `window`; the answer is wanted everywhere inside the window.

    Args:
        pattern: which points are observed.
        window: the part of the domain that is observed and completed; None: all of it.
        exact: predictions pass through the observations: what the model misses there is added, as
            far around them as it is likely to reach (`lno.data.krige`). The model knows what such
            fields look like, its misses what this one is near the sensors; the more of these there
            are, the more they decide, in the end without the model.
        noise: the standard deviation of errors of the observations that predictions are made from,
            in their units: an exact prediction then smooths what it adds.

    >>> from lno import RandomRatio
    >>> fields = Fields(torch.rand(50, 2), y=torch.rand(3, 50, 1))
    >>> task = Completion(RandomRatio(0.1))
    >>> batch = task.draw(task.prepare(fields).batch([0, 1]), None, torch.Generator())
    >>> batch.x.shape, batch.u.shape, batch.x_query.shape
    (torch.Size([2, 5, 2]), torch.Size([2, 5, 1]), torch.Size([1, 50, 2]))
    """

    pattern: Pattern
    window: Window | None = None
    exact: bool = False
    noise: float = 0.0

    observes_answers: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_range("Completion.noise", self.noise, 0.0, 1e30)
        if self.noise and not self.exact:
            raise ValueError("Completion.noise is for predictions that are exact otherwise")

    def prepare(self, fields: Fields) -> Fields:
        """The fields inside the window."""
        everywhere = Window(fields.names["x"][0], float("-inf"), float("inf"))
        return (self.window or everywhere).restrict(fields)

    def normalizers(self, prepared: Fields) -> Normalizers:
        """Observations and answers are the same quantity, so they share one normaliser."""
        points = Normalizers.fit(prepared)
        return replace(points, u=points.y)

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
        where = batch.y.device
        index, counted = self.pattern.draw(real, grid, generator, where)
        mask = None if counted.all() else counted.to(where, non_blocking=True)
        x = batch.x_query.expand(b, -1, -1)
        x, u = (v.gather(1, index[..., None].expand(-1, -1, v.shape[-1])) for v in (x, batch.y))
        return replace(batch, x=x, u=u, mask=mask)

    def predict(
        self, apply: Apply, batch: Batch, coordinates: Coordinates, device: torch.device
    ) -> Tensor:
        """The model's answer, through the observations if it is to be exact there."""
        answer = apply(batch)
        if not self.exact:
            return answer
        seen = replace(batch, y=None, x_query=batch.x, query_mask=batch.mask)
        x, x_query = (coordinates.encode(v).to(device) for v in (batch.x, batch.x_query))
        x = x.expand(len(batch), -1, -1)
        mask = None if batch.mask is None else batch.mask.to(device)
        guess = (apply(seen).to(device), answer.to(device))
        return krige(x, batch.u, x_query, mask, self.noise, coordinates.axes, guess).to(answer)

    def learned(self) -> Task:
        """Without passing through the observations."""
        return replace(self, exact=False, noise=0.0)


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

    def prepare(self, fields: Fields) -> Fields:
        """The fields inside the window as observations of the whole."""
        inside = self.window.restrict(fields)
        return Fields(
            inside.x,
            inside.y,
            fields.x_query,
            fields.y,
            grid=fields.grid,
            period=fields.period,
            names={**fields.names, "u": fields.names["y"]},
            units={**fields.units, "u": fields.units["y"]},
            frame=fields.frame,
            provenance=fields.provenance,
        )

    def normalizers(self, prepared: Fields) -> Normalizers:
        """Observations and answers are the same quantity, so they share one normaliser."""
        whole = Normalizers.fit(prepared)
        return replace(whole, u=whole.y)


Task = Steady
TASKS: dict[str, type[Steady]] = {
    "steady": Steady,
    "rollout": Rollout,
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
