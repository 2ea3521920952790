"""Tasks for fields that change in time: frame by frame, or each time separately."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lno.config import require_count, require_type
from lno.data import Batch, Fields, Spec, columns
from lno.data.batch import OF_OBSERVED, OF_QUERIES
from lno.data.normalize import Normalizers, Standardizer
from lno.models.interpolation import interpolate
from lno.tasks.task import Apply, Task, random_queries


@dataclass(frozen=True)
class Rollout(Task):
    """Predict the frames of a trajectory one by one, each from those before it (autoregression).

    The data hold the observed frames as channels of u and those that follow as channels of y, at
    the same points, frame by frame. The model learns one step: from as many frames as u has to
    the next one. In training, every window of a trajectory is a sample, with true frames as input
    (teacher forcing). In prediction, the model's own frames become its input.

    Args:
        frames: how many frames to predict.
        channels: how many channels a frame has.
        increments: the model learns what changes from the last frame to the next one. This is more
            accurate where frames follow each other so closely that they resemble each other.

    >>> data = Fields(torch.rand(50, 2), u=torch.rand(3, 50, 4), y=torch.rand(3, 50, 2))
    >>> task = Rollout(2)
    >>> batch = task.draw(task.prepare(data).batch([0, 1]), None, torch.Generator())
    >>> batch.u.shape, batch.y.shape
    (torch.Size([4, 50, 4]), torch.Size([4, 50, 1]))
    """

    frames: int
    channels: int = 1
    increments: bool = False

    def __post_init__(self) -> None:
        require_count("Rollout.frames", self.frames, 100_000)
        require_count("Rollout.channels", self.channels, 100_000)
        require_type("Rollout.increments", self.increments, bool)

    @property
    def reads_query_values(self) -> bool:
        """Whether `model_output` needs the last frame at the query points."""
        return self.increments

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

    def model_output(self, values: Tensor, batch: Batch) -> Tensor:
        """The next frame; elsewhere, the last one is interpolated to the query points."""
        if not self.increments:
            return values
        last = batch.u[..., -self.channels :]
        if batch.x_query is not batch.x:
            last = interpolate(batch.x, last, batch.x_query, batch.mask)
        return last + values

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
        """Predict frame by frame; every predicted frame is an input of the steps after it."""
        seen, predictions = batch.at_observed(), []
        elsewhere = batch.x_query is not batch.x and not torch.equal(batch.x_query, batch.x)
        for _ in range(self.frames):
            frame = apply(seen)
            asked = replace(seen, x_query=batch.x_query, query_mask=batch.query_mask)
            predictions.append(apply(asked) if elsewhere else frame)
            seen = replace(seen, u=torch.cat((seen.u[..., self.channels :], frame), -1))
        return torch.cat(predictions, -1)


@dataclass(frozen=True)
class Snapshots(Task):
    """Predict each time of a space–time grid separately, for models of two-dimensional grids.

    Time must be the last coordinate and the last axis of the grid. The model reads one snapshot, on
    the grid without that axis, and its time as the last input channel (a parameter of the sample).
    Times are scaled so that those of the training data lie between 0 and 1. `predict` predicts all
    times, one after the other, so errors are those of whole samples.

    Each training step draws a random time for each of its samples, and an epoch visits every sample
    as often as there are times. Transolver's published code takes the same number of steps, but
    uses each batch for 20 steps in a row, in which every sample goes through its 20 times in a
    random order of its own. It changes the learning rate after these 20 steps; here it changes
    after every step.

    Args:
        times: the number of times.

    >>> axes = torch.meshgrid(*[torch.linspace(0, 1, n) for n in (5, 4, 3)], indexing="ij")
    >>> x = torch.stack(axes, -1).reshape(60, 3)
    >>> data = Fields(x, u=torch.rand(2, 60, 1), y=torch.rand(2, 60, 4), grid=(5, 4, 3))
    >>> task = Snapshots(3)
    >>> batch = task.draw(task.prepare(data).batch([0, 1]), data.grid, torch.Generator())
    >>> batch.x.shape, batch.inputs.shape, batch.y.shape
    (torch.Size([1, 20, 2]), torch.Size([2, 20, 2]), torch.Size([2, 20, 4]))
    """

    times: int

    time_as_input: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_count("Snapshots.times", self.times, 100_000)

    @property
    def visits(self) -> int:
        """An epoch visits every sample as often as there are times."""
        return self.times

    def prepare(self, fields: Fields) -> Fields:
        """The data, checked: a grid in space and time, observed where the outputs are."""
        grid, d = fields.spec.grid, fields.spec.coordinates
        periodic = fields.period is not None and fields.period[-1] is not None
        whole = grid is not None and len(grid) == d >= 2 and grid[-1] == self.times
        if not whole or periodic or not fields.same_points:
            raise ValueError(
                f"expected data on a grid in space and time, Fields(..., grid=(…, {self.times})) "
                f"without x_query, whose last coordinate is time and not periodic; got {d} "
                f"coordinates, grid {grid}, period {fields.period}"
            )
        one = columns.is_shared(fields.x)
        for x in columns.samples(fields.x, 1 if one else len(fields)):
            _count_times(torch.from_numpy(np.ascontiguousarray(x))[None])
        return fields

    def model_spec(self, spec: Spec) -> Spec:
        """Time is an input channel instead of a coordinate."""
        grid = None if spec.grid is None else spec.grid[:-1]
        channels = spec.in_channels + 1, spec.out_channels
        return Spec(spec.coordinates - 1, *channels, grid, spec.periodic[:-1])

    def normalizers(self, prepared: Fields) -> Normalizers:
        """Times from 0 to 1, all else standardised."""
        fitted = Normalizers.fit(prepared)
        times = [x[: self.times, -1] for x in columns.samples(prepared.x, len(prepared))]
        low, high = float(np.min(times)), float(np.max(times))
        scale = fitted.x.scale
        mean, std = (*scale.mean[:-1], low), (*scale.std[:-1], (high - low) or 1.0)
        return replace(fitted, x=replace(fitted.x, scale=Standardizer(mean, std)))

    def draw(
        self,
        batch: Batch,
        grid: tuple[int, ...] | None,
        generator: torch.Generator,
        queries: int | None = None,
    ) -> Batch:
        """Each sample at a random time."""
        b, device = len(batch), batch.u.device
        sample = torch.arange(b, device=device)
        time = torch.randint(self.times, (b,), generator=generator).to(device, non_blocking=True)

        def at_time(values: Tensor) -> Tensor:
            snapshots = values.unflatten(1, (-1, self.times))
            return snapshots.expand(b, *snapshots.shape[1:])[sample, :, time]

        x = batch.x.unflatten(1, (-1, self.times))[:, :, 0]  # positions do not change
        seconds = batch.x[:, : self.times, -1].expand(b, -1)[sample, time]
        others = [name for name in OF_OBSERVED + OF_QUERIES if name not in ("x", "x_query")]
        values = {name: getattr(batch, name) for name in others}
        changed = {name: at_time(v) for name, v in values.items() if v is not None}
        drawn = replace(batch, x=x, x_query=x, **changed)
        return random_queries(_with_time(drawn, seconds), queries, generator)

    def model_input(self, batch: Batch) -> Batch:
        """One snapshot, and its time as the last parameter."""
        return _with_time(batch, batch.x[:, 0, -1].expand(batch.u.shape[0]))

    def predict(self, apply: Apply, batch: Batch) -> Tensor:
        """Predict each time, and put the results back into the order of the points."""
        if batch.x_query is not batch.x and not torch.equal(batch.x_query, batch.x):
            raise ValueError("snapshots are predicted at the observed points: leave out x_query")
        times, predictions = _count_times(batch.x), []
        for k in range(times):
            pick = partial(_every, first=k, step=times)
            predictions.append(apply(batch.each(pick, OF_OBSERVED + OF_QUERIES)))
        return torch.stack(predictions, 2).flatten(1, 2)


def _every(values: Tensor, first: int, step: int) -> Tensor:
    """Every `step`-th point, beginning with number `first`."""
    return values[:, first::step]


def _count_times(x: Tensor) -> int:
    """The number of times of a space–time grid (#b, n, d); time is last and varies fastest.

    Raises unless there are whole snapshots: the same points at the same times.
    """
    again = (x[0, 1:, -1] == x[0, 0, -1]).nonzero()
    count = int(again[0]) + 1 if len(again) else x.shape[1]
    if x.shape[1] % count == 0:
        grid = x.unflatten(1, (-1, count))
        still = torch.allclose(grid[..., :-1], grid[:, :, :1, :-1])
        if still and torch.allclose(grid[..., -1], grid[:, :1, :, -1]):
            return count
    raise ValueError(
        "x: expected whole snapshots, every point at every time, with time as the last coordinate "
        f"and all times of a point one after the other; got {x.shape[1]} points"
    )


def _with_time(batch: Batch, times: Float[Tensor, " b"]) -> Batch:
    """The batch without its last coordinate, and with `times` as its last parameter."""
    known = [] if batch.parameters is None else [batch.parameters]
    still = batch.each(lambda x: x[..., :-1], ("x", "x_query"))
    return replace(still, parameters=torch.cat((*known, times[:, None]), 1))
