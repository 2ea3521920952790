"""Tables and figures of the inverse problem, beside the paper's numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from lno.experiments import paper
from lno.experiments.cells import Cell
from lno.experiments.datasets import PROTOCOLS
from lno.experiments.interpolants import NEIGHBORS
from lno.experiments.inverse import (
    AFTER,
    EPOCHS,
    GRIDS,
    MODELS,
    STEPS,
    Completer,
    Propagator,
    Stage,
    interval,
    percent,
)
from lno.experiments.presets import PAPER_RECIPE, RATIOS, WINDOW
from lno.ledger import Run
from lno.report.plots import heat_maps
from lno.report.runs import NAMES
from lno.report.tables import Table, spread

UNASKED = "–"  # a cell of a table that no run will ever fill


def completer_table(cells: Sequence[Stage], seeds: Sequence[int], results: Path) -> Table:
    """Errors of completers beside the paper's."""
    names = [f"test:ratio={percent(ratio)}" for ratio in RATIOS]
    rows = _rows(cells, names, seeds, results)
    for model in _models(cells):
        name, once, often = _published(model), paper.COMPLETER[model], paper.COMPLETER_SPREAD[model]
        rows.append([name, "1", *(f"{once[ratio]:.2f}" for ratio in RATIOS)])
        rows.append([name, "3", *(_printed(often[ratio]) for ratio in RATIOS)])
    notes = [
        f"Burgers' equation, observed and completed for {_window()}. A model serves all ratios, "
        "which are drawn anew in every step, unless its row says otherwise. The paper trained one "
        "for each, 500 epochs in batches of 4 (Tables 2 and 9). RBF: SciPy's cubic interpolant of "
        f"the {NEIGHBORS} nearest sensors, periodic in x. Kriging: Gaussian processes with a "
        "Matérn covariance, whose scales in t and x are the most likely ones.",
        *_gains(cells, seeds, results),
        f"{_budget(cells, seeds, results)} `lno reproduce completer`",
    ]
    header = ["relative MAE, %", "seeds", *(f"{100 * ratio:g} %" for ratio in RATIOS)]
    return Table("Completers: a field from some of its points", header, rows, notes)


def propagator_table(cells: Sequence[Stage], seeds: Sequence[int], results: Path) -> Table:
    """Errors of propagators beside the paper's."""
    after = [(model, ratio) for model in MODELS for ratio in AFTER]
    sources = ["truth", *(f"{model} {percent(ratio)}" for model, ratio in after)]
    rows = _rows(cells, [f"test:from={source}" for source in sources], seeds, results)
    for model in _models(cells):
        name, once = _published(model), paper.PROPAGATOR[model]
        rows.append([name, "1", *(f"{once[source]:.2f}" for source in sources)])
        truth = _printed(paper.PROPAGATOR_SPREAD[model])
        rows.append([name, "3", truth, *[UNASKED] * len(after)])
    notes = [
        "Burgers' equation: errors at t = 0 and t = 1 of propagators that read the field for "
        f"{_window()}, the truth or what a completer of the same seed sees of it at a ratio; our "
        "recipe goes on from our completer. The paper trained 500 epochs in batches of 4 (Tables 3 "
        "and 9).",
        f"{_budget(cells, seeds, results)} `lno reproduce propagator`",
    ]
    columns = [f"{NAMES[model]} {100 * ratio:g} %" for model, ratio in after]
    header = ["relative MAE, %", "seeds", "truth", *columns]
    return Table("Propagators: all times from some", header, rows, notes)


def completer_intervals(cells: Sequence[Stage], seeds: Sequence[int], results: Path) -> Table:
    """Errors of completers where sensors form a grid."""
    mine = [cell for cell in cells if isinstance(cell, Completer)]
    return _intervals("Completers", "inside the window", mine, seeds, results)


def propagator_intervals(cells: Sequence[Stage], seeds: Sequence[int], results: Path) -> Table:
    """Errors of propagators after completers of sensors that form a grid."""
    mine = [cell for cell in cells if isinstance(cell, Propagator)]
    return _intervals("Propagators after completers", "at t = 0 and t = 1", mine, seeds, results)


def interval_maps(
    cells: Sequence[Stage], seeds: Sequence[int], results: Path
) -> list[tuple[str, Figure]]:
    """The same as pictures, with what they show; none where there is no run."""
    figures = []
    for kind, what in ((Completer, "completers"), (Propagator, "propagators after completers")):
        maps = {}
        for cell in (c for c in cells if isinstance(c, kind)):
            found = list(cell.runs(results, seeds).values())
            means = [100 * np.mean(_errors(found, name) or np.nan) for name in GRIDS]
            maps[_label(cell)] = np.reshape(means, (len(STEPS), len(STEPS)))
        if not np.isnan(list(maps.values())).all():
            caption = f"Relative MAE of {what} where sensors form a grid, mean over seeds."
            axes = ("interval in t", "interval in x")
            figures.append((caption, heat_maps(maps, STEPS, axes, "relative MAE, %")))
    return figures


def _intervals(
    title: str, where: str, cells: Sequence[Stage], seeds: Sequence[int], results: Path
) -> Table:
    """For every model a square of intervals."""
    rows = []
    for cell in cells:
        for t in STEPS:
            names = [interval(t, x) for x in STEPS]
            [[label, count, *errors]] = _rows([cell], names, seeds, results)
            rows.append([label, count, str(t), *errors])
    header = ["relative MAE, %", "seeds", "interval in t", *(f"{x} in x" for x in STEPS)]
    note = (
        f"Burgers' equation, sensors at every k-th time and position of the grid for {_window()}, "
        f"errors {where}; the same runs as those of the tables before. `lno reproduce intervals`"
    )
    return Table(f"{title} on grids of sensors", header, rows, [note])


def _rows(
    cells: Sequence[Stage], names: Sequence[str], seeds: Sequence[int], results: Path
) -> list[list[str]]:
    """Label, number of seeds and errors on some data sets; cells of one label share a row."""
    rows = []
    for label in dict.fromkeys(map(_label, cells)):
        several = [cell for cell in cells if _label(cell) == label]
        asked = {name for cell in several for name in cell.data_sets()}
        runs = [run for cell in several for run in cell.runs(results, seeds).values()]
        errors = {name: _errors(runs, name) for name in names if name in asked}
        counts = sorted({len(found) for found in errors.values()})
        shown = [spread(errors[name]) if name in asked else UNASKED for name in names]
        rows.append([label, "–".join(map(str, dict.fromkeys(counts[:1] + counts[-1:]))), *shown])
    return rows


def _errors(runs: Sequence[Run], name: str) -> list[float]:
    return [run.metrics[name]["relative_mae"] for run in runs if name in run.metrics]


def _label(cell: Cell) -> str:
    """What a row is called: the model, and what is special about it."""
    if cell.recipe.startswith("our-"):
        return f"{NAMES[cell.model]}, our recipe"
    if cell.recipe.startswith("completer-"):
        longer = f", {_times_as_long(cell):g} times as long" * (_times_as_long(cell) > 1)
        return f"{NAMES[cell.model]}, one for each ratio{longer}"
    return NAMES[cell.model]


def _times_as_long(cell: Cell) -> float:
    """A run of the paper's completer, beside the budget of its table."""
    return cell.epochs / EPOCHS["completer"] if cell.recipe.startswith("completer-") else 1


def _gains(cells: Sequence[Stage], seeds: Sequence[int], results: Path) -> list[str]:
    """How far the paper's recipe is from its end within the budget of the table, as measured."""
    lines = []
    published = PAPER_RECIPE.epochs * PROTOCOLS["standard"]["burgers"].train // PAPER_RECIPE.batch
    for longer in (cell for cell in cells if _times_as_long(cell) > 1):
        [name] = longer.data_sets()
        usual = replace(longer, epochs=EPOCHS["completer"])
        runs = [list(cell.runs(results, seeds).values()) for cell in (usual, longer)]
        if not all(runs):
            continue
        few, many = (found[0].steps for found in runs)
        before, after = (float(np.mean(_errors(found, name))) for found in runs)
        power = np.log(after / before) / np.log(many / few)
        lines.append(
            f"The paper's recipe has {few:,} steps of {longer.preset.recipe.batch} samples here, "
            f"in the paper {published:,} of {PAPER_RECIPE.batch}. At "
            f"{name.removeprefix('test:ratio=').replace('%', ' %')}, {many:,} steps bring its "
            f"error from {100 * before:.3g} to {100 * after:.3g} %, a power of {power:.2f} of "
            "their number; more were not tried."
        )
    return lines


def _published(model: str) -> str:
    return f"{NAMES[model]}, as published"


def _models(cells: Sequence[Cell]) -> list[str]:
    """Models that the paper has numbers of."""
    return [model for model in MODELS if any(cell.model == model for cell in cells)]


def _printed(often: tuple[float, float]) -> str:
    return f"{often[0]:.2f} ± {often[1]:.2f}"


def _window() -> str:
    return f"{WINDOW.coordinate} from {WINDOW.low:g} to {WINDOW.high:g}"


def _budget(cells: Sequence[Stage], seeds: Sequence[int], results: Path) -> str:
    """Samples, how models were trained, said once if they all were alike, and where."""
    counts = PROTOCOLS["standard"]["burgers"]
    watched = counts.test // 2
    told = (
        f"{counts.train:,} samples to train on, {watched} to watch and {counts.test - watched} "
        "others to test on, with the same sensors for every method."
    )
    trained = [cell for cell in cells if cell.epochs]
    ways: dict[str, list[str]] = {}
    for cell in trained:
        recipe, precision = cell.preset.recipe, cell.precision
        step = f"{recipe.batch} samples and {recipe.queries:,} query points in a step"
        who = "our recipe" if cell.recipe.startswith("our-") else NAMES[cell.model]
        who = _label(cell) if _times_as_long(cell) > 1 else who
        ways.setdefault(f"{recipe.epochs} epochs, {step}, {precision}", []).append(who)
    if len(ways) == 1:
        told += f" Budget, the same for every model: {next(iter(ways))}."
    elif ways:
        several = (f"{', '.join(dict.fromkeys(who))}: {way}" for way, who in ways.items())
        told += f" Budget of {'; of '.join(several)}."
    runs = [run for cell in trained for run in cell.runs(results, seeds).values()]
    if runs:
        machines = ", ".join(sorted({run.hardware for run in runs}))
        told += f" Mean ± standard deviation over seeds, on {machines}."
    return told
