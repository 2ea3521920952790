"""Figures of errors: histograms, bars, and curves against what errors depend on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from lno.assessment import Curve, Trusted
from lno.drawing import INK, Nodes
from lno.text import plain, with_unit

BLUE, ORANGE, GREY = "#0072b2", "#d55e00", "#8a96a6"
BINS = 30  # of a histogram, at most
NAMED = 24  # bars with names, at most
LINES = 8  # with names in a legend, at most
PERCENT = "relative L2 error, %"
POINT = "error at points, standard deviations"


def histogram(errors: Float[np.ndarray, " s"]) -> Figure:
    """Errors of single samples, with their mean."""
    figure, axis = _figure()
    percent = 100 * errors
    bins = int(np.clip(2 * np.sqrt(len(errors)), 5, BINS))
    axis.hist(percent, bins, color=BLUE, alpha=0.85)
    axis.axvline(percent.mean(), color=INK, lw=1.2, label=f"mean {percent.mean():.3g} %")
    axis.set(xlabel=PERCENT, ylabel="samples", xlim=(0, None))
    axis.yaxis.set_major_locator(MaxNLocator(integer=True))
    axis.legend(frameon=False)
    return figure


def bars(channels: Mapping[str, Float[np.ndarray, " s"]]) -> Figure:
    """The mean error of each channel."""
    means = [100 * float(errors.mean()) for errors in channels.values()]
    if len(means) > NAMED:
        figure, axis = _figure()
        axis.plot(range(len(means)), means, color=BLUE)
        axis.set(xlabel="channel", ylabel=PERCENT, ylim=(0, None))
        return figure
    figure, axis = _figure(max(1.6, 0.34 * len(means) + 0.8))
    shown = axis.barh(range(len(means)), means, color=BLUE, height=0.66)
    axis.set_yticks(range(len(means)), [plain(name) for name in channels])
    axis.bar_label(shown, [f"{mean:.3g} %" for mean in means], padding=4, fontsize=9)
    axis.invert_yaxis()
    axis.set(xlabel=PERCENT)
    axis.margins(x=0.12)
    return figure


def frames(errors: Sequence[float]) -> Figure:
    """The mean error of each predicted frame."""
    figure, axis = _figure()
    axis.plot(1 + np.arange(len(errors)), 100 * np.array(errors), "o-", ms=4, color=BLUE)
    axis.set(xlabel="predicted frame", ylabel=PERCENT, ylim=(0, None))
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def scatter(
    values: Float[np.ndarray, " s"],
    errors: Float[np.ndarray, " s"],
    medians: Curve | None,
    name: str,
) -> Figure:
    """The error of each sample against a number of it, with the binned median."""
    figure, axis = _figure()
    axis.plot(values, 100 * errors, "o", ms=3.5, color=GREY, alpha=0.6, mew=0)
    if medians is not None:
        _band(axis, medians, 100)
        axis.legend(frameon=False)
    axis.set(xlabel=plain(name), ylabel=PERCENT, ylim=(0, None))
    return figure


def curve(found: Curve, name: str) -> Figure:
    """Binned errors at points."""
    figure, axis = _figure()
    _band(axis, found, 1)
    axis.set(xlabel=plain(name), ylabel=POINT, ylim=(0, None))
    return figure


def calibration(trusted: Trusted, names: Sequence[str]) -> Figure:
    """The share of points inside bounds against their level; on the diagonal they agree."""
    figure = Figure(figsize=(4.8, 4.2), layout="constrained")
    axis = figure.subplots()
    low = max(0.0, min(*trusted.levels, float(trusted.shares.min())) - 0.05)
    axis.plot([low, 1], [low, 1], color="0.7", lw=1)
    few = len(names) <= LINES
    for c, name in enumerate(names):
        colour = f"C{c}" if few else BLUE
        label = plain(name) if few else None
        look: dict[str, Any] = {"color": colour, "alpha": 1.0 if few else 0.4}
        axis.plot(trusted.levels, trusted.shares[:, c], "o-", ms=4, label=label, **look)
        axis.plot([trusted.level], [trusted.contained[c]], "D", ms=9, mec="white", **look)
    axis.set(xlabel="nominal level", ylabel="share of points inside", aspect="equal")
    axis.set(xlim=(low, 1.01), ylim=(low, 1.01))
    if few:
        axis.legend(frameon=False)
    return _plain(figure)


def scores(worst: Float[np.ndarray, " s"], errors: Float[np.ndarray, " s"]) -> Figure:
    """The error of each sample against its largest score."""
    figure, axis = _figure()
    known = np.isfinite(worst)
    flagged = ~(worst <= 1)
    for part, colour, name in ((~flagged, BLUE, "like training"), (flagged, ORANGE, "flagged")):
        some = part & known
        if some.any():
            axis.plot(worst[some], 100 * errors[some], "o", ms=4, color=colour, mew=0, label=name)
    axis.axvline(1.0, color=INK, lw=1)
    axis.set(xlabel="largest score / its threshold", ylabel=PERCENT, ylim=(0, None))
    axis.legend(frameon=False)
    return figure


def lines(
    nodes: Nodes,
    rows: Sequence[tuple[str, str, np.ndarray, np.ndarray]],
    observed: np.ndarray | None,
) -> Figure:
    """Truth and prediction on a line, and beside them the error; a row for each channel.

    Args:
        nodes: points of the line.
        rows: the name of a channel, its unit, the truth and the prediction.
        observed: where the sample was observed; None: everywhere.
    """
    figure = Figure(figsize=(8.0, 2.6 * len(rows)), layout="constrained")
    axes = figure.subplots(len(rows), 2, squeeze=False, sharex=True)
    order = np.argsort(nodes.positions[:, 0], kind="stable")
    x, index = nodes.positions[order, 0], nodes.rows[order]
    for (left, right), (name, unit, truth, found) in zip(axes, rows, strict=True):
        left.plot(x, truth[index], color=INK, lw=1.4, label="truth")
        left.plot(x, found[index], color=ORANGE, lw=1.4, ls="--", label="prediction")
        right.plot(x, np.abs(found - truth)[index], color=BLUE, lw=1.4)
        for axis in (left, right):
            if observed is not None:
                style: dict[str, Any] = {"color": GREY, "clip_on": False, "ms": 6}
                axis.plot(
                    observed,
                    np.zeros(len(observed)),
                    "|",
                    **style,
                    transform=axis.get_xaxis_transform(),
                )
            axis.set_xlabel(plain(nodes.labels[0]))
        left.set_title(plain(with_unit(name, unit)), fontsize=11)
        right.set_title(plain(with_unit("absolute error", unit)), fontsize=11)
        right.set_ylim(0, None)
    axes[0, 0].legend(frameon=False)
    return _plain(figure)


def _band(axis: Axes, found: Curve, factor: float) -> None:
    low, middle, high = (factor * v for v in (found.low, found.median, found.high))
    axis.fill_between(found.at, low, high, color=BLUE, alpha=0.18, lw=0, label="quartiles")
    axis.plot(found.at, middle, "o-", ms=4.5, color=BLUE, label="median")


def _figure(height: float = 3.3) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(7.2, height), layout="constrained")
    axis = figure.subplots()
    _plain(figure)
    return figure, axis


def _plain(figure: Figure) -> Figure:
    """A pale grid, no box."""
    for axis in figure.axes:
        axis.grid(True, alpha=0.25, lw=0.6)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
    return figure
