"""The training loop."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import nn

from lno.data import Batch, Fields
from lno.data.normalize import Normalizers
from lno.metrics import METRICS
from lno.tasks import Task
from lno.training.recipe import Recipe

EVALUATIONS = 25  # how often a run looks at its validation error


@dataclass(frozen=True)
class Point:
    """One point of the learning curve."""

    step: int
    seconds: float
    loss: float
    error: float | None  # on the validation part, None where there is none


@dataclass
class Training:
    """Everything that a step needs and changes."""

    model: nn.Module
    task: Task
    normalizers: Normalizers
    recipe: Recipe
    data: Fields  # prepared by the task
    validation: Fields | None
    device: torch.device
    generator: torch.Generator
    curve: list[Point] = field(default_factory=list)

    @property
    def steps_per_epoch(self) -> int:
        """Steps in a pass over the data; the last one may be smaller."""
        return -(-len(self.data) // self.recipe.batch)

    @property
    def steps(self) -> int:
        """Steps of the whole run."""
        return self.recipe.epochs * self.steps_per_epoch


@dataclass(frozen=True)
class Progress:
    """What a run reports after each step."""

    step: int
    steps: int
    epoch: int
    loss: float
    error: float | None


def train(training: Training, report: Callable[[Progress], None] = lambda progress: None) -> None:
    """Train `training.model` in place; raises if the loss stops being a finite number."""
    recipe, model = training.recipe, training.model
    optimizer = recipe.optimizer(model)
    schedule = recipe.schedule(optimizer, training.steps)
    interval = max(1, training.steps // EVALUATIONS)
    start, step, error, recent = time.perf_counter(), 0, None, []
    model.train()
    for epoch in range(recipe.epochs):
        order = torch.randperm(len(training.data), generator=training.generator)
        for index in order.split(recipe.batch):
            loss = training_step(training, index, optimizer)
            rate = schedule.get_last_lr()[0]
            schedule.step()
            step += 1
            recent.append(float(loss))
            if not torch.isfinite(loss):
                raise RuntimeError(
                    f"the loss became {float(loss)} at step {step} of {training.steps} (learning "
                    f"rate {rate:.2e}): lower Recipe.rate, set Recipe.clip, or look for outliers "
                    "in the data"
                )
            if step % interval == 0 or step == training.steps:
                error = validation_error(training)
                seconds = time.perf_counter() - start
                training.curve.append(Point(step, seconds, sum(recent) / len(recent), error))
                recent.clear()
            report(Progress(step, training.steps, epoch + 1, float(loss), error))
    model.eval()


def training_step(
    training: Training, index: torch.Tensor, optimizer: torch.optim.Optimizer
) -> torch.Tensor:
    """One step on the samples at `index`; returns the loss."""
    recipe = training.recipe
    batch = training.task.draw(
        training.data.batch(index.numpy()), training.data.grid, training.generator
    )
    points = batch.x_query.shape[1]
    if recipe.queries is not None and recipe.queries < points:
        chosen = torch.randperm(points, generator=training.generator)[: recipe.queries]
        batch = batch.at_queries(chosen)
    batch = training.normalizers.encode(batch).to(training.device)
    loss = batch_loss(training.model, batch, recipe.loss)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    if recipe.clip is not None:
        nn.utils.clip_grad_norm_(training.model.parameters(), recipe.clip)
    optimizer.step()
    return loss.detach()


def batch_loss(model: nn.Module, batch: Batch, loss: str) -> torch.Tensor:
    """The mean loss over a normalised batch."""
    prediction = model(batch.x, batch.u, batch.x_query, batch.mask)
    return METRICS[loss](prediction, batch.y, batch.query_mask).mean()


@torch.no_grad()
def validation_error(training: Training) -> float | None:
    """The mean relative L2 error on the validation part, in physical units."""
    if training.validation is None:
        return None
    training.model.eval()
    errors = []
    # The same draws every time, or the curve would show the luck of the draw.
    generator = torch.Generator().manual_seed(0)
    for index in torch.arange(len(training.validation)).split(training.recipe.batch):
        raw = training.validation.batch(index.numpy())
        raw = training.task.draw(raw, training.validation.grid, generator)
        batch = training.normalizers.encode(raw).to(training.device)
        prediction = training.model(batch.x, batch.u, batch.x_query, batch.mask).cpu()
        physical = training.normalizers.y.decode(prediction)
        errors.append(METRICS["relative_l2"](physical, raw.y, raw.query_mask))
    training.model.train()
    return float(torch.cat(errors).mean())


def curve_rows(curve: list[Point]) -> list[dict[str, Any]]:
    """A learning curve as plain data."""
    return [asdict(point) for point in curve]
