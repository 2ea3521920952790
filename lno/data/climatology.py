"""What is known beside the observations: a climatology, or a channel that is a first guess.

An operator learns what differs from its background. A climatology is the mean of the training
samples: at each position for each value of a parameter (the month, say), or for each value of a
coordinate (the latitude: a zonal mean). It is part of the operator, which applies it by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from lno.config import did_you_mean, require_count, require_type
from lno.data import columns
from lno.data.fields import Fields

CLIMATOLOGY = "climatology:"  # before the name of a parameter or a coordinate
MANY = 1000  # different values at most: with more, hardly any two samples share one
NEAR = 1e-4  # of the spacing of values: the same up to rounding
ARRAYS, PREFIX = ("values", "means", "points"), "background."  # of a climatology in a file


@dataclass(frozen=True)
class Climatology:
    """Means of training samples.

    Args:
        name: of the parameter or the coordinate.
        values: that it has, increasing.
        means: for each value, at each of `points`; of a coordinate there is one point.
        points: positions; none of a coordinate.
        column: of the parameters or coordinates.

    >>> x, month = np.array([[0.0], [1.0]]), np.array([[1.0], [2.0], [1.0], [2.0]])
    >>> y = np.array([[3.0, 4.0], [30.0, 40.0], [5.0, 6.0], [30.0, 40.0]])[..., None]
    >>> data = Fields(x, y=y, parameters=month, names={"parameters": ["month"]})
    >>> found = Climatology.fit(data, "month")
    >>> found.at(np.array([[0.9]]), np.array([1.0])).tolist()  # of the nearest position
    [[5.0]]
    >>> Climatology.fit(data, "x0").at(np.array([[0.5]])).round(2).tolist()  # interpolated
    [[19.75]]
    """

    name: str
    values: Float[np.ndarray, " g"]
    means: Float[np.ndarray, "g p o"]
    points: Float[np.ndarray, "_ d"]
    column: int

    def __post_init__(self) -> None:
        require_type("Climatology.name", self.name, str)
        sizes = (self.values.ndim, self.means.ndim, self.points.ndim)
        groups, rows = len(self.values), max(1, len(self.points))
        if sizes != (1, 3, 2) or self.means.shape[:2] != (groups, rows) or not groups:
            raise ValueError(
                f"Climatology: expected means for {groups} values at {rows} points, got "
                f"{self.means.shape}"
            )
        for array in (self.values, self.means, self.points):
            if not np.isfinite(array).all():
                raise ValueError("Climatology: expected finite numbers")
        if np.any(np.diff(self.values) <= 0):
            raise ValueError("Climatology.values must increase")

    @classmethod
    def fit(cls, fields: Fields, name: str) -> Climatology:
        """The means of the samples of `fields` by a parameter or a coordinate."""
        if fields.y is None:
            raise ValueError("climatology: the data have no outputs y to take the mean of")
        parameters = fields.names.get("parameters", []) if fields.parameters is not None else []
        if name in parameters:
            return cls._by_parameter(fields, name, parameters.index(name))
        coordinates = fields.names["x"]
        if name in coordinates:
            return cls._by_coordinate(fields, name, coordinates.index(name))
        known = [*parameters, *coordinates]
        hint = did_you_mean(name, known)
        raise ValueError(
            f"climatology: the data have neither a parameter nor a coordinate {name!r}{hint}; "
            f"expected one of {', '.join(known)}"
        )

    @classmethod
    def _by_parameter(cls, fields: Fields, name: str, column: int) -> Climatology:
        given = np.asarray(fields.parameters)[:, column]
        values = _distinct(given, name, len(fields))
        if 2 * len(values) > len(fields):
            raise ValueError(
                f"climatology: {name!r} has {len(values):,} different values in {len(fields):,} "
                "training samples: a mean needs several samples of each. Take what comes again, "
                "like the month of the year"
            )
        points, where = _places(fields)
        o = columns.channels(fields.y)  # type: ignore[arg-type]
        sums, counts = np.zeros((len(values), len(points), o)), np.zeros((len(values), len(points)))
        for k in range(len(fields)):
            group = np.searchsorted(values, given[k])
            sums[group, where[k]] += columns.sample(fields.y, k)  # type: ignore[arg-type]
            counts[group, where[k]] += 1
        overall = sums.sum(0) / np.maximum(counts.sum(0), 1)[..., None]
        means = sums / np.maximum(counts, 1)[..., None]
        means = np.where(counts[..., None] > 0, means, overall)  # never seen: of all values
        return cls(name, values, means, points, column)

    @classmethod
    def _by_coordinate(cls, fields: Fields, name: str, column: int) -> Climatology:
        pairs = [
            (columns.sample(fields.x_query, k)[:, column], columns.sample(fields.y, k))  # type: ignore[arg-type]
            for k in range(len(fields))
        ]
        values = _distinct(np.concatenate([at for at, _ in pairs]), name, len(fields))
        o = pairs[0][1].shape[1]
        sums, counts = np.zeros((len(values), o)), np.zeros(len(values))
        for at, y in pairs:
            group = np.searchsorted(values, at)
            np.add.at(sums, group, y)
            np.add.at(counts, group, 1)
        means = (sums / counts[:, None])[:, None]
        return cls(name, values, means, np.zeros((0, fields.spec.coordinates)), column)

    def at(
        self, x: Float[np.ndarray, "q d"], parameters: Float[np.ndarray, " k"] | None = None
    ) -> Float[np.ndarray, "q o"]:
        """The background of one sample at positions x."""
        if not len(self.points):
            table = self.means[:, 0]
            channels = (np.interp(x[:, self.column], self.values, c) for c in table.T)
            return np.stack(list(channels), -1)
        if parameters is None:
            raise ValueError(
                f"the background of this operator is a climatology by {self.name!r}: pass "
                f"parameters, with the {self.name} of the sample"
            )
        value = float(np.asarray(parameters)[self.column])
        k = int(np.abs(self.values - value).argmin())
        step = np.diff(self.values).min(initial=np.inf)
        if abs(self.values[k] - value) > NEAR * min(step, max(1.0, abs(value))):
            listed = ", ".join(f"{v:g}" for v in self.values[:12])
            raise ValueError(
                f"{self.name} = {value:g}: the climatology of this operator has "
                f"{listed}{', …' * (len(self.values) > 12)}"
            )
        return self.means[k][self._nearest(x)]

    def applied(self, fields: Fields) -> Fields:
        """The data with this background at their query points."""
        given = fields.parameters
        rows = [
            self.at(columns.sample(fields.x_query, k), None if given is None else given[k])
            for k in range(len(fields))
        ]
        kind = np.float32 if fields.y is None else fields.y.dtype
        return fields.replace(background=columns.stack([row.astype(kind) for row in rows]))

    def _nearest(self, x: Float[np.ndarray, "q d"]) -> np.ndarray:
        from scipy.spatial import cKDTree

        if x.shape == self.points.shape and np.array_equal(x, self.points):
            return np.arange(len(x))
        size = np.ptp(self.points, axis=0)
        size[size == 0] = 1.0
        return np.asarray(cKDTree(self.points / size).query(np.asarray(x) / size)[1])


def with_channel(fields: Fields, name: str) -> Fields:
    """The data with a channel of their inputs as the background of their only output."""
    names = fields.names["u"]
    if name not in names:
        hint = did_you_mean(name, names)
        raise ValueError(
            f"background: the data have no input {name!r}{hint}; expected one of "
            f"{', '.join(names) or 'none'}, or {CLIMATOLOGY}NAME with a parameter or a coordinate"
        )
    if not fields.same_points or (fields.y is not None and columns.channels(fields.y) != 1):
        raise ValueError(
            f"background: the input {name!r} is one value at each observed point, and the outputs "
            "are several, or elsewhere. Import it with --background of 'lno data import'"
        )
    k = names.index(name)
    rest = [j for j in range(len(names)) if j != k]

    def part(chosen: list[int]) -> Any:
        if isinstance(fields.u, columns.Ragged):
            return columns.stack([u[:, chosen] for u in fields.u])
        return np.asarray(fields.u)[..., chosen]

    labels = {key: {**of, "u": [of["u"][j] for j in rest]} for key, of in _labels(fields).items()}
    u = part(rest) if rest else None
    if not rest:
        labels = {key: {k: v for k, v in of.items() if k != "u"} for key, of in labels.items()}
    return fields.replace(u=u, background=part([k]), **labels)


def _labels(fields: Fields) -> dict[str, dict[str, list[str]]]:
    return {"names": dict(fields.names), "units": dict(fields.units)}


def _distinct(given: np.ndarray, name: str, samples: int) -> Float[np.ndarray, " g"]:
    values = np.unique(np.asarray(given, dtype=np.float64))
    if len(values) > MANY:
        raise ValueError(
            f"climatology: {name!r} has {len(values):,} different values in {samples:,} training "
            f"samples, expected at most {MANY:,}, like the months of a year"
        )
    return values


def _places(fields: Fields) -> tuple[Float[np.ndarray, "p d"], list[np.ndarray]]:
    """All query positions of the samples, and which of them each sample has."""
    if columns.is_shared(fields.x_query):
        points = np.asarray(columns.sample(fields.x_query, 0), np.float64)
        return points, [np.arange(len(points))] * len(fields)
    each = [np.asarray(x, np.float64) for x in columns.samples(fields.x_query, len(fields))]
    points, index = np.unique(np.concatenate(each), axis=0, return_inverse=True)
    if len(points) > 4 * max(len(x) for x in each):
        raise ValueError(
            "climatology: hardly any two samples share a position, so there is no mean at a "
            "position. Take one by a coordinate, or leave it out"
        )
    ends = np.cumsum([len(x) for x in each])[:-1]
    return points, np.split(index.ravel(), ends)


# A climatology, the name of an input, GIVEN where the data bring their own, or None: there is none.
Background = Climatology | str | None
GIVEN = ""


def fitted(fields: Fields, text: str) -> Climatology | str:
    """What `text` asks for: a climatology of the data, or a channel of their inputs by name."""
    if text.startswith(CLIMATOLOGY):
        return Climatology.fit(fields, text.removeprefix(CLIMATOLOGY))
    return text


def with_background(fields: Fields, background: Climatology | str) -> Fields:
    """The data with a background, unless they have one."""
    if fields.background is not None:
        return fields
    if background == GIVEN:
        raise ValueError(
            "the operator was trained with a background, a first guess of the outputs, and adds to "
            "it: pass background=..., or data that have one"
        )
    if isinstance(background, str):
        return with_channel(fields, background)
    return background.applied(fields)


# -- in the file of an operator: arrays as tensors, all else as JSON -------------------------------


def stored_background(background: Background) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """What the metadata of a file say of a background, and its arrays; nothing if there is none."""
    if background is None:
        return {}, {}
    if isinstance(background, str):
        return {"background": {"input": background}}, {}
    arrays = {
        f"{PREFIX}{key}": torch.from_numpy(getattr(background, key).copy()).double().contiguous()
        for key in ARRAYS
    }
    return {"background": {"name": background.name, "column": background.column}}, arrays


def read_background(found: Mapping[str, Any] | None, tensors: dict[str, Tensor]) -> Background:
    """The background that a file describes; its arrays are taken out of `tensors`."""
    if found is None:
        return None
    if set(found) == {"input"}:
        require_type("background.input", found["input"], str)
        return str(found["input"])
    if set(found) != {"name", "column"}:
        raise ValueError(f"background: expected name and column, got {', '.join(found)}")
    require_count("background.column", found["column"], 10**6, least=0)
    arrays = {}
    for key in ARRAYS:
        tensor = tensors.pop(f"{PREFIX}{key}", None)
        if tensor is None or tensor.dtype != torch.float64:
            raise ValueError(f"{PREFIX}{key}: expected numbers in double precision")
        arrays[key] = tensor.numpy()
    return Climatology(found["name"], column=found["column"], **arrays)
