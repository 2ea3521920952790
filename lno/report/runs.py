"""Figures of the runs in the ledger. A figure that no run has anything for is None.

Runs that differ in their seed alone are one group: a line for their mean, in a band from the least
to the greatest. A model has a colour, a way of training it has a line style. Errors in percent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from lno.ledger import Run
from lno.report.plots import ERROR, FIELD, Plane, _field

NAMES = {"lno": "LNO", "transolver": "Transolver", "rbf": "RBF"}
# Okabe and Ito's colours, which colour-blind people can tell apart.
COLOURS = {"lno": "#0072b2", "transolver": "#d55e00", "rbf": "#009e73"}
OTHERS = ("#cc79a7", "#e69f00", "#56b4e9", "#5a6675")
STYLES: tuple[Any, ...] = (
    "-",
    (0, (5, 2)),
    (0, (1, 1.3)),
    (0, (6, 2, 1, 2)),
    (0, (3, 1, 1, 1, 1, 1)),
)
PERCENT, BINS = "relative L2 error, %", 30


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
    figure, axes = _panels(len(panels), 4.1)
    for axis, (name, lines) in zip(axes, panels, strict=True):
        _draw(axis, groups, lines)
        axis.set(yscale="log", ylabel=name, xlabel="epochs" if axis is axes[-1] else "")
        _log_ticks(axis.yaxis)
    epochs = [g.epochs for g, e, l in zip(groups, errors, losses, strict=True) if e or l]
    if panels and max(epochs) > 8 * min(epochs):  # else the short runs are a stroke at the left
        axes[-1].set(xscale="log")
        _log_ticks(axes[-1].xaxis)
    return _finished(figure) if panels else None


def error_against_time(groups: Sequence[Group]) -> Figure | None:
    """Error against the seconds of training that one seed took; of members, its share."""
    lines = [_curves(group, "error", time=True) for group in groups]
    figure, (axis,) = _panels(1, 4.1)
    _draw(axis, groups, lines)
    axis.set(xscale="log", yscale="log", xlabel="seconds of training, per seed", ylabel=PERCENT)
    _log_ticks(axis.xaxis)
    _log_ticks(axis.yaxis)
    return _finished(figure) if any(lines) else None


def error_histograms(groups: Sequence[Group]) -> Figure | None:
    """How the errors of single test samples are distributed, all seeds of a group together.

    A row for each group, in shares of its samples, as groups may have different numbers of seeds.
    """
    pooled = [[e for run in g.runs for e in run.samples.get("test", ())] for g in groups]
    shown = [
        (*look, 100 * np.array(e)) for look, e in zip(_looks(groups), pooled, strict=True) if e
    ]
    if not shown:
        return None
    every = np.concatenate([errors for *_, errors in shown])
    low = max(every[every > 0].min(initial=every.max()), 1e-9)  # exact answers: the first bin
    edges = np.geomspace(low / 1.02, max(every.max(), low) * 1.02, BINS + 1)
    figure, axes = _panels(len(shown), 1.5)
    for axis, (name, style, errors) in zip(axes, shown, strict=True):
        counts, median = np.histogram(np.maximum(errors, low), edges)[0], float(np.median(errors))
        share, colour = 100 * counts / len(errors), style["color"]
        axis.stairs(share, edges, fill=True, color=colour, alpha=0.2)
        axis.stairs(share, edges, color=colour, lw=1.4)
        axis.axvline(max(median, low), color=colour, lw=1.4)
        axis.set_title(f"{name}: median {median:.3g} %", loc="left", fontsize=10)
        axis.set(xscale="log", ylim=(0, None))
    axes[-1].set(xlabel=PERCENT)
    figure.supylabel("share of test samples, %", fontsize=10)
    _log_ticks(axes[-1].xaxis)
    return _finished(figure)


def rollout_errors(groups: Sequence[Group]) -> Figure | None:
    """Error of each frame that a rollout predicts."""
    films = [[100 * np.array(run.frames) for run in g.runs if run.frames] for g in groups]
    lines = [[_Line(np.arange(len(f)), 1 + np.arange(len(f)), f) for f in fs] for fs in films]
    figure, (axis,) = _panels(1, 4.1)
    _draw(axis, groups, lines)
    axis.set(xlabel="predicted frame", ylabel=PERCENT, ylim=(0, None))
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    return _finished(figure) if any(lines) else None


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
    name, scale = str(sample["names_y"][-1]), _scale(truth)
    error = np.abs(guess - truth)
    panels = [
        (f"truth: {name}", truth, scale),
        (f"prediction: {name}", guess, scale),
        ("absolute error", error, (ERROR, 0.0, float(error.max()) or 1.0)),
    ]
    if sample["u"].shape[1]:  # else the positions are all there is
        u = sample["u"][:, -1]
        panels.insert(0, (f"input: {sample['names_u'][-1]}", u, _scale(u)))
    low, high = x[:, :2].min(0), x[:, :2].max(0)
    shape = float(np.clip((high[1] - low[1]) / (high[0] - low[0] or 1.0), 0.4, 1.6))
    figure = Figure(figsize=(3.1 * len(panels), 3.0 * shape + 1.2), layout="constrained")
    axes = figure.subplots(1, len(panels), sharex=True, sharey=True)
    for axis, (heading, values, colours) in zip(axes, panels, strict=True):
        shown = _values(axis, x, sample["grid"], values, colours)
        axis.set_title(heading, fontsize=11)
        axis.set(xlabel=str(sample["names_x"][0]), box_aspect=shape)
        figure.colorbar(
            shown, ax=axis, location="bottom", ticks=MaxNLocator(4), format="{x:g}", aspect=24
        )
    axes[0].set_ylabel(str(sample["names_x"][1]))
    figure.suptitle(title)
    return figure


def _curves(group: Group, key: str, time: bool = False) -> list[_Line]:
    """The learning curves of a group against epochs or seconds, of runs that have one."""
    lines = []
    for run in group.runs:
        rows = [row for row in run.curve if row.get(key) is not None]
        if rows:
            steps, seconds, y = (
                np.array([row[k] for row in rows]) for k in ("step", "seconds", key)
            )
            x = (
                seconds / run.members
                if time
                else steps / max(1, run.curve[-1]["step"]) * run.epochs
            )
            lines.append(_Line(steps, x, 100 * y if key == "error" else y))
    return lines


def _draw(axis: Axes, groups: Sequence[Group], lines: Sequence[Sequence[_Line]]) -> None:
    """The mean of each group in its band; lines that do not correspond, thin and one by one."""
    for (name, style), several in zip(_looks(groups), lines, strict=True):
        if several and all(np.array_equal(line.at, several[0].at) for line in several):
            x, y = (np.stack(arrays) for arrays in list(zip(*several, strict=True))[1:])
            axis.plot(x.mean(0), y.mean(0), lw=1.8, label=name, **style)
            axis.plot(x.mean(0)[-1:], y.mean(0)[-1:], "o", ms=4.5, color=style["color"])
            if len(several) > 1:
                band = (x.mean(0), y.min(0), y.max(0))
                axis.fill_between(*band, color=style["color"], alpha=0.25, lw=0)
        else:
            for k, line in enumerate(several):
                axis.plot(line.x, line.y, lw=0.8, label="" if k else name, **style)


def _looks(groups: Sequence[Group]) -> list[tuple[str, dict[str, Any]]]:
    """Name, and colour and line style, of each group; what tells groups apart is in both."""
    others = sorted({g.model for g in groups} - set(COLOURS))
    colours = COLOURS | {m: OTHERS[k % len(OTHERS)] for k, m in enumerate(others)}
    ways = [(g.problem, g.protocol, g.recipe, g.epochs, g.precision) for g in groups]
    order = list(dict.fromkeys(ways))
    problems, protocols = {g.problem for g in groups}, {g.protocol for g in groups}
    looks = []
    for group, way in zip(groups, ways, strict=True):
        before = f"{group.problem}: " * (len(problems) > 1)
        after = f" ({group.protocol})" * (len(protocols) > 1)
        style = {"color": colours[group.model], "ls": STYLES[order.index(way) % len(STYLES)]}
        looks.append((f"{before}{group.label}{after}", style))
    return looks


def _log_ticks(axis: Axis) -> None:
    """Ticks of a logarithmic axis as plain numbers, enough of them on a short one."""
    low, high = sorted(axis.get_view_interval())
    decades = np.log10(high / low)
    subs = (1.0,) if decades > 3 else (1.0, 2.0, 5.0)
    axis.set_major_locator(MaxNLocator(6) if decades < 0.8 else LogLocator(subs=subs))
    axis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,g}" if v < 1e5 else f"{v:,.0f}"))
    axis.set_minor_locator(NullLocator())


def _panels(rows: int, height: float) -> tuple[Figure, Sequence[Axes]]:
    """A figure of rows with one horizontal axis."""
    figure = Figure(figsize=(8.0, max(4.1, height * rows)), layout="constrained")
    return figure, figure.subplots(max(1, rows), squeeze=False, sharex=True)[:, 0]


def _finished(figure: Figure) -> Figure:
    """A pale grid, no box, and one legend below, where it covers nothing."""
    for axis in figure.axes:
        axis.grid(True, alpha=0.25, lw=0.6)
        axis.spines[["top", "right"]].set_visible(False)
    found = [axis.get_legend_handles_labels() for axis in figure.axes]
    handles, names = ([entry for pair in found for entry in pair[k]] for k in (0, 1))
    columns = 2 if len(names) > 1 and max(map(len, names)) < 44 else 1
    if names:
        place = "outside lower center"
        figure.legend(handles, names, loc=place, ncols=columns, frameon=False, handlelength=3.2)
    return figure


def _scale(values: np.ndarray) -> tuple[str, float, float]:
    """Colour map and limits: symmetric about zero where both signs matter."""
    low, high = float(values.min()), float(values.max())
    span = max(-low, high)
    if min(-low, high) > 0.05 * span:
        return FIELD, -span, span
    return "viridis", low, high


def _values(
    axis: Axes,
    x: np.ndarray,
    grid: np.ndarray,
    values: np.ndarray,
    colours: tuple[str, float, float],
) -> ScalarMappable:
    """A field as an image, a surface or points, as its positions allow."""
    cmap, low, high = colours
    if grid.size != 2 or x.shape[1] != 2:
        size = float(np.clip(16000 / len(x), 1.0, 24.0))
        return axis.scatter(x[:, 0], x[:, 1], size, values, cmap=cmap, vmin=low, vmax=high, lw=0)
    nodes, field = x.reshape(*grid, 2), values.reshape(*grid)
    (left, bottom), (right, top) = x.min(0), x.max(0)
    lines = (
        np.linspace(a, b, n) for a, b, n in zip((left, bottom), (right, top), grid, strict=True)
    )
    regular = np.stack(np.meshgrid(*lines, indexing="ij"), -1)
    if np.allclose(nodes, regular, atol=1e-4 * float(np.ptp(x))):
        return _field(axis, Plane(("", ""), (bottom, left), (top, right)), field.T, cmap, low, high)
    return axis.pcolormesh(
        *np.moveaxis(nodes, -1, 0), field, shading="gouraud", cmap=cmap, vmin=low, vmax=high
    )
