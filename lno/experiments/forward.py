"""The forward problems, LNO beside Transolver: the paper's Table 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from lno.experiments.cells import Cell
from lno.experiments.paper import FORWARD
from lno.ledger import Run
from lno.report.runs import NAMES
from lno.report.tables import MISSING, Table, spread
from lno.training.loop import has_risen

# 500 epochs of Transolver are hours: it stands beside LNO at fewer, equal for both.
CELLS = (
    Cell("darcy", "lno", "paper", 500, "tf32"),
    Cell("darcy", "lno", "paper", 500, "mixed"),
    Cell("darcy", "lno", "fast", 200, "mixed"),
    Cell("darcy", "lno", "paper", 100, "tf32"),
    Cell("darcy", "transolver", "paper", 100, "tf32"),
    Cell("ns2d", "lno", "paper", 20, "tf32"),
    Cell("ns2d", "transolver", "paper", 20, "tf32"),
    Cell("ns2d", "lno", "paper", 500, "mixed"),
)


def table(cells: Sequence[Cell], seeds: Sequence[int], results: Path) -> Table:
    """Errors of the cells beside the paper's."""
    rows, runs = [], {cell: list(cell.runs(results, seeds).values()) for cell in cells}
    for cell, found in runs.items():
        rows.append(
            [
                cell.problem,
                NAMES.get(cell.model, cell.model),
                cell.recipe,
                cell.precision,
                str(cell.epochs),
                spread(_errors(found)),
                str(len(found)),
                _of_the_draw(found),
                f"{FORWARD[cell.model][cell.problem]:.2f}",
                _seconds(found),
            ]
        )
    header = [
        "problem",
        "model",
        "recipe",
        "precision",
        "epochs",
        "relative L2, %",
        "seeds",
        "± by test draw",
        "paper, 500 epochs",
        "seconds a seed",
    ]
    notes = [*_ratios(runs), *_unstable(runs), *_told(runs)]
    return Table("Forward problems", header, rows, notes)


def _errors(runs: Sequence[Run]) -> list[float]:
    return [run.metrics["test"]["relative_l2"] for run in runs]


def _of_the_draw(runs: Sequence[Run]) -> str:
    """The standard error of the error over the test samples: what another draw of them changes."""
    errors = [run.samples.get("test", []) for run in runs]
    sizes = {len(each) for each in errors}
    if len(sizes) != 1 or min(sizes) < 2:  # no run, or not of the same samples
        return MISSING
    mean = np.mean(errors, axis=0)
    return f"{100 * mean.std(ddof=1) / len(mean) ** 0.5:.3f}"


def _seconds(runs: Sequence[Run]) -> str:
    """Of one seed's training; of members, its share of the time of all."""
    if not runs:
        return MISSING
    each = sum(run.seconds / run.members for run in runs) / len(runs)
    most = max(run.members for run in runs)
    return f"{each:.0f}" if most == 1 else f"{each:.0f} ({most} at once)"


def _ratios(runs: dict[Cell, list[Run]]) -> list[str]:
    """LNO's error over Transolver's where both were trained for as many epochs."""
    lines = []
    for cell, ours in runs.items():
        other = replace(cell, model="transolver")
        theirs = runs.get(other, [])
        if cell.model != "lno" or not ours or not theirs:
            continue
        ratio = _mean(_errors(ours)) / _mean(_errors(theirs))
        a, b = (FORWARD[model][cell.problem] for model in ("lno", "transolver"))
        lines.append(
            f"{cell.problem}, {cell.epochs} epochs: LNO / Transolver = {ratio:.2f} "
            f"(paper: {a:g} / {b:g} = {a / b:.2f} at 500 epochs)."
        )
    return lines


def _unstable(runs: dict[Cell, list[Run]]) -> list[str]:
    """Runs that ended above where they had been: their errors say little of the model."""
    lines = []
    for cell, found in runs.items():
        for run in found:
            losses = [row["loss"] for row in run.curve]
            if losses and has_risen(losses, run.steps):
                best = run.curve[losses.index(min(losses))]
                lines.append(
                    f"{cell.problem}, {cell.model}, {cell.epochs} epochs, {cell.precision}, seed "
                    f"{run.seed}: training became unstable after step {best['step']:,} of "
                    f"{run.steps:,}; its loss rose from {min(losses):.3f} to {losses[-1]:.3f}."
                )
    return lines


def _told(runs: dict[Cell, list[Run]]) -> list[str]:
    every = [run for found in runs.values() for run in found]
    if not every:
        return []
    hardware = ", ".join(sorted({run.hardware for run in every}))
    return [
        f"Standard protocol, data of our own solvers, the last model of each run; mean ± standard "
        f"deviation over seeds, and by how much another draw of the test samples would move it "
        f"(their standard error). On {hardware}. `lno reproduce forward`"
    ]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
