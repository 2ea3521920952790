"""Pictures of data and predictions, and the samples that a run keeps for its report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure

from lno.data import Fields
from lno.data.pictures import (
    first_and_last,
    nodes_of_sample,
    position_names,
    position_units,
    sample_panels,
    slice_title,
)
from lno.drawing import Panel, connected, figure_of, scale_of
from lno.files import replacing
from lno.operator import Operator
from lno.problems import PROBLEMS
from lno.tasks import Rollout
from lno.text import with_unit

SAMPLES = 4  # of a data set, that are drawn


def sample_gallery(fields: Fields) -> Figure:
    """The first samples side by side: their mesh, and their channels below each other.

    The channels are those that the problem of the data names, else the first and the last; not
    those that hold the positions of the nodes.
    """
    columns = []
    for k in range(min(SAMPLES, len(fields))):
        view = _view(str(fields.provenance.get("problem")))
        nodes = nodes_of_sample(fields, k, view)
        panels = sample_panels(fields, k, nodes, {key: _shown(fields, key) for key in "uy"})
        columns.append([replace(p, title=f"{p.title}, sample {k}") for p in panels])
    if not columns[0]:
        raise ValueError("nothing to draw: the data have positions only")
    return figure_of([_in_one_scale(row) for row in zip(*columns, strict=True)])


def prediction_picture(fields: Fields) -> Figure:
    """The first predicted sample, with the points that it was predicted from."""
    nodes = connected(nodes_of_sample(fields, 0))
    sample = fields[0]
    assert sample.y is not None
    name = with_unit(fields.names["y"][0], fields.units["y"][0])
    marks = None
    if not fields.same_points and fields.geometry is None and fields.space == len(nodes.names):
        marks = sample.x[:, : fields.space]
    title = slice_title(f"{name} from {len(sample.x)} points", nodes)
    return figure_of([[Panel(title, nodes, sample.y[:, 0], marks=marks)]])


def save_sample(path: Path, operator: Operator, test: Fields, k: int, problem: str) -> None:
    """Write test sample k and what is predicted for it; see `lno.report.samples.load_sample`.

    Where a task draws sensors, they are drawn anew from seed 0.
    """
    task = operator.task
    prepared = task.prepare(test.subset([k]))
    generator = torch.Generator().manual_seed(0)
    batch = task.observe(prepared.batch([0]), prepared.spec.grid, generator)
    assert batch.y is not None
    sample, labels = prepared[0], operator.labels
    names, units = position_names(prepared), position_units(prepared)
    grid, cells = prepared.grid or (), sample.cells
    arrays: dict[str, Any] = {
        "x": batch.x[0],
        "u": batch.u[0],
        "y": batch.y[0],
        "prediction": operator.predict_batch(batch).mean()[0],
        "positions": prepared.geometry_of(0),
    }
    if batch.x.shape != batch.x_query.shape or not torch.equal(batch.x, batch.x_query):
        arrays["x_query"] = batch.x_query[0]
    if sample.parameters is not None:
        arrays["parameters"] = sample.parameters
    arrays = {name: np.asarray(values, np.float32) for name, values in arrays.items()}
    if len(grid) == 3 and prepared.same_points and sample.grid_index is None:
        # A picture shows the last time: the others would only fill the ledger.
        last = np.arange(prod(grid)).reshape(grid)[..., -1].ravel()
        kept = ("x", "u", "y", "prediction", "positions")
        arrays |= {name: arrays[name][last] for name in kept}
        arrays["positions"], names, grid = arrays["positions"][:, :2], names[:2], grid[:2]
        own = cells if cells is not None and np.isin(cells, last).all() else None
        cells = None if own is None else np.searchsorted(last, own)
    for name, values in (("cells", cells), ("grid_index", sample.grid_index)):
        if values is not None:
            arrays[name] = np.asarray(values, np.int64)
    if isinstance(task, Rollout):
        arrays["channels"] = np.array(task.channels)
    shown = PROBLEMS[problem].picture if problem in PROBLEMS else _values(prepared)
    if (view := _view(problem)) is not None:
        arrays["view"] = np.array(view)
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(
            file,
            allow_pickle=False,
            grid=np.array(grid),
            index=np.array(k),
            **{f"names_{key}": np.array(names) for key, names in labels.names.items()},
            **{f"units_{key}": np.array(units) for key, units in labels.units.items()},
            names_positions=np.array(names),
            units_positions=np.array(units[: len(names)]),
            **{f"shown_{key}": np.array(names) for key, names in shown.items()},
            **arrays,
        )


def _in_one_scale(row: Sequence[Panel]) -> list[Panel]:
    """The same channel of several samples in the same colours."""
    values = [panel.nodes.shown(panel.values) for panel in row if panel.values is not None]
    if not values:  # meshes
        return list(row)
    scale = scale_of(np.concatenate(values))
    return [replace(panel, scale=scale) for panel in row]


def _view(problem: str) -> Sequence[float] | None:
    """Left, right, bottom and top of what pictures of a problem show; None: all."""
    return PROBLEMS[problem].view if problem in PROBLEMS else None


def _shown(fields: Fields, key: str) -> list[int]:
    """The channels of u or y that a picture of the data shows."""
    names, problem = fields.names[key], str(fields.provenance.get("problem"))
    picture = PROBLEMS[problem].picture if problem in PROBLEMS else {}
    found = [names.index(name) for name in picture.get(key, ()) if name in names]
    if found or (key in picture and not picture[key]):
        return found
    return first_and_last(fields, key)


def _values(fields: Fields) -> dict[str, tuple[str, ...]]:
    """Of the channels of u or y that hold the positions of nodes, if any do, the others."""
    where = fields.geometry or {}
    return {key: tuple(n for n in fields.names[key] if n not in where[key]) for key in where}
