"""`lno reproduce`: the paper's tables, one command each."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from lno.commands.console import err, out

app = typer.Typer(
    help="The paper's tables: runs what is missing, then prints them.", no_args_is_help=True
)
Problems = Annotated[str, typer.Option(help="Some, separated by commas; default: all.")]
Models = Annotated[str, typer.Option(help="Some, separated by commas; default: all.")]
Recipes = Annotated[str, typer.Option(help="Some of those that --dry-run lists.")]
Seeds = Annotated[int, typer.Option(min=1, help="How many seeds, from 0 on.")]
Epochs = Annotated[int | None, typer.Option(min=1, help="Instead of those of the table.")]
Precision = Annotated[str | None, typer.Option(help="fp32, tf32 or mixed.")]
Minutes = Annotated[float | None, typer.Option(help="Stop after so much training.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only list what is missing.")]
Apart = Annotated[bool, typer.Option("--apart", help="Train the seeds one after the other.")]
Ledger = Annotated[Path, typer.Option(help="The ledger.")]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]
RESULTS = Path("results")


def add_command(
    name: str, text: str, options: str, experiment: tuple[str, ...], several: int = 3
) -> None:
    """Add a command that trains the missing runs of an experiment and prints its tables.

    Args:
        name: of the command.
        text: what it says of itself.
        options: of its example.
        experiment: in `lno.experiments`, the cells and what makes tables of them, which are
            imported when they are asked for.
        several: seeds, unless told.
    """

    def command(
        problems: Problems = "",
        models: Models = "",
        recipes: Recipes = "",
        seeds: Seeds = several,
        epochs: Epochs = None,
        precision: Precision = None,
        minutes: Minutes = None,
        dry_run: DryRun = False,
        apart: Apart = False,
        results: Ledger = RESULTS,
        device: Device = "auto",
    ) -> None:
        from lno.experiments import cells as ledger
        from lno.experiments.plan import plan

        every, *tables = map(_imported, experiment)
        names = (_names(problems), _names(models), _names(recipes))
        cells = ledger.chosen(every, *names, epochs, precision)
        if dry_run:
            _print_table(plan(cells, range(seeds), results))
            return
        keys: dict[str, Any] = {"minutes": minutes, "together": not apart, "device": device}
        done = ledger.train_missing(cells, range(seeds), results, say=_say, **keys)
        for table in (make(cells, range(seeds), results) for make in tables):
            if table.rows:
                _print_table(table)
        if not done:
            out.print("stopped before all runs were done; the same command goes on", markup=False)

    app.command(name, help=text, epilog=f"Example: lno reproduce {name} {options}")(command)


add_command(
    "forward",
    "Accuracy on the forward problems, LNO beside Transolver (Table 1 of the paper).",
    "--problems darcy --dry-run",
    ("forward.CELLS", "forward.table"),
)
add_command(
    "resolution",
    "Trained on 43² points, tested on up to 421² (Table 5 of the paper).",
    "--models lno",
    ("resolution.CELLS", "resolution.table"),
    several=1,
)
add_command(
    "completer",
    "A field inside a window of time from some of its points (Table 2 of the paper).",
    "--models lno,rbf --recipes our-completer,completer --dry-run",
    ("inverse.COMPLETERS", "inverse_tables.completer_table"),
)
add_command(
    "propagator",
    "All times from the field inside a window (Table 3 of the paper). Runs go on from completers "
    "of the same seed, which are trained again if they are not kept.",
    "--recipes propagator",
    ("inverse.PROPAGATORS", "inverse_tables.propagator_table"),
)
add_command(
    "intervals",
    "Both stages from sensors that form a grid (Figure 8 of the paper).",
    "--models lno",
    (
        "inverse.ON_GRIDS",
        "inverse_tables.completer_intervals",
        "inverse_tables.propagator_intervals",
    ),
)


@app.command("efficiency", epilog="Example: lno reproduce efficiency")
def reproduce_efficiency(
    problems: Problems = "",
    models: Models = "",
    precision: Annotated[str, typer.Option(help="auto, fp32, tf32 or mixed.")] = "auto",
    dry_run: DryRun = False,
    again: Annotated[bool, typer.Option("--again", help="Measure even if it was.")] = False,
    results: Ledger = RESULTS,
    device: Device = "auto",
) -> None:
    """Weights, memory and time of training, LNO beside Transolver (Table 4 of the paper)."""
    from lno.experiments import efficiency

    chosen = (_names(problems) or efficiency.PROBLEMS, _names(models) or efficiency.MODELS)
    for names, known in zip(chosen, (efficiency.PROBLEMS, efficiency.MODELS), strict=True):
        if unknown := [name for name in names if name not in known]:
            raise ValueError(f"no {unknown[0]!r} in this table: expected {', '.join(known)}")
    exists = (results / "benchmarks" / "efficiency.json").exists()
    if dry_run:
        out.print("nothing is missing" if exists else "all of it is missing: about four minutes")
        return
    if again or not exists:
        efficiency.measure_all(results, *chosen, precision, device)
    _print_table(efficiency.table(results))


@app.command("pretrained", epilog="Example: lno reproduce pretrained")
def reproduce_pretrained(
    results: Ledger = RESULTS,
    folder: Annotated[
        Path | None, typer.Option("--out", help="Folder for the models; default: in the package.")
    ] = None,
    device: Device = "auto",
) -> None:
    """The models of `lno reconstruct`: train, calibrate and measure them."""
    from lno.experiments import pretrained

    _print_table(pretrained.make(results, folder or pretrained.PRETRAINED, device, _say))


def _imported(name: str) -> Any:
    module, attribute = name.split(".")
    return getattr(import_module(f"lno.experiments.{module}"), attribute)


def _names(given: str) -> list[str]:
    """Names separated by commas."""
    return [name.strip() for name in given.split(",") if name.strip()]


def _print_table(table: Any) -> None:
    out.print(table.rich())
    for note in table.notes:
        out.print(note, soft_wrap=True, markup=False)


def _say(line: str) -> None:
    err.print(line, soft_wrap=True, markup=False)
