"""`lno reconstruct`: a CSV file of sensors to a whole field with bounds."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, cast

import numpy as np
import typer

from lno.commands.console import FLAGGED, new_app, show
from lno.data.sensors import SensorError
from lno.data.tables import read_numbered
from lno.files import replacing
from lno.reconstruct import PRETRAINED, Reconstruction, Reconstructor
from lno.report import plots
from lno.training.device import one_thread

ON_ONE_CORE = 512  # sensors at most: more cores gain little there, and lose much on a busy machine

app = new_app()


@app.command(epilog="Example: lno reconstruct sensors.csv --out field.npz --plot field.png")
def reconstruct(
    sensors: Annotated[Path, typer.Argument(help="CSV with the columns x, t, u.")],
    result: Annotated[Path, typer.Option("--out", help="The field and its bounds (.npz).")],
    plot: Annotated[Path | None, typer.Option(help="Also draw it (.png, .svg).")] = None,
    model: Annotated[
        Path | None, typer.Option(help="Folder of a completer, with a propagator if there is one.")
    ] = None,
    noise: Annotated[
        float, typer.Option(min=0, help="Standard deviation of the sensors' errors.")
    ] = 0.0,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 3 if the field is out of distribution.")
    ] = False,
) -> None:
    """Reconstruct a whole field from a few sensors, with bounds.

    The scores that tell whether the field is out of distribution, and their thresholds, are stored
    with it.
    """
    found = reconstruct_file(sensors, result, model=model, plot=plot, noise=noise, device=device)
    size = " × ".join(map(str, found.mean.shape))
    bounds = "lower and upper bounds" if found.lower is not None else "no bounds (not calibrated)"
    show(f"wrote {result}: {size} values, {bounds}")
    if plot is not None:
        show(f"wrote {plot}")
    if strict and not found.scores:
        raise ValueError(
            "--strict: without calibration it is not known whether the field is out of "
            "distribution; calibrate the models (Reconstructor.calibrated)"
        )
    if strict and found.flagged:
        raise typer.Exit(FLAGGED)


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
    reconstructor = Reconstructor.load(PRETRAINED if model is None else model, device)
    labels = reconstructor.completer.labels
    coordinates, [quantity] = labels.names["x"], labels.names["y"]
    if plot is not None and len(coordinates) != 2:
        raise ValueError(f"can only draw fields of two coordinates, got {', '.join(coordinates)}")
    table, lines = read_numbered(sensors, [*coordinates, quantity])
    x, u = table[:, :-1], table[:, -1:]
    try:
        with one_thread() if len(u) <= ON_ONE_CORE else nullcontext():
            found = reconstructor(x, u, noise)
    except SensorError as error:
        numbers = " and ".join(str(lines[k]) for k in error.sensors)
        plural = "s" * (len(error.sensors) > 1)
        raise ValueError(f"{sensors}, line{plural} {numbers}: {error.reason}") from error
    arrays = {**dict(zip(coordinates, found.axes, strict=True)), quantity: found.mean}
    if found.lower is not None and found.upper is not None:
        arrays |= {"lower": found.lower, "upper": found.upper}
    for key in ("value", "threshold", "name") if found.scores else ():
        arrays[f"score_{key}s"] = np.array([getattr(score, key) for score in found.scores])
    with replacing(out) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)
    if plot is not None:
        ends = cast(tuple[tuple[float, float], tuple[float, float]], reconstructor.domain())
        plane = plots.Plane((coordinates[0], coordinates[1]), *ends)
        if found.lower is None or found.upper is None:
            figure = plots.field_picture(plane, found.mean, (x, u[:, 0]), quantity)
        else:
            width = found.upper - found.lower
            figure = plots.bounded_field(plane, found.mean, width, (x, u[:, 0]), quantity)
        plots.save(figure, plot)
    return found
