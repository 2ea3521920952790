"""`Fields`: the one form that data have in this package."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike

from lno.config import require_count
from lno.data import columns
from lno.data.batch import Batch
from lno.data.columns import Column, Index, Ragged, as_column, check_finite

COLUMNS = ("x", "u", "x_query", "y")


@dataclass(frozen=True)
class Spec:
    """What a model must know of the data: the number of coordinates and channels, and the grid.

    >>> Fields(np.zeros((6, 2)), np.zeros((4, 6, 1)), y=np.zeros((4, 6, 3)), grid=(2, 3)).spec
    Spec(coordinates=2, in_channels=1, out_channels=3, grid=(2, 3))
    """

    coordinates: int
    in_channels: int
    out_channels: int
    grid: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        require_count("coordinates", self.coordinates, 10**6)
        for name in ("in_channels", "out_channels"):
            require_count(name, getattr(self, name), 10**6, least=0)


class Sample(NamedTuple):
    """One sample: positions (n, d), values (n, i), query positions (q, d), targets (q, o)."""

    x: np.ndarray
    u: np.ndarray
    x_query: np.ndarray
    y: np.ndarray | None


class Fields:
    """Samples of an operator: values u observed at points x, and answers y at points x_query.

    Args:
        x: positions of the observations: an array (s, n, d); one array (n, d) shared by all
            samples; or a list of arrays (n_k, d) when samples differ in size.
        u: values there: an array (s, n, i) or a list of arrays (n_k, i). None: no values (i = 0).
        x_query: positions of the answers, like `x`. None: the same as `x`.
        y: the answers, an array (s, q, o) or a list of arrays (q_k, o). None: not known.
        grid: the shape of the query points when they form a grid, in C order.
        period: the period of each coordinate, None for those that have none.
        names: names of coordinates and channels, `{"x": [...], "u": [...], "y": [...]}`.
        units: units of coordinates and channels, in the same form.
        frame: what the coordinates are, in words: "reference grid", "EPSG:4326", ...
        provenance: where the data come from; anything that JSON can hold.

    Single precision stays single, double stays double, integers become floats. Shapes, NaN and
    contradictory duplicates are errors that name the column and the sample.

    >>> x = np.linspace(0, 1, 5)[:, None]
    >>> f = Fields(x, u=np.ones((3, 5, 1)), y=np.zeros((3, 5, 2)), names={"x": ["t"]})
    >>> len(f), f.spec
    (3, Spec(coordinates=1, in_channels=1, out_channels=2, grid=None))
    >>> train, test = f.split(2, 1)
    """

    def __init__(
        self,
        x: Any,
        u: Any = None,
        x_query: Any = None,
        y: Any = None,
        *,
        grid: Sequence[int] | None = None,
        period: Sequence[float | None] | None = None,
        names: Mapping[str, Sequence[str]] | None = None,
        units: Mapping[str, Sequence[str]] | None = None,
        frame: str = "",
        provenance: Mapping[str, Any] | None = None,
    ) -> None:
        self.x = as_column("x", x, shareable=True)
        self._x_query = None if x_query is None else as_column("x_query", x_query, shareable=True)
        self.y = None if y is None else as_column("y", y, shareable=False)
        given = None if u is None else as_column("u", u, shareable=False)
        self._count = self._count_samples(given)
        self.u = self._no_values() if given is None else given
        self.grid = None if grid is None else tuple(_count("grid", k) for k in grid)
        self.period = (
            None if period is None else tuple(None if p is None else float(p) for p in period)
        )
        self.names = self._labels("names", names)
        self.units = self._labels("units", units)
        self.frame = str(frame)
        self.provenance = dict(provenance or {})
        self._hash: str | None = None
        self._check_shapes()
        self._check_values()

    # -- reading ---------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, k: int) -> Sample:
        if not -len(self) <= k < len(self):
            raise IndexError(f"sample {k} of {len(self)}")
        at = k % len(self)
        y = None if self.y is None else columns.sample(self.y, at)
        x, u, q = (columns.sample(c, at) for c in (self.x, self.u, self.x_query))
        return Sample(x, u, q, y)

    def __iter__(self) -> Iterator[Sample]:
        return (self[k] for k in range(len(self)))

    @property
    def x_query(self) -> Column:
        """Positions of the answers: those of the observations unless others were given."""
        return self.x if self._x_query is None else self._x_query

    @property
    def same_points(self) -> bool:
        """Whether the answers are at the observed points."""
        return self._x_query is None

    @property
    def spec(self) -> Spec:
        """The sizes that a model of these data needs."""
        out = 0 if self.y is None else columns.channels(self.y)
        return Spec(columns.channels(self.x), columns.channels(self.u), out, self.grid)

    @property
    def hash(self) -> str:
        """SHA-256 of all values, their shapes and their meaning, not of their origin."""
        if self._hash is None:
            digest = hashlib.sha256(json.dumps(self.meaning(), sort_keys=True).encode())
            for name in COLUMNS:
                column = self.column(name)
                if column is None:
                    continue
                digest.update(f"{name}:{column.dtype}:{columns.channels(column)}".encode())
                digest.update(columns.sizes(column, len(self)).tobytes())
                for values in columns.samples(column, len(self)):
                    digest.update(np.ascontiguousarray(values).data)
            self._hash = digest.hexdigest()
        return self._hash

    def meaning(self) -> dict[str, Any]:
        """Everything but the numbers: grid, period, names, units, frame."""
        return {key: getattr(self, key) for key in ("grid", "period", "names", "units", "frame")}

    def column(self, name: str) -> Column | None:
        """A stored column by name; None for `x_query` where it is the same as `x`."""
        return self._x_query if name == "x_query" else getattr(self, name)

    def batch(self, index: ArrayLike) -> Batch:
        """The samples at `index` as tensors; ragged samples are padded and masked, others never."""
        chosen = self._existing(index)
        x, mask = _tensor(self.x, chosen)
        u, _ = _tensor(self.u, chosen)
        q, query_mask = (x, mask) if self.same_points else _tensor(self.x_query, chosen)
        y = None if self.y is None else _tensor(self.y, chosen)[0]
        return Batch(x, u, q, y, mask, query_mask)

    # -- arranging -------------------------------------------------------------------------------

    def subset(self, index: ArrayLike) -> Fields:
        """The samples at `index`, in that order."""
        chosen = self._existing(index)
        new = {n: None if c is None else columns.take(c, chosen) for n, c in self._columns()}
        return self._with(new, len(chosen))

    def split(self, *counts: int) -> tuple[Fields, ...]:
        """Consecutive parts of the given numbers of samples."""
        if sum(counts) > len(self) or any(c < 1 for c in counts):
            raise ValueError(
                f"cannot split {len(self)} samples into {counts}: expected positive numbers that "
                f"add up to at most {len(self)}"
            )
        ends = np.cumsum(counts)
        return tuple(self.subset(np.arange(e - c, e)) for c, e in zip(counts, ends, strict=True))

    def shuffle(self, seed: int) -> Fields:
        """The same samples in a random order that `seed` decides."""
        return self.subset(np.random.default_rng(seed).permutation(len(self)))

    def without_period(self) -> Fields:
        """The same samples, whose periodic coordinates a model reads as plain numbers."""
        other = self._with(dict(self._columns()), len(self))
        other.period = None
        return other

    @staticmethod
    def concatenate(parts: Sequence[Fields]) -> Fields:
        """The samples of several data sets that mean the same, one after the other."""
        if not parts:
            raise ValueError("nothing to concatenate: expected at least one Fields")
        first, counts = parts[0], [len(p) for p in parts]
        for k, part in enumerate(parts):
            for key, value in part.meaning().items():
                if value != first.meaning()[key]:
                    raise ValueError(
                        f"part {k} has {key} {value!r}, part 0 has {first.meaning()[key]!r}: "
                        "only data of one kind can be concatenated"
                    )
            if part.same_points != first.same_points or (part.y is None) != (first.y is None):
                raise ValueError(f"part {k} has other columns than part 0")
        joined: dict[str, Column | None] = {}
        for name, column in first._columns():
            present = [c for c in (part.column(name) for part in parts) if c is not None]
            joined[name] = None if column is None else columns.concatenate(present, counts)
        return first._with(joined, sum(counts))

    # -- files -----------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write one HDF5 file, atomically. See `lno.data.store` for its layout."""
        from lno.data import store

        store.save(self, path)

    @staticmethod
    def load(path: str | Path, *, lazy: bool = False) -> Fields:
        """Read a file of `save`; with `lazy`, samples are read from it when they are used."""
        from lno.data import store

        return store.load(path, lazy=lazy)

    def __repr__(self) -> str:
        points = columns.sizes(self.x, len(self))
        queries = columns.sizes(self.x_query, len(self))

        def span(n: Index) -> str:
            return f"{n[0]}" if n.min() == n.max() else f"{n.min()}–{n.max()}"

        def few(labels: Sequence[str]) -> str:
            return ", ".join(labels if len(labels) < 5 else [labels[0], "…", labels[-1]])

        names = {key: few(labels) for key, labels in self.names.items()}
        at = f"{span(points)} points"
        there = "the same points" if self.same_points else f"{span(queries)} points"
        given = f"{names['u'] or 'no values'} at {at} of {names['x']}"
        answers = "" if self.y is None else f" → {names['y']} at {there}"
        return f"Fields({len(self)} samples: {given}{answers})"

    # -- inside ----------------------------------------------------------------------------------

    def _existing(self, index: ArrayLike) -> Index:
        """Indices of samples, counted from the end where they are negative."""
        wanted = np.asarray(index)
        if wanted.size == 0:
            raise ValueError("no samples: expected at least one index")
        return np.arange(len(self))[np.atleast_1d(wanted)]

    def _columns(self) -> list[tuple[str, Any]]:
        return [(name, self.column(name)) for name in COLUMNS]

    def _with(self, new: Mapping[str, Any], count: int) -> Fields:
        """The same meaning with other columns, which are known to be valid."""
        if count == 0:
            raise ValueError("no samples: expected at least one")
        other = object.__new__(Fields)
        other.__dict__.update(self.__dict__)
        other.x, other.u, other.y, other._x_query = (new[k] for k in ("x", "u", "y", "x_query"))
        other._count, other._hash = count, None
        return other

    def _count_samples(self, u: Column | None) -> int:
        given = {"x": self.x, "u": u, "x_query": self._x_query, "y": self.y}
        counts = {n: len(c) for n, c in given.items() if c is not None and not columns.is_shared(c)}
        if len(set(counts.values())) > 1:
            listed = ", ".join(f"{name} has {count}" for name, count in counts.items())
            raise ValueError(f"expected the same number of samples everywhere: {listed}")
        count = next(iter(counts.values()), 1)
        if count == 0:
            raise ValueError("no samples: expected at least one")
        return count

    def _no_values(self) -> Column:
        if isinstance(self.x, Ragged):
            nothing = np.zeros((int(self.x.stops.max()), 0), np.float32)
            return Ragged(nothing, self.x.starts, self.x.stops)
        return np.zeros((len(self), self.x.shape[-2], 0), np.float32)

    def _labels(self, what: str, given: Mapping[str, Sequence[str]] | None) -> dict[str, list[str]]:
        counts = {n: columns.channels(c) for n, c in self._columns() if c is not None}
        labels = {
            key: [f"{key}{k}" if what == "names" else "" for k in range(counts.get(key, 0))]
            for key in ("x", "u", "y")
        }
        for key, value in (given or {}).items():
            if key not in labels:
                raise ValueError(f"{what}: expected keys among x, u, y, got {key!r}")
            if isinstance(value, str) or len(value) != len(labels[key]):
                raise ValueError(
                    f"{what}[{key!r}]: expected {len(labels[key])} entries, one for each "
                    f"coordinate or channel, got {value!r}"
                )
            labels[key] = [str(v) for v in value]
        return labels

    def _check_shapes(self) -> None:
        for points in ("x", "x_query"):
            sizes = columns.sizes(getattr(self, points), len(self))
            if np.any(sizes == 0):
                k = int(np.argmin(sizes))
                raise ValueError(f"{points}, sample {k} has no points: expected at least one")
        for points, values in (("x", "u"), ("x_query", "y")):
            column = self.column(values)
            if column is None:
                continue
            expected = columns.sizes(getattr(self, points), len(self))
            got = columns.sizes(column, len(self))
            if np.any(expected != got):
                k = int(np.argmax(expected != got))
                raise ValueError(
                    f"{values}, sample {k}: expected {expected[k]} points as in {points}, "
                    f"got {got[k]}"
                )
        d = columns.channels(self.x)
        if d == 0:
            raise ValueError("x has no coordinates: expected an array (..., points, coordinates)")
        if columns.channels(self.x_query) != d:
            raise ValueError(
                f"x_query has {columns.channels(self.x_query)} coordinates, x has {d}: "
                "expected the same"
            )
        if self.period is not None and len(self.period) != d:
            raise ValueError(f"period: expected {d} entries, one a coordinate, got {self.period}")
        if any(p is not None and not (np.isfinite(p) and p > 0) for p in self.period or ()):
            raise ValueError(f"period: expected positive numbers or None, got {self.period}")
        sizes = columns.sizes(self.x_query, len(self))
        if self.grid is not None and np.any(sizes != prod(self.grid)):
            raise ValueError(
                f"grid {self.grid} has {prod(self.grid)} points, but the query points number "
                f"{sorted(set(sizes.tolist()))[:3]}"
            )

    def _check_values(self) -> None:
        labels = {**self.names, "x_query": self.names["x"]}
        present = [(name, column) for name, column in self._columns() if column is not None]
        if not all(columns.in_memory(column) for _, column in present):
            return  # what a file holds was checked when it was written
        for name, column in present:
            check_finite(name, column, labels[name])
        _check_duplicates("x", self.x, "u", self.u, len(self))
        if self.y is not None:
            _check_duplicates("x_query", self.x_query, "y", self.y, len(self))


def _count(name: str, value: Any) -> int:
    number = int(value) if isinstance(value, np.integer) else value
    require_count(name, number, 10**12)
    return number


def _tensor(column: Column, index: Index) -> tuple[torch.Tensor, torch.Tensor | None]:
    """A column's samples as one tensor (b, n, c), and the mask of real points if it was padded."""
    if columns.is_shared(column):
        return torch.from_numpy(np.ascontiguousarray(column))[None], None
    if isinstance(column, Ragged):
        arrays = [column[k] for k in index]
        if len({len(a) for a in arrays}) > 1:
            longest = max(len(a) for a in arrays)
            first = torch.from_numpy(arrays[0])
            padded = first.new_zeros(len(arrays), longest, first.shape[1])
            mask = torch.zeros(len(arrays), longest, dtype=torch.bool)
            for row, real, array in zip(padded, mask, arrays, strict=True):
                row[: len(array)] = torch.from_numpy(np.ascontiguousarray(array))
                real[: len(array)] = True
            return padded, mask
        return torch.from_numpy(np.stack(arrays)), None
    return torch.from_numpy(np.ascontiguousarray(columns.take(column, index))), None


def _check_duplicates(points: str, x: Column, values: str, v: Column, count: int) -> None:
    """Raise where one position of a sample has two different values."""
    shared: tuple[np.ndarray, np.ndarray] | None = None
    for k in range(count):
        if not columns.is_shared(x):
            first, again = _repeats(columns.sample(x, k))
        else:
            shared = shared or _repeats(columns.sample(x, 0))
            first, again = shared
        if len(first) == 0:
            if columns.is_shared(x):
                return
            continue
        here = columns.sample(v, k)
        clash = np.any(here[first] != here[again], axis=1)
        if np.any(clash):
            a, b = first[clash][0], again[clash][0]
            raise ValueError(
                f"{points}, sample {k}: points {a} and {b} are the same position "
                f"{columns.sample(x, k)[a].tolist()} with different {values}, {here[a].tolist()} "
                f"and {here[b].tolist()}: keep one, or their mean"
            )


def _repeats(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of indices of equal rows of x (n, d), each with the one before it in sorted order."""
    order = np.lexsort(x.T)
    equal = np.all(x[order[1:]] == x[order[:-1]], axis=1)
    return order[:-1][equal], order[1:][equal]
