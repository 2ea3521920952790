"""`lno reproduce`: the paper's tables, one command each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from lno.commands.console import command, new_app, say, show, show_table
from lno.experiments import efficiency, model_table, positions, pretrained, stages
from lno.experiments.cases import CASES
from lno.experiments.costs import measure_at_once
from lno.experiments.parallel import Outcome, work_off_at_once
from lno.experiments.plan import awaited_costs, estimate, jobs_of_all, jobs_of_table, plan
from lno.experiments.queue import Job, chosen, work_off
from lno.experiments.sources import on_file
from lno.experiments.tables import CONDITIONS, ERRORS, EXPERIMENTS, Experiment
from lno.models import MODELS
from lno.report.compact import compact

app = new_app("Reproduce the tables of the paper: train the missing runs, then print them.")
RESULTS = Path("results")
Problems = Annotated[str, typer.Option(help="Separated by commas; default: all.")]
Models = Annotated[str, typer.Option(help="Separated by commas; default: all.")]
Recipes = Annotated[str, typer.Option(help="Recipes that --dry-run lists, separated by commas.")]
Precision = Annotated[str | None, typer.Option(help="fp32, tf32 or mixed.")]
Minutes = Annotated[
    float | None,
    typer.Option(
        help="Stop after so much training and compiling, with several --jobs after so much time; "
        "resume later."
    ),
]
Jobs = Annotated[
    int, typer.Option(min=1, max=64, help="Runs at the same time, each in its own process.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only list the missing runs.")]
Ledger = Annotated[Path, typer.Option(help="The ledger.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]


def add_command(experiment: Experiment) -> None:
    """Add the command that trains the missing runs of an experiment and prints its tables."""

    def run(
        problems: Problems = "",
        models: Models = "",
        recipes: Recipes = "",
        seeds: Annotated[
            int, typer.Option(min=1, help="How many seeds, from 0 on.")
        ] = experiment.seeds,
        epochs: Annotated[
            int | None, typer.Option(min=1, help="Override the number of epochs.")
        ] = None,
        precision: Precision = None,
        data: Annotated[
            Path | None,
            typer.Option(
                help="A data file (.h5) of one problem instead of generated data, as written by "
                "`lno data read`; for the forward problems."
            ),
        ] = None,
        minutes: Minutes = None,
        jobs: Jobs = 1,
        dry_run: DryRun = False,
        apart: Annotated[
            bool, typer.Option("--apart", help="Train the seeds one by one, not together.")
        ] = False,
        results: Ledger = RESULTS,
        device: Device = "auto",
    ) -> None:
        wanted = (_names(problems), _names(models), _names(recipes))
        specs = chosen(experiment.specs(), *wanted, epochs, precision)
        if data is not None:
            specs = on_file(specs, data, experiment)
        missing = jobs_of_table(specs, range(seeds), results, together=not apart)
        if dry_run:
            _show_plan(missing, results)
            return
        outcome = _work(missing, results, jobs, minutes, device)
        for table in (make(specs, range(seeds), results) for make in experiment.tables):
            small, waiting = compact(table)
            if small.rows:
                show_table(small)
            if waiting:
                show(waiting)
        show(CONDITIONS if data is None else ERRORS)
        _conclude(outcome)

    name, text = experiment.name, experiment.text
    app.command(name, help=text, epilog=f"Example: lno reproduce {name} {experiment.example}")(run)


for each in EXPERIMENTS.values():
    add_command(each)


@app.command("all", epilog="Example: lno reproduce all --minutes 25 --jobs 4")
def reproduce_all(
    problems: Problems = "",
    models: Models = "",
    minutes: Minutes = None,
    jobs: Jobs = 1,
    dry_run: DryRun = False,
    results: Ledger = RESULTS,
    device: Device = "auto",
) -> None:
    """Every missing run of every table: required ones first, and of these the cheapest first."""
    missing = jobs_of_all(EXPERIMENTS.values(), results, _names(problems), _names(models))
    if dry_run:
        _show_plan(missing, results)
        there = {
            "efficiency": not efficiency.missing(results),
            "pretrained": (results / "benchmarks" / "pretrained.json").exists(),
            "positions": not positions.missing(results),
            "stages": stages.path_of(results).exists(),
        }
        for name, complete in there.items():
            state = "is there" if complete else "is missing"
            show(f"{name} {state}; it has its own command: {command('reproduce', name)}")
        return
    outcome = _work(missing, results, jobs, minutes, device)
    _conclude(outcome)
    if outcome.done:
        show("nothing is missing: `lno report` shows all tables")


@app.command("efficiency", epilog="Example: lno reproduce efficiency")
def reproduce_efficiency(
    problems: Problems = "",
    models: Models = "",
    precision: Annotated[str, typer.Option(help="auto, fp32, tf32 or mixed.")] = "auto",
    minutes: Annotated[float | None, typer.Option(help="Stop after so much time.")] = None,
    jobs: Annotated[
        int,
        typer.Option(min=1, max=64, help="Compile so many at once; they are measured in turn."),
    ] = 1,
    dry_run: DryRun = False,
    again: Annotated[bool, typer.Option("--again", help="Measure it again.")] = False,
    results: Ledger = RESULTS,
    device: Device = "auto",
) -> None:
    """Parameters, memory and time of a training step of each model (Table 4 of the paper).

    Runs of a given time take as many steps as fit into it by these times. So measure them while
    nothing else uses the GPU. Those that required runs wait for come first.
    """
    asked = (_names(problems), _names(models))
    for names, known in zip(asked, (list(CASES), list(MODELS)), strict=True):
        if unknown := [name for name in names if name not in known]:
            raise ValueError(f"no {unknown[0]!r} in this table: expected {', '.join(known)}")
    wanted = efficiency.cases(*asked)
    wanted = wanted if again else efficiency.missing(results, wanted)
    first = awaited_costs(jobs_of_all(EXPERIMENTS.values(), results), results)
    wanted = [key for key in first if key in wanted] + [key for key in wanted if key not in first]
    if dry_run:
        listed = ", ".join(map(efficiency.named, wanted))
        show(f"missing, about a minute each: {listed}" if listed else "nothing is missing")
        return
    measure_at_once(results, wanted, jobs, precision, device, minutes=minutes, say=say)
    show_table(efficiency.table(results))
    show_table(model_table.table(results))


@app.command("pretrained", epilog="Example: lno reproduce pretrained --calibrate-only")
def reproduce_pretrained(
    results: Ledger = RESULTS,
    folder: Annotated[
        Path, typer.Option("--out", help="Folder for the models; default: in the package.")
    ] = pretrained.PRETRAINED,
    calibrate_only: Annotated[
        bool,
        typer.Option("--calibrate-only", help="Keep the models there; calibrate and measure them."),
    ] = False,
    device: Device = "auto",
) -> None:
    """The models of `lno reconstruct`: train, calibrate and measure them."""
    if calibrate_only:
        show_table(pretrained.recalibrate(results, folder, device))
    else:
        show_table(pretrained.make(results, folder, device, say))


@app.command("positions", epilog="Example: lno reproduce positions --problems elasticity")
def reproduce_positions(
    problems: Problems = "",
    dry_run: DryRun = False,
    again: Annotated[bool, typer.Option("--again", help="Make it again.")] = False,
    results: Ledger = RESULTS,
    device: Device = "auto",
) -> None:
    """What latent positions attend to; operators that are not in the cache are retrained."""
    specs = chosen(positions.SPECS, _names(problems))
    wanted = specs if again else positions.missing(results, specs)
    if dry_run:
        seed = positions.SEED
        kept = [spec.operator(seed) is not None for spec in wanted]
        minutes = [0.0 if k else estimate(s, 1, results) for k, s in zip(kept, wanted, strict=True)]
        pairs = zip(wanted, minutes, strict=True)
        _show_plan([Job(spec, (seed,), minutes=time) for spec, time in pairs], results)
        return
    positions.make(results, wanted, device, say)
    show_table(positions.table(results, specs))


@app.command("stages", epilog="Example: lno reproduce stages")
def reproduce_stages(results: Ledger = RESULTS, device: Device = "auto") -> None:
    """Sensors and a field in two stages (Figures 6 and 7), by the models of the package."""
    stages.make(results, device=device)
    show_table(stages.table(results))


def _work(
    jobs: Sequence[Job], results: Path, at_once: int, minutes: float | None, device: str
) -> Outcome:
    if min(at_once, len(jobs)) > 1:
        return work_off_at_once(jobs, results, at_once, minutes=minutes, device=device, say=say)
    return Outcome(work_off(jobs, results, minutes=minutes, device=device, say=say))


def _conclude(outcome: Outcome) -> None:
    """Say what is left to do; raises if runs have failed."""
    if outcome.failed:
        names, count = "; ".join(map(str, outcome.failed)), len(outcome.failed)
        raise RuntimeError(
            f"{count} job{'s' * (count > 1)} failed: {names}. What went wrong is above; the same "
            "command tries them again and goes on with the others"
        )
    if not outcome.done:
        show("stopped before all runs were done; the same command continues")


def _show_plan(jobs: Sequence[Job], results: Path) -> None:
    for k, table in enumerate(plan(jobs, results)):
        if k:
            show("")
        show_table(table)


def _names(given: str) -> list[str]:
    """Names separated by commas."""
    return [name.strip() for name in given.split(",") if name.strip()]
