"""Which runs the ledger lacks, in which order they are trained, and how long that will take."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from lno import tasks
from lno.experiments.cases import CASES
from lno.experiments.datasets import protocol_of
from lno.experiments.efficiency import Key, measured, step_cost
from lno.experiments.preset import Preset
from lno.experiments.presets import preset
from lno.experiments.queue import Job, groups, missing_runs
from lno.experiments.runs import RunSpec
from lno.experiments.tables import Experiment
from lno.files import read_json
from lno.ledger import Run
from lno.problems import PROBLEMS
from lno.report.runs import timed
from lno.report.tables import Table

COLUMNS = ["run", "length", "seeds", "minutes"]  # so that a row fits into 80 columns
LAUNCH = 2.0  # ms: launching the kernels of a step takes as long, however few points it has


def jobs_of_table(
    specs: Sequence[RunSpec], seeds: Sequence[int], results: Path, together: bool = True
) -> list[Job]:
    """The missing runs of some specs in the order of their table, seeds trained together."""
    return [
        _job(spec, group, results, required=min(group) < spec.required)
        for spec, absent in missing_runs(specs, seeds, results).items()
        for group in groups(absent, together)
    ]


def jobs_of_all(
    experiments: Iterable[Experiment],
    results: Path,
    problems: Sequence[str] = (),
    models: Sequence[str] = (),
) -> list[Job]:
    """The missing runs of every table: required ones first, and of these the cheapest first.

    The first seed of a row is required, or as many as its table says; further seeds are not.
    Runs that others start from come before them.
    """
    wanted: dict[tuple[RunSpec, bool], set[int]] = {}
    for experiment in experiments:
        for spec in experiment.specs():
            skipped = (problems and spec.problem not in problems) or (
                models and spec.model not in models
            )
            for seed in () if skipped else spec.missing(results, range(experiment.seeds)):
                wanted.setdefault((spec, seed < spec.required), set()).add(seed)
    jobs = []
    for (spec, required), seeds in wanted.items():
        left = seeds if required else seeds - wanted.get((spec, True), set())  # of another table
        jobs += [_job(spec, group, results, required) for group in groups(sorted(left))]
    order = list(PROBLEMS)

    def rank(job: Job) -> tuple[bool, bool, float, int]:
        unknown = job.minutes is None
        return not job.required, unknown, job.minutes or 0.0, order.index(job.spec.problem)

    ordered: list[Job] = []
    for job in sorted(jobs, key=rank):
        for other in job.spec.needs():
            gone = [seed for seed in job.seeds if other.operator(seed) is None]
            ordered += [_job(other, group, results, job.required) for group in groups(gone)]
        ordered.append(job)
    return _once(ordered, results)


def awaited_costs(jobs: Sequence[Job], results: Path) -> list[Key]:
    """The costs of steps that jobs wait for, in the order of the jobs."""
    waiting = [job.spec for job in jobs if job.spec.waits_for(results) is not None]
    return list(dict.fromkeys(spec.cost_key for spec in waiting))


def plan(jobs: Sequence[Job], results: Path) -> list[Table]:
    """Jobs as tables with about how long they take: what tables need, the rest, and the totals."""
    if not jobs:
        return [Table("Missing runs", COLUMNS, [], ["nothing is missing"])]
    titles = {True: "Missing runs", False: "Further missing runs: not required"}
    parts = {title: [j for j in jobs if j.required is kind] for kind, title in titles.items()}
    found = [
        Table(title, COLUMNS, [_row(job, results) for job in part])
        for title, part in parts.items()
        if part
    ]
    first = next(filter(None, (job.spec.waits_for(results) for job in jobs)), None)
    notes = [] if first is None else [f"*: needs `{first}` first"]
    return [*found, totals(jobs, notes)]


def totals(jobs: Sequence[Job], notes: Sequence[str] = ()) -> Table:
    """Minutes of training by problem, of runs that tables need and of others."""
    problems = list(dict.fromkeys(job.spec.problem for job in jobs))
    groups_of = {p: [job for job in jobs if job.spec.problem == p] for p in problems}
    rows = []
    for name, some in {**groups_of, **({"all": jobs} if len(problems) > 1 else {})}.items():
        known = [(job.required, job.minutes) for job in some if job.minutes is not None]
        sums = [sum(m for required, m in known if required is kind) for kind in (True, False)]
        unknown = len(some) - len(known)
        rows.append([name, *(f"{minutes:.0f}" for minutes in sums), str(unknown or "")])
    header = ["problem", "required", "others", "jobs of unknown length"]
    return Table("Minutes of training, one job after the other", header, rows, list(notes))


def _row(job: Job, results: Path) -> list[str]:
    spec = job.spec
    minutes = "unknown" if job.minutes is None else f"{job.minutes:.1f}"
    minutes += "*" * (spec.waits_for(results) is not None)
    first, last = job.seeds[0], job.seeds[-1]  # they are consecutive
    seeds = f"{first}" if first == last else f"{first}–{last}"
    return [job.run, f"{spec.length} {spec.precision}", seeds, minutes]


def estimate(spec: RunSpec, seeds: int, results: Path) -> float | None:
    """Minutes that runs of a spec will take, from the runs in the ledger; None: unknown."""
    if not spec.trained:
        return 0.0
    if spec.seconds is not None:
        return spec.seconds * seeds / 60
    paths = sorted((results / spec.problem / spec.model).glob("*.json"))
    there = [_load(path, path.stat().st_mtime_ns) for path in paths]
    other = spec.similar()
    if other is not None and not any(run.recipe == spec.setup for run in there):
        minutes = estimate(other, seeds, results)
        return None if minutes is None else minutes * _relative_cost(spec, other)

    def rank(run: Run) -> tuple[bool, bool, bool]:  # those that shared the GPU took longer
        return run.recipe != spec.setup, "=" in run.recipe, not timed([run])

    kind = tasks.to_json(spec.preset.task)["kind"]
    alike = [
        run
        for run in sorted(there, key=rank)
        if (run.precision, run.protocol) == (spec.precision, spec.protocol)
        and run.steps
        and run.task.get("kind") == kind
    ]
    cost = step_cost(results, spec.cost_key, spec.precision)
    if cost is not None and spec.protocol == "standard" and not timed(alike[:1]):
        return cost / 1e3 * spec.steps * seeds / 60
    for run in alike:
        return run.seconds / run.steps / run.members * spec.steps * seeds / 60
    if spec.protocol != "standard":
        usual = replace(spec, protocol="standard")
        minutes = estimate(usual, seeds, results)
        return None if minutes is None else minutes * _relative_size(spec, usual)
    costs = [r for r in measured(results).values() if r["model"] == spec.model]
    costs = [r for r in costs if r["problem"] in CASES]
    here = [r for r in costs if (r["problem"], r["precision"]) == (spec.problem, spec.precision)]
    for r in sorted(here, key=lambda r: r["batch"] != spec.preset.recipe.batch):
        return _from_cost(spec, seeds, r)
    for r in _rows(results, "training_step"):
        time, case = r.get(f"{spec.precision}_ms"), str(r.get("case", ""))
        known = spec.model == "lno" and case.split(" ")[0] == spec.problem
        if known and isinstance(time, int | float):
            return time / 1e3 * spec.steps * seeds / 60
    return _from_cost(spec, seeds, costs[0]) if costs and spec.problem in CASES else None


@cache
def _load(path: Path, written: int) -> Run:
    """A run of the ledger; a list of all jobs asks for the same ones again and again."""
    return Run.load(path)


def _relative_cost(spec: RunSpec, other: RunSpec) -> float:
    """The cost of a run of the same model and data, relative to that of another setup.

    Blocks decide how long a step takes. A smaller batch has more steps, which take as long each:
    at these sizes, launching their kernels does.
    """
    return _blocks(spec.preset) / _blocks(other.preset) * max(1.0, spec.steps / other.steps)


def _relative_size(spec: RunSpec, other: RunSpec) -> float:
    """The cost of a run on more or fewer points and samples of the same problem.

    A step on a quarter of the points takes about half as long: it has as many kernels.
    """
    points, theirs = _points(spec), _points(other)
    return max(points / theirs, 0.5) * spec.steps / other.steps


def _points(spec: RunSpec) -> float:
    """Points of a sample, of problems that are solved on a square grid; elsewhere 1."""
    made = protocol_of(spec.problem, spec.protocol).parameters
    return float(((made["grid"] - 1) // made["every"] + 1) ** 2) if "every" in made else 1.0


def _blocks(chosen: Preset) -> int:
    config = chosen.config
    return getattr(config, "blocks", 1) * getattr(config, "rounds", 1)


def _from_cost(spec: RunSpec, seeds: int, row: dict[str, Any]) -> float:
    """Minutes from the measured cost of a step, in proportion to the points and blocks."""
    chosen, theirs = spec.preset, preset(row["problem"], row["recipe"], spec.model)
    points = CASES[spec.problem].points_read(chosen.task) * chosen.recipe.batch
    at = CASES[row["problem"]].points_read(theirs.task) * row["batch"]
    measured = row["milliseconds_per_step"]
    step = max(measured * points / at, min(measured, LAUNCH)) * _blocks(chosen) / _blocks(theirs)
    return step / 1e3 * spec.steps * seeds / 60


def _job(spec: RunSpec, seeds: Sequence[int], results: Path, required: bool) -> Job:
    return Job(spec, tuple(seeds), required, estimate(spec, len(seeds), results))


def _once(jobs: Sequence[Job], results: Path) -> list[Job]:
    """Every seed of a spec only once, where it comes first; the others of a job are consecutive."""
    seen: set[tuple[RunSpec, int]] = set()
    found = []
    for job in jobs:
        new = [seed for seed in job.seeds if (job.spec, seed) not in seen]
        seen |= {(job.spec, seed) for seed in new}
        found += [_job(job.spec, group, results, job.required) for group in groups(new)]
    return found


def _rows(results: Path, benchmark: str) -> list[dict[str, Any]]:
    path = results / "benchmarks" / f"{benchmark}.json"
    found = read_json(path) if path.exists() else {"rows": []}
    rows = found.get("rows") if isinstance(found, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"{path}: expected the rows of a benchmark, got {str(found)[:80]!r}")
    return rows
