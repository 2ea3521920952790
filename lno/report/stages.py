"""Pictures of the inverse problem: patterns of sensors, and a field in two stages, from a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lno.drawing import ERROR, FIELD, INK
from lno.report.plots import Plane, draw_field
from lno.report.samples import reading
from lno.text import plain

COLUMNS = 5  # of patterns
KEYS = ("truth", "t", "x", "window", "patterns", "fields", "reconstructed", "inside", "ends")


def load_stages(path: Path) -> dict[str, Any]:
    """The arrays of a file of stages.

    `truth` (t, x) on the axes `t` and `x`; the ends of the `window` in t; the names of `patterns`,
    and the points of `truth` that the k-th observes, `index_k`; `fields` (r, t, x), reconstructed
    from the patterns with the numbers `reconstructed`, and their relative errors `inside` the
    window and at the `ends` of t.
    """
    with reading(path), np.load(path, allow_pickle=False) as file:
        found = {key: file[key] for key in file.files}
        wanted = (*KEYS, *(f"index_{k}" for k in range(len(found["patterns"]))))
        return {key: found[key] for key in wanted}


def observation_patterns(path: Path) -> Figure:
    """Where a field is observed inside the window, by each pattern."""
    found = load_stages(path)
    with reading(path):
        return _observation_patterns(found)


def two_stages(path: Path) -> Figure:
    """Sensors, the field inside the window, the whole field, the truth and the error.

    A row for each pattern of sensors.
    """
    found = load_stages(path)
    with reading(path):
        return _two_stages(found)


def _observation_patterns(found: dict[str, Any]) -> Figure:
    names = found["patterns"].tolist()
    rows = -(-(len(names) + 1) // COLUMNS)
    figure = Figure(figsize=(2.3 * COLUMNS, 2.5 * rows + 0.2), layout="constrained")
    axes = list(figure.subplots(rows, COLUMNS, squeeze=False, sharex=True, sharey=True).flat)
    plane, span, truth = _plane(found), _span(found), found["truth"]
    inside = _inside(found, truth)
    for k, (axis, name) in enumerate(zip(axes, names, strict=False)):
        draw_field(axis, plane, inside, FIELD, -span, span).set_alpha(0.45)
        x, t = _sensors(found, k)
        axis.plot(x, t, "o", ms=float(np.clip(24 / len(x) ** 0.45, 0.9, 3.2)), color=INK, mew=0)
        axis.set_title(plain(f"{name}: {len(x):,} sensors"), fontsize=9)
        _window(axis, found)
    last = axes[len(names)]
    draw_field(last, plane, truth, FIELD, -span, span)
    last.set_title("the whole field", fontsize=9)
    _window(last, found)
    for axis in axes[len(names) + 1 :]:
        axis.set_axis_off()
    _label(axes[: len(names) + 1])
    return figure


def _two_stages(found: dict[str, Any]) -> Figure:
    plane, span, truth = _plane(found), _span(found), found["truth"]
    fields, numbers = found["fields"].astype(np.float32), found["reconstructed"].tolist()
    figure = Figure(figsize=(13.5, 2.6 * len(numbers) + 0.3), layout="constrained")
    axes = figure.subplots(len(numbers), 5, squeeze=False, sharex=True, sharey=True)
    errors = np.abs(fields - truth)
    high = float(np.quantile(errors, 0.998)) or 1.0
    for row, field, error, k, (inside, ends) in zip(
        axes, fields, errors, numbers, zip(found["inside"], found["ends"], strict=True), strict=True
    ):
        x, t = _sensors(found, k)
        look = {"cmap": FIELD, "vmin": -span, "vmax": span, "edgecolors": INK, "lw": 0.4}
        row[0].scatter(x, t, 16, truth.ravel()[found[f"index_{k}"]], **look)
        row[0].set_title(plain(f"{found['patterns'][k]}: {len(x):,} sensors"), fontsize=10)
        draw_field(row[1], plane, _inside(found, field), FIELD, -span, span)
        row[1].set_title(f"completer: error {100 * inside:.2f} %", fontsize=10)
        draw_field(row[2], plane, field, FIELD, -span, span)
        row[2].set_title(f"propagator: {100 * ends:.2f} % at t = 0, 1", fontsize=10)
        shown = draw_field(row[3], plane, truth, FIELD, -span, span)
        row[3].set_title("truth", fontsize=10)
        wrong = draw_field(row[4], plane, error, ERROR, 0.0, high)
        row[4].set_title("absolute error", fontsize=10)
        for axis in row:
            axis.axis(plane.extent())
            _window(axis, found)
    figure.colorbar(shown, ax=axes[:, 3].tolist(), pad=0.02, aspect=30)
    figure.colorbar(wrong, ax=axes[:, 4].tolist(), pad=0.02, aspect=30, extend="max")
    _label(list(axes.flat))
    return figure


def _plane(found: dict[str, Any]) -> Plane:
    ends = [(float(found[key][0]), float(found[key][-1])) for key in ("t", "x")]
    low, high = zip(*ends, strict=True)
    return Plane(("t", "x"), low, high)


def _span(found: dict[str, Any]) -> float:
    return float(np.abs(found["truth"]).max()) or 1.0


def _inside(found: dict[str, Any], field: np.ndarray) -> np.ndarray:
    """A field with nothing outside the window."""
    low, high = found["window"]
    within = (found["t"] >= low) & (found["t"] <= high)
    return np.where(within[:, None], field, np.nan)


def _sensors(found: dict[str, Any], k: int) -> tuple[np.ndarray, np.ndarray]:
    """Positions x and t of the sensors of a pattern."""
    row, column = np.unravel_index(found[f"index_{k}"], found["truth"].shape)
    return found["x"][column], found["t"][row]


def _window(axis: Axes, found: dict[str, Any]) -> None:
    for end in found["window"]:
        axis.axhline(float(end), color=INK, lw=0.8, ls=(0, (4, 3)))


def _label(axes: list[Axes]) -> None:
    for axis in axes:
        place = axis.get_subplotspec()
        if place is not None and place.is_first_col():
            axis.set_ylabel("t")
        axis.set_xlabel("x" if place is None or place.is_last_row() else "")
        axis.set_xticks([0, 0.5, 1])
        axis.set_yticks([0, 0.25, 0.5, 0.75, 1])
