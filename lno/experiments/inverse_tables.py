"""Tables and figures of the inverse problem, beside the paper's numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from lno.experiments import paper
from lno.experiments.datasets import protocol_of
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
from lno.experiments.runs import RunSpec
from lno.files import read_json
from lno.ledger import Run
from lno.models import MODELS as MODEL_TABLE
from lno.report.plots import heat_maps
from lno.report.runs import hardware_of, model_name
from lno.report.tables import Table, spread

UNASKED = "–"  # a cell of a table that no run will ever fill


def completer_table(specs: Sequence[Stage], seeds: Sequence[int], results: Path) -> Table:
    """Errors of completers beside the paper's."""
    names = [f"test:ratio={percent(ratio)}" for ratio in RATIOS]
    rows = _rows(specs, names, seeds, results)
    for model in _models(specs):
        name, once, often = _published(model), paper.COMPLETER[model], paper.COMPLETER_SPREAD[model]
        rows.append([name, "1", *(f"{once[ratio]:.2f}" for ratio in RATIOS)])
        rows.append([name, "3", *(as_printed(often[ratio]) for ratio in RATIOS)])
    notes = [
        f"Burgers' equation, observed and reconstructed for {_window()}. Unless its row says "
        "otherwise, one model handles all ratios, with a new one drawn in every step. The paper "
        "trained one model per ratio, for 500 epochs with batch size 4 (Tables 2 and 9). RBF: "
        f"SciPy's cubic interpolant of the {NEIGHBORS} nearest sensors, periodic in x. Kriging: "
        "Gaussian processes with a Matérn covariance and maximum-likelihood length scales in t "
        "and x.",
        *_query_sets(specs, seeds, results),
        *_gains(specs, seeds, results),
        f"{_budget(specs, seeds, results)} `lno reproduce completer`",
    ]
    header = ["relative MAE, %", "seeds", *(f"{100 * ratio:g} %" for ratio in RATIOS)]
    title = "Completers: reconstruction from scattered observations"
    return Table(title, header, rows, notes, aside=("seeds",))


def propagator_table(specs: Sequence[Stage], seeds: Sequence[int], results: Path) -> Table:
    """Errors of propagators beside the paper's."""
    after = [(model, ratio) for model in MODELS for ratio in AFTER]
    sources = ["truth", *(f"{model} {percent(ratio)}" for model, ratio in after)]
    rows = _rows(specs, [f"test:from={source}" for source in sources], seeds, results)
    for model in _models(specs):
        name, once = _published(model), paper.PROPAGATOR[model]
        rows.append([name, "1", *(f"{once[source]:.2f}" for source in sources)])
        truth = as_printed(paper.PROPAGATOR_SPREAD[model])
        rows.append([name, "3", truth, *[UNASKED] * len(after)])
    notes = [
        "Burgers' equation: errors at t = 0 and t = 1 of propagators whose input is the field for "
        f"{_window()}: the true one, or the reconstruction by a completer of the same seed. Our "
        "recipe starts from our completer. The paper trained for 500 epochs with batch size 4 "
        "(Tables 3 and 9).",
        *_query_sets(specs, seeds, results),
        f"{_budget(specs, seeds, results)} `lno reproduce propagator`",
    ]
    columns = [f"{model_name(model)} {100 * ratio:g} %" for model, ratio in after]
    header = ["relative MAE, %", "seeds", "truth", *columns]
    return Table("Propagators: extrapolation to all times", header, rows, notes, aside=("seeds",))


def completer_intervals(specs: Sequence[Stage], seeds: Sequence[int], results: Path) -> Table:
    """Errors of completers where sensors form a grid."""
    mine = [spec for spec in specs if isinstance(spec, Completer)]
    return _intervals("Completers", "inside the window", mine, seeds, results)


def propagator_intervals(specs: Sequence[Stage], seeds: Sequence[int], results: Path) -> Table:
    """Errors of propagators after completers of sensors that form a grid."""
    mine = [spec for spec in specs if isinstance(spec, Propagator)]
    return _intervals("Propagators after completers", "at t = 0 and t = 1", mine, seeds, results)


def interval_maps(
    specs: Sequence[Stage], seeds: Sequence[int], results: Path
) -> list[tuple[str, Figure]]:
    """The same as pictures, with what they show; none where there is no run."""
    figures = []
    for kind, what in ((Completer, "completers"), (Propagator, "propagators after completers")):
        maps = {}
        for spec in (c for c in specs if isinstance(c, kind)):
            found = list(spec.runs(results, seeds).values())
            means = [100 * np.mean(_errors(found, name) or np.nan) for name in GRIDS]
            maps[_label(spec)] = np.reshape(means, (len(STEPS), len(STEPS)))
        if not np.isnan(list(maps.values())).all():
            caption = f"Relative MAE of {what} with sensors on a grid, mean over seeds."
            axes = ("interval in t", "interval in x")
            figures.append((caption, heat_maps(maps, STEPS, axes, "relative MAE, %")))
    return figures


def _intervals(
    title: str, where: str, specs: Sequence[Stage], seeds: Sequence[int], results: Path
) -> Table:
    """For every model a square of intervals."""
    rows = []
    for spec in specs:
        for t in STEPS:
            names = [interval(t, x) for x in STEPS]
            [[label, count, *errors]] = _rows([spec], names, seeds, results)
            rows.append([label, count, str(t), *errors])
    header = ["relative MAE, %", "seeds", "interval in t", *(f"{x} in x" for x in STEPS)]
    note = (
        f"Burgers' equation, sensors at every k-th time and position for {_window()}, "
        f"errors {where}; the same runs as in the tables above. `lno reproduce intervals`"
    )
    aside = ("seeds", "interval in t")
    return Table(f"{title} on grids of sensors", header, rows, [note], aside=aside)


def _rows(
    specs: Sequence[Stage], names: Sequence[str], seeds: Sequence[int], results: Path
) -> list[list[str]]:
    """Label, number of seeds and errors on some test sets; specs with one label share a row."""
    rows = []
    for label in dict.fromkeys(map(_label, specs)):
        several = [spec for spec in specs if _label(spec) == label]
        asked = {name for spec in several for name in spec.data_sets()}
        runs = [run for spec in several for run in spec.runs(results, seeds).values()]
        errors = {name: _errors(runs, name) for name in names if name in asked}
        counts = sorted({len(found) for found in errors.values()})
        shown = [spread(errors[name]) if name in asked else UNASKED for name in names]
        rows.append([label, "–".join(map(str, dict.fromkeys(counts[:1] + counts[-1:]))), *shown])
    return rows


def _errors(runs: Sequence[Run], name: str) -> list[float]:
    return [run.metrics[name]["relative_mae"] for run in runs if name in run.metrics]


def _label(spec: RunSpec) -> str:
    """The label of a row: the model, and what is special about it."""
    if spec.recipe.startswith("our-"):
        return f"{model_name(spec.model)}, our recipe"
    if spec.recipe.startswith("completer-"):
        return f"{model_name(spec.model)}, one per ratio{_budget_of(spec)}"
    return model_name(spec.model)


def _budget_of(spec: RunSpec) -> str:
    """What a row says of a completer with another budget than that of its table."""
    if spec.changes:
        return ", the paper's budget"
    return f", {_times_as_long(spec):g} times as long" * (_times_as_long(spec) > 1)


def _times_as_long(spec: RunSpec) -> float:
    """The length of a run of the paper's completer, in units of the budget of its table."""
    alike = spec.recipe.startswith("completer-") and not spec.changes
    return (spec.epochs or 0) / EPOCHS["completer"] if alike else 1


def _gains(specs: Sequence[Stage], seeds: Sequence[int], results: Path) -> list[str]:
    """What more steps gain for the paper's recipe than the budget of the table, as measured."""
    lines = []
    published = PAPER_RECIPE.epochs * protocol_of("burgers").train // PAPER_RECIPE.batch
    for longer in (spec for spec in specs if _times_as_long(spec) > 1):
        [name] = longer.data_sets()
        shorter = replace(longer, epochs=EPOCHS["completer"])
        runs = [list(spec.runs(results, seeds).values()) for spec in (shorter, longer)]
        if not all(runs):
            continue
        few, many = (found[0].steps for found in runs)
        before, after = (float(np.mean(_errors(found, name))) for found in runs)
        power = np.log(after / before) / np.log(many / few)
        lines.append(
            f"The paper's recipe has {few:,} steps of {longer.preset.recipe.batch} samples here, "
            f"in the paper {published:,} of {PAPER_RECIPE.batch}. At "
            f"{name.removeprefix('test:ratio=').replace('%', ' %')}, {many:,} steps reduce its "
            f"error from {100 * before:.3g} to {100 * after:.3g} %: it scales with the "
            f"number of steps to the power {power:.2f}."
        )
    for spec in (spec for spec in specs if spec.changes):
        [name] = spec.data_sets()
        for run in list(spec.runs(results, seeds).values())[:1]:
            ratio = name.removeprefix("test:ratio=").replace("%", " %")
            printed = paper.COMPLETER[spec.model][float(ratio.removesuffix(" %")) / 100]
            lines.append(
                f"At {ratio}, the paper's budget of {run.steps:,} steps of "
                f"{spec.preset.recipe.batch} samples gives "
                f"{100 * float(np.mean(_errors([run], name))):.3g} % (paper: {printed:.3g} %)."
            )
    return lines


def _published(model: str) -> str:
    return f"{model_name(model)}, as published"


def _models(specs: Sequence[RunSpec]) -> list[str]:
    """Models that the paper has numbers of."""
    return [model for model in MODELS if any(spec.model == model for spec in specs)]


def as_printed(value: float | tuple[float, float]) -> str:
    """A number of the paper, or a mean and its standard deviation.

    >>> as_printed(0.6), as_printed((0.6, 0.03))
    ('0.60', '0.60 ± 0.03')
    """
    values = value if isinstance(value, tuple) else (value,)
    return " ± ".join(f"{each:.2f}" for each in values)


def _window() -> str:
    return f"{WINDOW.coordinate} from {WINDOW.low:g} to {WINDOW.high:g}"


def _query_sets(specs: Sequence[RunSpec], seeds: Sequence[int], results: Path) -> list[str]:
    """How models were tested whose predictions depend on the other queries of a call."""
    lines = []
    for spec in specs:
        if not spec.trained or not MODEL_TABLE[spec.model][0].queries_interact:
            continue
        size = spec.preset.recipe.queries
        for run in list(spec.runs(results, seeds).values())[:1] if size else []:
            way = "in such sets too" if "query_set" in run.config else "on all of them at once"
            lines.append(
                f"A prediction of {model_name(spec.model)} depends on the other query points of "
                f"a call. It was trained on random sets of {size:,} query points and tested {way}."
                f"{_effect_of_sets(results)}"
            )
    return lines


def _effect_of_sets(results: Path) -> str:
    """By how much the error changes in random sets; empty if that was not measured."""
    path = results / "benchmarks" / "query_sets.json"
    if not path.exists():
        return ""
    found = read_json(path)
    changes = [100 * (row["sets"] / row["all"] - 1) for row in found["rows"]]
    return (
        f" Tested in such sets, its error as a completer is {min(changes):.1f} to "
        f"{max(changes):.1f} % higher (relative). `python benchmarks/query_sets.py`"
    )


def _budget(specs: Sequence[Stage], seeds: Sequence[int], results: Path) -> str:
    """Samples, how models were trained (said once if all alike), and on what hardware."""
    counts = protocol_of("burgers")
    held_out = counts.test // 2
    text = (
        f"{counts.train:,} training samples, {held_out} for validation and "
        f"{counts.test - held_out} others for testing, with the same sensors for every method."
    )
    trained = [spec for spec in specs if spec.trained]
    ways: dict[str, list[str]] = {}
    for spec in trained:
        recipe, precision = spec.preset.recipe, spec.precision
        step = f"{recipe.batch} samples and {recipe.queries:,} query points per step"
        who = "our recipe" if spec.recipe.startswith("our-") else model_name(spec.model)
        who = _label(spec) if spec.recipe.startswith("completer-") and _budget_of(spec) else who
        ways.setdefault(f"{recipe.epochs} epochs, {step}, {precision}", []).append(who)
    if len(ways) == 1:
        text += f" Budget, the same for every model: {next(iter(ways))}."
    elif ways:
        several = (f"{', '.join(dict.fromkeys(who))}: {way}" for way, who in ways.items())
        text += f" Budget of {'; of '.join(several)}."
    runs = [run for spec in trained for run in spec.runs(results, seeds).values()]
    if runs:
        machines = hardware_of(runs)
        text += f" Trained on {machines}."
    return text
