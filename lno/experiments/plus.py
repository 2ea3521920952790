"""The accuracy of LNO+ with its own recipes, beside the best published numbers of other models.

Published numbers are relative L2 errors in percent, as printed, on the published data; ours are on
data of our own solvers.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lno.experiments.ablations import counted, errors_of
from lno.experiments.cases import CASES
from lno.experiments.inverse_tables import UNASKED
from lno.experiments.ours import LNO_PLUS
from lno.experiments.paper import PROBLEMS
from lno.experiments.runs import RunSpec
from lno.report.runs import hardware_of, timed
from lno.report.tables import Table, spread
from lno.training.device import SHARED

PUBLISHED: dict[str, dict[str, float]] = {
    "LaMO": dict(zip(PROBLEMS, (0.39, 4.60, 0.41, 0.50, 0.07, 0.38), strict=True)),
    "LRSA": dict(zip(PROBLEMS, (0.43, 4.84, 0.42, 0.33, 0.05, 0.23), strict=True)),
    "Transolver-σ": {"darcy": 0.40, "ns2d": 2.79},
}
REQUIRED = {("fast", "darcy"): 3, ("fast", "ns2d"): 3, ("fast", "elasticity"): 3}
ALWAYS = ("darcy", "ns2d", "elasticity")  # one seed of the longer runs is required there

SPECS = tuple(
    RunSpec(
        problem,
        "lno_plus",
        name,
        preset.recipe.epochs,
        "mixed",
        required=REQUIRED.get((name, problem), int(problem in ALWAYS)),
    )
    for name, own in LNO_PLUS.items()
    for problem, preset in own.items()
)


def table(specs: Sequence[RunSpec], seeds: Sequence[int], results: Path) -> Table:
    """Errors of each recipe, then published ones; a column for each problem."""
    problems = [p for p in CASES if any(spec.problem == p for spec in specs)]
    rows = []
    for name in LNO_PLUS:
        asked = {spec.problem: spec for spec in specs if spec.recipe == name}
        if not asked:
            continue
        errors = {p: errors_of(spec, seeds, results) for p, spec in asked.items()}
        cells = [_cell(asked.get(p), errors.get(p, []), seeds, results) for p in problems]
        rows.append([f"LNO+, {name}", counted(list(errors.values())), *cells])
    for model, printed in PUBLISHED.items():
        cells = [f"{printed[p]:.2f}" if p in printed else UNASKED for p in problems]
        rows.append([f"{model}, as published", "", *cells])
    runs = [run for spec in specs for run in spec.runs(results, seeds).values()]
    machines = hardware_of(runs)
    note = (
        "In brackets: the training time of one seed in seconds, unless it shared the GPU. Mixed "
        "precision"
        f"{f', on {machines}' * bool(machines)}. Published numbers are on other data. "
        "`lno reproduce plus`"
    )
    header = ["relative L2, %", "seeds", *problems]
    return Table("Accuracy of LNO+", header, rows, [note], aside=("seeds",))


def _cell(
    spec: RunSpec | None, errors: Sequence[float], seeds: Sequence[int], results: Path
) -> str:
    if spec is None:
        return UNASKED
    runs = list(spec.runs(results, seeds).values())
    alone = timed(runs)
    if not alone:
        return spread(list(errors)) + f" ({SHARED})" * bool(runs)
    seconds = sum(run.seconds / run.members for run in alone) / len(alone)
    return f"{spread(list(errors))} ({seconds:.0f} s)"
