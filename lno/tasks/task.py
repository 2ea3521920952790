"""`Task`: what every task defines, and what most tasks have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from lno.data import Batch, Fields, Spec
from lno.data.normalize import Normalizers

Apply = Callable[[Batch], Tensor]


@dataclass(frozen=True)
class Task(ABC):
    """What a training step and a prediction mean: the base class of all tasks.

    A subclass is a frozen dataclass. It defines `prepare`, and what differs from the defaults here.
    """

    observes_outputs: ClassVar[bool] = False  # the inputs u are drawn from the outputs y
    queries_elsewhere: ClassVar[bool] = False  # predicts at points where nothing was observed
    time_as_input: ClassVar[bool] = False  # a model's last input channel is the time of the sample

    @property
    def reads_query_values(self) -> bool:
        """Whether `model_output` needs the observed values at the query points."""
        return False

    @property
    def visits(self) -> int:
        """How often an epoch passes over each sample."""
        return 1

    @abstractmethod
    def prepare(self, fields: Fields) -> Fields:
        """The data that batches are taken from."""

    def model_spec(self, spec: Spec) -> Spec:
        """The spec of a model for this task, from the spec of the data."""
        return spec

    def model_input(self, batch: Batch) -> Batch:
        """The input of the model for an encoded batch; `apply` functions of `predict` call this."""
        return batch

    def model_output(self, values: Tensor, batch: Batch) -> Tensor:
        """The encoded prediction from a model's output for an encoded batch."""
        return values

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
        """What the model sees in one step, at `queries` random query points (None: all)."""
        return random_queries(self.observe(batch, grid, generator), queries, generator)

    def observe(
        self, batch: Batch, grid: tuple[int, ...] | None, generator: torch.Generator
    ) -> Batch:
        """The batch with its observations, and with the targets at all query points."""
        return batch

    def predict(self, apply: Apply, batch: Batch) -> Tensor:
        """The prediction (b, q, o) from what is observed; `apply` maps batches to values."""
        return apply(batch)


def random_queries(batch: Batch, count: int | None, generator: torch.Generator) -> Batch:
    """The batch at `count` random query points, the same for all of its samples (None: all)."""
    available = batch.x_query.shape[1]
    if count is None or count >= available:
        return batch
    chosen = torch.randperm(available, generator=generator)[:count]
    return batch.at_queries(chosen.to(batch.x_query.device, non_blocking=True))


def without_points(batch: Batch, share: float, generator: torch.Generator) -> Batch:
    """Drop a random share of the observed points, the same points in every sample.

    If the query points are the observed points, they are dropped as well. The number of points that
    remain is fixed, so that every step has the same shapes. If a sample with few points would lose
    all of them, the batch is returned unchanged.

    >>> x = torch.rand(1, 10, 2)
    >>> batch = Batch(x, torch.rand(3, 10, 1), x, torch.rand(3, 10, 1))
    >>> some = without_points(batch, 0.5, torch.Generator())
    >>> some.u.shape, some.y.shape, some.x_query is some.x
    (torch.Size([3, 5, 1]), torch.Size([3, 5, 1]), True)
    """
    available = batch.u.shape[1]
    kept = max(1, round((1 - share) * available))
    chosen = torch.randperm(available, generator=generator)[:kept]
    chosen = chosen.to(batch.u.device, non_blocking=True)
    if batch.mask is not None and not batch.mask[:, chosen].any(1).all():
        return batch
    if batch.x_query is batch.x:
        some = batch.at_queries(chosen).at_points(chosen)
        return replace(some, x_query=some.x)
    return batch.at_points(chosen)
