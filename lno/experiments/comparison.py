"""The paper's Table 1: all models on all forward problems, with one budget for all of them.

There are three budgets, with a table each:

- equal time: as many steps as fit into two minutes (five on the two problems in time) if a model
  has the GPU for itself. The times of steps come from the table of costs, so results do not depend
  on what else the GPU does during a run (`RunSpec.seconds`).
- equal epochs, on two problems: equal time rewards models that this package makes fast.
- as published, which takes hours for most models.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

from lno.experiments.cases import obstacle
from lno.experiments.paper import FORWARD, PROBLEMS
from lno.experiments.presets import preset, usual_preset
from lno.experiments.runs import RunSpec
from lno.ledger import Run
from lno.report.runs import hardware_of, model_name
from lno.report.tables import MISSING, Table, spread
from lno.text import significant

MODELS = (*FORWARD, "lno_plus")  # the rows
SECONDS, SECONDS_IN_TIME = 120.0, 300.0
IN_TIME = ("ns2d", "plasticity")
EPOCHS, AT_EQUAL_EPOCHS = 50, ("darcy", "elasticity")
# A table with so many cells is worth printing: all models on the two problems whose samples are
# smallest, then on the next, first those that cannot take both.
REQUIRED, SMALLEST, NEXT = 30, ("elasticity", "darcy"), ("pipe", "airfoil")
CANNOT, NOTHING, ADAPTED = "cannot", "–", "†"


def specs(listed: Sequence[RunSpec] = ()) -> list[RunSpec]:
    """The runs of all three tables; of the last, without those of `listed`."""
    there = {(s.problem, s.model) for s in listed if _is_as_published(s)}
    every = [(p, m) for p in PROBLEMS for m in MODELS if obstacle(p, m) is None]
    return [
        *(equal_time(p, m) for p, m in every),
        *(equal_epochs(p, m) for p, m in every if p in AT_EQUAL_EPOCHS),
        *(as_published(p, m) for p, m in every if m in FORWARD and (p, m) not in there),
    ]


def equal_time(problem: str, model: str) -> RunSpec:
    """A cell of the first table."""
    seconds = SECONDS_IN_TIME if problem in IN_TIME else SECONDS
    first = int((problem, model) in required_cells())
    recipe = usual_preset(model)
    return RunSpec(problem, model, recipe, precision="tf32", seconds=seconds, required=first)


def equal_epochs(problem: str, model: str) -> RunSpec:
    """A cell of the second table."""
    return RunSpec(problem, model, usual_preset(model), EPOCHS, "tf32", required=0)


def as_published(problem: str, model: str) -> RunSpec:
    """A cell of the third table."""
    epochs = preset(problem, "paper", model).recipe.epochs
    return RunSpec(problem, model, "paper", epochs, "tf32", required=0)


@lru_cache(maxsize=1)
def required_cells() -> list[tuple[str, str]]:
    """Problem and model of the runs at equal time that the first table is incomplete without."""
    cells = [(p, m) for p in SMALLEST for m in MODELS if obstacle(p, m) is None]
    counts = [m for _, m in cells]
    more = [(p, m) for p in NEXT for m in reversed(MODELS) if obstacle(p, m) is None]
    more.sort(key=lambda cell: (NEXT.index(cell[0]), counts.count(cell[1])))
    return [*cells, *more[: max(0, REQUIRED - len(cells))]]


def equal_time_table(specs: Sequence[RunSpec], seeds: Sequence[int], results: Path) -> Table:
    """Errors after the same time."""
    note = (
        f"Trained for {SECONDS:g} s ({SECONDS_IN_TIME:g} s on {' and '.join(IN_TIME)}): the number "
        "of steps is that time divided by the time per step on an otherwise idle GPU (`lno "
        "reproduce efficiency`), and the learning-rate schedule is fitted to it."
    )
    return _table("Forward problems, equal training time", _timed(specs), seeds, results, note)


def epochs_table(specs: Sequence[RunSpec], seeds: Sequence[int], results: Path) -> Table:
    """How far models come in that time."""

    def cell(found: Sequence[RunSpec]) -> str:
        spec, runs = found[0], list(found[0].runs(results, seeds).values())
        steps = runs[0].steps if runs else spec.steps_by(results)
        if steps is None or spec.seconds is None:
            return MISSING
        epochs = steps * spec.preset.recipe.epochs / spec.steps
        return f"{significant(epochs)} ({significant(1e3 * spec.seconds / steps)} ms)"

    note = (
        "In brackets: the time per step, with the published batch size, on an otherwise idle GPU."
    )
    return _grid("Epochs in equal training time", _timed(specs), cell, [note])


def equal_epochs_table(specs: Sequence[RunSpec], seeds: Sequence[int], results: Path) -> Table:
    """Errors after the same number of epochs."""
    chosen = [s for s in specs if s.epochs == EPOCHS and s.problem in AT_EQUAL_EPOCHS]
    note = f"Trained for {EPOCHS} epochs."
    title = f"Forward problems, {EPOCHS} epochs"
    usual = [s for s in chosen if s.recipe == usual_preset(s.model)]
    return _table(title, usual, seeds, results, note)


def published_table(specs: Sequence[RunSpec], seeds: Sequence[int], results: Path) -> Table:
    """Errors after as many epochs as were published."""
    chosen = [s for s in specs if _is_as_published(s)]
    note = "Trained for the published number of epochs, 500 for most models."
    return _table("Forward problems, published epochs", chosen, seeds, results, note)


def _timed(specs: Sequence[RunSpec]) -> list[RunSpec]:
    return [spec for spec in specs if spec.seconds is not None]


def _is_as_published(spec: RunSpec) -> bool:
    if spec.recipe != "paper" or spec.protocol != "standard" or spec.data is not None:
        return False
    return spec.epochs == preset(spec.problem, spec.recipe, spec.model).recipe.epochs


def _table(
    title: str, specs: Sequence[RunSpec], seeds: Sequence[int], results: Path, note: str
) -> Table:
    """Errors of the specs beside the paper's."""
    used: list[tuple[RunSpec, Run]] = []

    def cell(found: Sequence[RunSpec]) -> str:
        """Of the first spec that has runs."""
        first, every = found[0], [list(s.runs(results, seeds).values()) for s in found]
        runs = next((runs for runs in every if runs), [])
        used.extend((found[every.index(runs)], run) for run in runs)
        shown = spread([run.metrics["test"]["relative_l2"] for run in runs], digits=2)
        mark = ADAPTED if first.preset.adapted else ""
        return f"{shown}{mark} ({_printed(first.problem, first.model)})"

    made = _grid(title, specs, cell, [])
    hardware = hardware_of(run for _, run in used)
    notes = [
        "Relative L2 in percent; in brackets the paper's, after 500 epochs on the published data. "
        f"{note} Models have their published sizes and recipes but for what footnotes say; LNO+ "
        f"has our own{f'. Trained on {hardware}' * bool(hardware)}. `lno reproduce forward`",
        *sorted(
            {
                f"{model_name(spec.model)} on {spec.problem} in {spec.precision} precision."
                for spec, _ in used
                if spec.precision != "tf32"
            }
        ),
    ]
    if not made.rows:
        return made
    footnotes: dict[str, list[str]] = {}
    for model, text in (*_adapted(specs), *_obstacles(specs)):
        footnotes.setdefault(model_name(model), []).append(text)
    return Table(title, made.header, made.rows, notes, footnotes=footnotes)


def _grid(
    title: str,
    specs: Sequence[RunSpec],
    cell: Callable[[Sequence[RunSpec]], str],
    notes: list[str],
) -> Table:
    """A row for each model and a column for each problem that the specs have."""
    problems = [p for p in PROBLEMS if any(s.problem == p for s in specs)]
    rows = []
    for model in dict.fromkeys((*MODELS, *(s.model for s in specs))):
        mine = {p: [s for s in specs if (s.problem, s.model) == (p, model)] for p in problems}
        if any(mine.values()):
            cells = [cell(mine[p]) if mine[p] else _empty(p, model) for p in problems]
            rows.append([model_name(model), *cells])
    return Table(title, ["model", *problems], rows, notes if rows else [])


def _empty(problem: str, model: str) -> str:
    return NOTHING if obstacle(problem, model) is None else CANNOT


def _printed(problem: str, model: str) -> str:
    printed = FORWARD.get(model, {}).get(problem)
    return NOTHING if printed is None else f"{printed:.2f}"


def _adapted(specs: Sequence[RunSpec]) -> list[tuple[str, str]]:
    """Models, and what differs from what was published."""
    found: dict[tuple[str, str], list[str]] = {}
    for spec in specs:
        if spec.preset.adapted:
            found.setdefault((spec.model, spec.preset.adapted), []).append(spec.problem)
    return [
        (model, f"{ADAPTED} {model_name(model)} on {', '.join(dict.fromkeys(problems))}: {text}.")
        for (model, text), problems in found.items()
    ]


def _obstacles(specs: Sequence[RunSpec]) -> list[tuple[str, str]]:
    """Models that cannot take one of the problems, and why."""
    pairs = [(p, m) for p in PROBLEMS for m in MODELS]
    shown = {s.problem for s in specs}, {s.model for s in specs}
    reasons = {(p, m): obstacle(p, m) for p, m in pairs if p in shown[0] and m in shown[1]}
    return [
        (model, f"Cannot: {model_name(model)} on {problem}; {reason.split(':')[0]}.")
        for (problem, model), reason in reasons.items()
        if reason is not None
    ]
