"""Text in place of a figure, for those who do not see it: what its axes and lines say."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lno.text import visible

PANELS, LONGEST = 12, 1200  # axes that are described, and characters in all


def describe(figure: Figure, description: str) -> str:
    """A description, the panels of a figure, and where its named lines end.

    >>> figure = Figure()
    >>> axis = figure.subplots()
    >>> _ = axis.plot([1, 2], [8, 5.0], label="LNO")
    >>> _ = axis.set(xlabel="epochs", ylabel="error, %")
    >>> describe(figure, "Errors.")
    'Errors. error, % against epochs: LNO ends at 5.'
    """
    panels = [text for axis in figure.axes[:PANELS] if (text := _panel(axis))]
    joined = " ".join([description, *(f"{text}." for text in panels)])
    cut = joined if len(joined) <= LONGEST else f"{joined[: LONGEST - 1]}…"
    return visible(cut.replace(r"\$", "$"))


def _panel(axis: Axes) -> str:
    """One panel; empty for a bar of colours and what else has neither title nor lines."""
    title = axis.get_title() or axis.get_title("left")
    across, up = axis.get_xlabel(), axis.get_ylabel()
    named = list(_lines(axis))
    if not title and not named:
        return ""
    against = f"{up} against {across}" if across and up and named else ""
    shown = "; ".join(part for part in (title, against) if part)
    return f"{shown}: {', '.join(named)}" if named else shown


def _lines(axis: Axes) -> Iterator[str]:
    """Named lines and their last values."""
    for line in axis.get_lines():
        name, values = str(line.get_label()), np.asarray(line.get_ydata(), float)
        if not name.startswith("_") and len(values):
            yield f"{name} ends at {values[-1]:.3g}"
