"""Figures of errors and cost against a size of the model, problem by problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from lno.report.runs import COLOURS
from lno.text import plain

COLUMNS = 3
PALE = "#5a6675"


@dataclass(frozen=True)
class Curve:
    """One problem at several sizes.

    Args:
        label: its name.
        errors: of all seeds, in percent, by size.
        milliseconds: of a training step, by size.
        kept: the size that the paper chose.
        printed: the paper's error at that size, in percent; None: it has none.
    """

    label: str
    errors: Mapping[int, Sequence[float]]
    milliseconds: Mapping[int, float]
    kept: int
    printed: float | None = None


def scaling_curves(curves: Sequence[Curve], name: str) -> Figure | None:
    """A panel of errors for each problem with at least two sizes, and one of costs if known.

    Dots are seeds, lines join their means, a ring is the paper's choice, a dashed line its error.
    None where there is nothing to compare.
    """
    shown = [curve for curve in curves if len(curve.errors) > 1]
    if not shown:
        return None
    timed = any(curve.milliseconds for curve in shown)  # runs that shared a GPU have no times
    panels = len(shown) + timed
    columns = min(COLUMNS, panels)
    rows = -(-panels // columns)
    figure = Figure(figsize=(1.0 + 3.3 * columns, 3.0 * rows), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    sizes = sorted({size for curve in shown for size in curve.errors})
    for k, (axis, curve) in enumerate(zip(axes, shown, strict=False)):
        _errors(axis, curve, COLOURS[k % len(COLOURS)])
    if timed:
        _costs(axes[len(shown)], shown)
    for axis in axes[:panels]:
        _sizes(axis, sizes, name)
    for axis in axes[panels:]:
        axis.set_axis_off()
    return figure


def _costs(axis: Axes, curves: Sequence[Curve]) -> None:
    for k, curve in enumerate(curves):
        across = sorted(curve.milliseconds)
        times = [curve.milliseconds[size] for size in across]
        axis.plot(across, times, "o-", ms=3.5, lw=1.4, color=COLOURS[k % len(COLOURS)])
    axis.set_title("milliseconds of a training step", loc="left", fontsize=10)
    axis.set_ylim(bottom=0)


def _errors(axis: Axes, curve: Curve, colour: str) -> None:
    sizes = sorted(curve.errors)
    means = [float(np.mean(curve.errors[size])) for size in sizes]
    axis.plot(sizes, means, lw=1.6, color=colour)
    for size in sizes:
        seeds = curve.errors[size]
        axis.plot([size] * len(seeds), seeds, "o", ms=3.5, color=colour, mec="white", mew=0.4)
    if curve.kept in curve.errors:
        chosen = means[sizes.index(curve.kept)]
        axis.plot(curve.kept, chosen, "o", ms=10, mfc="none", mec=colour, mew=1.2)
    if curve.printed is not None:
        axis.axhline(curve.printed, color=PALE, lw=1, ls=(0, (4, 3)))
        text = f"paper at {curve.kept}, 500 epochs: {curve.printed:g}"
        axis.annotate(
            text,
            (0.98, curve.printed),
            (0, 3),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            ha="right",
            va="bottom",
            fontsize=7.5,
            color=PALE,
        )
    axis.set_title(plain(curve.label), loc="left", fontsize=10)
    axis.set_ylim(0, 1.12 * max(max(seeds) for seeds in curve.errors.values()))
    axis.set_ylabel("error, %")


def _sizes(axis: Axes, sizes: Sequence[int], name: str) -> None:
    axis.set_xscale("log", base=2)
    axis.set_xticks(sizes, map(str, sizes))
    axis.xaxis.set_minor_locator(NullLocator())
    axis.set_xlim(sizes[0] / 1.2, sizes[-1] * 1.2)
    axis.set_xlabel(plain(name))
    axis.grid(True, alpha=0.25, lw=0.6)
    axis.spines[["top", "right"]].set_visible(False)
