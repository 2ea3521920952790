"""Figures of the runs in the ledger. A figure that no run has anything for is None.

Runs that differ in their seed alone are one group: a line for their mean, in a band from the least
to the greatest. A model has a colour, a way of training it has a line style. Errors in percent.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from lno.ledger import Run
from lno.models import MODELS
from lno.text import plain
from lno.training.device import SHARED

UNTRAINED = {"rbf": "RBF", "kriging": "kriging"}  # methods without training
# Spelled differently from their classes.
SPELLED = {"lno_plus": "LNO+", "geofno": "Geo-FNO", "ffno": "F-FNO", "ufno": "U-FNO"}
# Okabe and Ito's colours, which colour-blind people can tell apart.
COLOURS = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#56b4e9",
    "#5a6675",
    "#000000",
)
DASHES = ((), (5, 2), (1, 1.3), (6, 2, 1, 2), (3, 1, 1, 1, 1, 1))
PERCENT, BINS = "relative L2 error, %", 30


def model_name(model: str) -> str:
    """What tables and figures call a model.

    >>> model_name("deeponet"), model_name("rbf"), model_name("mine")
    ('DeepONet', 'RBF', 'mine')
    """
    if model in MODELS:
        return SPELLED.get(model, MODELS[model][0].__name__)
    return UNTRAINED.get(model, model)


def colour_of(model: str, others: Sequence[str]) -> str:
    """The colour of a model beside others in a figure, in the order of the table of models.

    >>> colour_of("lno", ["gnot", "lno"]) == COLOURS[0], colour_of("gnot", ["gnot", "lno"])
    (True, '#d55e00')
    """
    shown = {model, *others}
    order = [*MODELS, *UNTRAINED, *sorted(shown - {*MODELS, *UNTRAINED})]
    place = [name for name in order if name in shown].index(model)
    return COLOURS[place % len(COLOURS)]


@dataclass(frozen=True)
class Group:
    """Runs that differ in their seed alone, in the order of their seeds.

    Groups that were named, like folders of a user, keep that name in figures.
    """

    problem: str
    model: str
    recipe: str
    epochs: float
    precision: str
    protocol: str
    runs: list[Run]
    name: str = ""

    @property
    def label(self) -> str:
        """Model, recipe, epochs; the precision where it is not tf32."""
        parts = [model_name(self.model)]
        if self.epochs:  # else nothing was trained
            parts += [self.recipe, f"{self.epochs:g} epoch{'s' * (self.epochs != 1)}"]
        shown = ", ".join(parts + [self.precision] * (self.precision != "tf32"))
        return f"{self.name}: {shown}" if self.name else shown


class _Line(NamedTuple):
    """What one run adds to a figure; points of runs with the same `at` correspond."""

    at: np.ndarray
    x: np.ndarray
    y: np.ndarray


def load_runs(results: Path) -> list[tuple[Path, Run]]:
    """Every `results/<problem>/<model>/<name>.json` and its run, sorted by path.

    A file there that is not a run is an error that names it.
    """
    paths = sorted(p for p in results.glob("*/*/*.json") if p.parts[-3] != "benchmarks")
    return [(path, Run.load(path)) for path in paths]


def timed(runs: Sequence[Run]) -> list[Run]:
    """Runs that had their device for themselves: the seconds of others are not comparable."""
    return [run for run in runs if SHARED not in run.hardware]


def hardware_of(runs: Iterable[Run]) -> str:
    """What runs were made on; empty: there are none.

    Devices that other runs used at the same time are not listed again.
    """
    names = sorted({run.hardware for run in runs})
    alone = [name for name in names if SHARED not in name]
    shared = {name.split(f", {SHARED}")[0] for name in names if SHARED in name}
    every = sorted({*alone, *shared})
    return " and ".join(every) + f", {'partly ' * bool(alone)}shared with other runs" * bool(shared)


def grouped(runs: Sequence[Run]) -> list[Group]:
    """Groups by problem, model, recipe, epochs, precision and protocol, in this order."""
    found: dict[tuple[str, str, str, float, str, str], list[Run]] = {}
    for run in sorted(runs, key=lambda r: r.seed):
        key = (run.problem, run.model, run.recipe, run.epochs, run.precision, run.protocol)
        found.setdefault(key, []).append(run)
    return [Group(*key, found[key]) for key in sorted(found)]


def learning_curves(groups: Sequence[Group]) -> Figure | None:
    """Error against epochs; groups without a validation error have their loss shown below."""
    errors = [_curves(group, "error") for group in groups]
    losses = [[] if e else _curves(g, "loss") for e, g in zip(errors, groups, strict=True)]
    panels = [p for p in ((PERCENT, errors), ("training loss", losses)) if any(p[1])]
    if not panels:
        return None
    figure, axes = _panels(len(panels), 4.1)
    for axis, (name, lines) in zip(axes, panels, strict=True):
        _draw(axis, groups, lines)
        logarithmic(axis, "y")
        axis.set_ylabel(name)
    axes[-1].set_xlabel("epochs")
    ends = [line.x[-1] for _, lines in panels for several in lines for line in several]
    if max(ends) > 8 * min(ends):  # the shortest run would be a stroke at the left
        logarithmic(axes[-1], "x")
    else:
        axes[-1].set_xlim(left=0)
    return _finished(figure)


def error_against_time(groups: Sequence[Group]) -> Figure | None:
    """Error against the seconds of training that one seed took; of members, its share.

    Runs that shared their device are left out.
    """
    groups = [replace(group, runs=timed(group.runs)) for group in groups]
    lines = [_curves(group, "error", "seconds") for group in groups]
    if not any(lines):
        return None
    figure, (axis,) = _panels(1, 4.1)
    _draw(axis, groups, lines)
    logarithmic(axis, "x")
    logarithmic(axis, "y")
    axis.set(xlabel="seconds of training, per seed", ylabel=PERCENT)
    return _finished(figure)


def error_histograms(groups: Sequence[Group]) -> Figure | None:
    """How the errors of single test samples are distributed, all seeds of a group together.

    A row for each group, its median marked; in shares, as groups differ in their numbers of seeds.
    """
    pooled = [[e for run in g.runs for e in errors_by_sample(run)] for g in groups]
    shown = [(look, 100 * np.array(e)) for look, e in zip(_looks(groups), pooled, strict=True) if e]
    if not shown:
        return None
    every = np.concatenate([errors for _, errors in shown])
    low = max(every[every > 0].min(initial=every.max()), 1e-9)  # exact predictions: the first bin
    edges = np.geomspace(low / 1.02, max(every.max(), low) * 1.02, BINS + 1)
    figure, axes = _panels(len(shown), 1.5)
    for axis, (look, errors) in zip(axes, shown, strict=True):
        counts, median = np.histogram(np.maximum(errors, low), edges)[0], float(np.median(errors))
        share, colour = 100 * counts / len(errors), look["color"]
        axis.stairs(share, edges, fill=True, color=colour, alpha=0.2)
        axis.stairs(share, edges, color=colour, lw=1.4)
        axis.axvline(max(median, low), color=colour, lw=1.4)
        axis.set_title(f"{look['label']}: median {median:.3g} %", loc="left", fontsize=10)
    top = max(axis.get_ylim()[1] for axis in axes)
    for axis in axes:
        axis.set_ylim(0, top)
    logarithmic(axes[-1], "x")
    axes[-1].set_xlabel(PERCENT)
    figure.supylabel("share of test samples, %", fontsize=10)
    return _finished(figure)


def rollout_errors(groups: Sequence[Group]) -> Figure | None:
    """Error of each frame that a rollout predicts."""
    errors = [[100 * np.array(run.frames) for run in g.runs if run.frames] for g in groups]
    if not any(errors):
        return None
    figure, (axis,) = _panels(1, 4.1)
    numbers = [[1 + np.arange(len(frames)) for frames in several] for several in errors]
    _draw(axis, groups, [list(map(_Line, n, n, e)) for n, e in zip(numbers, errors, strict=True)])
    axis.set(xlabel="predicted frame", ylabel=PERCENT, ylim=(0, None))
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    return _finished(figure)


def errors_by_sample(run: Run) -> list[float]:
    """The errors of single samples of the first test set; none where they were not kept."""
    first = next(iter(run.metrics), "test")
    return run.samples.get(first, [])


def _curves(group: Group, key: str, against: str = "epochs") -> list[_Line]:
    """The learning curves of a group, of runs that have one."""
    lines = []
    for run in group.runs:
        rows = [row for row in run.curve if row.get(key) is not None]
        if rows:
            at, seconds, y = np.array([[r["step"], r["seconds"], r[key]] for r in rows]).T
            epochs = at / max(1, run.curve[-1]["step"]) * run.epochs
            x = epochs if against == "epochs" else seconds / run.members
            lines.append(_Line(at, x, 100 * y if key == "error" else y))
    return lines


def _draw(axis: Axes, groups: Sequence[Group], lines: Sequence[Sequence[_Line]]) -> None:
    """The mean of each group in its band; lines that do not correspond, thin and one by one."""
    for look, several in zip(_looks(groups), lines, strict=True):
        if several and all(np.array_equal(line.at, several[0].at) for line in several):
            x, y = np.mean([line.x for line in several], 0), np.stack([line.y for line in several])
            axis.plot(x, y.mean(0), lw=1.8, **look)
            axis.plot(x[-1:], y.mean(0)[-1:], "o", ms=4.5, color=look["color"])
            if len(several) > 1:
                axis.fill_between(x, y.min(0), y.max(0), color=look["color"], alpha=0.25, lw=0)
        else:
            for k, line in enumerate(several):
                axis.plot(line.x, line.y, lw=0.8, **{**look, "label": "" if k else look["label"]})


def _looks(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """Label, colour and line style of each group; problem and protocol named where they vary."""
    models = [g.model for g in groups]
    ways = [(g.problem, g.protocol, g.recipe, g.epochs, g.precision, g.name) for g in groups]
    order = list(dict.fromkeys(ways))
    problems, protocols = (len({way[k] for way in ways}) for k in (0, 1))
    looks = []
    for g, way in zip(groups, ways, strict=True):
        problem = f"{g.problem}: " * (problems > 1 and not g.name)
        label = problem + g.label + f" ({g.protocol})" * (protocols > 1)
        dashes = (0, DASHES[order.index(way) % len(DASHES)] or None)
        looks.append({"label": plain(label), "color": colour_of(g.model, models), "ls": dashes})
    return looks


def logarithmic(axes: Axes, which: Literal["x", "y"], ticks: int = 8) -> None:
    """A logarithmic axis with plain numbers at its ticks, enough of them on a short one."""
    axes.set(**{f"{which}scale": "log"})
    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = sorted(axis.get_view_interval())
    decades = np.log10(high / low)
    logs = LogLocator(subs=(1.0,) if decades > 3 else (1.0, 2.0, 5.0))
    axis.set_major_locator(MaxNLocator(ticks, steps=[1, 2, 5, 10]) if decades < 1 else logs)
    axis.set_major_formatter("{x:,g}")
    axis.set_minor_locator(NullLocator())


def _panels(rows: int, height: float) -> tuple[Figure, list[Axes]]:
    """A figure of rows with one horizontal axis."""
    figure = Figure(figsize=(6.8, max(4.1, height * rows)), layout="constrained")
    return figure, list(figure.subplots(rows, squeeze=False, sharex=True)[:, 0])


def _finished(figure: Figure) -> Figure:
    """A pale grid, no box, and one legend below, where it covers nothing."""
    for axis in figure.axes:
        axis.grid(True, alpha=0.25, lw=0.6)
        axis.spines[["top", "right"]].set_visible(False)
    names = [name for axis in figure.axes for name in axis.get_legend_handles_labels()[1]]
    if names:
        columns = 2 if len(names) > 1 and max(map(len, names)) < 36 else 1
        figure.legend(loc="outside lower center", ncols=columns, frameon=False, handlelength=3.2)
    return figure
