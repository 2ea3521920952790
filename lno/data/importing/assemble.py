"""From the variables of files to the columns of `Fields`: (samples, points, channels)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from lno.data import columns
from lno.data.columns import Column
from lno.data.foreign import ForeignFileError
from lno.data.grids import unit_axis
from lno.data.importing.arrange import CHANNEL, SAMPLE, Arrangement, by_names
from lno.data.importing.shapes import by_shapes
from lno.data.imports.source import Source
from lno.data.mapping import Layout, Roles, Term

# The columns of `Fields` that a role fills.
FILLS = {"inputs": "u", "outputs": "y", "background": "background"}
LETTERS = ("x", "y", "z")


@dataclass(frozen=True)
class Seen:
    """What was seen of the variables of a file, by their names.

    Args:
        axes: what their axes were taken for.
        low, high: the range of their values.
        missing: the share of values that are NaN.
        unit_grid: whether the coordinates are those of the unit grid.
    """

    axes: dict[str, tuple[str, ...]]
    low: dict[str, float]
    high: dict[str, float]
    missing: dict[str, float]
    unit_grid: bool


@dataclass(frozen=True)
class Piece:
    """The samples of one file, points without a value included.

    Args:
        columns: of `Fields`, by name.
        parameters: (s, p).
        grid: the shape of the grid of the points.
        count: of samples.
        names, units: of coordinates, channels and parameters, as in `Fields`.
        space: how many coordinates are positions.
        seen: what was seen of the variables.
    """

    columns: dict[str, Column]
    parameters: np.ndarray | None
    grid: tuple[int, ...] | None
    count: int
    names: dict[str, list[str]]
    units: dict[str, list[str]]
    space: int
    seen: Seen


def assemble(source: Source, roles: Roles, layout: Layout) -> Piece:
    """The samples of a file."""
    used = [term.variable for _, terms in roles.each() for term in terms]
    named = all(source.variables[name].axes is not None for name in used)
    found = (by_names if named else by_shapes)(source, roles, layout)
    count = 1 if found.samples is None else found.samples
    build = _Builder(source, found, layout, count)
    parts: dict[str, Column] = {}
    parts["x"] = build.positions(roles.covariates)
    for role, key in FILLS.items():
        if terms := getattr(roles, role):
            parts[key] = build.values(role, key, terms)
    for term in roles.weights:
        parts["weights"] = build.single(term)
    for term in roles.cells:
        parts["cells"] = _cells(source, term, count, prod(n for _, n in found.points))
    parameters = build.parameters(roles.parameters) if roles.parameters else None
    shape = tuple(n for _, n in found.points)
    unit_grid = any(isinstance(c, str) for c in found.coordinates)
    seen = Seen(found.axes, build.low, build.high, build.missing, unit_grid)
    grid = shape if found.is_grid else None
    return Piece(parts, parameters, grid, count, build.names, build.units, build.space, seen)


class _Builder:
    """Arrays of one file, with the names and units of their columns."""

    def __init__(self, source: Source, found: Arrangement, layout: Layout, count: int) -> None:
        self.source, self.found, self.layout, self.count = source, found, layout, count
        self.points = tuple(name for name, _ in found.points)
        self.shape = tuple(n for _, n in found.points)
        self.names: dict[str, list[str]] = {}
        self.units: dict[str, list[str]] = {}
        self.low: dict[str, float] = {}
        self.high: dict[str, float] = {}
        self.missing: dict[str, float] = {}
        self.space = 0

    def positions(self, covariates: Sequence[Term]) -> np.ndarray:
        """(n, d), or (s, n, d) where they differ between samples."""
        parts = []
        for place in (*self.found.coordinates, *covariates):
            if isinstance(place, str):
                axis = unit_axis(dict(self.found.points)[place], self.layout.grid)
                parts.append(self._spread(axis, (place,), samples=False))
                self._label("x", [place], "")
            else:
                values, axes = self._read(place)
                parts.append(self._spread(values, axes, samples=SAMPLE in axes))
                generic = place in self.found.coordinates
                self._label("x", _column_names(self.source, place, parts[-1], generic), place)
            if place in self.found.coordinates:
                self.space = len(self.names["x"])
        together = max(len(part) for part in parts)
        whole = [np.broadcast_to(p, (together, *p.shape[1:])) for p in parts]
        x = np.concatenate(whole, -1)
        return x if together > 1 else x[0]

    def values(self, role: str, key: str, terms: Sequence[Term]) -> np.ndarray:
        """(s, n, c)."""
        parts = []
        for term in terms:
            values, axes = self._read(term)
            part = self._spread(values, axes, samples=SAMPLE in axes)
            parts.append(np.broadcast_to(part, (self.count, *part.shape[1:])))
            self._label(key, _column_names(self.source, term, part), term)
        return parts[0] if len(parts) == 1 else np.concatenate(parts, -1)

    def single(self, term: Term) -> np.ndarray:
        """One number a point: (n, 1) or (s, n, 1)."""
        values, axes = self._read(term)
        part = self._spread(values, axes, samples=SAMPLE in axes)
        if part.shape[-1] != 1:
            raise ForeignFileError(
                f"{self.source.name}, {term.variable}: expected one number for each point, got "
                f"{part.shape[-1]}"
            )
        return part if len(part) > 1 else part[0]

    def parameters(self, terms: Sequence[Term]) -> np.ndarray:
        """(s, p)."""
        parts = []
        for term in terms:
            values, axes = self._read(term)
            if set(axes) & set(self.points):
                values, axes = self._constant(term, values, axes), (SAMPLE,)
            order = [axes.index(SAMPLE)] if SAMPLE in axes else []
            order += [k for k in range(len(axes)) if k not in order]
            rows = values.transpose(order).reshape(self.count if SAMPLE in axes else 1, -1)
            parts.append(np.broadcast_to(rows, (self.count, rows.shape[1])))
            self._label("parameters", _column_names(self.source, term, rows), term)
        return np.concatenate(parts, -1)

    def _constant(self, term: Term, values: np.ndarray, axes: tuple[str, ...]) -> np.ndarray:
        """One number a sample, of a column that repeats it at every point."""
        rows = self._spread(values, axes, samples=SAMPLE in axes)
        low, high = (f(rows, axis=(1, 2)) for f in (np.min, np.max))
        if np.any(low != high):
            k = int(np.argmax(low != high))
            where = f", sample {k}" if len(rows) > 1 else ""
            raise ForeignFileError(
                f"{self.source.name}{where}: the parameter {term.variable!r} goes from "
                f"{low[k]:g} to {high[k]:g} within a sample: expected one number. If it changes "
                "from point to point, it is an input or a covariate"
            )
        return np.broadcast_to(low, (self.count,))

    def _read(self, term: Term) -> tuple[np.ndarray, tuple[str, ...]]:
        variable = self.source.variables[term.variable]
        values, axes = (
            columns.as_real(variable.name, variable.read()),
            self.found.axes[variable.name],
        )
        if values.shape != variable.shape:
            raise ForeignFileError(f"{self.source.name}, {variable.name}: damaged: other shape")
        if values.size == 0:
            raise ForeignFileError(f"{self.source.name}: {variable.described()} holds no values")
        absent = np.isnan(values)
        self.missing[variable.name] = float(absent.mean())
        if not absent.all():
            self.low[variable.name] = float(np.nanmin(values))
            self.high[variable.name] = float(np.nanmax(values))
        return values, axes

    def _spread(self, values: np.ndarray, axes: tuple[str, ...], samples: bool) -> np.ndarray:
        """(s or 1, n, c), repeated along the axes of points that it does not have."""
        wanted = [SAMPLE] * samples + list(self.points)
        order = [axes.index(axis) for axis in wanted if axis in axes]
        order += [k for k, axis in enumerate(axes) if axis == CHANNEL]
        moved = values.transpose(order)
        spread = [n if axis in axes else 1 for axis, n in self.found.points]
        rows = self.count if samples else 1
        inner = moved.reshape(rows, *spread, -1)
        whole = np.broadcast_to(inner, (rows, *self.shape, inner.shape[-1]))
        return whole.reshape(rows, prod(self.shape), -1)

    def _label(self, key: str, names: Sequence[str], term: Term | str) -> None:
        given = dict(self.layout.units or {})
        own = "" if isinstance(term, str) else self.source.variables[term.variable].unit
        whole = "" if isinstance(term, str) else given.get(term.variable, own)
        self.names.setdefault(key, []).extend(names)
        self.units.setdefault(key, []).extend(given.get(name, whole) for name in names)


def _column_names(
    source: Source, term: Term, values: np.ndarray, is_position: bool = False
) -> list[str]:
    """The names that the user gives, or those of the variable."""
    count = values.shape[-1]
    if term.columns:
        if len(term.columns) != count:
            raise ForeignFileError(
                f"{source.name}: {term.variable} has {count} columns, and {len(term.columns)} "
                f"names were given: {', '.join(term.columns)}. If one of them is another variable, "
                "name it separately"
            )
        return list(term.columns)
    if count == 1:
        return [term.variable]
    if is_position and count <= len(LETTERS):
        return list(LETTERS[:count])
    one = "parameter" if term.variable == "parameters" else term.variable
    return [f"{one}{k}" for k in range(count)]


def _cells(source: Source, term: Term, count: int, points: int) -> np.ndarray:
    """Corners of triangles or quadrilaterals, counted from 0."""
    values = source.variables[term.variable].read()
    corners = values.shape[-1] if values.ndim in (2, 3) else 0
    if values.ndim == 2 and corners not in (3, 4) and len(values) in (3, 4):
        values = values.T  # MATLAB keeps a triangle in a column
    whole = values.dtype.kind in "iu" or np.array_equal(values, np.round(values))
    if values.ndim not in (2, 3) or values.shape[-1] not in (3, 4) or not whole:
        raise ForeignFileError(
            f"{source.name}, {term.variable}: expected the numbers of the corners of cells, (cells,"
            f" 3 or 4), got {values.dtype} of shape {values.shape}"
        )
    if values.ndim == 3 and len(values) != count:
        raise ForeignFileError(
            f"{source.name}, {term.variable}: expected cells of {count} samples, got {len(values)}"
        )
    corners_from_0 = values.astype(np.int64)
    if values.size and values.min() == 1 and values.max() == points:
        corners_from_0 -= 1  # counted from 1, as in MATLAB
    return corners_from_0


def join(pieces: Sequence[Piece], sources: Sequence[Source]) -> Piece:
    """The samples of several files, one after the other."""
    first = pieces[0]
    if len(pieces) == 1:
        return first
    for piece, source in zip(pieces, sources, strict=True):
        if piece.names != first.names:
            raise ForeignFileError(
                f"{source.name}: has {_listed(piece.names)}, {sources[0].name} has "
                f"{_listed(first.names)}: expected files of one kind"
            )
        for key, names in piece.names.items():
            for name, own, other in zip(names, piece.units[key], first.units[key], strict=True):
                if own != other:
                    raise ForeignFileError(
                        f"{source.name}: {name} has the unit {own or 'none'}, in {sources[0].name} "
                        f"{other or 'none'}: convert the values, or, if they are the same, set the "
                        f"unit of all files (units: {name}={own or other})"
                    )
    counts = [piece.count for piece in pieces]
    joined: dict[str, Column] = {
        key: columns.concatenate([piece.columns[key] for piece in pieces], counts)
        for key in first.columns
    }
    parameters = [p.parameters for p in pieces if p.parameters is not None]
    low: dict[str, float] = {}
    high: dict[str, float] = {}
    missing: dict[str, float] = {}
    for seen in (piece.seen for piece in pieces):
        low |= {k: min(v, low.get(k, v)) for k, v in seen.low.items()}
        high |= {k: max(v, high.get(k, v)) for k, v in seen.high.items()}
        missing |= {k: v / len(pieces) + missing.get(k, 0.0) for k, v in seen.missing.items()}
    grids = {piece.grid for piece in pieces}
    return replace(
        first,
        columns=joined,
        parameters=np.concatenate(parameters) if parameters else None,
        grid=first.grid if len(grids) == 1 else None,
        count=sum(counts),
        seen=replace(first.seen, low=low, high=high, missing=missing),
    )


def _listed(names: Mapping[str, Sequence[str]]) -> str:
    return "; ".join(f"{key}: {', '.join(value)}" for key, value in names.items())


def take_remainder(piece: Piece, period: Mapping[str, float]) -> tuple[Piece, list[str]]:
    """The piece with parameters modulo their periods, and what was done, in words."""
    if piece.parameters is None:
        return piece, []
    parameters, units, notes = piece.parameters.copy(), list(piece.units["parameters"]), []
    for k, name in enumerate(piece.names["parameters"]):
        if name in period:
            rest = np.mod(parameters[:, k], period[name])
            rest[rest == period[name]] = 0  # just below zero it is rounded
            parameters[:, k] = rest
            units[k] = units[k].partition(" since ")[0]  # it starts again and again
            notes.append(
                f"{name}: modulo {period[name]:g}, {np.nanmin(rest):g} to {np.nanmax(rest):g}"
            )
    return replace(piece, parameters=parameters, units={**piece.units, "parameters": units}), notes


def take_logarithm(piece: Piece, names: Sequence[str]) -> tuple[Piece, dict[str, Any]]:
    """The piece with the logarithms of some columns, and what was done, for the provenance."""
    keys = {name: [k for k, own in piece.names.items() if name in own] for name in names}
    parts, parameters = dict(piece.columns), piece.parameters
    labels = {key: list(own) for key, own in piece.names.items()}
    units = {key: list(own) for key, own in piece.units.items()}
    for name, found in keys.items():
        for key in found:
            k = piece.names[key].index(name)
            if key == "parameters" and parameters is not None:
                parameters = _logged(name, parameters, k)
            else:
                parts[key] = _map(parts[key], name, k)
            if key == "y" and "background" in parts:  # of the same channel
                parts["background"] = _map(parts["background"], name, k)
            labels[key][k] = f"log({name})"
            units[key][k] = units[key][k] and f"log({units[key][k]})"
    done = {"natural logarithm of": list(names)} if names else {}
    return replace(piece, columns=parts, parameters=parameters, names=labels, units=units), done


def _map(column: Column, name: str, k: int) -> Column:
    if isinstance(column, columns.Ragged):
        return columns.Ragged(_logged(name, column.flat, k), column.starts, column.stops)
    return _logged(name, np.asarray(column), k)


def _logged(name: str, values: np.ndarray, k: int) -> np.ndarray:
    """Values (..., c) with the logarithm of channel k; NaN stays: not there."""
    here = values[..., k]
    if np.any(here <= 0):
        bad = int((here <= 0).sum())
        raise ForeignFileError(
            f"log of {name}: expected positive numbers, got {bad:,} that are not, down to "
            f"{np.nanmin(here):g}"
        )
    whole = values.copy()
    whole[..., k] = np.log(here)
    return whole
