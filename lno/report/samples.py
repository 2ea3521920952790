"""Pictures of a test sample: input, truth, prediction and error, from the file beside a run."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from matplotlib.figure import Figure

from lno.drawing import (
    Nodes,
    Panel,
    error_scale,
    figure_of,
    has_mesh,
    nodes_of,
    scale_of,
)
from lno.text import amount, with_unit

FRAMES = 5  # of a rollout, that are shown


def load_sample(path: Path) -> dict[str, Any]:
    """The arrays of a sample file.

    `x, u, y, prediction, grid, names_x, names_u, names_y`; and where they differ from these or are
    known: `x_query`, `positions` of the nodes with `names_positions`, `cells`, `grid_index`,
    `parameters` with `names_parameters`, `channels` of a frame, the channels to draw as `shown_u`
    and `shown_y`, the `view` of pictures, and `index`, the number of the sample. Units of what has
    names, like `units_y`, are empty where the file has none.
    """
    with reading(path):
        with np.load(path, allow_pickle=False) as file:
            sample = {key: file[key] for key in file.files}
        sample.setdefault("positions", sample.get("x_query", sample["x"]))
        d = sample["positions"].shape[1]
        sample.setdefault("names_positions", sample["names_x"][:d])
        if "units_x" in sample:
            sample.setdefault("units_positions", sample["units_x"][:d])
        for key in [key for key in sample if key.startswith("names_")]:
            empty = np.full(len(sample[key]), "")
            sample.setdefault(key.replace("names", "units"), empty)
    return sample


def sample_fields(path: Path, title: str) -> Figure:
    """Mesh, input, truth, prediction and absolute error of the test sample in a file beside a run.

    A row for each output channel that the problem names; else for the last channel.
    """
    sample = load_sample(path)
    with reading(path):
        return _sample_fields(path, sample, title)


def _sample_fields(path: Path, sample: dict[str, Any], title: str) -> Figure:
    nodes = _nodes(path, sample)
    first = [Panel("mesh", nodes, None)] if has_mesh(nodes) else []
    first += _input(sample, nodes)
    shown = _channels(sample, "y")
    if "channels" in sample or len(first) != len(shown):
        shown = shown[-1:]
    rows = []
    for k, c in enumerate(shown):
        name, wrong = _titles(sample, c)
        truth, predicted = sample["y"][:, c], sample["prediction"][:, c]
        error, scale = np.abs(predicted - truth), scale_of(nodes.shown(truth))
        rows.append(
            [
                *(first if len(shown) == 1 else first[k : k + 1]),
                Panel(f"truth: {name}", nodes, truth, scale),
                Panel(f"prediction: {name}", nodes, predicted, scale),
                Panel(wrong, nodes, error, error_scale(nodes.shown(error))),
            ]
        )
    return figure_of(rows, _title(title, sample))


def rollout_frames(path: Path, title: str) -> Figure | None:
    """Truth, prediction and absolute error of some frames; None unless it is a rollout."""
    sample = load_sample(path)
    if "channels" not in sample:
        return None
    with reading(path):
        return _rollout_frames(path, sample, title)


def _rollout_frames(path: Path, sample: dict[str, Any], title: str) -> Figure:
    nodes, channels = _nodes(path, sample), int(sample["channels"])
    count = sample["y"].shape[1] // channels
    frames = np.unique(np.linspace(0, count - 1, min(FRAMES, count)).round().astype(int))
    last = frames * channels + channels - 1
    truths, predictions = (nodes.shown(sample[key])[:, last] for key in ("y", "prediction"))
    scale, worst = scale_of(truths), error_scale(np.abs(truths - predictions))
    rows: list[list[Panel]] = [[], [], []]
    for c in last:
        name, wrong = _titles(sample, c)
        truth, predicted = sample["y"][:, c], sample["prediction"][:, c]
        rows[0].append(Panel(f"truth: {name}", nodes, truth, scale))
        rows[1].append(Panel(f"prediction: {name}", nodes, predicted, scale))
        rows[2].append(Panel(wrong, nodes, np.abs(predicted - truth), worst))
    return figure_of(rows, title)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Name the file in whatever its content raises."""
    try:
        yield
    except (LookupError, TypeError, AttributeError, BadZipFile, EOFError, zlib.error) as error:
        raise ValueError(
            f"{path}: damaged, or no sample of a run ({type(error).__name__}: {error})"
        ) from error
    except ValueError as error:
        known = str(error).startswith(str(path))
        raise error if known else ValueError(f"{path}: {error}") from error


def _nodes(path: Path, sample: dict[str, Any]) -> Nodes:
    try:
        return nodes_of(
            sample["positions"],
            sample["names_positions"].tolist(),
            cells=sample.get("cells"),
            grid=sample["grid"].tolist() or None,
            grid_index=sample.get("grid_index"),
            view=sample.get("view"),
            units=sample["units_positions"].tolist(),
        )
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _input(sample: dict[str, Any], nodes: Nodes) -> list[Panel]:
    """The observed values: at the nodes, or where they were observed; none if there are none."""
    if not sample["u"].shape[1]:
        return []  # positions are all there is
    if "shown_u" in sample and not len(sample["shown_u"]):
        return []  # the positions of the nodes, which the mesh shows
    c = _channels(sample, "u")[-1]
    title = f"input: {with_unit(str(sample['names_u'][c]), str(sample['units_u'][c]))}"
    values = sample["u"][:, c]
    if "x_query" not in sample:
        return [Panel(title, nodes, values)]
    d = len(nodes.names)
    if sample["x"].shape[1] != d:
        return []
    units = sample["units_x"].tolist()
    seen = nodes_of(sample["x"], sample["names_x"].tolist(), units=units)
    return [Panel(title, seen, values, domain=nodes)]


def _titles(sample: dict[str, Any], c: int) -> tuple[str, str]:
    """The name of an output channel, and that of its error."""
    unit = str(sample["units_y"][c])
    return with_unit(str(sample["names_y"][c]), unit), with_unit("absolute error", unit)


def _channels(sample: dict[str, Any], key: str) -> list[int]:
    """The channels of u or y that the problem names, or the last one."""
    names = sample[f"names_{key}"].tolist()
    wanted = [str(name) for name in sample.get(f"shown_{key}", ()) if name in names]
    return [names.index(name) for name in wanted or names[-1:]]


def _title(title: str, sample: dict[str, Any]) -> str:
    """With the parameters of the sample, if it has any."""
    if "parameters" not in sample:
        return title
    keys = ("names_parameters", "parameters", "units_parameters")
    each = zip(*(sample[key] for key in keys), strict=True)
    shown = [f"{name} = {amount(f'{value:.4g}', str(unit))}" for name, value, unit in each]
    return f"{title} ({', '.join(shown)})"
