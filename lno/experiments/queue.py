"""Working through missing runs: what has to be trained, in which order, within a time limit."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter

import torch

from lno.data import Fields
from lno.experiments.execution import SAMPLE, fit, owner, record
from lno.experiments.runs import RunSpec, Samples
from lno.files import replacing
from lno.operator import Operator
from lno.training.distributed import is_main
from lno.training.precision import pick_precision

Say = Callable[[str], None]


@dataclass(frozen=True)
class Job:
    """Consecutive seeds of a spec that are trained together.

    Args:
        spec: the setup.
        seeds: those that are missing.
        required: whether a table is incomplete without them.
        minutes: of training, estimated; None: unknown.
    """

    spec: RunSpec
    seeds: tuple[int, ...]
    required: bool = True
    minutes: float | None = None

    @property
    def run(self) -> str:
        """What is trained, without how long and from which seeds."""
        spec = self.spec
        data = "" if spec.protocol == "standard" else f" ({spec.protocol})"
        return f"{spec.problem}{data} {spec.model} {spec.setup}"

    def __str__(self) -> str:
        length = f", {self.spec.length}" if self.spec.trained else ""
        return f"{self.run}{length}, seed {', '.join(map(str, self.seeds))}"


def work_off(
    jobs: Sequence[Job],
    results: Path,
    *,
    minutes: float | None = None,
    device: str = "auto",
    say: Say = lambda line: None,
) -> bool:
    """Train the runs of jobs in order, continuing those that were paused, and file them.

    Args:
        jobs: what is missing.
        results: the ledger.
        minutes: of training and compiling, after which it stops, ready to continue.
        device: as in `Operator.fit`.
        say: called with a line for each job that begins.

    Returns:
        whether all jobs are done.
    """
    left, ready = minutes, [job for job in jobs if job.spec.waits_for(results) is None]

    def remaining() -> float | None:
        return left

    for job in ready:
        if left is not None and left <= 0:
            return False
        say(str(job))
        finished, used = carry_out(job, results, device, remaining)
        left = None if left is None else left - used
        if not finished:
            return False
    say_what_waits([job for job in jobs if job not in ready], len(jobs), results, say)
    return len(ready) == len(jobs)


def say_what_waits(waiting: Sequence[Job], total: int, results: Path, say: Say) -> None:
    """Name the commands that some jobs need first."""
    needed = [job.spec.waits_for(results) for job in waiting]
    for command in dict.fromkeys(needed):
        say(f"{needed.count(command)} of {total} jobs need `{command}` first")


def train_operators(
    spec: RunSpec, seeds: Sequence[int], device: str = "auto", say: Say = lambda line: None
) -> list[Operator]:
    """The trained operators of all seeds; those that are not in the cache are retrained."""
    for group in groups([seed for seed in seeds if spec.operator(seed) is None]):
        say(str(Job(spec, tuple(group))))
        _train(spec, group, spec.samples(device), device)
    found = [spec.operator(seed, device) for seed in seeds]
    if None in found:
        raise InterruptedError("training was stopped before its end: the same command continues it")
    return [operator for operator in found if operator is not None]


def missing_runs(
    specs: Sequence[RunSpec], seeds: Sequence[int], results: Path
) -> dict[RunSpec, list[int]]:
    """The seeds that each spec has no run of, after those whose operators they start from.

    An operator that is not in the cache is trained again, whether or not the ledger has its run.
    """
    found: dict[RunSpec, list[int]] = {}
    for spec in specs:
        absent = spec.missing(results, seeds)
        for other in spec.needs():
            gone = [seed for seed in absent if other.operator(seed) is None]
            found[other] = sorted({*found.get(other, ()), *gone})
        found[spec] = sorted({*found.get(spec, ()), *absent})
    return {spec: absent for spec, absent in found.items() if absent}


def groups(seeds: Sequence[int], together: bool = True) -> Iterator[list[int]]:
    """Consecutive seeds, which can be the members of one operator.

    >>> list(groups([0, 1, 4])), list(groups([0, 1], together=False))
    ([[0, 1], [4]], [[0], [1]])
    """
    group: list[int] = []
    for seed in seeds:
        if group and (not together or seed != group[-1] + 1):
            yield group
            group = []
        group.append(seed)
    if group:
        yield group


def chosen(
    specs: Sequence[RunSpec],
    problems: Sequence[str] = (),
    models: Sequence[str] = (),
    recipes: Sequence[str] = (),
    epochs: int | None = None,
    precision: str | None = None,
) -> list[RunSpec]:
    """The specs that are asked for; `epochs` and `precision` replace those of the table.

    Methods without training stay as they are.
    """
    for what, wanted, known in (
        ("problem", problems, {s.problem for s in specs}),
        ("model", models, {s.model for s in specs}),
        ("recipe", recipes, {name for s in specs for name in (s.recipe, s.setup)}),
    ):
        for name in wanted:
            if name not in known:
                expected = ", ".join(sorted(known))
                raise ValueError(f"no {what} {name!r} in this table: expected one of {expected}")
    found = [
        s
        for s in specs
        if (not problems or s.problem in problems)
        and (not models or s.model in models)
        and (not recipes or s.recipe in recipes or s.setup in recipes)
    ]
    if epochs is not None:
        found = [replace(s, epochs=epochs, seconds=None) if s.trained else s for s in found]
    if precision is not None:
        pick_precision(precision, torch.device("cpu"))
        found = [replace(s, precision=precision) if s.trained else s for s in found]
    return list(dict.fromkeys(found))


def carry_out(
    job: Job, results: Path, device: str, minutes: Callable[[], float | None]
) -> tuple[bool, float]:
    """Train what is not in the cache, and test and file what the ledger lacks.

    Args:
        job: what to train.
        results: the ledger.
        device: as in `Operator.fit`.
        minutes: that are left for training, asked when the data are there; None: no limit.

    Returns:
        whether training came to its end, and the minutes that it took.
    """
    spec, seconds = job.spec, 0.0
    if not spec.trained:
        spec.measure(device).save(results, spec.name(0))  # type: ignore[attr-defined]
        return True, 0.0
    samples = spec.samples(device)
    if any(spec.kept(seed) is None for seed in job.seeds):
        steps, left = None if spec.seconds is None else spec.steps_by(results), minutes()
        if left is not None and left <= 0:
            return False, 0.0
        seconds = _train(spec, job.seeds, samples, device, left, steps)
    for seed in job.seeds:
        found = spec.kept(seed, device)
        if found is None:
            return False, seconds / 60
        if not spec.path(results, seed).exists():
            _file(spec, seed, *found, samples[2], results)
    return True, seconds / 60


def _file(
    spec: RunSpec, seed: int, operator: Operator, k: int, test: Fields, results: Path
) -> None:
    """Test a seed and write its run into the ledger."""
    first = operator.provenance["seed"]
    folder = spec.folder(range(first, first + len(operator.members)))
    run = record(spec, operator, k, seed, test, folder)
    if seed == 0 and not spec.changes:  # of an ablation, numbers are enough
        with replacing(spec.path(results, seed).with_suffix(".npz")) as temporary:
            shutil.copyfile(folder / SAMPLE, temporary)
    run.save(results, spec.name(seed))  # last: a run that is there is not made again


def _train(
    spec: RunSpec,
    seeds: Sequence[int],
    samples: Samples,
    device: str,
    minutes: float | None = None,
    steps: int | None = None,
) -> float:
    """Train seeds together in the cache; returns the seconds that it took, with compilation.

    A finished run keeps its model and no checkpoints.
    """
    start = perf_counter()
    folder = spec.folder(seeds)
    resume = any(folder.glob("checkpoint-*.safetensors"))
    options = {"resume": resume, "pause_after": minutes, "steps": steps}
    with owner(folder):
        operator = fit(spec, seeds, samples, folder, device, **options)
        if operator.provenance.get("stopped") == "interrupted":
            raise KeyboardInterrupt  # not only this run: all of the work
        if operator.finished and is_main():  # large models would fill the disk with them
            for path in folder.glob("checkpoint-*.safetensors"):
                path.unlink(missing_ok=True)
    return perf_counter() - start
