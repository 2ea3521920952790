"""`lno predict`: from a file of observations to a file of predictions."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from lno.data import Fields
from lno.data.tables import read_csv, write_csv
from lno.files import replacing
from lno.operator import Operator
from lno.report import plots


def predict_file(
    model: str | Path,
    observed: str | Path,
    result: str | Path,
    *,
    at: str | Path | None = None,
    grid: str | None = None,
    plot: str | Path | None = None,
    device: str = "auto",
) -> Fields:
    """Predict from a file of observations; see `lno predict --help`."""
    if Path(result).suffix not in (".csv", ".npz", ".h5"):
        raise ValueError(f"cannot write {result}: expected a name ending in .csv, .npz or .h5")
    if Path(result).resolve() in {Path(p).resolve() for p in (model, observed, at) if p}:
        raise ValueError(f"cannot write {result}: it is read from, and would be lost")
    operator = Operator.load(model, device)
    names = operator.labels.names
    own = None
    if Path(observed).suffix in (".h5", ".hdf5"):
        given = Fields.load(observed)
        x, u = given.x, given.u
        own = None if given.same_points else given.x_query
        operator.labels.compare(given, "x", "u")
    else:
        table = read_csv(observed, [*names["x"], *names["u"]])
        x, u = table[:, : len(names["x"])], table[None, :, len(names["x"]) :]
    x_query, shape = _query(operator, at, grid) if own is None or at or grid else (own, None)
    if plot is not None:
        plots.require_kind(plot)
        if shape is None or len(shape) != 2:
            raise ValueError("--plot draws grids in two coordinates: say --grid, like 64x128")
    fields = Fields(x, u, x_query)
    y = operator.predict(fields)
    answers = Fields(
        fields.x,
        fields.u,
        x_query,
        y,
        grid=shape,
        period=operator.normalizers.x.period,
        names=names,
        units=operator.labels.units,
        frame=operator.labels.frame,
        provenance={"model": operator.provenance},
    )
    _write(answers, Path(result))
    if plot is not None:
        _draw(answers, Path(plot))
    return answers


def _query(
    operator: Operator, at: str | Path | None, grid: str | None
) -> tuple[np.ndarray | None, tuple[int, ...] | None]:
    """Query positions, and the grid that they form; None: the observed points."""
    labels = operator.labels
    if at is not None and grid is not None:
        raise ValueError("--at and --grid both say where to predict: give one of them")
    if at is not None:
        return read_csv(at, labels.names["x"]), None
    shape = labels.grid if grid is None else _shape(grid, len(labels.low))
    if shape is None or len(shape) != len(labels.low):
        return None, None
    axes = labels.axes(shape, operator.normalizers.x.period)
    return np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(prod(shape), -1), shape


def _shape(text: str, axes: int) -> tuple[int, ...]:
    parts = text.lower().split("x")
    if len(parts) != axes or not all(p.isdigit() and int(p) > 0 for p in parts):
        raise ValueError(
            f"--grid {text}: expected {axes} numbers joined by x, like {'x'.join(['64'] * axes)}"
        )
    return tuple(int(p) for p in parts)


def _write(answers: Fields, path: Path) -> None:
    if path.suffix == ".h5":
        answers.save(path)
        return
    if path.suffix == ".npz":
        arrays: dict[str, Any] = {
            "x": answers.x,
            "u": answers.u,
            "x_query": answers.x_query,
            "y": answers.y,
        }
        ragged = [k for k, v in arrays.items() if not isinstance(v, np.ndarray)]
        if ragged:
            raise ValueError(f"samples differ in size ({ragged[0]}): write a .h5 file instead")
        with replacing(path) as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, **arrays)
        return
    if len(answers) != 1:
        raise ValueError(f"a .csv file holds one sample, not {len(answers)}: use .npz or .h5")
    sample = answers[0]
    assert sample.y is not None
    header = [*answers.names["x"], *answers.names["y"]]
    write_csv(path, header, np.column_stack((sample.x_query, sample.y)))


def _draw(answers: Fields, path: Path) -> None:
    sample, grid = answers[0], answers.grid
    assert grid is not None and sample.y is not None
    low, high = sample.x_query.min(0), sample.x_query.max(0)
    t, x = answers.names["x"]
    plane = plots.Plane((t, x), tuple(low), tuple(high))
    values = sample.y[:, 0].reshape(grid)
    seen = (sample.x, sample.u[:, 0] if sample.u.shape[1] else np.zeros(len(sample.x)))
    plots.save(plots.field_picture(plane, values, seen, answers.names["y"][0]), path)
