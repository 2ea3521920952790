"""What is missing in the ledger, and how long it will take by what the ledger knows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lno import tasks
from lno.experiments.cells import Cell, missing_runs
from lno.files import read_json
from lno.ledger import Run
from lno.report.tables import Table


def plan(cells: Sequence[Cell], seeds: Sequence[int], results: Path) -> Table:
    """The runs that are missing, and about how long they take."""
    rows, total = [], 0.0
    for cell, missing in missing_runs(cells, seeds, results).items():
        minutes = estimate(cell, len(missing), results)
        total += minutes or 0.0
        shown = "unknown" if minutes is None else f"{minutes:.1f}"
        what = [cell.problem, cell.model, cell.recipe, cell.precision, str(cell.epochs)]
        rows.append([*what, ", ".join(map(str, missing)), shown])
    header = ["problem", "model", "recipe", "precision", "epochs", "seeds", "minutes"]
    note = f"about {total:.0f} minutes of training in all, where it is known"
    note = note if total else "how long they take is not known yet"
    return Table("Missing runs", header, rows, [note] if rows else ["nothing is missing"])


def estimate(cell: Cell, seeds: int, results: Path) -> float | None:
    """Minutes that runs of a cell will take, by what the ledger knows; None: nothing."""
    paths = sorted((results / cell.problem / cell.model).glob("*.json"))
    for run in sorted(map(Run.load, paths), key=lambda r: r.recipe != cell.recipe):
        alike = (run.precision, run.protocol) == (cell.precision, cell.protocol)
        if alike and run.steps and run.task["kind"] == tasks.to_json(cell.preset.task)["kind"]:
            return run.seconds / run.steps / run.members * cell.steps * seeds / 60
    if cell.protocol != "standard":
        return None
    for r in _rows(results, "efficiency"):
        if all(r[key] == getattr(cell, key) for key in ("problem", "model", "precision")):
            return r["seconds_per_epoch"] * cell.epochs * seeds / 60
    for r in _rows(results, "training_step"):
        time = r.get(f"{cell.precision}_ms")
        if cell.model == "lno" and r["case"].split()[0] == cell.problem and time is not None:
            return time / 1e3 * cell.steps * seeds / 60
    return None


def _rows(results: Path, benchmark: str) -> list[dict[str, Any]]:
    path = results / "benchmarks" / f"{benchmark}.json"
    return read_json(path)["rows"] if path.exists() else []
