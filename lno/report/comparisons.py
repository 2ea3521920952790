"""Charts of our numbers beside a paper's: ours filled and solid, theirs hollow and dashed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from lno.drawing import INK
from lno.report.runs import logarithmic
from lno.text import plain

PALE = "#8893a3"
COLUMNS = 3  # of panels


@dataclass(frozen=True)
class Dot:
    """One row of a panel.

    Args:
        name: what it is about.
        ours, paper: the two numbers; None: there is none.
        remark: beside our number.
        colour: of both.
    """

    name: str
    ours: float | None
    paper: float | None
    remark: str = ""
    colour: str = INK


@dataclass(frozen=True)
class Series:
    """One line; numbers that are None are left out."""

    name: str
    ours: Sequence[float | None]
    paper: Sequence[float | None]
    colour: str = INK


def dots(panels: Mapping[str, Sequence[Dot]], label: str, even: float | None = None) -> Figure:
    """Panels with a row for each name, our number and the paper's on one logarithmic axis.

    Args:
        panels: rows by title.
        label: of the numbers.
        even: marked by a line, where two things are alike.
    """
    columns = min(COLUMNS, len(panels))
    rows, most = -(-len(panels) // columns), max(map(len, panels.values()))
    size = (0.6 + 2.9 * columns, 0.6 + rows * (0.95 + 0.26 * most))
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis, (title, several) in zip(axes, panels.items(), strict=False):
        for k, dot in enumerate(several):
            both = [value for value in (dot.ours, dot.paper) if value is not None]
            axis.plot(both, [k] * len(both), color=PALE, lw=1, zorder=1)
            if dot.paper is not None:
                axis.plot(dot.paper, k, "o", ms=6.5, mfc="white", mec=dot.colour, mew=1.5)
            if dot.ours is not None:
                axis.plot(dot.ours, k, "o", ms=6.5, color=dot.colour)
                above = {"xytext": (0, 5.5), "textcoords": "offset points", "ha": "center"}
                text = plain(dot.remark)
                axis.annotate(text, (dot.ours, k), fontsize=7.5, color=PALE, **above)
        if even is not None:
            axis.axvline(even, color=PALE, lw=0.8, ls=(0, (4, 3)), zorder=0)
        axis.set_yticks(range(len(several)), [plain(dot.name) for dot in several])
        axis.set_ylim(len(several) - 0.4, -0.75)
        axis.set_title(plain(title), loc="left", fontsize=10.5)
        axis.margins(x=0.24)
        logarithmic(axis, "x", 4)
        _pale(axis, "x")
    for axis in axes[len(panels) :]:
        axis.set_axis_off()
    figure.supxlabel(plain(label), fontsize=10)
    _legend(figure, Line2D([], [], ls="", marker="o", ms=6.5, color=INK), True)
    return figure


def lines(series: Sequence[Series], ticks: Sequence[str], x: str, y: str) -> Figure:
    """Numbers at a few places along an axis, on a logarithmic axis upwards."""
    figure = Figure(figsize=(7.0, 4.0), layout="constrained")
    axis = figure.subplots()
    for one in series:
        label: str | None = plain(one.name)  # of the first line of the two
        for values, look in (
            (one.ours, {"marker": "o", "ms": 5}),
            (one.paper, {"ls": (0, (4, 2)), "marker": "o", "mfc": "white", "ms": 5}),
        ):
            known = [(k, v) for k, v in enumerate(values) if v is not None]
            if known:
                look |= {"label": label, "color": one.colour, "lw": 1.6}
                axis.plot(*zip(*known, strict=True), **look)  # type: ignore[arg-type]
                label = None
    axis.set_xticks(range(len(ticks)), ["\n".join(map(plain, t.split("\n"))) for t in ticks])
    axis.set(xlabel=plain(x), ylabel=plain(y))
    logarithmic(axis, "y")
    _pale(axis, "y")
    axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize=9)
    _legend(figure, Line2D([], [], marker="o", ms=5, color=INK), False)
    return figure


def _legend(figure: Figure, ours: Line2D, hollow: bool) -> None:
    style = "" if hollow else (0, (4, 2))
    paper = Line2D([], [], marker="o", ms=6, color=INK, mfc="white", ls=style)
    figure.legend(
        [ours, paper], ["ours", "paper"], loc="outside upper right", ncols=2, frameon=False,
        fontsize=9, handlelength=2.6
    )  # fmt: skip


def _pale(axis: Axes, which: str) -> None:
    axis.grid(True, axis=which, alpha=0.25, lw=0.6)  # type: ignore[arg-type]
    axis.spines[["top", "right"]].set_visible(False)
