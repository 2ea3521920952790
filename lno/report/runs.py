"""Figures of the runs in the ledger. A figure that no run has anything for is None.

Runs that differ in their seed alone are one group: a line for their mean, in a band from the least
to the greatest. A model has a colour, a way of training it has a line style. Errors in percent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from lno.ledger import Run
from lno.report.plots import ERROR, FIELD, Plane, draw_field

NAMES = {
    "lno": "LNO",
    "transolver": "Transolver",
    "deeponet": "DeepONet",
    "gnot": "GNOT",
    "rbf": "RBF",
    "kriging": "kriging",
}
# Okabe and Ito's colours, which colour-blind people can tell apart.
COLOURS = {"lno": "#0072b2", "transolver": "#d55e00", "rbf": "#009e73"}
OTHERS = ("#cc79a7", "#e69f00", "#56b4e9", "#5a6675")
DASHES = ((), (5, 2), (1, 1.3), (6, 2, 1, 2), (3, 1, 1, 1, 1, 1))
PERCENT, BINS = "relative L2 error, %", 30
Scale = tuple[str, float, float]  # a colour map and its limits


@dataclass(frozen=True)
class Group:
    """Runs that differ in their seed alone, in the order of their seeds."""

    problem: str
    model: str
    recipe: str
    epochs: int
    precision: str
    protocol: str
    runs: list[Run]

    @property
    def label(self) -> str:
        """Model, recipe, epochs; the precision where it is not tf32."""
        parts = [NAMES.get(self.model, self.model)]
        if self.epochs:  # else nothing was trained
            parts += [self.recipe, f"{self.epochs} epoch{'s' * (self.epochs != 1)}"]
        return ", ".join(parts + [self.precision] * (self.precision != "tf32"))


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


def grouped(runs: Sequence[Run]) -> list[Group]:
    """Groups by problem, model, recipe, epochs, precision and protocol, in this order."""
    found: dict[tuple[str, str, str, int, str, str], list[Run]] = {}
    for run in sorted(runs, key=lambda r: r.seed):
        key = (run.problem, run.model, run.recipe, run.epochs, run.precision, run.protocol)
        found.setdefault(key, []).append(run)
    return [Group(*key, found[key]) for key in sorted(found)]


def learning_curves(groups: Sequence[Group]) -> Figure | None:
    """Error against epochs; groups whose error was not watched have their loss shown below."""
    errors = [_curves(group, "error") for group in groups]
    losses = [[] if e else _curves(g, "loss") for e, g in zip(errors, groups, strict=True)]
    panels = [p for p in ((PERCENT, errors), ("training loss", losses)) if any(p[1])]
    if not panels:
        return None
    figure, axes = _panels(len(panels), 4.1)
    for axis, (name, lines) in zip(axes, panels, strict=True):
        _draw(axis, groups, lines)
        _logarithmic(axis, "y")
        axis.set_ylabel(name)
    axes[-1].set_xlabel("epochs")
    ends = [line.x[-1] for _, lines in panels for several in lines for line in several]
    if max(ends) > 8 * min(ends):  # the shortest run would be a stroke at the left
        _logarithmic(axes[-1], "x")
    else:
        axes[-1].set_xlim(left=0)
    return _finished(figure)


def error_against_time(groups: Sequence[Group]) -> Figure | None:
    """Error against the seconds of training that one seed took; of members, its share."""
    lines = [_curves(group, "error", "seconds") for group in groups]
    if not any(lines):
        return None
    figure, (axis,) = _panels(1, 4.1)
    _draw(axis, groups, lines)
    _logarithmic(axis, "x")
    _logarithmic(axis, "y")
    axis.set(xlabel="seconds of training, per seed", ylabel=PERCENT)
    return _finished(figure)


def error_histograms(groups: Sequence[Group]) -> Figure | None:
    """How the errors of single test samples are distributed, all seeds of a group together.

    A row for each group, its median marked; in shares, as groups differ in their numbers of seeds.
    """
    pooled = [[e for run in g.runs for e in run.samples.get("test", ())] for g in groups]
    shown = [(look, 100 * np.array(e)) for look, e in zip(_looks(groups), pooled, strict=True) if e]
    if not shown:
        return None
    every = np.concatenate([errors for _, errors in shown])
    low = max(every[every > 0].min(initial=every.max()), 1e-9)  # exact answers: the first bin
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
    _logarithmic(axes[-1], "x")
    axes[-1].set_xlabel(PERCENT)
    figure.supylabel("share of test samples, %", fontsize=10)
    return _finished(figure)


def rollout_errors(groups: Sequence[Group]) -> Figure | None:
    """Error of each frame that a rollout predicts."""
    films = [[100 * np.array(run.frames) for run in g.runs if run.frames] for g in groups]
    if not any(films):
        return None
    figure, (axis,) = _panels(1, 4.1)
    numbers = [[1 + np.arange(len(film)) for film in several] for several in films]
    _draw(axis, groups, [list(map(_Line, n, n, f)) for n, f in zip(numbers, films, strict=True)])
    axis.set(xlabel="predicted frame", ylabel=PERCENT, ylim=(0, None))
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    return _finished(figure)


def sample_fields(path: Path, title: str) -> Figure:
    """Input, truth, prediction and absolute error of the test sample in a file beside a run.

    Of several channels the last is shown. The first coordinate points to the right. Fields on a
    regular grid are images, on any other 2-D grid surfaces, else points.
    """
    with np.load(path, allow_pickle=False) as file:
        sample = {key: file[key] for key in file.files}
    x, truth, guess = sample["x"], sample["y"][:, -1], sample["prediction"][:, -1]
    if x.shape[1] < 2:
        raise ValueError(f"{path}: expected two coordinates or more to draw, got {x.shape[1]}")
    error, name = np.abs(guess - truth), sample["names_y"][-1]
    panels = [
        (f"truth: {name}", truth, _scale(truth)),
        (f"prediction: {name}", guess, _scale(truth)),
        ("absolute error", error, (ERROR, 0.0, float(error.max()) or 1.0)),
    ]
    if sample["u"].shape[1]:  # else the positions are all there is
        u = sample["u"][:, -1]
        panels.insert(0, (f"input: {sample['names_u'][-1]}", u, _scale(u)))
    width, height = np.ptp(x[:, :2], axis=0)
    shape = float(np.clip(height / (width or 1.0), 0.4, 1.6))
    figure = Figure(figsize=(3.1 * len(panels), 2.85 * shape + 1.4), layout="constrained")
    axes = figure.subplots(1, len(panels), sharex=True, sharey=True)
    bar: dict[str, Any] = {"location": "bottom", "aspect": 24, "format": "{x:g}"}
    for axis, (heading, values, scale) in zip(axes, panels, strict=True):
        shown = _values(axis, x, sample["grid"], values, scale)
        axis.set_title(heading, fontsize=11)
        axis.set(xlabel=sample["names_x"][0], box_aspect=shape)
        figure.colorbar(shown, ax=axis, ticks=MaxNLocator(4), **bar)
    axes[0].set_ylabel(sample["names_x"][1])
    figure.suptitle(title)
    return figure


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
    """Label, colour and line style of each group, the problem and protocol told where they vary."""
    others = sorted({g.model for g in groups} - set(COLOURS))
    colours = COLOURS | {m: OTHERS[k % len(OTHERS)] for k, m in enumerate(others)}
    ways = [(g.problem, g.protocol, g.recipe, g.epochs, g.precision) for g in groups]
    order = list(dict.fromkeys(ways))
    problems, protocols = (len({way[k] for way in ways}) for k in (0, 1))
    looks = []
    for g, way in zip(groups, ways, strict=True):
        label = f"{g.problem}: " * (problems > 1) + g.label + f" ({g.protocol})" * (protocols > 1)
        dashes = (0, DASHES[order.index(way) % len(DASHES)] or None)
        looks.append({"label": label, "color": colours[g.model], "ls": dashes})
    return looks


def _logarithmic(axes: Axes, which: Literal["x", "y"]) -> None:
    """A logarithmic axis with plain numbers at its ticks, enough of them on a short one."""
    axes.set(**{f"{which}scale": "log"})
    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = sorted(axis.get_view_interval())
    decades = np.log10(high / low)
    logs = LogLocator(subs=(1.0,) if decades > 3 else (1.0, 2.0, 5.0))
    axis.set_major_locator(MaxNLocator(8, steps=[1, 2, 5, 10]) if decades < 1 else logs)
    axis.set_major_formatter("{x:,g}")
    axis.set_minor_locator(NullLocator())


def _panels(rows: int, height: float) -> tuple[Figure, list[Axes]]:
    """A figure of rows with one horizontal axis."""
    figure = Figure(figsize=(8.0, max(4.1, height * rows)), layout="constrained")
    return figure, list(figure.subplots(rows, squeeze=False, sharex=True)[:, 0])


def _finished(figure: Figure) -> Figure:
    """A pale grid, no box, and one legend below, where it covers nothing."""
    for axis in figure.axes:
        axis.grid(True, alpha=0.25, lw=0.6)
        axis.spines[["top", "right"]].set_visible(False)
    names = [name for axis in figure.axes for name in axis.get_legend_handles_labels()[1]]
    if names:
        columns = 2 if len(names) > 1 and max(map(len, names)) < 44 else 1
        figure.legend(loc="outside lower center", ncols=columns, frameon=False, handlelength=3.2)
    return figure


def _scale(values: np.ndarray) -> Scale:
    """Symmetric about zero where both signs matter."""
    low, high = float(values.min()), float(values.max())
    span = max(-low, high)
    return (FIELD, -span, span) if min(-low, high) > 0.05 * span else ("viridis", low, high)


def _values(
    axis: Axes, x: np.ndarray, grid: np.ndarray, values: np.ndarray, scale: Scale
) -> ScalarMappable:
    """A field as an image, a surface or points, as its positions allow."""
    colours: dict[str, Any] = dict(zip(("cmap", "vmin", "vmax"), scale, strict=True))
    if grid.size != 2 or x.shape[1] != 2:
        size = float(np.clip(16000 / len(x), 1.0, 24.0))
        return axis.scatter(x[:, 0], x[:, 1], size, values, lw=0, **colours)
    nodes, field = np.moveaxis(x.reshape(*grid, 2), -1, 0), values.reshape(*grid)
    low, high = x.min(0), x.max(0)
    regular = np.meshgrid(*map(np.linspace, low, high, grid), indexing="ij")
    if np.allclose(nodes, regular, atol=1e-4 * float(np.ptp(x))):
        plane = Plane(("second", "first"), tuple(low[::-1]), tuple(high[::-1]))
        return draw_field(axis, plane, field.T, *scale)
    return axis.pcolormesh(*nodes, field, shading="gouraud", **colours)
