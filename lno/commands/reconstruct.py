"""`lno reconstruct`: a CSV file of sensors to a whole field with bounds."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from matplotlib.figure import Figure

from lno.commands.console import FLAGGED, key_values, new_app, show
from lno.data import Fields
from lno.data.labels import Labels
from lno.data.pictures import nodes_of_sample
from lno.data.sensors import SensorError
from lno.data.tables import read_header, read_numbered
from lno.data.write import require_suffix, write
from lno.drawing import Panel, connected, error_scale, figure_of
from lno.files import replacing
from lno.reconstruct import PRETRAINED, Reconstruction, Reconstructor
from lno.report import plots
from lno.text import with_unit
from lno.training.device import one_thread

ON_ONE_CORE = 512  # sensors at most: more cores gain little there, and lose much on a busy machine

app = new_app()


@app.command(epilog="Example: lno reconstruct sensors.csv --out field.npz --plot field.png")
def reconstruct(
    sensors: Annotated[
        Path,
        typer.Argument(help="CSV with a column for each coordinate and for the quantity."),
    ],
    result: Annotated[
        Path, typer.Option("--out", help="The field and its bounds: .nc, .csv, .npz, .vtu or .h5.")
    ],
    plot: Annotated[Path | None, typer.Option(help="Also draw it (.png, .svg).")] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            help="Folder of a run of 'lno train --task complete', or of a completer, with a "
            "propagator if there is one."
        ),
    ] = None,
    parameters: Annotated[
        list[str] | None,
        typer.Option(
            "--parameter", metavar="NAME=VALUE", help="A parameter of the field, like month=3."
        ),
    ] = None,
    bounds: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="The level of bounds that the model must have, like 0.9."),
    ] = None,
    noise: Annotated[
        float, typer.Option(min=0, help="Standard deviation of the sensor noise.")
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
    found = reconstruct_file(
        sensors,
        result,
        model=model,
        plot=plot,
        noise=noise,
        device=device,
        bounds=bounds,
        parameters=key_values("--parameter", parameters),
    )
    size = " × ".join(map(str, found.mean.shape))
    beside = "lower and upper bounds" if found.lower is not None else "no bounds (not calibrated)"
    show(f"wrote {result}: {size} values, {beside}")
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
    bounds: float | None = None,
    parameters: Mapping[str, str] | None = None,
) -> Reconstruction:
    """Reconstruct a field from a file of sensors; see `lno reconstruct --help`."""
    suffix = require_suffix(out)
    if plot is not None:
        plots.require_kind(plot)
    reconstructor = Reconstructor.load(PRETRAINED if model is None else model, device)
    _require_level(reconstructor, bounds)
    labels = reconstructor.completer.labels
    if plot is not None and len(reconstructor.axes()) != 2:
        nodes_of_sample(reconstructor.domain_fields, 0)  # raises where they cannot be drawn
    x, u, numbers, lines = _read(sensors, labels, parameters or {})
    try:
        with one_thread() if len(u) <= ON_ONE_CORE else nullcontext():
            found = reconstructor(x, u, noise, parameters=numbers)
    except SensorError as error:
        listed = " and ".join(str(lines[k]) for k in error.sensors)
        plural = "s" * (len(error.sensors) > 1)
        raise ValueError(f"{sensors}, line{plural} {listed}: {error.reason}") from error
    if suffix == ".npz":
        _write_npz(out, reconstructor, found)
    else:
        write(out, _as_fields(reconstructor, found))
    if plot is not None:
        x, u = reconstructor.validated(x, u, noise)  # longitudes as in the domain
        figure = _picture(reconstructor, found, x, u[:, 0])
        plots.save(figure, plot)
    return found


def _picture(
    reconstructor: Reconstructor, found: Reconstruction, x: np.ndarray, u: np.ndarray
) -> Figure:
    """The field with its sensors and, where there are bounds, their width."""
    labels, values = reconstructor.completer.labels, found.mean
    [name], [unit] = labels.names["y"], labels.units["y"]
    quantity, wide_title = with_unit(name, unit), with_unit("width of the bounds", unit)
    names = [with_unit(*pair) for pair in zip(labels.names["x"], labels.units["x"], strict=True)]
    bounded = found.lower is not None and found.upper is not None
    width = found.upper - found.lower if bounded else None  # type: ignore[operator]
    low, high = (list(ends) for ends in reconstructor.domain())
    places = x[:, : labels.space]
    if len(found.axes) != 2:
        nodes = connected(nodes_of_sample(reconstructor.domain_fields, 0))
        counted = "one sensor" if len(u) == 1 else f"{len(u)} sensors"
        shown = reconstructor.at_points(values)
        panels = [Panel(f"{quantity} from {counted}", nodes, shown, marks=places)]
        if width is not None:
            wide = reconstructor.at_points(width)
            panels.append(Panel(wide_title, nodes, wide, scale=error_scale(wide)))
        return figure_of([panels])
    for k, axis in enumerate(found.axes):  # whole rows of a grid may be missing
        low[k], high[k] = min(low[k], axis.min()), max(high[k], axis.max())
        if axis[0] > axis[-1]:  # latitudes from north to south
            values = np.flip(values, k)
            width = None if width is None else np.flip(width, k)
    plane = plots.Plane((names[0], names[1]), (low[0], low[1]), (high[0], high[1]))
    if width is None:
        return plots.field_picture(plane, values, (places, u), quantity)
    return plots.bounded_field(plane, values, width, (places, u), name, unit)


def _read(
    sensors: str | Path, labels: Labels, given: Mapping[str, str]
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None, list[int]]:
    """Positions, values and parameters of a file of sensors, and the lines of its rows.

    Covariates may be missing; so may parameters that are given next to the file.
    """
    header = read_header(sensors)
    positions, covariates = labels.names["x"][: labels.space], labels.names["x"][labels.space :]
    used = [*positions, *(covariates if set(covariates) <= set(header) else [])]
    [quantity], constants = labels.names["y"], labels.names.get("parameters", [])
    unknown = [name for name in given if name not in constants]
    if unknown:
        listed = ", ".join(constants) or "none"
        raise ValueError(f"--parameter {unknown[0]}: the parameters of this model are {listed}")
    from_file = [name for name in constants if name not in given]
    table, lines = read_numbered(sensors, [*used, quantity, *from_file])
    d, numbers = len(used), {}
    for name, text in given.items():
        try:
            numbers[name] = float(text)
        except ValueError:
            raise ValueError(f"--parameter {name}={text}: expected a number") from None
    for name, column in zip(from_file, table[:, d + 1 :].T, strict=True):
        if np.ptp(column):
            raise ValueError(
                f"{sensors}, column {name!r}: a parameter of the field has one value, got "
                f"{column.min():g} to {column.max():g}"
            )
        numbers[name] = float(column[0])
    values = np.array([numbers[name] for name in constants]) if constants else None
    return table[:, :d], table[:, d : d + 1], values, lines


def _require_level(reconstructor: Reconstructor, bounds: float | None) -> None:
    """Raise unless the bounds that were asked for can be made."""
    calibration = reconstructor.calibration
    if bounds is None:
        return
    if calibration is None:
        raise ValueError(
            f"--bounds {bounds:g}: the model is not calibrated, which takes 9 held-out fields or "
            "more. Train it on more fields, or see Reconstructor.calibrated"
        )
    if abs(calibration.level - bounds) > 1e-9:
        raise ValueError(
            f"--bounds {bounds:g}: the model is calibrated for {calibration.level:g}. Ask for "
            "that, or see Reconstructor.calibrated"
        )


def _arrays(reconstructor: Reconstructor, found: Reconstruction) -> dict[str, np.ndarray]:
    """The field and its bounds by name."""
    [quantity] = reconstructor.completer.labels.names["y"]
    arrays = {quantity: found.mean}
    if found.lower is not None and found.upper is not None:
        arrays |= {"lower": found.lower, "upper": found.upper}
    return arrays


def _write_npz(out: str | Path, reconstructor: Reconstructor, found: Reconstruction) -> None:
    names = reconstructor.completer.labels.names["x"]
    axes = found.axes or tuple(reconstructor.points.T)
    arrays = {**dict(zip(names, axes, strict=False)), **_arrays(reconstructor, found)}
    for key in ("value", "threshold", "name") if found.scores else ():
        arrays[f"score_{key}s"] = np.array([getattr(score, key) for score in found.scores])
    with replacing(out) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def _as_fields(reconstructor: Reconstructor, found: Reconstruction) -> Fields:
    """The field and its bounds as data at the points of the domain."""
    labels, arrays = reconstructor.completer.labels, _arrays(reconstructor, found)
    columns = [reconstructor.at_points(values) for values in arrays.values()]
    return reconstructor.domain_fields.replace(
        y=np.stack(columns, -1)[None],
        names={"x": labels.names["x"], "y": list(arrays)},
        units={"x": labels.units["x"], "y": labels.units["y"] * len(arrays)},
    )
