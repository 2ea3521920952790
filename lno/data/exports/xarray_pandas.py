"""`Fields` as the parts of an `xarray.Dataset` or a `pandas.DataFrame`."""

from __future__ import annotations

import json
from math import prod
from typing import Any

import numpy as np

from lno.data import columns
from lno.data.fields import Fields
from lno.data.grids import regular_axes

SAMPLE = "sample"
Part = tuple[tuple[str, ...], np.ndarray, dict[str, str]]  # axes, values, attributes


def dataset_parts(fields: Fields) -> tuple[dict[str, Part], dict[str, Part], dict[str, str]]:
    """Coordinates, variables and attributes of a Dataset."""
    coordinates: dict[str, Part] = {}
    variables: dict[str, Part] = {}
    taken = [*fields.names["x"], *fields.names["y"], *fields.names.get("parameters", [])]
    asked = _places(fields, coordinates, "x_query", "point")
    given = asked
    if not fields.same_points:
        given = _places(fields, coordinates, "x", "observed point")
    for key, (axes, shape, rows) in (("u", given), ("y", asked)):
        column = fields.column(key)
        if column is None or columns.channels(column) == 0:
            continue
        values = _filled(column, len(fields), rows, prod(shape))
        for k, name in enumerate(fields.names[key]):
            free = name if key == "y" or name not in taken else f"{name} (input)"
            whole = values[..., k].reshape(len(fields), *shape)
            variables[free] = ((SAMPLE, *axes), whole, _unit(fields, key, k))
    if fields.parameters is not None:
        for k, name in enumerate(fields.names["parameters"]):
            variables[name] = ((SAMPLE,), fields.parameters[:, k], _unit(fields, "parameters", k))
    attributes = {"frame": fields.frame, "provenance": json.dumps(fields.provenance)}
    return coordinates, variables, attributes


def table_columns(fields: Fields) -> dict[str, np.ndarray]:
    """Columns of a table with a row for each point."""
    names = fields.names
    inputs = [n if n not in (*names["x"], *names["y"]) else f"{n} (input)" for n in names["u"]]
    found: dict[str, list[np.ndarray]] = {}
    for k, sample in enumerate(fields):
        places = [(sample.x_query, sample.u if fields.same_points else None, sample.y)]
        if not fields.same_points:
            places.insert(0, (sample.x, sample.u, None))
        for x, u, y in places:
            row: dict[str, Any] = {SAMPLE: np.full(len(x), k)}
            row |= dict(zip(names["x"], x.T, strict=True))
            row |= _channels(inputs, u, len(x)) | _channels(names["y"], y, len(x))
            for p, name in enumerate(names.get("parameters", [])):
                assert sample.parameters is not None
                row[name] = np.full(len(x), sample.parameters[p])
            for name, values in row.items():
                found.setdefault(name, []).append(values)
    return {name: np.concatenate(parts) for name, parts in found.items()}


def _channels(names: list[str], values: np.ndarray | None, count: int) -> dict[str, np.ndarray]:
    if values is None:
        return {name: np.full(count, np.nan) for name in names}
    return dict(zip(names, values.T, strict=True))


Place = tuple[tuple[str, ...], tuple[int, ...], list[np.ndarray] | None]


def _places(fields: Fields, coordinates: dict[str, Part], key: str, point: str) -> Place:
    """Axes and shape of the points, and the place of each sample's points among them."""
    x, names = getattr(fields, key), fields.names["x"]
    axes = _grid_axes(fields) if key == "x_query" else None
    if axes is not None:
        assert fields.grid is not None
        for k, values in enumerate(axes):
            coordinates[names[k]] = ((names[k],), values, _unit(fields, "x", k))
        index = fields.grid_index
        rows = None
        if index is not None:
            rows = [columns.sample(index, k)[:, 0] for k in range(len(fields))]
        return tuple(names), fields.grid, rows
    sizes = columns.sizes(x, len(fields))
    shape = (int(sizes.max()),)
    rows = None if (sizes == shape[0]).all() else [np.arange(n) for n in sizes]
    shared = columns.is_shared(x)
    values = columns.sample(x, 0) if shared else _filled(x, len(fields), rows, shape[0])
    for k, name in enumerate(names):
        label = name if point == "point" else f"{name} (observed)"
        own = (point,) if shared else (SAMPLE, point)
        coordinates[label] = (own, values[..., k], _unit(fields, "x", k))
    return (point,), shape, rows


def _grid_axes(fields: Fields) -> list[np.ndarray] | None:
    """The coordinates along the axes of the grid, if they are those of its points."""
    x, grid = fields.x_query, fields.grid
    if grid is None or len(grid) != columns.channels(x) or fields.space < len(grid):
        return None
    several = range(1 if columns.is_shared(x) else len(fields))
    places = np.concatenate([columns.sample(x, k) for k in several]).astype(np.float64)
    index = fields.grid_index
    every = np.arange(prod(grid))
    rows = [every if index is None else columns.sample(index, k)[:, 0] for k in several]
    axes = regular_axes(grid, np.concatenate(rows), places.T, 0.0)
    distinct = axes is not None and all(len(np.unique(axis)) == len(axis) for axis in axes)
    return axes if distinct else None


def _filled(
    column: columns.Column, count: int, rows: list[np.ndarray] | None, points: int
) -> np.ndarray:
    """(s, points, c), with NaN where a sample has no point."""
    if rows is None:
        return np.asarray(column)
    whole = np.full((count, points, columns.channels(column)), np.nan, column.dtype)
    for k, index in enumerate(rows):
        whole[k, index] = columns.sample(column, k)
    return whole


def _unit(fields: Fields, key: str, k: int) -> dict[str, str]:
    unit = fields.units[key][k]
    return {"units": unit} if unit else {}
