"""The training loop."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from lno.data import Batch
from lno.evaluation import evaluate
from lno.metrics import METRICS
from lno.models.model import Model, apply_model
from lno.tasks.task import without_points
from lno.training.best import exhausted
from lno.training.jitter import jittered
from lno.training.precision import matmul_precision
from lno.training.samples import Samples
from lno.training.schedules import SCHEDULES
from lno.training.state import Point, Training
from lno.training.step import Step

CURVE_POINTS = 25  # how often a run is validated and saved
CHECKPOINT_SECONDS = 300.0  # a run is also saved when the last checkpoint is this old
STEPS_BETWEEN_READS = 50  # of the loss on a GPU: reading it waits for the device
VALIDATION_POINTS = {"cuda": 262_144}  # points of validation samples in one forward pass
VALIDATION_POINTS_ELSEWHERE = 65_536
UNSTABLE = 1.5  # final loss / lowest loss from which a run counts as unstable


@dataclass(frozen=True)
class Progress:
    """What the loop reports after each step, or after several steps on a GPU."""

    step: int
    total_steps: int
    epoch: int
    loss: float
    error: float | None
    points_per_second: float


def train(
    training: Training,
    take_step: Step,
    samples: Samples,
    report: Callable[[Progress], None] = lambda progress: None,
    checkpoint: Callable[[], None] = lambda: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> bool:
    """Train `training.models` in place; returns whether the run is finished.

    Args:
        training: the run, new or resumed.
        take_step: the training step of this run.
        samples: its training samples.
        report: called after each step (on a GPU, whenever the loss is read).
        checkpoint: saves the run. Called at every point of the learning curve, every few minutes
            and before a pause.
        should_stop: asked after each `report` whether to pause the run, which can be resumed.
    """
    interval = max(1, training.total_steps // CURVE_POINTS)
    error = training.curve[-1].error if training.curve else None
    memory = PeakMemory(training, samples)
    stopwatch = Stopwatch(training)
    saved_at = perf_counter()
    points = 0  # processed so far, for the speed
    unread: list[Tensor] = []  # losses that are still on the device
    while training.step < training.total_steps and not stopped_early(training):
        batches, share = next_batches(training, samples)
        unread.append(take_step(batches, share))
        training.step += 1
        points += sum(len(b) * (b.x.shape[1] + b.x_query.shape[1]) for b in batches)
        left = training.total_steps - training.step
        # The steps that remain after the last whole interval belong to it.
        at_curve_point = left == 0 or (training.step % interval == 0 and left >= interval)
        if take_step.on_gpu and not at_curve_point and len(unread) < STEPS_BETWEEN_READS:
            continue
        training.recent += read_losses(unread, training)
        unread.clear()
        losses = training.recent[-1]
        stopwatch.stop()  # validation and checkpoints do not count as training time
        if at_curve_point:
            memory.record()
            errors = validation_errors(training)
            memory.reset()
            means = torch.tensor(training.recent, dtype=torch.float64).mean(0).tolist()
            training.recent.clear()
            training.curve.append(Point(training.step, training.seconds, means, errors))
            training.keep_best()
            error = training.curve[-1].error
        if at_curve_point or perf_counter() - saved_at > CHECKPOINT_SECONDS:
            checkpoint()
            saved_at = perf_counter()
        stopwatch.start()
        epoch = -(-training.step // training.steps_per_epoch)
        loss, speed = sum(losses) / len(losses), points / stopwatch.seconds
        report(Progress(training.step, training.total_steps, epoch, loss, error, speed))
        if training.processes.any(should_stop(), training.device) and left > 0:
            if not at_curve_point:  # else it has just been saved
                checkpoint()
            return False
    if training.processes.is_main:
        _warn_if_unstable(training)
    return True


def stopped_early(training: Training) -> bool:
    """Whether early stopping ends the run here, or ended it before it was resumed."""
    at_point = bool(training.curve) and training.curve[-1].step == training.step
    return training.early_stop and at_point and exhausted(training.curve)


def next_batches(training: Training, samples: Samples) -> tuple[list[Batch], float]:
    """The next batch of each model, encoded, and this process's share of the loss.

    With several processes, each gets its part of the batches.
    """
    step, processes = training.step, training.processes
    stored = samples.batches(training.samples_at(step), prefetch=training.samples_at(step + 1))
    drawn = [draw(training, batch, g) for batch, g in zip(stored, training.generators, strict=True)]
    parts = [processes.part(batch) for batch in drawn]
    return parts, processes.share(drawn[0], parts[0])


def draw(training: Training, batch: Batch, generator: torch.Generator) -> Batch:
    """What a model is trained on in one step: random symmetries, observations, query points."""
    recipe = training.recipe
    if training.random_symmetry is not None:
        batch = training.random_symmetry.draw(batch, generator)
    if recipe.jitter:
        batch = jittered(batch, training.data.spec, recipe.jitter, generator)
    batch = training.task.draw(batch, training.grid, generator, recipe.queries)
    return without_points(batch, recipe.point_dropout, generator) if recipe.point_dropout else batch


def read_losses(unread: list[Tensor], training: Training) -> list[list[float]]:
    """The losses of the last steps as numbers; raises at the first that is not finite."""
    losses = torch.stack(unread).view(len(unread), -1).tolist()
    for k, step in enumerate(losses, start=training.step - len(losses)):
        for seed, loss in zip(training.seeds, step, strict=True):
            if math.isfinite(loss):
                continue
            recipe = training.recipe
            pace = SCHEDULES[recipe.schedule](k, training.total_steps)
            who = f" of the member with seed {seed}" if len(step) > 1 else ""
            raise RuntimeError(
                f"the loss{who} became {loss} at step {k + 1} of {training.total_steps} (learning "
                f"rate {recipe.learning_rate * pace.factor:.2e}): lower Recipe.learning_rate, set "
                "Recipe.clip, or look for outliers in the data"
            )
    return losses


@torch.no_grad()
def validation_errors(training: Training) -> list[float] | None:
    """The mean relative L2 error of each member on the validation samples, in physical units.

    This is the error of the model alone, in training precision: conditioning on observations and
    full precision would take too long here. The errors reported after training use both.
    """
    if training.validation is None:
        return None
    data, first = training.validation, training.validation[0]
    points = VALIDATION_POINTS.get(training.device.type, VALIDATION_POINTS_ELSEWHERE)
    size = max(training.recipe.batch, points // max(len(first.x), len(first.x_query)))

    def apply(model: Model, batch: Batch) -> Tensor:
        encoded = training.task.model_input(training.normalizers.encode(batch)).to(training.device)
        output = apply_model(model, encoded, training.recipe.weighted).float()
        prediction = training.task.model_output(output, encoded).cpu()
        return training.normalizers.decode(prediction, batch.background)

    def predict(model: Model, batch: Batch) -> Tensor:
        return training.task.predict(partial(apply, model), batch)

    means = []
    with training.predicting(), matmul_precision(training.precision):
        for model in training.models:
            # With the default seed: every validation draws the same observations.
            errors = evaluate(
                partial(predict, model),
                data,
                training.task,
                size=size,
                weighted=training.recipe.weighted,
                metrics={"relative_l2": METRICS["relative_l2"]},
            )
            means.append(errors.means()["relative_l2"])
    return means


class Stopwatch:
    """Adds the time between `start` and `stop` to `training.seconds`, compilation excluded."""

    def __init__(self, training: Training) -> None:
        self.training, self.seconds = training, 0.0  # of this call; `training` may be resumed
        self.start()

    def start(self) -> None:
        """Start the watch."""
        self.started, self.compiled = perf_counter(), self.training.compile_seconds

    def stop(self) -> None:
        """Stop the watch."""
        compiling = self.training.compile_seconds - self.compiled
        elapsed = perf_counter() - self.started - compiling
        self.seconds += elapsed
        self.training.seconds += elapsed


class PeakMemory:
    """The peak memory of training on a GPU, without resident data and without validation."""

    def __init__(self, training: Training, samples: Samples) -> None:
        self.training, self.on_gpu = training, training.device.type == "cuda"
        self.data = samples.resident_bytes
        self.reset()

    def record(self) -> None:
        """Record the peak since the last `reset`."""
        if self.on_gpu:
            used = torch.cuda.max_memory_allocated(self.training.device) - self.data
            self.training.peak_memory = max(self.training.peak_memory, used)

    def reset(self) -> None:
        """Forget the peak so far."""
        if self.on_gpu:
            torch.cuda.reset_peak_memory_stats(self.training.device)


def has_risen(losses: Sequence[float], total_steps: int) -> bool:
    """Whether the loss ended well above its minimum, which means that training became unstable.

    Not for short runs: there, a point of the curve is the mean of few steps and may be high by
    chance.

    >>> [has_risen([0.9, 0.1, last], total_steps=1000) for last in (0.14, 0.2)]
    [False, True]
    """
    return total_steps >= 10 * CURVE_POINTS and losses[-1] > UNSTABLE * min(losses)


def _warn_if_unstable(training: Training) -> None:
    for seed, *losses in zip(training.seeds, *(p.losses for p in training.curve), strict=True):
        if has_risen(losses, training.total_steps):
            best = losses.index(min(losses))
            lowest, last = f"{losses[best]:.3g}", f"{losses[-1]:.3g}"
            exact = ' or train with precision="tf32"' * (training.precision == "mixed")
            warnings.warn(
                f"training of seed {seed} became unstable: its loss was {lowest} at step "
                f"{training.curve[best].step:,} and ended at {last}; lower Recipe.learning_rate, "
                f"set Recipe.clip{exact}",
                stacklevel=2,
            )


def curve_rows(curve: list[Point]) -> list[dict[str, Any]]:
    """A learning curve as plain data."""
    return [point.row() for point in curve]
