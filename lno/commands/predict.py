"""`lno predict`: from a file of observations to a file of predictions."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from lno.commands.console import FLAGGED, new_app, show
from lno.data import Fields
from lno.data.pictures import nodes_of_sample
from lno.data.tables import read_csv
from lno.data.write import require_suffix, write
from lno.experiments.pictures import prediction_picture
from lno.experiments.runs import model_file
from lno.operator import Operator
from lno.report import plots
from lno.scores import warn_if_flagged
from lno.trust import BoundedPrediction

app = new_app()


@app.command(
    epilog="Example: lno predict model.safetensors sensors.csv --out field.csv --plot field.png"
)
def predict(
    model: Annotated[
        Path, typer.Argument(help="A model file (.safetensors), or the folder of a run.")
    ],
    observed: Annotated[
        Path,
        typer.Argument(
            help="Observations: .h5, or .csv with named columns; parameters of the sample are "
            "columns too, the same in every row."
        ),
    ],
    result: Annotated[
        Path,
        typer.Option(
            "--out", help="Predictions: .vtu for ParaView, .nc for xarray, .csv, .npz or .h5."
        ),
    ],
    at: Annotated[Path | None, typer.Option(help="CSV of positions to predict at.")] = None,
    grid: Annotated[
        str | None, typer.Option(help="Predict on a regular grid of this shape, like 64x128.")
    ] = None,
    sample: Annotated[
        int | None, typer.Option(min=0, help="Only this sample of the file, counted from 0.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Also draw the first sample (.png, .svg).")
    ] = None,
    bounds: Annotated[
        float | None,
        typer.Option(help="Also write lower and upper bounds of this level, like 0.9."),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 3 if a sample is out of distribution.")
    ] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
) -> None:
    """Predict a field from observations with a trained operator.

    Without --at or --grid: at the query points of the file, else on the grid of the training data,
    else at the observed points. Calibrated models, as lno train makes them, give bounds, and
    warnings of samples that are out of distribution.
    """
    require_suffix(result)
    if result.resolve() in {path.resolve() for path in (model, observed, at) if path}:
        raise ValueError(f"cannot write {result}: it is read from, and would be lost")
    if plot is not None:
        plots.require_kind(plot)
    operator = Operator.load(model_file(model), device)
    given = _observations(operator, observed)
    if sample is not None:
        if sample >= len(given):
            raise ValueError(f"--sample {sample}: {observed} has {len(given)}, counted from 0")
        given = given.subset([sample])
    require_suffix(result, len(given))
    asked = given if _has_own_queries(given, at, grid) else _elsewhere(operator, given, at, grid)
    if strict:
        _require_scores(operator)
    if plot is not None and asked.geometry is None:
        nodes_of_sample(asked, 0)  # raises where they cannot be drawn: before the work
    found = _predicted(operator, asked, bounds)
    predicted = _as_fields(operator, asked, found.prediction)
    figure = None if plot is None else prediction_picture(predicted)
    write(result, _with_bounds(predicted, found))
    bounded = "" if bounds is None else f", bounds of {100 * bounds:g} %"
    show(f"wrote {result}: {predicted}{bounded}")
    if plot is not None and figure is not None:
        plots.save(figure, plot)
        show(f"wrote {plot}")
    if strict and found.flagged:
        raise typer.Exit(FLAGGED)


def _require_scores(operator: Operator) -> None:
    if not operator.trust.thresholds:
        raise ValueError(
            "--strict: without calibration it is not known whether a sample is out of "
            "distribution; calibrate the model (Operator.calibrated)"
        )


def _predicted(operator: Operator, asked: Fields, level: float | None) -> BoundedPrediction:
    """The predictions, with bounds if they are asked for, and a warning of what cannot be trusted.

    Without bounds, lower and upper are None.
    """
    if level is not None:
        return operator.predict(asked, bounds=level)
    found = operator.predict(asked)
    scores = operator.distribution(asked)
    warn_if_flagged(scores)
    return BoundedPrediction(found, None, None, scores)


def _with_bounds(predicted: Fields, found: BoundedPrediction) -> Fields:
    """The predictions with their bounds, if there are any, as further channels."""
    names, units = list(predicted.names["y"]), list(predicted.units["y"])
    each = [found.prediction]
    for key, values in (("lower", found.lower), ("upper", found.upper)):
        if values is not None:
            names += [f"{name}_{key}" for name in predicted.names["y"]]
            units += predicted.units["y"]
            each.append(values)
    together = [np.concatenate(parts, -1) for parts in zip(*each, strict=True)]
    return predicted.replace(
        y=together if predicted.is_ragged else np.stack(together),
        names={**predicted.names, "y": names},
        units={**predicted.units, "y": units},
    )


def _observations(operator: Operator, path: Path) -> Fields:
    """What a file holds, with the names that the operator has for it."""
    labels = operator.labels
    if path.suffix in (".h5", ".hdf5"):
        given = Fields.load(path)
        labels.compare(given, "x", "u")
        return given
    constants = labels.names.get("parameters", [])
    table = read_csv(path, [*labels.names["x"], *labels.names["u"], *constants])
    d, i = len(labels.names["x"]), len(labels.names["u"])
    parameters = table[:, d + i :]
    for name, column in zip(constants, parameters.T, strict=True):
        if np.ptp(column):
            raise ValueError(
                f"{path}, column {name!r}: a parameter of the sample has one value, "
                f"got {column.min():g} to {column.max():g}"
            )
    return Fields(
        table[:, :d],
        table[None, :, d : d + i],
        parameters=parameters[:1] if constants else None,
        space=labels.space,
        names={key: labels.names[key] for key in ("x", "u", *["parameters"] * bool(constants))},
        units={key: labels.units[key] for key in ("x", "u", *["parameters"] * bool(constants))},
    )


def _has_own_queries(given: Fields, at: Path | None, grid: str | None) -> bool:
    return at is None and grid is None and (not given.same_points or given.y is not None)


def _elsewhere(operator: Operator, given: Fields, at: Path | None, grid: str | None) -> Fields:
    """The observations with other query points: of a file, of a grid, or of the training grid."""
    labels = operator.labels
    if at is not None and grid is not None:
        raise ValueError("--at and --grid both say where to predict: give one of them")
    shape, points = None, None
    if at is not None:
        points = read_csv(at, labels.names["x"])
    else:
        shape = labels.grid if grid is None else _shape(grid, len(labels.low))
        if shape is not None and len(shape) == len(labels.low):
            axes = labels.axes(shape, operator.normalizers.x.period)
            points = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(prod(shape), -1)
        else:
            shape = None
    if points is None:
        return given  # at the observed points
    keys = [key for key in ("x", "u", "parameters") if key in given.names]
    return Fields(
        given.x,
        given.u,
        points,
        parameters=given.parameters,
        weights=given.weights,
        grid=shape,
        space=given.space,
        names={key: given.names[key] for key in keys},
        units={key: given.units[key] for key in keys},
    )


def _shape(text: str, axes: int) -> tuple[int, ...]:
    parts = text.lower().split("x")
    if len(parts) != axes or not all(p.isdigit() and int(p) > 0 for p in parts):
        raise ValueError(
            f"--grid {text}: expected {axes} numbers joined by x, like {'x'.join(['64'] * axes)}"
        )
    return tuple(int(p) for p in parts)


def _as_fields(operator: Operator, asked: Fields, prediction: Any) -> Fields:
    """The predictions as data, with the names and units of the operator."""
    labels = operator.labels
    given = ("u", *(["parameters"] if asked.parameters is not None else []))
    names, units = (
        {"x": ours["x"], "y": ours["y"], **{key: theirs[key] for key in given}}
        for ours, theirs in ((labels.names, asked.names), (labels.units, asked.units))
    )
    return Fields(
        asked.x,
        asked.u,
        None if asked.same_points else asked.x_query,
        prediction,
        parameters=asked.parameters,
        cells=asked.cells,
        grid=asked.grid,
        grid_index=asked.grid_index,
        geometry=asked.geometry,
        space=asked.space,
        period=operator.normalizers.x.period,
        names=names,
        units=units,
        frame=labels.frame,
        provenance={"model": operator.provenance},
    )
