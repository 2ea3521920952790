"""A time budget: measure the speed of a run, then choose how many steps fit into it.

The number of steps is fixed before the first one, so that the learning-rate schedule ends with the
budget, and stored in checkpoints, so that a resumed run takes the same steps.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from time import perf_counter
from typing import NamedTuple

import torch

from lno.training.loop import CHECKPOINT_SECONDS, CURVE_POINTS, next_batches, validation_errors
from lno.training.samples import Samples
from lno.training.state import Training
from lno.training.step import Step

MEASURING = 0.04  # fraction of the budget spent on measuring the time of a step,
MEASURING_SECONDS = 2.0  # or so many seconds if that is longer,
MEASURING_LIMIT = 0.2  # but no larger fraction than this
COMPILE_FROM_MINUTES = 10  # compilation takes up to 90 seconds: shorter budgets do without it
WARMUP_STEPS = 3  # not measured: compilation, capture, first allocations
STEPS_BETWEEN_READS = 10  # of the clock on a GPU
TOLERANCE = 0.1  # by which a run may exceed its budget without a warning


class Costs(NamedTuple):
    """Seconds of the parts of a run."""

    step: float
    validation: float = 0.0
    checkpoint: float = 0.0


def fit_to_budget(
    training: Training,
    take_step: Step,
    samples: Samples,
    checkpoint: Callable[[], None],
    deadline: float,
) -> None:
    """Set `training.total_steps` so that a new run ends at `deadline`, a time of `perf_counter`.

    The run is saved afterwards: killed at any later time, it resumes with the same total.
    """
    left = deadline - perf_counter()
    seconds = max(MEASURING * left, min(MEASURING_SECONDS, MEASURING_LIMIT * left))
    costs = measure(training, take_step, samples, seconds)
    _fix_total(training, deadline, costs)
    start = perf_counter()
    checkpoint()
    _fix_total(training, deadline, costs._replace(checkpoint=perf_counter() - start))
    checkpoint()
    if training.total_steps < training.steps_per_epoch and training.processes.is_main:
        warnings.warn(
            f"only {training.total_steps} steps fit into the time budget, less than one epoch of "
            f"{training.steps_per_epoch}",
            stacklevel=2,
        )


def warn_if_late(seconds: float, minutes: float) -> None:
    """Warn if a finished run took longer than its time budget.

    The number of steps is chosen at the beginning, so this happens where the machine has become
    slower since, e.g. because another program started.

    >>> warn_if_late(seconds=61, minutes=1)
    """
    if seconds > 60 * minutes * (1 + TOLERANCE):
        warnings.warn(
            f"training took {seconds / 60:.2g} minutes, more than its budget of {minutes:g}: steps "
            "became slower after their time was measured. Is another program using this machine?",
            stacklevel=2,
        )


def steps_within(seconds: float, costs: Costs) -> int:
    """How many steps fit into so many seconds, with validation and checkpoints; at least one.

    >>> steps_within(100.0, Costs(step=0.1))
    1000
    >>> steps_within(100.0, Costs(step=0.1, validation=2.0))  # 25 times
    500
    """
    curve_point = costs.validation + costs.checkpoint
    step = costs.step * (1 + costs.checkpoint / CHECKPOINT_SECONDS)
    steps = int((seconds - CURVE_POINTS * curve_point) / step)
    if steps >= CURVE_POINTS**2:  # from here on the curve has exactly CURVE_POINTS points
        return steps

    def points(steps: int) -> int:
        return steps // max(1, steps // CURVE_POINTS)

    for steps in range(min(int(seconds / step), CURVE_POINTS**2), 0, -1):
        if steps * step + points(steps) * curve_point <= seconds:
            return steps
    return 1


def measure(training: Training, take_step: Step, samples: Samples, seconds: float) -> Costs:
    """Measure a run by taking steps for so many seconds and undoing them, bit-for-bit.

    Compilation and capture happen here too, and are not repeated afterwards.
    """
    full_batches = max(1, training.epoch_samples // training.recipe.batch)
    last = training.steps_per_epoch - 1

    def step_at(step: int) -> None:
        training.step = step
        take_step(*next_batches(training, samples))

    with training.restored():
        # First, because a step takes up to a tenth less time after the large allocations of a
        # validation pass, which the C library then keeps.
        validation = 0.0
        for _ in range(2):  # the first pass may allocate; a long one is not repeated
            start = perf_counter()
            validation_errors(training)
            validation = perf_counter() - start
            if training.processes.any(validation > seconds, training.device):
                break
        step = _mean_seconds(lambda k: step_at(k % full_batches), training, seconds)
        if last >= full_batches:  # a smaller batch ends each epoch
            partial = _mean_seconds(lambda k: step_at(last), training, seconds / 4)
            step = (full_batches * step + partial) / training.steps_per_epoch
    return Costs(step, validation)


def _mean_seconds(work: Callable[[int], None], training: Training, limit: float) -> float:
    """The mean time of `work(k)` over as many calls as fit into the limit."""
    on_gpu = training.device.type != "cpu"

    def late(start: float) -> bool:
        if on_gpu:
            torch.accelerator.synchronize()
        return training.processes.any(perf_counter() - start >= limit, training.device)

    start = perf_counter()
    for k in range(WARMUP_STEPS):
        work(k)
        if k > 0 and late(start):
            break
    start, done = perf_counter(), 0
    while done == 0 or not late(start):
        for _ in range(STEPS_BETWEEN_READS if on_gpu else 1):
            work(WARMUP_STEPS + done)
            done += 1
    return (perf_counter() - start) / done


def _fix_total(training: Training, deadline: float, costs: Costs) -> None:
    steps = steps_within(deadline - perf_counter(), costs)
    training.total_steps = training.processes.from_main(steps, training.device)
