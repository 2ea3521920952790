"""`lno data check`: what a careful colleague would ask about data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from lno.commands.console import command, show, show_table
from lno.config import did_you_mean
from lno.data import Fields, columns
from lno.data.quality import SEVERITIES, findings
from lno.data.symmetry import Symmetry, square
from lno.experiments.runs import own_split, split_of
from lno.report.tables import Table

EXAMPLE = "Example: lno data check plates.h5 --symmetry 'reverse x'"
SQUARE = "square"


def check_data(
    file: Annotated[Path, typer.Argument(help="A data file (.h5).")],
    symmetry: Annotated[
        list[str] | None,
        typer.Option(
            help="Test a symmetry that training would use: 'square' for all of the square's, or "
            "one of them, like 'reverse x'."
        ),
    ] = None,
) -> None:
    """Look for mistakes in data: copies, fill values, sorted samples, too few of them, and more.

    Exit code 1 if there is an error among the findings.
    """
    fields = Fields.load(file)
    split = split_of(fields) if len(fields) > 1 else None
    found = findings(fields, split, wanted(symmetry or []), own_split(fields) is not None)
    counts = {s: sum(f.severity == s for f in found) for s in SEVERITIES}
    if found:
        rows = [[f.severity, f.what, f.advice] for f in found]
        show_table(Table(f"{file}: {fields}", ["", "found", "what to do"], rows))
    else:
        show(f"{file}: {fields}")
    show(", ".join(f"{n} {s}{'s' * (n != 1)}" for s, n in counts.items()))
    if counts["error"]:
        raise typer.Exit(1)
    given = fields.spec.in_channels > 0 or not columns.is_shared(fields.x)
    task = [] if given else ["--task", "complete"]  # fields alone: from some of their points
    show(f"Next: {command('train', file, *task, '--out', f'runs/{file.stem}')}")


def wanted(names: Sequence[str]) -> list[Symmetry]:
    """Symmetries of the square by their names."""
    known = {g.name: g for g in square()}
    chosen: list[Symmetry] = []
    for name in names:
        if name != SQUARE and name not in known:
            hint = did_you_mean(name, known)
            raise ValueError(
                f"no symmetry {name!r}{hint}: expected {SQUARE} or one of {'; '.join(known)}"
            )
        chosen += known.values() if name == SQUARE else [known[name]]
    return chosen
