"""Figures. None of these touch global state: each returns a `Figure` to save or embed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backend_bases import FigureCanvasBase
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from lno.drawing import ERROR, FIELD, INK, scale_of
from lno.files import replacing
from lno.text import plain, with_unit


@dataclass(frozen=True)
class Plane:
    """A rectangle of points in two named coordinates; rows of a field run along the first."""

    names: tuple[str, str]
    low: tuple[float, float]
    high: tuple[float, float]

    def extent(self) -> tuple[float, float, float, float]:
        """Left, right, bottom, top: the second coordinate to the right, the first upwards."""
        return self.low[1], self.high[1], self.low[0], self.high[0]


def reconstruction(
    plane: Plane,
    truth: np.ndarray,
    sensors: tuple[np.ndarray, np.ndarray],
    fields: dict[str, np.ndarray],
) -> Figure:
    """Sensors above the truth, and beside them each reconstruction above its error.

    Args:
        plane: where the fields (rows, columns) lie.
        truth: the true field.
        sensors: positions (n, 2) and values (n,) of the observations.
        fields: reconstructed fields by name.
    """
    columns = 1 + len(fields)
    figure = Figure(figsize=(3.6 * columns, 5.6), layout="constrained")
    axes = figure.subplots(2, columns, sharex=True, sharey=True)
    span = float(np.abs(truth).max())
    worst = max(float(np.abs(g - truth).max()) for g in fields.values()) or 1.0
    _sensors(axes[0, 0], plane, sensors, span)
    axes[0, 0].set_title(f"{len(sensors[1])} sensors")
    shown = draw_field(axes[1, 0], plane, truth, FIELD, -span, span)
    axes[1, 0].set_title("truth")
    for k, (name, field) in enumerate(fields.items(), start=1):
        error = np.abs(field - truth)
        draw_field(axes[0, k], plane, field, FIELD, -span, span)
        wrong = draw_field(axes[1, k], plane, error, ERROR, 0.0, worst)
        axes[0, k].set_title(plain(name))
        percent = 100 * error.mean() / np.abs(truth).mean()
        axes[1, k].set_title(plain(f"error of {name}: {percent:.1f} %"))
    figure.colorbar(shown, ax=axes[0, :].tolist(), shrink=0.9, pad=0.01)
    figure.colorbar(wrong, ax=axes[1, :].tolist(), shrink=0.9, pad=0.01)
    across, along = map(plain, plane.names)
    for row in axes:
        row[0].set_ylabel(across)
    for axis in axes[1]:
        axis.set_xlabel(along)
    return figure


def field_picture(
    plane: Plane, values: np.ndarray, sensors: tuple[np.ndarray, np.ndarray], label: str
) -> Figure:
    """A field (rows, columns), NaN where there is none, with the sensors that it comes from."""
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axis = figure.subplots()
    shown = draw_field(axis, plane, values, *scale_of(values))
    x, _ = sensors
    axis.plot(x[:, 1], x[:, 0], "o", ms=3, mfc="none", mec=INK, mew=0.7)
    across, along = map(plain, plane.names)
    axis.set(xlabel=along, ylabel=across, title=plain(f"{label} from {len(x)} points"))
    figure.colorbar(shown, ax=axis, label=plain(label))
    return figure


def bounded_field(
    plane: Plane,
    values: np.ndarray,
    width: np.ndarray,
    sensors: tuple[np.ndarray, np.ndarray],
    label: str,
    unit: str = "",
) -> Figure:
    """A field (rows, columns; NaN: none) with its sensors, and beside it how wide bounds are."""
    figure = Figure(figsize=(11.0, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2, sharex=True, sharey=True)
    colours, low, high = scale_of(values)
    shown = draw_field(left, plane, values, colours, low, high)
    x, u = sensors
    marks = {"s": 16, "edgecolors": INK, "lw": 0.5, "clip_on": False}
    left.scatter(x[:, 1], x[:, 0], c=u, cmap=colours, vmin=low, vmax=high, **marks)
    counted = "one sensor" if len(x) == 1 else f"{len(x)} sensors"
    across, along = map(plain, plane.names)
    left.set(title=plain(f"{with_unit(label, unit)} from {counted}"), ylabel=across, xlabel=along)
    wide = draw_field(right, plane, width, ERROR, 0.0, float(np.nanmax(width)) or 1.0)
    right.plot(x[:, 1], x[:, 0], "o", ms=3, mfc="none", mec=INK, mew=0.6, clip_on=False)
    right.set(title=plain(with_unit("width of the bounds", unit)), xlabel=along)
    right.axis(plane.extent())  # sensors on the edge do not move it
    figure.colorbar(shown, ax=left)
    figure.colorbar(wide, ax=right)
    return figure


def heat_maps(
    panels: Mapping[str, np.ndarray], ticks: Sequence[int], names: tuple[str, str], label: str
) -> Figure:
    """Squares of positive numbers as colours, side by side on one logarithmic scale.

    Args:
        panels: numbers (rows, columns) by title; NaN: there is none.
        ticks: what rows and columns stand for.
        names: of the rows and of the columns.
        label: of the numbers.
    """
    figure = Figure(figsize=(1.0 + 2.7 * len(panels), 3.4), layout="compressed")
    axes = figure.subplots(1, len(panels), squeeze=False, sharex=True, sharey=True)[0]
    every = np.concatenate([values.ravel() for values in panels.values()])
    low, high = float(np.nanmin(every)), float(np.nanmax(every))
    for axis, (title, values) in zip(axes, panels.items(), strict=True):
        shown = axis.imshow(values, cmap=ERROR, norm=LogNorm(low, high))
        for (row, column), value in np.ndenumerate(values):
            text = "missing" if np.isnan(value) else f"{value:.2f}"
            ink = "white" if value > low**0.6 * high**0.4 else INK  # the colours grow darker
            axis.text(column, row, text, ha="center", va="center", color=ink, fontsize=9)
        axis.set(title=plain(title), xlabel=plain(names[1]))
        axis.set_xticks(range(len(ticks)), map(str, ticks))
        axis.set_yticks(range(len(ticks)), map(str, ticks))
    axes[0].set_ylabel(plain(names[0]))
    numbers = LogLocator(subs=(1, 2, 5))
    bar = figure.colorbar(
        shown, ax=axes.tolist(), label=label, shrink=0.9, pad=0.01, ticks=numbers, format="{x:g}"
    )
    bar.minorticks_off()
    return figure


def agreement(
    stated: Sequence[float], lines: Mapping[str, Sequence[float]], x: str, y: str
) -> Figure:
    """Measured shares against stated ones; on the diagonal they agree."""
    figure = Figure(figsize=(4.2, 4.0), layout="constrained")
    axis = figure.subplots()
    low = min(stated) - 0.05
    axis.plot([low, 1], [low, 1], color="0.7", linewidth=1, label="as stated")
    for name, found in lines.items():
        axis.plot(stated, found, marker="o", markersize=4, label=name)
    axis.set(xlabel=x, ylabel=y, xlim=(low, 1), ylim=(low, 1), aspect="equal")
    axis.legend(frameon=False)
    return figure


def learning_curve(curve: Sequence[dict[str, Any]]) -> Figure:
    """Training loss and validation error against time."""
    figure = Figure(figsize=(7.2, 3.2), layout="constrained")
    axis = figure.subplots()
    seconds = [row["seconds"] for row in curve]
    axis.semilogy(seconds, [row["loss"] for row in curve], color="#8a96a6", label="training loss")
    if any(row["error"] is not None for row in curve):
        errors = [row["error"] for row in curve]
        axis.semilogy(seconds, errors, color="#c0392b", label="validation error (relative L2)")
    axis.set(xlabel="seconds of training")
    axis.grid(True, which="both", alpha=0.25)
    axis.legend(frameon=False)
    return figure


def save(figure: Figure, path: str | Path, dpi: int = 130) -> None:
    """Write a figure atomically, in the format that the name's ending says (PNG without one)."""
    kind = require_kind(path)
    with replacing(path) as temporary:
        figure.savefig(temporary, format=kind, dpi=dpi)


def require_kind(path: str | Path) -> str:
    """The format of a figure, by its name; raises where it is unknown: before the work."""
    kind = Path(path).suffix.lstrip(".") or "png"
    if kind not in FigureCanvasBase.get_supported_filetypes():
        raise ValueError(f"cannot draw a .{kind} file: choose a name ending in .png, .svg or .pdf")
    return kind


def draw_field(
    axis: Axes, plane: Plane, values: np.ndarray, cmap: str, low: float, high: float
) -> Any:
    """A field (rows, columns) as an image; returns what a colour bar needs."""
    return axis.imshow(
        values, origin="lower", extent=plane.extent(), aspect="auto", cmap=cmap, vmin=low, vmax=high
    )


def _sensors(axis: Axes, plane: Plane, sensors: tuple[np.ndarray, np.ndarray], span: float) -> None:
    x, u = sensors
    axis.scatter(
        x[:, 1], x[:, 0], c=u, s=14, cmap=FIELD, vmin=-span, vmax=span, edgecolors=INK, lw=0.4
    )
    left, right, bottom, top = plane.extent()
    axis.set(xlim=(left, right), ylim=(bottom, top))
