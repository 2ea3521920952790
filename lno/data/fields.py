"""`Fields`: the data set class that the whole package uses."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from lno.config import require_count
from lno.data import checks, columns
from lno.data.batch import Batch
from lno.data.columns import Column, Index, as_column, as_single_column, to_tensor
from lno.data.exchange import Exchange
from lno.data.spec import Sample, Spec
from lno.text import visible

COLUMNS = ("x", "u", "x_query", "y", "weights", "query_weights", "background")
INDEX_COLUMNS = ("cells", "grid_index")  # of whole numbers


class Fields(Exchange):
    """Samples of an operator: values u observed at points x, and outputs y at points x_query.

    Args:
        x: positions of the observations: an array (s, n, d); one array (n, d) shared by all
            samples; or a list of arrays (n_k, d) when samples differ in size.
        u: values there: an array (s, n, i) or a list of arrays (n_k, i). None: no values (i = 0).
        x_query: query points, like `x`. None: the same as `x`.
        y: the outputs, an array (s, q, o) or a list of arrays (q_k, o). None: not known.
        parameters: numbers per sample (load, speed, viscosity), an array (s, p). Models
            read them as input channels.
        weights: the size (length, area, volume) that each observed point represents: (n,) shared,
            (s, n), or a list. Used where a recipe asks for it (`Recipe.weighted`).
        query_weights: the same for the query points. None: `weights` where the points are the same.
        background: a known first guess of the outputs, like `y`. Operators learn the difference.
        cells: triangles or quadrilaterals that connect the query points, for pictures and mesh
            files: indices (m, 3) or (m, 4) shared by all samples, or a list of such arrays.
        grid: the shape of the grid that the query points form, in C order.
        grid_index: for samples that lack some points of the grid: the flat index in the grid of
            each query point, (q,) shared, (s, q), or a list.
        geometry: which channels hold the positions of the nodes, if `x` are only reference
            coordinates: `{"u": ["x", "y"]}` or `{"y": [...]}`. None: the positions are `x_query`.
        space: how many leading coordinates are positions. The others are covariates (elevation,
            wall distance): inputs of models, not of distances. None: all are positions.
        period: the period of each coordinate, None for those that have none.
        sphere: the names of the coordinates that are latitude and longitude in degrees. Models and
            distances then see points of a sphere, and `weights` are cos(latitude) unless given.
        names: names of coordinates and channels, `{"x": [...], "u": [...], "y": [...],
            "parameters": [...]}`.
        units: units of coordinates and channels, in the same form.
        frame: what the coordinates are, in words: "reference grid", "EPSG:4326", ...
        provenance: where the data come from; anything that JSON can hold.

    Single precision stays single, double stays double, integers become floats. Wrong shapes, NaN
    and different values at the same point raise an error that names the column and the sample.

    >>> x = np.linspace(0, 1, 5)[:, None]
    >>> f = Fields(x, u=np.ones((3, 5, 1)), y=np.zeros((3, 5, 2)), names={"x": ["t"]})
    >>> len(f), f.spec
    (3, Spec(coordinates=1, in_channels=1, out_channels=2, grid=None, periodic=()))
    >>> train, test = f.split(2, 1)
    """

    def __init__(
        self,
        x: Any,
        u: Any = None,
        x_query: Any = None,
        y: Any = None,
        *,
        parameters: Any = None,
        weights: Any = None,
        query_weights: Any = None,
        background: Any = None,
        cells: Any = None,
        grid: Sequence[int] | None = None,
        grid_index: Any = None,
        geometry: Mapping[str, Sequence[str]] | None = None,
        space: int | None = None,
        period: Sequence[float | None] | None = None,
        sphere: Sequence[str] | None = None,
        names: Mapping[str, Sequence[str]] | None = None,
        units: Mapping[str, Sequence[str]] | None = None,
        frame: str = "",
        provenance: Mapping[str, Any] | None = None,
    ) -> None:
        def optional(name: str, values: Any, **how: Any) -> Column | None:
            return None if values is None else as_column(name, values, **how)

        def single(name: str, values: Any, points: Column, **how: Any) -> Column | None:
            return None if values is None else as_single_column(name, values, points, **how)

        self.x = as_column("x", x, shareable=True)
        self._x_query = optional("x_query", x_query, shareable=True)
        self.y = optional("y", y, shareable=False)
        self.background = optional("background", background, shareable=False)
        asked = self.x if self._x_query is None else self._x_query
        self.weights = single("weights", weights, self.x)
        self.query_weights = single("query_weights", query_weights, asked)
        self.cells = optional("cells", cells, shareable=True, integers=True)
        self.grid_index = single("grid_index", grid_index, asked, integers=True)
        self.parameters = checks.as_parameters(parameters)
        self.u: Any = optional("u", u, shareable=False)
        self._count = self._count_samples()
        self.u = self._no_values() if self.u is None else self.u
        self.grid = None if grid is None else checks.as_shape("grid", grid)
        self.period = None if period is None else checks.as_period(period)
        coordinates = columns.channels(self.x)
        if space is not None:
            require_count("space", space, 10**12)
        self.space = coordinates if space is None else space
        self.names = checks.labels(self, "names", names)
        self.units = checks.labels(self, "units", units)
        self.geometry = checks.as_geometry(self, geometry)
        self.sphere = checks.as_sphere(self, sphere)
        checks.require_instance("frame", frame, str, "a text like 'reference grid'")
        origin = {} if provenance is None else provenance
        checks.require_instance("provenance", origin, Mapping, "a mapping of plain JSON")
        self.frame, self.provenance = str(frame), dict(origin)
        self._digest: str | None = None
        checks.check_shapes(self)
        if self.sphere is not None and self.weights is None and self.query_weights is None:
            self.weights = checks.areas(self, self.x)
            self.query_weights = None if self.same_points else checks.areas(self, self.x_query)
        checks.check_values(self)

    # -- reading ---------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, k: int) -> Sample:
        checks.require_instance("index", k, int | np.integer, "the number of a sample")
        if not -len(self) <= k < len(self):
            raise IndexError(f"no sample {k}: these data have {len(self)}, counted from 0")
        at = k % len(self)

        def values(column: Column | None) -> Any:
            return None if column is None else columns.sample(column, at)

        def single(column: Column | None) -> Any:
            return None if column is None else columns.sample(column, at)[:, 0]

        return Sample(
            values(self.x),
            values(self.u),
            values(self.x_query),
            values(self.y),
            None if self.parameters is None else self.parameters[at],
            single(self.weights),
            single(self.query_weights),
            values(self.background),
            values(self.cells),
            single(self.grid_index),
        )

    def __iter__(self) -> Iterator[Sample]:
        return (self[k] for k in range(len(self)))

    @property
    def x_query(self) -> Column:
        """Query points: the observed points unless others were given."""
        return self.x if self._x_query is None else self._x_query

    @property
    def same_points(self) -> bool:
        """Whether the query points are the observed points."""
        return self._x_query is None

    @property
    def is_ragged(self) -> bool:
        """Whether samples differ in their number of points."""
        return any(isinstance(c, columns.Ragged) for c in (self.x, self.x_query))

    @property
    def spec(self) -> Spec:
        """The sizes that a model of these data needs; parameters count as input channels."""
        inputs = columns.channels(self.u)
        inputs += 0 if self.parameters is None else self.parameters.shape[1]
        out = 0 if self.y is None else columns.channels(self.y)
        whole = self.grid if self.grid_index is None else None
        coordinates = columns.channels(self.x)
        periodic: tuple[bool, ...] = ()
        if self.period is not None and whole is not None and len(whole) == coordinates:
            periodic = tuple(p is not None for p in self.period)
        return Spec(coordinates, inputs, out, whole, periodic if any(periodic) else ())

    @property
    def digest(self) -> str:
        """SHA-256 of all values, their shapes and their meaning, but not of their origin."""
        if self._digest is None:
            digest = hashlib.sha256(json.dumps(self.meaning(), sort_keys=True).encode())
            for name, column in self._columns():
                if column is None:
                    continue
                digest.update(f"{name}:{column.dtype}:{columns.channels(column)}".encode())
                digest.update(columns.sizes(column, len(self)).tobytes())
                for values in columns.samples(column, len(self)):
                    digest.update(np.ascontiguousarray(values).data)
            if self.parameters is not None:
                digest.update(f"parameters:{self.parameters.dtype}".encode())
                digest.update(np.ascontiguousarray(self.parameters).data)
            self._digest = digest.hexdigest()
        return self._digest

    def meaning(self) -> dict[str, Any]:
        """Metadata: grid, period, names, units, frame; geometry, space and sphere if given."""
        keys = ["grid", "period", "names", "units", "frame"]
        keys += ["geometry"] * (self.geometry is not None)
        keys += ["space"] * (self.space < columns.channels(self.x))
        keys += ["sphere"] * (self.sphere is not None)
        return {key: getattr(self, key) for key in keys}

    @property
    def sphere_axes(self) -> tuple[int, int] | None:
        """Which coordinates are latitude and longitude."""
        if self.sphere is None:
            return None
        return self.names["x"].index(self.sphere[0]), self.names["x"].index(self.sphere[1])

    def column(self, name: str) -> Column | None:
        """A stored column by name; None for `x_query` where it is the same as `x`."""
        return self._x_query if name == "x_query" else getattr(self, name)

    def geometry_of(self, k: int) -> np.ndarray:
        """Positions in space of the query points of sample k, (q, 1) to (q, 3), for plots."""
        sample = self[k]
        if self.geometry is None:
            return sample.x_query[:, : self.space]
        [(key, channels)] = self.geometry.items()
        values = getattr(sample, key)
        return values[:, [self.names[key].index(name) for name in channels]]

    def batch(self, index: ArrayLike) -> Batch:
        """The samples at `index` as tensors; ragged samples are padded and masked, others never."""
        chosen = checks.as_index(index, len(self))

        def values(column: Column | None) -> Any:
            return None if column is None else to_tensor(column, chosen)[0]

        def single(column: Column | None) -> Any:
            return None if column is None else values(column)[..., 0]

        x, mask = to_tensor(self.x, chosen)
        q, query_mask = (x, mask) if self.same_points else to_tensor(self.x_query, chosen)
        parameters = None if self.parameters is None else values(self.parameters[:, None])[:, 0]
        weights, query_weights = single(self.weights), single(self.query_weights)
        if query_weights is None and self.same_points:
            query_weights = weights
        extra = (parameters, weights, query_weights, values(self.background))
        return Batch(x, values(self.u), q, values(self.y), mask, query_mask, *extra)

    # -- arranging -------------------------------------------------------------------------------

    def subset(self, index: ArrayLike) -> Fields:
        """The samples at `index`, in that order."""
        chosen = checks.as_index(index, len(self))
        new = {n: None if c is None else columns.take(c, chosen) for n, c in self._columns()}
        parameters = None if self.parameters is None else self.parameters[chosen]
        return self._with(new, parameters, len(chosen))

    def split(self, *counts: int) -> tuple[Fields, ...]:
        """Consecutive parts of the given numbers of samples."""
        whole = all(
            isinstance(c, int | np.integer) and not isinstance(c, bool) and c > 0 for c in counts
        )
        if not counts or not whole or sum(counts) > len(self):
            raise ValueError(
                f"cannot split {len(self)} samples into {counts}: expected positive numbers that "
                f"add up to at most {len(self)}"
            )
        ends = np.cumsum(counts)
        return tuple(self.subset(np.arange(e - c, e)) for c, e in zip(counts, ends, strict=True))

    def shuffle(self, seed: int) -> Fields:
        """The same samples in a random order that `seed` decides."""
        require_count("seed", seed, 2**63, least=0)
        return self.subset(np.random.default_rng(seed).permutation(len(self)))

    def replace(self, **changes: Any) -> Fields:
        """The same data with some arguments of the constructor changed."""
        same = dict(self._columns())
        others = ("parameters", "grid", "geometry", "space", "period", "sphere", "frame")
        same |= {name: getattr(self, name) for name in (*others, "names", "units", "provenance")}
        for what in ("names", "units"):
            same[what] = {k: v for k, v in same[what].items() if changes.get(k, v) is not None}
        return Fields(**(same | changes))

    def without_period(self) -> Fields:
        """The same samples, whose periodic coordinates a model reads as plain numbers."""
        other = self._with(dict(self._columns()), self.parameters, len(self))
        other.period = None
        return other

    @staticmethod
    def concatenate(parts: Sequence[Fields]) -> Fields:
        """The samples of several data sets of one kind, one after the other."""
        listed = isinstance(parts, list | tuple)
        if not listed or not all(isinstance(part, Fields) for part in parts):
            got = checks.described(parts)
            raise TypeError(f"parts: expected a list of Fields to concatenate, got {got}")
        if not parts:
            raise ValueError("parts: nothing to concatenate, expected at least one Fields")
        first, counts = parts[0], [len(p) for p in parts]
        for k, part in enumerate(parts):
            for key, value in part.meaning().items():
                if value != first.meaning().get(key):
                    raise ValueError(
                        f"part {k} has {key} {value!r}, part 0 has {first.meaning().get(key)!r}: "
                        "only data of one kind can be concatenated"
                    )
            has, expected = ([n for n, c in f._columns() if c is not None] for f in (part, first))
            if has != expected or (part.parameters is None) != (first.parameters is None):
                raise ValueError(f"part {k} has other columns than part 0: {has}, {expected}")
        joined: dict[str, Column | None] = {}
        for name, column in first._columns():
            present = [c for c in (part.column(name) for part in parts) if c is not None]
            joined[name] = None if column is None else columns.concatenate(present, counts)
        numbers = [part.parameters for part in parts if part.parameters is not None]
        return first._with(joined, np.concatenate(numbers) if numbers else None, sum(counts))

    # -- files -----------------------------------------------------------------------------------

    def save(self, path: str | Path, *, compress: bool = True) -> None:
        """Write one HDF5 file, atomically; see `lno.data.store`."""
        from lno.data import store

        checks.require_path("path", path)
        checks.require_flag("compress", compress)
        store.save(self, path, compress=compress)

    @staticmethod
    def load(path: str | Path, *, lazy: bool = False) -> Fields:
        """Read a file of `save`; with `lazy`, samples are read from it when they are used."""
        from lno.data import store

        checks.require_path("path", path)
        checks.require_flag("lazy", lazy)
        return store.load(path, lazy=lazy)

    def __repr__(self) -> str:
        points = columns.sizes(self.x, len(self))
        queries = columns.sizes(self.x_query, len(self))

        def span(n: Index) -> str:
            return f"{n[0]}" if n.min() == n.max() else f"{n.min()}–{n.max()}"

        def few(labels: Sequence[str]) -> str:
            return ", ".join(labels if len(labels) < 5 else [labels[0], "…", labels[-1]])

        names = {key: visible(few(labels)) for key, labels in self.names.items()}
        there = "the same points" if self.same_points else f"{span(queries)} points"
        given = f"{names['u'] or 'no values'} at {span(points)} points of {names['x']}"
        if self.parameters is not None:
            given += f", parameters {names['parameters']}"
        outputs = "" if self.y is None else f" → {names['y']} at {there}"
        return f"Fields({len(self)} sample{'s' * (len(self) != 1)}: {given}{outputs})"

    # -- inside ----------------------------------------------------------------------------------

    def _columns(self) -> list[tuple[str, Any]]:
        return [(name, self.column(name)) for name in (*COLUMNS, *INDEX_COLUMNS)]

    def _with(self, new: Mapping[str, Any], parameters: np.ndarray | None, count: int) -> Fields:
        """The same meaning with other columns, which are known to be valid."""
        if count == 0:
            raise ValueError("no samples: expected at least one")
        other = object.__new__(Fields)
        other.__dict__.update(self.__dict__)
        for name, column in new.items():
            setattr(other, "_x_query" if name == "x_query" else name, column)
        other.parameters, other._count, other._digest = parameters, count, None
        return other

    def _count_samples(self) -> int:
        given = [(n, c) for n, c in self._columns() if c is not None]
        counts = {name: len(c) for name, c in given if not columns.is_shared(c)}
        if self.parameters is not None:
            counts["parameters"] = len(self.parameters)
        if len(set(counts.values())) > 1:
            listed = ", ".join(f"{name} has {count}" for name, count in counts.items())
            raise ValueError(f"expected the same number of samples everywhere: {listed}")
        count = next(iter(counts.values()), 1)
        if count == 0:
            raise ValueError("no samples: expected at least one")
        return count

    def _no_values(self) -> Column:
        if isinstance(self.x, columns.Ragged):
            nothing = np.zeros((int(self.x.stops.max()), 0), np.float32)
            return columns.Ragged(nothing, self.x.starts, self.x.stops)
        return np.zeros((len(self), self.x.shape[-2], 0), np.float32)
