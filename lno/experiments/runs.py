"""`RunSpec`: the description of a run, from which its data, model, folder and file names follow.

A spec is one setup, with a run for each seed. Seeds train together as members, which is faster than
one after the other. Test samples are held out: they influence neither weights nor normalisers, and
the last model is the one that is tested.
"""

from __future__ import annotations

import functools
import glob
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from lno import tasks
from lno.config import from_dict, to_dict
from lno.data import Fields
from lno.data.symmetry import Symmetry
from lno.evaluation import Errors
from lno.experiments import efficiency
from lno.experiments.datasets import cache_folder, dataset, protocol_of
from lno.experiments.presets import Preset, preset
from lno.ledger import Run
from lno.operator import Operator
from lno.problems import PROBLEMS
from lno.tasks import Task

MODEL = "model.safetensors"
Samples = tuple[Fields, Fields | float, Fields]  # training, validation (or a share), test


def model_file(path: Path) -> Path:
    """The model file that a user means: the file itself, or that in the folder of a run."""
    return path / MODEL if path.is_dir() else path


@dataclass(frozen=True)
class RunSpec:
    """A setup that is run from one or several seeds.

    Args:
        problem: a problem, or what the data of `data` are called.
        model: a name in `lno.models.MODELS`.
        recipe: the name of a preset.
        epochs: passes over the training samples; None: those of the preset.
        precision: as in `Operator.fit`.
        protocol: the data set of the problem.
        minutes: a time budget instead of epochs.
        seconds: as many steps as fit into so many seconds if nothing else uses the GPU, by the time
            of a step in the table of costs (`lno.experiments.efficiency`). Unlike `minutes`, the
            result does not depend on how fast the run itself is.
        data: a data file in place of the problem's data set. Runs are named after it.
        task: in place of the preset's.
        validation: the share of the training samples that is held out for the learning curve.
            None: all are trained on, and the curve shows the error on the test samples.
        changes: keys that differ from the preset's, with their values: of the model's config, of
            the recipe, of the task, or `symmetries`.
        required: how many seeds, from 0 on, a table is incomplete without.

    >>> RunSpec("darcy", "lno", "paper", 500, "tf32").name(2)
    'paper-500-tf32-seed2'
    >>> RunSpec("darcy", "lno", "paper", precision="tf32", seconds=120).name(0)
    'paper-120s-tf32-seed0'
    >>> RunSpec("darcy", "lno", "paper", 100, "tf32", changes=(("latents", 64),)).name(0)
    'paper.latents=64-100-tf32-seed0'
    """

    problem: str
    model: str
    recipe: str
    epochs: int | None = None
    precision: str = "auto"
    protocol: str = "standard"
    minutes: float | None = None
    data: str | None = None
    task: Task | None = None
    validation: float | None = None
    seconds: float | None = None
    changes: tuple[tuple[str, Any], ...] = ()
    required: int = field(default=1, compare=False)

    trained: ClassVar[bool] = True  # False: a method without training, one run and no seeds
    one_thread: ClassVar[bool] = False  # train on one CPU core
    validates_on_its_own: ClassVar[bool] = False  # on samples that are not those of the test

    def __post_init__(self) -> None:
        lengths = [k for k in ("epochs", "minutes", "seconds") if getattr(self, k) is not None]
        if len(lengths) > 1:
            raise ValueError(
                f"{' and '.join(lengths)} both say how long to train: give one of them"
            )

    @property
    def setup(self) -> str:
        """The preset and what is changed of it: the recipe of its runs in the ledger."""
        return ".".join([self.recipe, *(f"{key}={value}" for key, value in self.changes)])

    def name(self, seed: int | str) -> str:
        """The name of the run of a seed; with "", how the names of all seeds begin."""
        protocol = "" if self.protocol == "standard" else f"{self.protocol}-"
        if self.data is not None:  # by name and content, which no protocol is called
            protocol = f"{Path(self.data).stem}.{digest_of(self.data)[:8]}-"
        length = f"{self.epochs}"
        if self.minutes is not None or self.seconds is not None:
            length = self.length.replace(" ", "")
        return f"{protocol}{self.setup}-{length}-{self.precision}-seed{seed}"

    @property
    def length(self) -> str:
        """How long a run is, in words."""
        if self.minutes is not None:
            return f"{self.minutes:g} min"
        return f"{self.epochs} epochs" if self.seconds is None else f"{self.seconds:g} s"

    def path(self, results: Path, seed: int) -> Path:
        """The file of the run of a seed in the ledger."""
        return results / self.problem / self.model / f"{self.name(seed)}.json"

    def runs(self, results: Path, seeds: Sequence[int]) -> dict[int, Run]:
        """The runs in the ledger, by seed."""
        paths = {seed: self.path(results, seed) for seed in seeds}
        return {seed: self._run(path, seed) for seed, path in paths.items() if path.exists()}

    def _run(self, path: Path, seed: int) -> Run:
        """The run in a file, which could have been renamed or copied."""
        run = Run.load(path)
        for key, expected in (("model", self.model), ("recipe", self.setup), ("seed", seed)):
            if (got := getattr(run, key)) != expected:
                raise ValueError(
                    f"{path}: expected a run with {key} {expected!r}, as its name says, got "
                    f"{got!r}. Restore the file, or delete it to make the run again"
                )
        return run

    def missing(self, results: Path, seeds: Sequence[int]) -> list[int]:
        """The seeds that have no run in the ledger."""
        return [seed for seed in seeds if not self.path(results, seed).exists()]

    @property
    def preset(self) -> Preset:
        """Sizes, recipe and task of this spec."""
        found = self.base()
        if self.epochs is not None:
            found = replace(found, recipe=replace(found.recipe, epochs=self.epochs))
        if self.task is not None:
            found = replace(found, task=self.task)
        for key, value in self.changes:
            found = _changed(found, key, value)
        return found

    def base(self) -> Preset:
        """The preset before any changes."""
        return preset(self.problem, self.recipe, self.model)

    def adapted(self, fields: Fields) -> Fields:
        """Samples of `samples` as the run trains and tests on them."""
        return fields

    def options(self) -> dict[str, Any]:
        """Further arguments of `Operator.fit`."""
        return {}

    def recorded(self) -> dict[str, Any]:
        """What else the file of an operator says about the run that made it."""
        return {}

    @property
    def symmetries(self) -> tuple[Symmetry, ...]:
        """The symmetries that training is augmented with."""
        known = PROBLEMS[self.problem].symmetries if self.problem in PROBLEMS else ()
        return known if self.preset.symmetries else ()

    def steps_by(self, results: Path) -> int | None:
        """Steps of one run; None: they depend on the time of a step, which the ledger lacks."""
        if self.seconds is None:
            return self.steps
        cost = efficiency.step_cost(results, self.cost_key, self.precision)
        return None if cost is None else max(1, int(1e3 * self.seconds / cost))

    @property
    def cost_key(self) -> efficiency.Key:
        """Where the table of costs has the time of a step."""
        return self.problem, self.model, self.preset.recipe.batch, self.recipe

    def waits_for(self, results: Path) -> str | None:
        """The command that has to come first; None: there is none."""
        known = self.seconds is None or self.steps_by(results) is not None
        return None if known else "lno reproduce efficiency"

    @property
    def steps(self) -> int:
        """Steps of the epochs of one run on the data set of its protocol."""
        chosen = self.preset
        count = self._training_samples() * chosen.task.visits
        return chosen.recipe.epochs * -(-count // chosen.recipe.batch)

    def samples(self, device: str) -> Samples:
        """Samples to train on, to validate on (or their share of the first), and to test on."""
        if self.data is None:
            train, test = dataset(self.problem, self.protocol, device)
        else:
            fields = Fields.load(self.data)
            train, *named, test = fields.split(*split_of(fields))
            if named:
                return train, named[0], test
        return train, test if self.validation is None else self.validation, test

    def _training_samples(self) -> int:
        if self.data is None:
            return protocol_of(self.problem, self.protocol).train
        return split_of(Fields.load(self.data, lazy=True))[0]

    def needs(self) -> tuple[RunSpec, ...]:
        """Specs whose trained operators the test of a run starts from, seed by seed."""
        return ()

    def similar(self) -> RunSpec | None:
        """A setup whose runs take about as long, block by block of the model; None: no other."""
        return replace(self, changes=()) if self.changes else None

    def errors(self, operator: Operator, test: Fields, seed: int) -> dict[str, Errors]:
        """The errors of the trained operator of a seed, by test set."""
        return {"test": operator.errors(test)}

    # -- kept operators --------------------------------------------------------------------------

    @property
    def key(self) -> str:
        """A hash of everything besides the name that a run depends on."""
        chosen, data = self.preset, protocol_of(self.problem, self.protocol)
        config = (
            chosen.config if isinstance(chosen.config, Mapping | None) else asdict(chosen.config)
        )
        parts: list[Any] = [to_dict(chosen.recipe), config, tasks.to_json(chosen.task)]
        parts += [chosen.symmetries, chosen.raw_coordinates, chosen.conditional]
        parts += [data.train, data.test, dict(data.parameters)]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:8]

    def folder(self, seeds: Sequence[int]) -> Path:
        """The cache folder where consecutive seeds are trained together."""
        last = f"-to-{seeds[-1]}" if len(seeds) > 1 else ""
        name = f"{self.name(seeds[0])}{last}-{self.key}"
        return cache_folder() / "runs" / self.problem / self.model / name

    def kept(self, seed: int, device: str = "cpu") -> tuple[Operator, int] | None:
        """The finished operator in the cache that has a seed, and its member; None: there is none.

        Tables need the ledger alone, but some runs start from the operators of others.
        """
        parent, start = self.folder([seed]).parent, glob.escape(self.name(""))
        for path in sorted(parent.glob(f"{start}*-{self.key}/{MODEL}")):
            try:
                found = Operator.load(path, device)
            except ValueError:
                continue  # damaged: it is trained again
            first = found.provenance.get("seed")
            k = seed - first if isinstance(first, int) else -1
            if found.finished and 0 <= k < len(found.members):
                return found, k
        return None

    def operator(self, seed: int, device: str = "cpu") -> Operator | None:
        """The trained operator of a seed alone; None where it is not in the cache."""
        found = self.kept(seed, device)
        return None if found is None else found[0].member(found[1])


def _changed(preset: Preset, key: str, value: Any) -> Preset:
    """A preset with another value of a key of its recipe, task or config, or of its own."""
    if key == "symmetries":
        return replace(preset, symmetries=value)
    if key in to_dict(preset.task):
        return replace(preset, task=replace(preset.task, **{key: value}))
    if key in to_dict(preset.recipe):
        return replace(preset, recipe=preset.recipe.changed({key: value}))
    if preset.config is None or isinstance(preset.config, Mapping):  # sizes are left to the data
        return replace(preset, config={**(preset.config or {}), key: value})
    keys = {**to_dict(preset.config), key: value}
    return replace(preset, config=from_dict(type(preset.config), keys))


@functools.lru_cache
def digest_of(path: str) -> str:
    """The digest of the samples in a file, which it holds."""
    return Fields.load(path, lazy=True).digest


def split_of(fields: Fields) -> tuple[int, ...]:
    """Numbers of training, validation and test samples of a data file, or of training and test.

    Its own split if it has one; else that of a protocol of its problem with as many samples; else
    nine tenths for training.
    """
    own = own_split(fields)
    if own is not None:
        return own
    if len(fields) < 2:
        raise ValueError("expected at least two samples, one of them for testing, got one")
    tests = max(1, len(fields) // 10)
    return len(fields) - tests, tests


def own_split(fields: Fields) -> tuple[int, ...] | None:
    """The split that a file names, or that of a protocol of its problem; None: there is none.

    Two numbers are of training and test samples, three of training, validation and test samples.
    """
    own = fields.provenance.get("split")
    parts = own if isinstance(own, list | tuple) and len(own) in (2, 3) else ()
    if parts and all(type(n) is int and n > 0 for n in parts) and sum(parts) <= len(fields):
        return tuple(parts)
    problem = PROBLEMS.get(str(fields.provenance.get("problem")))
    for protocol in problem.protocols.values() if problem is not None else ():
        if protocol.train + protocol.test == len(fields):
            return protocol.train, protocol.test
    return None
