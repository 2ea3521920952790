"""`lno reconstruct`: sensors in a CSV file to a whole field with bounds."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import numpy as np

from lno.data.tables import read_numbered
from lno.files import replacing
from lno.reconstruct import PRETRAINED, Reconstruction, Reconstructor
from lno.report import plots
from lno.tasks import Completion
from lno.training.device import one_thread

ON_ONE_CORE = 512  # sensors at most: more cores gain little there, and lose much on a busy machine


def reconstruct_file(
    sensors: str | Path,
    out: str | Path,
    *,
    model: str | Path | None = None,
    plot: str | Path | None = None,
    noise: float = 0.0,
    device: str = "auto",
) -> Reconstruction:
    """Reconstruct a field from a file of sensors; see `lno reconstruct --help`."""
    if Path(out).suffix != ".npz":
        raise ValueError(f"cannot write {out}: expected a name ending in .npz")
    if plot is not None:
        plots.require_kind(plot)
    whole = Reconstructor.load(PRETRAINED if model is None else model, device)
    x, u = read_sensors(sensors, whole, repeated=noise > 0)
    with one_thread() if len(u) <= ON_ONE_CORE else nullcontext():
        found = whole(x, u[:, None], noise)
    names = whole.propagator.labels.names
    arrays = dict(zip(names["x"], found.axes, strict=True))
    with replacing(out) as temporary, temporary.open("wb") as file:
        np.savez_compressed(
            file,
            allow_pickle=False,
            **arrays,
            **{names["y"][0]: found.mean, "lower": found.lower, "upper": found.upper},
        )
    if plot is not None:
        labels = whole.propagator.labels
        plane = plots.Plane((names["x"][0], names["x"][1]), labels.low, _ends(whole))  # type: ignore[arg-type]
        width = found.upper - found.lower
        plots.save(plots.bounded_field(plane, found.mean, width, (x, u), names["y"][0]), plot)
    return found


def read_sensors(
    path: str | Path, whole: Reconstructor, repeated: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Positions (n, d) and values (n,) of sensors, each of which the model can make use of.

    Where values have errors, there may be several at one place.
    """
    labels, ends = whole.propagator.labels, _ends(whole)
    names = labels.names["x"]
    table, lines = read_numbered(path, [*names, labels.names["y"][0]])
    x, u = table[:, : len(names)], table[:, len(names)]
    task = whole.completer.task
    assert isinstance(task, Completion)
    for k, name in enumerate(names):
        low, high = labels.low[k], ends[k]
        for value, line in zip(x[:, k], lines, strict=True):
            if not low <= value <= high:
                raise ValueError(
                    f"{path}, line {line}: {name} = {value:g} lies outside of the domain, "
                    f"{low:g} to {high:g}"
                )
    if task.window is not None:
        for inside, line in zip(task.window.contains(x, names), lines, strict=True):
            if not inside:
                window = task.window
                raise ValueError(
                    f"{path}, line {line}: this model was trained to observe {window.coordinate} "
                    f"from {window.low:g} to {window.high:g} only, and cannot use a sensor "
                    "elsewhere: leave it out"
                )
    if repeated:
        return x, u
    seen: dict[tuple[float, ...], int] = {}
    for k, place in enumerate(_places(x, whole.propagator.normalizers.x.period, labels.low)):
        first = seen.setdefault(place, k)
        if u[first] != u[k]:
            raise ValueError(
                f"{path}, lines {lines[first]} and {lines[k]}: two values, {u[first]:g} and "
                f"{u[k]:g}, at the same place: leave one out, or say how exact they are (noise)"
            )
    chosen = sorted(seen.values())  # an exact repeat is the same observation
    return x[chosen], u[chosen]


def _ends(whole: Reconstructor) -> tuple[float, ...]:
    """The upper ends of the domain: the last points of a grid, or where a period is over."""
    labels, period = whole.propagator.labels, whole.propagator.normalizers.x.period
    each = zip(labels.low, labels.high, period, strict=True)
    return tuple(high if length is None else low + length for low, high, length in each)


def _places(
    x: np.ndarray, period: tuple[float | None, ...], low: tuple[float, ...]
) -> list[tuple[float, ...]]:
    """Positions, those of a periodic coordinate in its first period."""
    wrapped = np.array(x)
    for k, length in enumerate(period):
        if length is not None:
            wrapped[:, k] = (wrapped[:, k] - low[k]) % length
    return [tuple(row) for row in wrapped.round(12).tolist()]
