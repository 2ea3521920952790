"""What was understood of files that were imported, in words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lno.data.grids import POINTS
from lno.data.importing.assemble import Piece
from lno.data.importing.guesses import unused
from lno.data.importing.shapes import FEW
from lno.data.imports.source import Source, Variable
from lno.data.mapping import FILE, Layout, Roles

HEADER = ["read as", "variable", "shape", "axes", "values"]


def table_of(
    source: Source,
    roles: Roles,
    layout: Layout,
    piece: Piece,
    given: tuple[Roles, Layout],
) -> list[list[str]]:
    """A row for each variable of a file: what it was read as, its shape, axes and values.

    Args:
        source: the first file.
        roles: of its variables.
        layout: of its variables.
        piece: what was read.
        given: the roles and the layout that the user gave; the others were guessed.
    """
    named, asked = given
    rows = []

    def add(what: str, variable: Variable, is_given: bool) -> None:
        axes = ", ".join(piece.seen.axes.get(variable.name, ()))
        words = what if is_given else f"{what} (guessed)"
        rows.append([words, variable.name, _shape(variable), axes, _values(piece, variable)])

    if layout.sample is not None and layout.sample in source.variables:
        own = source.variables[layout.sample]
        rows.append(
            ["sample" + " (guessed)" * (asked.sample is None), own.name, _shape(own), "", ""]
        )
    for name in layout.axes:
        add("axis", source.variables[name], bool(asked.axes))
    for role, terms in roles.each():
        for term in terms:
            add(role, source.variables[term.variable], bool(getattr(named, role)))
    if layout.time is not None:
        add("time", source.variables[layout.time], asked.time is not None)
    coordinates = [n for n in piece.seen.axes if n not in {row[1] for row in rows}]
    for name in coordinates:
        add("positions", source.variables[name], False)
    left = [v for v in unused(source, roles, layout) if v.name not in coordinates]
    rows += [["not used", v.name, _shape(v), ", ".join(v.axes or ()), ""] for v in left]
    return rows


def notes_on(sources: Sequence[Source], layout: Layout, piece: Piece, in_rows: bool) -> list[str]:
    """What was assumed of samples and grids, in sentences."""
    notes = []
    if len(sources) == 1 and piece.count == 1:
        notes.append(
            "one sample only: enough to predict from, not to train on. Name several files, or what "
            "tells samples apart (sample)"
        )
        if len(piece.names.get("y", [])) > FEW:
            notes[-1] += ". If the last axis is that of the samples: sample -1"
    elif in_rows and layout.sample not in (None, FILE):
        notes.append(f"{piece.count} samples, one for each value of {layout.sample}")
    elif piece.count == len(sources):
        notes.append(f"{piece.count} samples, one for each file")
    else:
        notes.append(f"{piece.count} samples")
    if piece.seen.unit_grid and piece.grid is not None:
        sides = piece.grid[: len(piece.grid) - (layout.time is not None)]
        shape = " × ".join(map(str, sides))
        box = {1: "interval", 2: "square", 3: "cube"}.get(len(sides), "box")
        notes.append(
            f"no coordinates were named: the points are a grid {shape} of the unit {box}, "
            f"{POINTS[layout.grid]}"
        )
        if layout.grid == "endpoints":
            others = " or ".join(name for name in POINTS if name != layout.grid)
            notes[-1] += f". If that is wrong, say grid: {others}, or name axes or positions"
            notes += _lacks_an_end(piece)
    elif piece.grid is not None:
        notes.append(f"grid {' × '.join(map(str, piece.grid))}")
    if layout.log:
        notes.append(
            f"the natural logarithm of {', '.join(layout.log)} is kept: predictions of it are "
            "logarithms too"
        )
    return notes


def _lacks_an_end(piece: Piece) -> list[str]:
    """Whether outputs have boundary values at the lower ends of a grid, and none at the upper."""
    y = piece.columns.get("y")
    if y is None or piece.grid is None or piece.count < 2:
        return []
    values = np.asarray(y).reshape(piece.count, *piece.grid, -1)
    scale = float(np.std(values))  # NaN where points are missing: nothing is said then
    fixed = []
    for axis, name in enumerate(piece.names["x"][: len(piece.grid)]):
        first, last = (
            float(np.median(np.std(np.take(values, k, axis + 1), axis=0))) for k in (0, -1)
        )
        fixed += [name] if first < 0.02 * scale < 0.1 * scale < last else []
    if not fixed:
        return []
    return [
        f"along {' and '.join(fixed)} all samples have the same outputs at the first points, not at"
        " the last ones: if both are the boundary, the grid lacks its upper end (grid: no-endpoint)"
    ]


def _shape(variable: Variable) -> str:
    return " × ".join(map(str, variable.shape)) or "one number"


def _values(piece: Piece, variable: Variable) -> str:
    seen, name = piece.seen, variable.name
    if name not in seen.missing:
        return ""
    if name not in seen.low:
        return "all NaN"
    share = f", {100 * seen.missing[name]:.1f} % NaN" if seen.missing[name] else ""
    unit = f" {variable.unit}" if variable.unit else ""
    return f"{seen.low[name]:.4g} to {seen.high[name]:.4g}{unit}{share}"
