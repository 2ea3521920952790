"""Burgers' equation from a few of its points: the paper's inverse problem, its Tables 2 and 3.

A completer reconstructs the field inside a window of time from some of its points there. A
propagator continues to all times from the field inside the window: the true one, or the one that a
completer has reconstructed.

Every method is given the same sensors of the same test samples: observations are drawn once, as
data that hold nothing else of the field, and all predictions are made from these.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lno.data import Fields
from lno.data.observe import Intervals, Pattern, RandomRatio
from lno.evaluation import Errors, evaluate
from lno.experiments.datasets import dataset
from lno.experiments.interpolants import INTERPOLANTS
from lno.experiments.presets import (
    ANY_RATIO,
    PAPER_RECIPE,
    PRESETS,
    RATIOS,
    STEADY,
    WINDOW,
    completer_of,
)
from lno.experiments.runs import RunSpec
from lno.ledger import Run, commit
from lno.operator import Operator
from lno.tasks import Completion, to_json
from lno.training.device import hardware
from lno.training.progress import progress

# By recipe: one budget for all models that are trained as the paper's, another one for ours.
EPOCHS = {"completer": 30, "propagator": 20, "our-completer": 200, "our-propagator": 100}
LONGER = 10  # times as long, at one ratio: what more training gains
PRECISION = "mixed"
MODELS = ("lno", "gnot", "deeponet")
STEPS = (2, 4, 8, 16)  # intervals of fixed grids, in t and in x
AFTER = (0.1, 0.01)  # ratios of the completers that propagators continue from
SENSORS = 0  # the seed of the sensors in test samples
TRUTH = "test:from=truth"


def parts(others: Fields) -> tuple[Fields, Fields]:
    """Samples that are not trained on: half for validation and calibration, half for testing."""
    half = len(others) // 2
    validation, test = others.split(half, len(others) - half)
    return validation, test


def observed(test: Fields, pattern: Pattern) -> Fields:
    """Observations of samples, and the truth at all points inside the window to compare with.

    The same samples and pattern always have the same sensors.
    """
    task, generator = Completion(pattern, WINDOW), torch.Generator().manual_seed(SENSORS)
    inside = task.prepare(test)
    batch = task.observe(inside.batch(np.arange(len(inside))), inside.grid, generator)
    return Fields(batch.x, batch.u, inside.x, inside.y, period=inside.period)


def predicted(operator: Operator, seen: Fields) -> Float[Tensor, "s q o"]:
    """Predictions of an operator from observations."""
    return torch.from_numpy(np.asarray(operator.predict(seen)))


def errors_of(
    prediction: Float[Tensor, "s q o"], seen: Fields, where: Bool[Tensor, " q"] | None = None
) -> Errors:
    """Errors of predictions that were made already, at all points or at some."""
    return evaluate(lambda batch: prediction, seen, STEADY, size=len(seen), where=where)


def mean_errors(
    prediction: Float[Tensor, "s q o"], seen: Fields, where: Bool[Tensor, " q"] | None = None
) -> dict[str, float]:
    """Mean errors over the samples, at all points or at some."""
    return errors_of(prediction, seen, where).means()


def at_the_ends(whole: Fields) -> Bool[Tensor, " q"]:
    """Which points of whole fields lie at t = 0 or t = 1, where the paper measures propagators."""
    t = np.asarray(whole.x_query)[:, whole.names["x"].index(WINDOW.coordinate)]
    return torch.from_numpy((t == 0) | (t == 1))


def percent(ratio: float) -> str:
    """As data sets are named.

    >>> percent(0.005)
    '0.5%'
    """
    return f"{100 * ratio:g}%"


def interval(t: int, x: int) -> str:
    """The data set that is observed on a grid, at every t-th time and every x-th position."""
    return f"test:interval={t}x{x}"


GRIDS: dict[str, Pattern] = {interval(t, x): Intervals((t, x)) for t in STEPS for x in STEPS}


class Stage(RunSpec, ABC):
    """A setup of either stage."""

    def samples(self, device: str) -> tuple[Fields, Fields, Fields]:
        """Samples to train on, to validate on and to test on."""
        train, others = dataset(self.problem, self.protocol, device)
        return train, *parts(others)

    @abstractmethod
    def data_sets(self) -> list[str]:
        """The test sets."""


class Completer(Stage):
    """From sensors to the field inside the window."""

    def patterns(self) -> dict[str, Pattern]:
        """Sensors that it is tested with: at its own ratio, or at all of them and on grids."""
        task = self.preset.task
        assert isinstance(task, Completion) and isinstance(task.pattern, RandomRatio)
        for_any = task.pattern.high is not None
        ratios = RATIOS if for_any else (task.pattern.low,)
        return {
            **{f"test:ratio={percent(ratio)}": RandomRatio(ratio) for ratio in ratios},
            **(GRIDS if for_any else {}),
        }

    def data_sets(self) -> list[str]:
        """The test sets."""
        return list(self.patterns())

    def errors(self, operator: Operator, test: Fields, seed: int) -> dict[str, Errors]:
        """Errors inside the window, for every pattern of sensors."""
        found = {}
        with progress(f"testing seed {seed}", len(self.data_sets())) as update:
            for name, pattern in self.patterns().items():
                found[name] = operator.errors(observed(test, pattern), task=STEADY)
                update(len(found))
        return found


class Propagator(Stage):
    """From the field inside the window to the whole field."""

    def completers(self) -> dict[str, Completer]:
        """The completers that it continues from, by model: of the other table, trained alike.

        A changed setup is tested from the truth alone.
        """
        if self.changes:
            return {}
        recipe = self.recipe.replace("propagator", "completer")
        # Each for as long as its table says; if this one is not, they all are for as long as it.
        as_in_table = self.epochs == EPOCHS[self.recipe]
        epochs = EPOCHS[recipe] if as_in_table else self.epochs
        rest = (recipe, epochs, self.precision, self.protocol)
        return {m: Completer(self.problem, m, *rest) for m in MODELS if recipe in PRESETS[m]}

    def needs(self) -> tuple[RunSpec, ...]:
        """Its completers."""
        return tuple(self.completers().values())

    def patterns(self, model: str) -> dict[str, Pattern]:
        """Sensors of the completer that it continues from; on grids, of its own model alone."""
        return {
            **{f"test:from={model} {percent(ratio)}": RandomRatio(ratio) for ratio in AFTER},
            **(GRIDS if model == self.model else {}),
        }

    def data_sets(self) -> list[str]:
        """The test sets."""
        return [TRUTH, *(name for model in self.completers() for name in self.patterns(model))]

    def errors(self, operator: Operator, test: Fields, seed: int) -> dict[str, Errors]:
        """Errors at t = 0 and t = 1, from the truth and from the completers of the same seed."""
        whole = operator.task.prepare(test)
        ends = at_the_ends(whole)
        found = {TRUTH: operator.errors(whole, task=STEADY, where=ends)}
        with progress(f"testing seed {seed}", len(self.data_sets())) as update:
            for model, spec in self.completers().items():
                completer = spec.operator(seed, operator.device.type)
                assert completer is not None, f"{spec.name(seed)} is trained before it is needed"
                for name, pattern in self.patterns(model).items():
                    inside = predicted(completer, observed(test, pattern))
                    seen = Fields(whole.x, inside, whole.x_query, whole.y)
                    found[name] = operator.errors(seen, task=STEADY, where=ends)
                    update(len(found))
        return found


class Interpolation(Completer):
    """A method without training: one run is all."""

    trained = False

    def patterns(self) -> dict[str, Pattern]:
        """Sensors that it is tested with."""
        return {f"test:ratio={percent(ratio)}": RandomRatio(ratio) for ratio in RATIOS}

    def missing(self, results: Path, seeds: Sequence[int]) -> list[int]:
        """Only the sensors are random, and they have a seed of their own."""
        return super().missing(results, [0])

    def measure(self, device: str) -> Run:
        """Interpolate all test samples."""
        _, _, samples = self.samples(device)
        seen = {name: observed(samples, pattern) for name, pattern in self.patterns().items()}
        interpolate, config = INTERPOLANTS[self.model]
        predictions = interpolate(list(seen.values()))
        pairs = zip(seen.items(), predictions, strict=True)
        return Run(
            problem=self.problem,
            model=self.model,
            recipe=self.recipe,
            protocol=self.protocol,
            seed=0,
            epochs=0,
            steps=0,
            task=to_json(Completion(ANY_RATIO, WINDOW)),
            hardware=hardware(torch.device("cpu")),
            seconds=0.0,
            parameters=0,
            data_hash=samples.digest,
            config=config,
            metrics={name: mean_errors(predicted, fields) for (name, fields), predicted in pairs},
            precision=self.precision,
            commit=commit(),
        )


def _spec(kind: type[Stage], model: str, recipe: str) -> Stage:
    return kind("burgers", model, recipe, EPOCHS[recipe], PRECISION)


# One completer with the paper's own budget: its batch size, for as many epochs.
AS_PUBLISHED = Completer(
    "burgers",
    "lno",
    completer_of(0.01),
    PAPER_RECIPE.epochs,
    PRECISION,
    changes=(("batch", PAPER_RECIPE.batch),),
)
COMPLETERS = (
    *(Interpolation("burgers", model, "completer", 0, "fp64") for model in INTERPOLANTS),
    _spec(Completer, "lno", "our-completer"),
    *(_spec(Completer, model, "completer") for model in MODELS),
    *(
        replace(_spec(Completer, "lno", "completer"), recipe=completer_of(ratio))
        for ratio in RATIOS
    ),
    Completer("burgers", "lno", completer_of(0.01), LONGER * EPOCHS["completer"], PRECISION),
    AS_PUBLISHED,
)
PROPAGATORS = (
    _spec(Propagator, "lno", "our-propagator"),
    *(_spec(Propagator, model, "propagator") for model in MODELS),
)
ON_GRIDS = tuple(s for s in (*COMPLETERS, *PROPAGATORS) if set(GRIDS) <= set(s.data_sets()))
