"""A time budget, with a clock that only training, validation and checkpoints move."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
from small_runs import EVERYTHING, SMALL, fit, lines, weights

from lno import Recipe
from lno.models import build_model
from lno.tasks import Steady
from lno.training import budget, loop, run, step
from lno.training.budget import Costs, fit_to_budget, measure, steps_within
from lno.training.inputs import model_spec
from lno.training.samples import Samples
from lno.training.state import Training
from lno.training.step import Step


class Clock:
    """Seconds that pass only when something says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (budget, loop, run):
        monkeypatch.setattr(module, "perf_counter", clock)
    return clock


def takes(clock: Clock, seconds: float, function: object) -> object:
    def timed(*args: object, **keys: object) -> object:
        clock.now += seconds
        return function(*args, **keys)  # type: ignore[operator]

    return timed


def new_training(recipe: Recipe = EVERYTHING) -> Training:
    task, data = Steady(), lines()
    scale = task.normalizers(data)
    model = build_model("lno", SMALL, model_spec(data, scale), seed=0)
    return Training([model], task, scale, recipe, data, data, torch.device("cpu"), seed=0)


def validations(total_steps: int) -> int:
    """How often a run of so many steps is validated, counted as the loop decides it."""
    interval = max(1, total_steps // loop.CURVE_POINTS)
    left = [total_steps - k for k in range(1, total_steps + 1)]
    return sum(n == 0 or ((total_steps - n) % interval == 0 and n >= interval) for n in left)


@pytest.mark.parametrize("costs", [Costs(0.01), Costs(0.2, 1.5, 0.5), Costs(3.0, 40.0, 2.0)])
@pytest.mark.parametrize("seconds", [5.0, 60.0, 300.0, 4000.0])
def test_as_many_steps_as_fit(costs: Costs, seconds: float) -> None:
    def needed(steps: int) -> float:
        points = validations(steps) * (costs.validation + costs.checkpoint)
        saved = steps * costs.step / loop.CHECKPOINT_SECONDS * costs.checkpoint
        return steps * costs.step + points + saved

    steps = steps_within(seconds, costs)
    if steps == 1:
        assert needed(2) > seconds
    else:
        assert needed(steps) <= seconds * (1 + 1e-9) < needed(steps + 1) * (1 + 1e-9)


def test_a_budget_that_is_over_leaves_one_step() -> None:
    assert steps_within(-10.0, Costs(0.1, 1.0)) == 1


@pytest.mark.parametrize("minutes", [1, 5, 12])
def test_a_run_ends_with_its_budget(
    minutes: float, clock: Clock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Compilation, smaller last batches, validation and checkpoints all take their time."""
    compiled, take = [], Step.__call__

    def timed_step(self: Step, batches: list, share: float = 1.0) -> torch.Tensor:
        clock.now += 0 if compiled else 12.0  # the first one compiles
        compiled.append(True)
        clock.now += 2.0 if len(batches[0]) == 27 else 5.0
        return take(self, batches, share)

    monkeypatch.setattr(Step, "__call__", timed_step)
    for module in (budget, loop):
        slow = takes(clock, 0.3, loop.validation_errors)
        monkeypatch.setattr(module, "validation_errors", slow)
    monkeypatch.setattr(Training, "save", takes(clock, 0.2, Training.save))
    recipe = Recipe(epochs=1, batch=27)
    operator = fit(lines(), recipe=recipe, minutes=minutes, folder=tmp_path)
    assert operator.finished
    assert clock.now - 1000.0 == pytest.approx(60 * minutes, rel=0.1)
    assert operator.provenance["recipe"]["epochs"] == 1


def test_measuring_leaves_no_trace() -> None:
    training = new_training()
    untouched = {name: value.clone() for name, value in training._tensors().items()}
    samples = Samples(training.data, training.normalizers, training.device)
    taken = []
    take_step = Step(training)

    def counted(*args: object) -> torch.Tensor:
        taken.append(training.step)
        return take_step(*args)  # type: ignore[arg-type]

    measured = measure(training, counted, samples, 0.05)  # type: ignore[arg-type]
    assert len(taken) > 3
    assert measured.step > 0
    assert training.step == 0
    assert not training.curve
    now = training._tensors()
    assert now.keys() == untouched.keys()
    assert all(torch.equal(now[name], untouched[name]) for name in now)


def test_a_budget_for_some_epochs_is_a_run_of_these_epochs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The schedule is fitted to the steps, and measuring changes no bit."""
    steps = EVERYTHING.epochs * 12  # 36 samples in batches of 3
    monkeypatch.setattr(budget, "steps_within", lambda seconds, costs: steps)
    recipe = Recipe(**{**vars(EVERYTHING), "epochs": 999})
    budgeted, plain = fit(lines(), recipe=recipe, minutes=0.01), fit(lines(), recipe=EVERYTHING)
    assert budgeted.provenance["steps"] == steps
    assert torch.equal(weights(budgeted), weights(plain))


def test_a_budgeted_run_pauses_and_resumes_with_the_steps_it_began_with(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(budget, "steps_within", lambda seconds, costs: 31)  # 2.6 epochs
    keys = {"recipe": EVERYTHING, "minutes": 0.01}
    whole = fit(lines(), **keys)
    paused = fit(lines(), folder=tmp_path, pause_after=1e-9, **keys)
    assert (paused.finished, paused.provenance["steps"]) == (False, 1)
    monkeypatch.setattr(budget, "steps_within", lambda seconds, costs: 77)  # a slower machine
    resumed = fit(lines(), folder=tmp_path, resume=True, **keys)
    assert (resumed.finished, resumed.provenance["steps"]) == (True, 31)
    assert torch.equal(weights(resumed), weights(whole))


def test_a_budget_of_less_than_an_epoch_warns(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = new_training()
    monkeypatch.setattr(budget, "measure", lambda *args: Costs(20.0))
    with pytest.warns(UserWarning, match="only 3 steps fit into the time budget, less than one"):
        fit_to_budget(training, Step(training), None, lambda: None, clock.now + 60)  # type: ignore[arg-type]
    assert training.total_steps == 3


def test_a_run_that_exceeds_its_budget_warns(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine that has become slower since the time of a step was measured."""
    monkeypatch.setattr(budget, "measure", lambda *args: Costs(10.0))  # six steps in a minute
    monkeypatch.setattr(run, "train", takes(clock, 90.0, lambda *args: True))
    with pytest.warns(UserWarning, match=r"took 1\.5 minutes, more than its budget of 1"):
        assert run.run(new_training(), "lno", "", minutes=1, show=False)


@pytest.mark.parametrize(("seconds", "finished"), [(65.0, True), (90.0, False)])
def test_a_run_on_time_or_paused_does_not_warn(
    seconds: float, finished: bool, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "fit_to_budget", lambda *args: None)
    monkeypatch.setattr(run, "train", takes(clock, seconds, lambda *args: finished))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert run.run(new_training(), "lno", "", minutes=1, show=False) is finished


def test_only_long_budgets_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the number of steps; the decision is stored for the resumed run."""
    chosen = []
    monkeypatch.setattr(step.Step, "__init__", lambda self, t: chosen.append(t.compiled))
    monkeypatch.setattr(run, "fit_to_budget", lambda *args: None)
    monkeypatch.setattr(run, "train", lambda *args: True)
    for minutes in (None, budget.COMPILE_FROM_MINUTES - 1, budget.COMPILE_FROM_MINUTES):
        run.run(new_training(), "lno", "", minutes=minutes, show=False)
    assert chosen == [None, False, True]


def test_a_run_of_so_many_steps_is_that_of_as_many_epochs_and_keeps_its_number(
    tmp_path: Path,
) -> None:
    whole = fit(lines(), recipe=EVERYTHING)
    total = whole.provenance["steps"]
    exact = fit(lines(), recipe=EVERYTHING, steps=total)
    assert torch.equal(weights(exact), weights(whole))
    fit(lines(), recipe=EVERYTHING, steps=total - 5, folder=tmp_path, pause_after=1e-9)
    keys = {"recipe": EVERYTHING, "folder": tmp_path, "resume": True}
    resumed = fit(lines(), steps=total, **keys)  # another number than when it began
    assert resumed.finished and resumed.provenance["steps"] == total - 5
    assert resumed.provenance["epochs"] == pytest.approx((total - 5) / total * EVERYTHING.epochs)
    with pytest.raises(ValueError, match="epochs and steps both say how long to train"):
        fit(lines(), epochs=3, steps=3)
    with pytest.raises(ValueError, match="steps must be a whole number from 1 to"):
        fit(lines(), steps=0)
