"""The training loop."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn

from lno.data import Batch
from lno.metrics import METRICS
from lno.training.optim import SCHEDULES, set_pace
from lno.training.state import Point, Training

EVALUATIONS = 25  # how often a run looks at its validation error


@dataclass(frozen=True)
class Progress:
    """What a run reports after each step."""

    step: int
    steps: int
    epoch: int
    loss: float
    error: float | None
    points_per_second: float


def train(
    training: Training,
    report: Callable[[Progress], None] = lambda progress: None,
    checkpoint: Callable[[], None] = lambda: None,
    minutes: float | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> bool:
    """Train `training.model` in place; returns whether the run is finished.

    Args:
        training: the run, new or resumed.
        report: hears of every step.
        checkpoint: is called when the run should be saved: now and then, and before it stops early.
        minutes: of training in this call, after which it stops early.
        stopped: is asked after every step whether to stop early.
    """
    model = training.model
    interval = max(1, training.steps // EVALUATIONS)
    start, before, points = time.perf_counter(), training.seconds, 0
    error = training.curve[-1].error if training.curve else None
    model.train()
    while training.step < training.steps:
        loss, seen = training_step(training)
        points += seen
        training.step += 1
        training.recent.append(loss)
        elapsed = time.perf_counter() - start
        training.seconds = before + elapsed
        evaluate = training.step % interval == 0 or training.step == training.steps
        if evaluate:
            error = validation_error(training)
            mean = sum(training.recent) / len(training.recent)
            training.curve.append(Point(training.step, training.seconds, mean, error))
            training.recent.clear()
            checkpoint()
        epoch = -(-training.step // training.steps_per_epoch)
        speed = points / elapsed
        report(Progress(training.step, training.steps, epoch, loss, error, speed))
        late = minutes is not None and elapsed >= 60 * minutes
        if (late or stopped()) and training.step < training.steps:
            if not evaluate:  # else it has just been saved
                checkpoint()
            model.eval()
            return False
    model.eval()
    return True


def training_step(training: Training) -> tuple[float, int]:
    """One step; returns the loss and the number of points that were read and predicted."""
    recipe = training.recipe
    pace = SCHEDULES[recipe.schedule](training.step, training.steps, recipe.epochs)
    set_pace(training.optimizers, recipe.rate, pace)
    index = training.next_samples()
    raw = training.task.draw(
        training.data.batch(index.numpy()), training.data.grid, training.generator
    )
    if recipe.queries is not None and recipe.queries < raw.x_query.shape[1]:
        chosen = torch.randperm(raw.x_query.shape[1], generator=training.generator)
        raw = raw.at_queries(chosen[: recipe.queries])
    batch = training.normalizers.encode(raw).to(training.device)
    loss = batch_loss(training, batch)
    value = float(loss.detach())
    if not torch.isfinite(loss.detach()):
        raise RuntimeError(
            f"the loss became {value} at step {training.step + 1} of {training.steps} (learning "
            f"rate {recipe.rate * pace.rate:.2e}): lower Recipe.rate, set Recipe.clip, or look for "
            "outliers in the data"
        )
    for optimizer in training.optimizers:
        optimizer.zero_grad(set_to_none=True)
    loss.backward()
    if recipe.clip is not None:
        nn.utils.clip_grad_norm_(training.model.parameters(), recipe.clip)
    for optimizer in training.optimizers:
        optimizer.step()
    if training.mean is not None:
        training.mean.update_parameters(training.model)
    return value, len(batch) * (batch.x.shape[1] + batch.x_query.shape[1])


def batch_loss(training: Training, batch: Batch) -> torch.Tensor:
    """The mean loss over a normalised batch."""
    prediction, target = training.model(batch.x, batch.u, batch.x_query, batch.mask), batch.y
    if training.recipe.physical:
        scale = training.normalizers.y
        assert target is not None
        prediction, target = scale.decode(prediction), scale.decode(target)
    return METRICS[training.recipe.loss](prediction, target, batch.query_mask).mean()


@torch.no_grad()
def validation_error(training: Training) -> float | None:
    """The mean relative L2 error on the validation part, in physical units."""
    if training.validation is None:
        return None
    model = training.best
    model.eval()
    errors = []
    # The same draws every time, or the curve would show the luck of the draw.
    generator = torch.Generator().manual_seed(0)
    for index in torch.arange(len(training.validation)).split(training.recipe.batch):
        raw = training.validation.batch(index.numpy())
        raw = training.task.draw(raw, training.validation.grid, generator)
        batch = training.normalizers.encode(raw).to(training.device)
        prediction = model(batch.x, batch.u, batch.x_query, batch.mask).cpu()
        physical = training.normalizers.y.decode(prediction)
        errors.append(METRICS["relative_l2"](physical, raw.y, raw.query_mask))
    model.train()
    return float(torch.cat(errors).mean())


@contextmanager
def stop_signals() -> Iterator[Callable[[], bool]]:
    """While inside, Ctrl-C and SIGTERM do not kill: the function that is yielded becomes true."""
    heard: list[int] = []
    old = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        for number in old:
            signal.signal(number, lambda received, frame: heard.append(received))
        yield lambda: bool(heard)
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)


def curve_rows(curve: list[Point]) -> list[dict[str, Any]]:
    """A learning curve as plain data."""
    return [asdict(point) for point in curve]
