"""`lno quickstart`: the main job on a small scale, from data to a report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lno.commands.console import new_app, out, program, say, show
from lno.experiments import quickstart as example

app = new_app()


@app.command(epilog="Example: lno quickstart --out /tmp/first-look")
def quickstart(
    folder: Annotated[Path, typer.Option("--out", help="Folder for the output.")] = Path(
        "quickstart"
    ),
    seed: Annotated[int, typer.Option(min=0, help="Seed of data, weights and sensors.")] = 0,
    results: Annotated[
        Path | None, typer.Option(help="Ledger to file the runs in; default: in --out.")
    ] = None,
) -> None:
    """Train a small operator and look at what it does: about five minutes on two CPU cores."""
    say("Learning to reconstruct a whole field from a few sensors (Burgers' equation).")
    comparisons = example.quickstart(folder, seed, results, program())
    out.print(example.table(comparisons).rich())
    show(f"Look at {folder / 'report.html'} in a browser. Then try:")
    for command in example.next_commands(folder, program()):
        show(f"  {command}")
