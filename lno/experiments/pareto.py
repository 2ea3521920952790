"""Error against training time: every point is a run whose schedule ends at that time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from lno.experiments.ablations import errors_of
from lno.experiments.cases import CASES
from lno.experiments.runs import RunSpec
from lno.report.pareto import Point, error_against_time
from lno.report.runs import model_name
from lno.report.tables import MISSING, Table, spread

MINUTES = (1, 2, 4, 8)
REQUIRED_MINUTES, REQUIRED_PROBLEMS = (1, 4), ("darcy", "ns2d", "elasticity")
# Each model with the recipe that serves it better: where several are listed, the best one counts.
MODELS = {"lno": ("fast",), "lno_plus": ("fast", "best"), "transolver": ("fast", "paper")}
LARGER, LONG = "best", 4  # sizes that are too large for runs of fewer minutes


def _required(problem: str, minutes: int, recipe: str) -> int:
    asked = problem in REQUIRED_PROBLEMS and minutes in REQUIRED_MINUTES
    return int(asked and recipe != LARGER)


SPECS = tuple(
    RunSpec(
        problem,
        model,
        recipe,
        precision="tf32",
        seconds=60.0 * minutes,
        required=_required(problem, minutes, recipe),
    )
    for problem in CASES
    for minutes in MINUTES
    for model, recipes in MODELS.items()
    for recipe in recipes
    if recipe != LARGER or minutes >= LONG
)


def points(specs: Sequence[RunSpec], seeds: Sequence[int], results: Path) -> list[Point]:
    """The best recipe of each model at each time, for which there are runs."""
    found: dict[tuple[str, str, float], Point] = {}
    for spec in specs:
        errors = errors_of(spec, seeds, results)
        if not errors or spec.seconds is None:
            continue
        key = (spec.problem, spec.model, spec.seconds)
        point = Point(spec.problem, spec.model, spec.recipe, spec.seconds, errors)
        if key not in found or point.mean < found[key].mean:
            found[key] = point
    return list(found.values())


def table(specs: Sequence[RunSpec], seeds: Sequence[int], results: Path) -> Table:
    """Errors by problem and time, a column for each model."""
    best = {(p.problem, p.model, p.seconds): p for p in points(specs, seeds, results)}
    asked = sorted(
        {(spec.problem, spec.seconds or 0.0) for spec in specs},
        key=lambda pair: (list(CASES).index(pair[0]), pair[1]),
    )
    models = [m for m in MODELS if any(spec.model == m for spec in specs)]
    rows = []
    for problem, seconds in asked:
        cells = []
        for model in models:
            point = best.get((problem, model, seconds))
            cells.append(
                MISSING if point is None else f"{spread(list(point.errors))} {point.recipe}"
            )
        rows.append([problem, f"{seconds / 60:g}", *cells])
    return Table(
        "Error against training time",
        ["problem", "minutes", *map(model_name, models)],
        rows,
        [*_lowest(specs, seeds, results), _NOTE],
        keys=2,
    )


def figures(
    specs: Sequence[RunSpec], seeds: Sequence[int], results: Path
) -> list[tuple[str, Figure]]:
    """A panel for each problem with runs; none without."""
    figure = error_against_time(points(specs, seeds, results))
    return [] if figure is None else [("Error against training time on one GPU", figure)]


def _lowest(specs: Sequence[RunSpec], seeds: Sequence[int], results: Path) -> list[str]:
    """Which model has the lowest error at each time where all of them have one."""
    lines = []
    for problem in CASES:
        won = []
        for seconds in sorted({spec.seconds for spec in specs if spec.seconds}):
            here = [s for s in specs if (s.problem, s.seconds) == (problem, seconds)]
            best = {p.model: p.mean for p in points(here, seeds, results)}
            if len(best) == len(MODELS):
                lowest = min(best, key=best.__getitem__)
                won.append(f"{model_name(lowest)} at {seconds / 60:g} min")
        if won:
            lines.append(f"{problem}, lowest error: {', '.join(won)}.")
    return lines


_NOTE = (
    "Relative L2 in percent, with the best of its recipes. A run has as many steps as fit into "
    "the time on an otherwise idle GPU (`lno reproduce efficiency`), and its learning-rate "
    "schedule ends there. `lno reproduce pareto`"
)
