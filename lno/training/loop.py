"""The training loop."""

from __future__ import annotations

import math
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from lno.data import Batch
from lno.metrics import METRICS
from lno.training.precision import matrix_products
from lno.training.samples import Samples
from lno.training.schedules import SCHEDULES
from lno.training.state import Point, Training
from lno.training.step import Step

LOOK = 50  # steps of a GPU between looks at the loss
EVALUATIONS = 25  # how often a run looks at its validation error, and is saved;
SAVED = 300.0  # seconds after which it is saved in any case
POINTS = {"cuda": 262_144}  # of validation samples at once, by device
FEW_POINTS = 65_536  # on others
RISEN = 1.5  # times its lowest: where a loss does not end by chance


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
    start, points, watching = time.perf_counter(), 0, 0.0
    saved = start
    before, compiled = training.seconds, training.compile_seconds
    memory = Memory(samples, training)
    error = training.curve[-1].error if training.curve else None
    pending: list[Tensor] = []
    while training.step < training.steps:
        batches, weight = next_batches(training, samples)
        pending.append(step(batches, weight))
        points += sum(len(b) * (b.x.shape[1] + b.x_query.shape[1]) for b in batches)
        training.step += 1
        left = training.steps - training.step
        # What is left after the last whole interval belongs to it, or a few steps would be a point.
        evaluate = left == 0 or (training.step % interval == 0 and left >= interval)
        # Reading a loss waits for the device, so a GPU is asked now and then only.
        if not evaluate and len(pending) < (LOOK if step.on_gpu else 1):
            continue
        training.recent += _finite(pending, training)
        pending.clear()
        apart = watching + training.compile_seconds - compiled
        elapsed = time.perf_counter() - start - apart
        training.seconds = before + elapsed
        latest = training.recent[-1]
        if evaluate:
            memory.note()
            pause = time.perf_counter()
            errors = validation_errors(training)
            memory.forget()
            means = torch.tensor(training.recent, dtype=torch.float64).mean(0).tolist()
            training.curve.append(Point(training.step, training.seconds, means, errors))
            training.recent.clear()
            error = training.curve[-1].error
            checkpoint()
            saved = time.perf_counter()
            watching += saved - pause
        elif time.perf_counter() - saved > SAVED:
            checkpoint()
            saved = time.perf_counter()
        epoch = -(-training.step // training.steps_per_epoch)
        loss = sum(latest) / len(latest)
        report(Progress(training.step, training.steps, epoch, loss, error, points / elapsed))
        late = minutes is not None and elapsed >= 60 * minutes
        stop = training.team.any(late or stopped(), training.device)
        if stop and training.step < training.steps:
            if not evaluate:  # else it has just been saved
                checkpoint()
            return False
    if training.team.leads:
        _warn_if_risen(training)
    return True


class Memory:
    """The peak memory of a GPU in training, apart from data that stay on it and from validation."""

    def __init__(self, samples: Samples, training: Training) -> None:
        self.training, self.on_gpu = training, training.device.type == "cuda"
        self.data = samples.resident_bytes
        self.forget()

    def note(self) -> None:
        """Record the largest use since the last `forget`."""
        if self.on_gpu:
            used = torch.cuda.max_memory_allocated(self.training.device) - self.data
            self.training.peak_memory = max(self.training.peak_memory, used)

    def forget(self) -> None:
        """Begin anew."""
        if self.on_gpu:
            torch.cuda.reset_peak_memory_stats(self.training.device)


def next_batches(training: Training, samples: Samples) -> tuple[list[Batch], float]:
    """The next batch of each model, encoded; of several processes, this one's part of them.

    Besides, the share of this process's loss in that of all.
    """
    step, team = training.step, training.team
    read = samples.batches(training.samples_at(step), training.samples_at(step + 1))
    drawn = [draw(training, batch, g) for batch, g in zip(read, training.generators, strict=True)]
    mine = [team.share(batch) for batch in drawn]
    return mine, team.weight(drawn[0], mine[0])


def draw(training: Training, batch: Batch, generator: torch.Generator) -> Batch:
    """What a model sees of a batch in one step."""
    if training.orbit is not None:
        batch = training.orbit.draw(batch, generator)
    grid, queries = training.data.grid, training.recipe.queries
    return training.task.draw(batch, grid, generator, queries)


def _finite(pending: list[Tensor], training: Training) -> list[list[float]]:
    """The losses of the last steps as numbers; raises at the first that is not finite."""
    losses = torch.stack(pending).view(len(pending), -1).tolist()
    for k, step in enumerate(losses, start=training.step - len(losses)):
        for seed, loss in zip(training.seeds, step, strict=True):
            if math.isfinite(loss):
                continue
            recipe = training.recipe
            rate = recipe.rate * SCHEDULES[recipe.schedule](k, training.steps, recipe.epochs).rate
            who = f" of the member with seed {seed}" if len(step) > 1 else ""
            raise RuntimeError(
                f"the loss{who} became {loss} at step {k + 1} of {training.steps} (learning rate "
                f"{rate:.2e}): lower Recipe.rate, set Recipe.clip, or look for outliers in the data"
            )
    return losses


def has_risen(losses: Sequence[float], steps: int) -> bool:
    """Whether a training of so many steps ended well above where it had been: became unstable.

    In a short one, a point of the curve is the mean of few steps, and may be high by chance.

    >>> [has_risen([0.9, 0.1, last], steps=1000) for last in (0.14, 0.2)]
    [False, True]
    """
    return steps >= 10 * EVALUATIONS and losses[-1] > RISEN * min(losses)


def _warn_if_risen(training: Training) -> None:
    for seed, *losses in zip(training.seeds, *(p.losses for p in training.curve), strict=True):
        if has_risen(losses, training.steps):
            best = losses.index(min(losses))
            lowest, last = f"{losses[best]:.3g}", f"{losses[-1]:.3g}"
            exact = ' or train with precision="tf32"' * (training.precision == "mixed")
            warnings.warn(
                f"training of seed {seed} became unstable: its loss was {lowest} at step "
                f"{training.curve[best].step:,} and ended at {last}; lower Recipe.rate, set "
                f"Recipe.clip{exact}",
                stacklevel=2,
            )


@torch.no_grad()
def validation_errors(training: Training) -> list[float] | None:
    """The mean relative L2 error of each member on the validation part, in physical units.

    Of the models alone, with matrix products as in training: to let predictions pass through
    observations, or full precision on a GPU, takes long. What is reported in the end has both.
    """
    if training.validation is None:
        return None
    scale, task, data = training.normalizers, training.task.learned(), training.validation

    def apply(model: nn.Module, batch: Batch) -> Tensor:
        ready = scale.encode(batch).to(training.device)
        return scale.y.decode(model(ready.x, ready.u, ready.x_query, ready.mask).cpu())

    errors = []
    # The same draws every time, or the curve would show the luck of the draw.
    generator = torch.Generator().manual_seed(0)
    points = POINTS.get(training.device.type, FEW_POINTS)
    size = max(training.recipe.batch, points // max(len(data[0].x), len(data[0].x_query)))
    with training.predicting(), matrix_products(training.precision):
        for index in torch.arange(len(data)).split(size):
            batch = task.observe(data.batch(index.numpy()), data.grid, generator)
            predictions = [
                task.predict(partial(apply, model), batch, scale.x, training.device)
                for model in training.models
            ]
            metric = METRICS["relative_l2"]
            errors.append(torch.stack([metric(p, batch.y, batch.query_mask) for p in predictions]))
    return torch.cat(errors, dim=1).mean(1).tolist()


@contextmanager
def stop_signals() -> Iterator[Callable[[], bool]]:
    """While inside, Ctrl-C and SIGTERM do not kill: the function that is yielded becomes true.

    Only the main thread hears signals; in others nothing changes.
    """
    heard: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
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
    return [point.row() for point in curve]
