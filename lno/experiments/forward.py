"""The forward problems in detail, LNO beside Transolver; all models are in `comparison`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from lno.experiments import comparison
from lno.experiments.paper import FORWARD, PROBLEMS
from lno.experiments.runs import RunSpec
from lno.ledger import Run
from lno.report.runs import hardware_of, model_name, timed
from lno.report.tables import MISSING, Table, spread
from lno.training.device import SHARED
from lno.training.loop import has_risen

# 500 epochs of Transolver take hours: it is compared with LNO after fewer, the same for both.
# Runs that are not required are in the queue after all others.
SPECS = (
    RunSpec("darcy", "lno", "paper", 500, "tf32"),
    RunSpec("darcy", "lno", "paper", 500, "mixed"),
    RunSpec("darcy", "lno", "fast", 200, "mixed"),
    RunSpec("darcy", "lno", "paper", 100, "tf32"),
    RunSpec("darcy", "transolver", "paper", 100, "tf32"),
    RunSpec("darcy", "lno", "paper", 500, "mixed", "reference"),  # as the paper's code has it
    RunSpec("ns2d", "lno", "paper", 20, "tf32"),
    RunSpec("ns2d", "transolver", "paper", 20, "tf32"),
    RunSpec("ns2d", "lno", "paper", 500, "mixed"),
    RunSpec("airfoil", "lno", "paper", 100, "tf32"),
    RunSpec("airfoil", "transolver", "paper", 100, "tf32"),
    RunSpec("airfoil", "lno", "paper", 500, "tf32", required=0),
    RunSpec("elasticity", "lno", "paper", 500, "tf32", required=3),
    RunSpec("elasticity", "lno", "paper", 100, "tf32"),
    RunSpec("elasticity", "transolver", "paper", 100, "tf32"),
    RunSpec("plasticity", "lno", "paper", 100, "tf32"),
    RunSpec("plasticity", "lno", "paper", 10, "tf32"),
    RunSpec("plasticity", "transolver", "paper", 10, "tf32"),
    RunSpec("plasticity", "lno", "paper", 500, "tf32", required=0),
    RunSpec("pipe", "lno", "paper", 500, "tf32"),
    RunSpec("pipe", "lno", "paper", 50, "tf32"),
    RunSpec("pipe", "transolver", "paper", 50, "tf32"),
    *(RunSpec(name, "transolver", "paper", 500, "tf32", required=0) for name in PROBLEMS),
)


def specs() -> tuple[RunSpec, ...]:
    """These runs, and those of all other models."""
    return tuple(dict.fromkeys((*SPECS, *comparison.specs(SPECS))))


def table(specs: Sequence[RunSpec], seeds: Sequence[int], results: Path) -> Table:
    """Errors of the specs beside the paper's; without those that only compare models."""
    others = {*comparison.specs(SPECS)} - {*SPECS}
    shown = [spec for spec in specs if spec not in others]
    rows, runs = [], {spec: list(spec.runs(results, seeds).values()) for spec in shown}
    for spec, found in runs.items():
        printed = FORWARD.get(spec.model, {}).get(spec.problem)
        data = "" if spec.protocol == "standard" else f", {spec.protocol} protocol"
        rows.append(
            [
                f"{spec.problem}{data}",
                model_name(spec.model),
                spec.recipe,
                spec.precision,
                str(spec.epochs),
                spread(_errors(found)),
                str(len(found)),
                _standard_error(found),
                "not given" if printed is None else f"{printed:.2f}",
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
        "standard error",
        "paper, 500 epochs",
        "seconds a seed",
    ]
    notes = [*_ratios(runs), *_unstable(runs), *_conditions(runs)]
    aside = ("seeds", "paper, 500 epochs")
    return Table("Forward problems, LNO and Transolver", header, rows, notes, 5, aside)


def _errors(runs: Sequence[Run]) -> list[float]:
    return [run.metrics["test"]["relative_l2"] for run in runs]


def _standard_error(runs: Sequence[Run]) -> str:
    """The standard error of the mean error over the test samples."""
    errors = [run.samples.get("test", []) for run in runs]
    sizes = {len(each) for each in errors}
    if len(sizes) != 1 or min(sizes) < 2:  # no run, or not of the same samples
        return MISSING
    mean = np.mean(errors, axis=0)
    return f"{100 * mean.std(ddof=1) / len(mean) ** 0.5:.3f}"


def _seconds(runs: Sequence[Run]) -> str:
    """The training time of a seed that had the GPU for itself; of members, its share."""
    if not runs:
        return MISSING
    alone = timed(runs)
    if not alone:
        return SHARED
    each = sum(run.seconds / run.members for run in alone) / len(alone)
    most = max(run.members for run in alone)
    return f"{each:.0f}" if most == 1 else f"{each:.0f} ({most} at once)"


def _ratios(runs: dict[RunSpec, list[Run]]) -> list[str]:
    """LNO's error over Transolver's where both were trained for as many epochs."""
    lines = []
    for spec, ours in runs.items():
        other = replace(spec, model="transolver")
        theirs = runs.get(other, [])
        a, b = (FORWARD[model][spec.problem] for model in ("lno", "transolver"))
        if spec.model != "lno" or not ours or not theirs or a is None or b is None:
            continue
        ratio = _mean(_errors(ours)) / _mean(_errors(theirs))
        lines.append(
            f"{spec.problem}, {spec.epochs} epochs: LNO / Transolver = {ratio:.2f} "
            f"(paper: {a:g} / {b:g} = {a / b:.2f} at 500 epochs)."
        )
    return lines


def _unstable(runs: dict[RunSpec, list[Run]]) -> list[str]:
    """Runs whose loss rose again before the end: their errors say little about the model."""
    lines = []
    for spec, found in runs.items():
        for run in found:
            losses = [row["loss"] for row in run.curve]
            if losses and has_risen(losses, run.steps):
                best = run.curve[losses.index(min(losses))]
                lines.append(
                    f"{spec.problem}, {spec.model}, {spec.epochs} epochs, {spec.precision}, seed "
                    f"{run.seed}: training became unstable after step {best['step']:,} of "
                    f"{run.steps:,}; its loss rose from {min(losses):.3f} to {losses[-1]:.3f}."
                )
    return lines


def _conditions(runs: dict[RunSpec, list[Run]]) -> list[str]:
    every = [run for found in runs.values() for run in found]
    if not every:
        return []
    hardware = hardware_of(every)
    files = sorted({Path(spec.data).name for spec in runs if spec.data is not None})
    data = f"Data of {', '.join(files)}. " if files else ""
    alone = len(timed(every)) == len(every)
    shared = "" if alone else f" “{SHARED}”: the GPU also trained other runs, so no time is given."
    return [
        f"{data}The standard error is that of the mean over test samples, in the same units. "
        f"Measured on {hardware}.{shared} `lno reproduce forward`"
    ]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
