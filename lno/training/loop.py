"""The training loop."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from lno.data import Batch
from lno.metrics import METRICS
from lno.training.optim import SCHEDULES, set_pace
from lno.training.state import Point, Training
from lno.training.step import Samples, Step

LOOK = 50  # steps of a GPU between looks at the loss
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
    interval = max(1, training.steps // EVALUATIONS)
    samples = Samples(training.data, training.normalizers, training.device)
    step = Step(training)
    start, before, points = time.perf_counter(), training.seconds, 0
    error = training.curve[-1].error if training.curve else None
    pending: list[Tensor] = []
    training.model.train()
    while training.step < training.steps:
        batch = next_batch(training, samples)
        pending.append(step(batch))
        points += len(batch) * (batch.x.shape[1] + batch.x_query.shape[1])
        training.step += 1
        evaluate = training.step % interval == 0 or training.step == training.steps
        # Reading a loss waits for the device, so a GPU is asked now and then only.
        if not evaluate and len(pending) < (LOOK if step.on_gpu else 1):
            continue
        training.recent += _finite(pending, training)
        pending.clear()
        elapsed = time.perf_counter() - start
        training.seconds = before + elapsed
        loss = training.recent[-1]
        if evaluate:
            error = validation_error(training)
            mean = sum(training.recent) / len(training.recent)
            training.curve.append(Point(training.step, training.seconds, mean, error))
            training.recent.clear()
            checkpoint()
        epoch = -(-training.step // training.steps_per_epoch)
        report(Progress(training.step, training.steps, epoch, loss, error, points / elapsed))
        late = minutes is not None and elapsed >= 60 * minutes
        stop = training.team.any(late or stopped(), training.device)
        if stop and training.step < training.steps:
            if not evaluate:  # else it has just been saved
                checkpoint()
            training.model.eval()
            return False
    training.model.eval()
    return True


def next_batch(training: Training, samples: Samples) -> Batch:
    """The encoded batch of the next step, with the pace of the optimisers set for it."""
    recipe = training.recipe
    pace = SCHEDULES[recipe.schedule](training.step, training.steps, recipe.epochs)
    set_pace(training.optimizers, recipe.rate, pace)
    batch = samples.batch(training.next_samples())
    if training.orbit is not None:
        batch = training.orbit.draw(batch, training.generator)
    batch = training.task.draw(batch, training.data.grid, training.generator)
    queries = batch.x_query.shape[1]
    if recipe.queries is not None and recipe.queries < queries:
        chosen = torch.randperm(queries, generator=training.generator)[: recipe.queries]
        batch = batch.at_queries(chosen.to(training.device))
    return batch


def _finite(pending: list[Tensor], training: Training) -> list[float]:
    """The losses of the last steps as numbers; raises at the first that is not finite."""
    losses = torch.stack(pending).tolist()
    for k, loss in enumerate(losses, start=training.step - len(losses)):
        if not math.isfinite(loss):
            recipe = training.recipe
            rate = recipe.rate * SCHEDULES[recipe.schedule](k, training.steps, recipe.epochs).rate
            raise RuntimeError(
                f"the loss became {loss} at step {k + 1} of {training.steps} (learning rate "
                f"{rate:.2e}): lower Recipe.rate, set Recipe.clip, or look for outliers in the data"
            )
    return losses


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
