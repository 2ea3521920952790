"""The figure of error against training time, a panel for each problem."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from lno.report.runs import colour_of, model_name
from lno.text import plain

COLUMNS = 3


@dataclass(frozen=True)
class Point:
    """Runs of one model that were trained for a given time.

    Args:
        problem, model, recipe: what was trained, and how.
        seconds: of training.
        errors: of all seeds, as fractions.
    """

    problem: str
    model: str
    recipe: str
    seconds: float
    errors: Sequence[float]

    @property
    def mean(self) -> float:
        """The mean over the seeds."""
        return sum(self.errors) / len(self.errors)


def error_against_time(points: Sequence[Point]) -> Figure | None:
    """A panel for each problem with at least two points; None where there is no such problem.

    Dots are seeds, lines join their means.
    """
    counts = Counter(point.problem for point in points)
    problems = [problem for problem, count in counts.items() if count > 1]
    points = [point for point in points if point.problem in problems]
    if not problems:
        return None
    columns = min(COLUMNS, len(problems))
    rows = -(-len(problems) // columns)
    figure = Figure(figsize=(0.6 + 3.4 * columns, 0.4 + 2.9 * rows), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    models = list(dict.fromkeys(point.model for point in points))
    for axis, problem in zip(axes, problems, strict=False):
        for model in models:
            mine = [p for p in points if (p.problem, p.model) == (problem, model)]
            mine.sort(key=lambda p: p.seconds)
            if not mine:
                continue
            colour = colour_of(model, models)
            minutes = [p.seconds / 60 for p in mine]
            line = "-" if len(mine) > 1 else ""
            axis.plot(
                minutes,
                [100 * p.mean for p in mine],
                f"o{line}",
                color=colour,
                ms=5,
                lw=1.8,
                label=model_name(model),
            )
            for at, p in zip(minutes, mine, strict=True):
                seeds = [100 * error for error in p.errors]
                axis.plot([at] * len(seeds), seeds, "_", color=colour, ms=9, mew=1.2)
        axis.set(xscale="log", yscale="log")
        ticks = sorted({p.seconds / 60 for p in points if p.problem == problem})
        axis.set_xticks(ticks, [f"{t:g}" for t in ticks])
        axis.xaxis.set_minor_formatter(NullFormatter())
        for formatter in (axis.yaxis.set_major_formatter, axis.yaxis.set_minor_formatter):
            formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.tick_params(axis="y", which="minor", labelsize=7)
        axis.set_title(plain(problem), loc="left", fontsize=10)
        axis.grid(True, which="both", alpha=0.2, lw=0.6)
        axis.spines[["top", "right"]].set_visible(False)
    for axis in axes[len(problems) :]:
        axis.set_axis_off()
    axes[0].legend(frameon=False, fontsize=8)
    figure.supxlabel("minutes of training on one GPU", fontsize=9)
    figure.supylabel("relative L2 error on held-out samples, %", fontsize=9)
    return figure
