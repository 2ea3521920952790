"""`Result`: values at points by name, as files of other programs hold them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from lno.data import columns
from lno.data.checks import as_shape, described, is_texts
from lno.data.columns import Column, Ragged, as_real
from lno.data.fields import Fields

Named = dict[str, Float[np.ndarray, "#s n"]]


@dataclass(frozen=True)
class Result:
    """Values at points, of one sample or of several.

    Where samples differ in their number of points, the rest of the shorter ones is NaN.

    Args:
        coordinates: of the points, by name; a first axis of one if all samples share them.
        space: how many of them are positions; the rest are covariates.
        nodes: the points in space, by name, where these are no coordinates: of a deformed mesh.
        values: by name.
        units: of all of these by name, where they are known.
        cells: that connect the points.
        grid: the shape of the grid that the points form.
        index: the flat index of each point in the grid, if some of it are missing; -1: no point.
        frame: what the coordinates are, in words.
    """

    coordinates: Named
    space: int
    nodes: Named
    values: Named
    units: dict[str, str] = field(default_factory=dict)
    cells: Int[np.ndarray, "m k"] | None = None
    grid: tuple[int, ...] | None = None
    index: Int[np.ndarray, "#s n"] | None = None
    frame: str = ""

    def __len__(self) -> int:
        return max(len(v) for v in (*self.values.values(), *self.coordinates.values()))

    @property
    def points(self) -> int:
        """The number of points of a sample."""
        return next(iter(self.coordinates.values())).shape[1]

    @property
    def positions(self) -> list[Float[np.ndarray, "#s n"]]:
        """Of the points in space, coordinate by coordinate."""
        return list(self.nodes.values() or list(self.coordinates.values())[: self.space])


def of_fields(data: Fields) -> Result:
    """The outputs of data."""
    if data.y is None:
        raise ValueError("nothing to write: the data have no outputs y, and no values were passed")
    x, y = (_stacked(column, len(data)) for column in (data.x_query, data.y))
    names = Names()
    coordinates = names.of(data.names["x"], x, data.units["x"])
    key, channels = next(iter((data.geometry or {}).items()), ("", []))
    chosen = [data.names[key].index(name) for name in channels]
    nodes = {}
    if key == "u":
        u = _stacked(data.u, len(data))[..., chosen]
        nodes = names.of(channels, u, [data.units[key][c] for c in chosen])
    values = names.of(data.names["y"], y, data.units["y"])
    if key == "y":
        nodes = {name: values[name] for name in (list(values)[c] for c in chosen)}
    cells = data.cells
    if cells is not None and not columns.is_shared(cells):
        cells = columns.sample(cells, 0) if len(data) == 1 else None
    index = None if data.grid_index is None else _stacked(data.grid_index, len(data))[..., 0]
    return Result(
        coordinates,
        data.space,
        nodes,
        values,
        names.units,
        None if cells is None else np.asarray(cells),
        data.grid,
        index,
        data.frame,
    )


def of_arrays(
    points: Any,
    values: Any,
    names: Mapping[str, Sequence[str]],
    units: Mapping[str, Sequence[str]],
    cells: Any,
    grid: Any,
) -> Result:
    """Values (n, c), (s, n, c) or by name at points (n, d); names and units as in `Fields`."""
    x = as_real("points", points)
    if x.ndim != 2 or 0 in x.shape:
        raise ValueError(f"points: expected positions (n, d) or Fields, got {described(x)}")
    if isinstance(values, Mapping):
        given = {str(name): as_real(f"values[{name!r}]", v) for name, v in values.items()}
        labels, channels = list(given), list(given.values())
    else:
        y = as_real("values", values)
        channels = [y] if y.ndim == 1 else list(np.moveaxis(y, -1, 0))
        labels = _labels("names", "y", names, [f"y{c}" for c in range(len(channels))])
    for name, v in zip(labels, channels, strict=True):
        if v.ndim not in (1, 2) or v.shape[-1] != len(x):
            raise ValueError(
                f"values, {name!r}: expected a number for each of the {len(x)} points, got shape "
                f"{v.shape}"
            )
    shape = None if grid is None else as_shape("grid", grid)
    if shape is not None and prod(shape) != len(x):
        raise ValueError(f"grid: expected a shape of {len(x)} points, got {shape}")
    known, axes = Names(), _labels("names", "x", names, [f"x{k}" for k in range(x.shape[1])])
    coordinates = known.of(axes, x[None], _labels("units", "x", units, [""] * len(axes)))
    labelled = _labels("units", "y", units, [""] * len(labels))
    free = [known.new(*pair) for pair in zip(labels, labelled, strict=True)]
    shown = dict(zip(free, map(np.atleast_2d, channels), strict=True))
    connections = None
    if cells is not None:
        connections = columns.as_array("cells", cells)
        whole = connections.dtype.kind in "iu" and connections.ndim == 2
        if not whole or connections.shape[1] not in (3, 4):
            raise ValueError(f"cells: expected indices (m, 3) or (m, 4), got {described(cells)}")
        if len(connections) and not 0 <= connections.min() <= connections.max() < len(x):
            raise ValueError(f"cells: expected indices of the {len(x)} points")
    return Result(coordinates, x.shape[1], {}, shown, known.units, connections, shape)


def _labels(
    what: str, key: str, given: Mapping[str, Sequence[str]], default: list[str]
) -> list[str]:
    """Names or units of coordinates ("x") or channels ("y"), one for each."""
    found = given.get(key, default)
    if not is_texts(found) or len(found) != len(default):
        raise ValueError(f"{what}[{key!r}]: expected {len(default)} texts, got {described(found)}")
    return list(found)


class Names:
    """Names that are all different: a second `x` becomes `x_2`.

    >>> names = Names()
    >>> names.new("x"), names.new("p", "Pa"), names.new("x"), names.units
    ('x', 'p', 'x_2', {'x': '', 'p': 'Pa', 'x_2': ''})
    """

    def __init__(self) -> None:
        self.units: dict[str, str] = {}

    def new(self, name: str, unit: str = "") -> str:
        """A name that is not taken yet."""
        free, count = name, 1
        while free in self.units:
            count += 1
            free = f"{name}_{count}"
        self.units[free] = unit
        return free

    def of(self, names: Sequence[str], values: np.ndarray, units: Sequence[str]) -> Named:
        """The channels of values (#s, n, c) by name, without copying them."""
        triples = zip(names, np.moveaxis(values, -1, 0), units, strict=True)
        return {self.new(name, unit): channel for name, channel, unit in triples}


def _stacked(column: Column, count: int) -> np.ndarray:
    """A column as one array (#s, n, c), with a first axis of one if all samples share it.

    Samples with fewer points than others end with NaN, or -1 of integers.
    """
    if isinstance(column, Ragged):
        nothing = np.nan if column.dtype.kind == "f" else -1
        shape = (count, int(column.sizes.max()), columns.channels(column))
        whole = np.full(shape, nothing, column.dtype)
        for k, size in enumerate(column.sizes):
            whole[k, :size] = column[k]
        return whole
    values = np.asarray(column)
    return values[None] if columns.is_shared(column) else values
