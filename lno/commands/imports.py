"""`lno data import`: data of other programs in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lno.commands.console import command, require_h5, say, show, show_table
from lno.data.grids import POINTS
from lno.data.importing import import_files
from lno.data.importing.understood import HEADER
from lno.experiments.pictures import sample_gallery
from lno.report import plots
from lno.report.tables import Table

EXAMPLE = "Example: lno data import plates.npz --out plates.h5 --positions nodes:x,y --outputs T"


def option(text: str) -> typer.models.OptionInfo:
    """An option that may be given several times, with one or more names each."""
    return typer.Option(help=text, metavar="NAMES", show_default=False)


def import_data(
    paths: Annotated[
        list[Path],
        typer.Argument(help="NPZ, NPY, CSV, HDF5, NetCDF, MATLAB or mesh files of one format."),
    ],
    result: Annotated[Path, typer.Option("--out", help="The file to write (.h5).")],
    positions: Annotated[list[str] | None, option("Coordinates: x,y or nodes:lon,lat.")] = None,
    inputs: Annotated[list[str] | None, option("Values given at the points.")] = None,
    outputs: Annotated[list[str] | None, option("Values to predict at the points.")] = None,
    parameters: Annotated[
        list[str] | None,
        option("Numbers per sample: Re, time.month of dates, cases.csv:Re,angle."),
    ] = None,
    covariates: Annotated[
        list[str] | None, option("Known at all points, but not positions: elevation.")
    ] = None,
    weights: Annotated[str | None, option("The size that each point represents.")] = None,
    background: Annotated[list[str] | None, option("A known first guess of the outputs.")] = None,
    cells: Annotated[str | None, option("Triangles or quadrilaterals between points.")] = None,
    sample: Annotated[
        str | None,
        option("What identifies samples: a column, an axis or its number, or 'file'."),
    ] = None,
    time: Annotated[str | None, option("The time: the last coordinate.")] = None,
    axes: Annotated[
        list[str] | None, option("Coordinates along the axes of a grid: lat,lon.")
    ] = None,
    grid: Annotated[
        str,
        typer.Option(help=f"Points of a grid without coordinates: {', '.join(POINTS)}."),
    ] = "endpoints",
    log: Annotated[list[str] | None, option("Channels to replace by their logarithm.")] = None,
    period: Annotated[
        list[str] | None,
        option("Periods of coordinates: lon=360. Parameters are kept modulo theirs: month=12."),
    ] = None,
    units: Annotated[list[str] | None, option("Units: T=K,x=m.")] = None,
    split: Annotated[
        str | None,
        typer.Option(
            metavar="TRAIN,VALIDATION,TEST",
            help="Numbers of samples, in file order; also TRAIN,TEST. Without it, 'lno train' "
            "splits at random.",
            show_default=False,
        ),
    ] = None,
    shuffle: Annotated[
        int | None,
        typer.Option(min=0, help="Put the samples in random order: a seed. Before --split."),
    ] = None,
    plot: Annotated[
        bool, typer.Option("--plot", help="Also draw the first samples, next to the file (.png).")
    ] = False,
) -> None:
    """Import data of other programs. What is not said is guessed, and what was understood printed.

    NAMES are variables or columns of the files, as in x,y; columns of an array get names after a
    colon, nodes:lon,lat. A point where an output is NaN is left out.
    """
    require_h5(result)
    if result.resolve() in {path.resolve() for path in paths}:
        raise ValueError(f"cannot write {result}: it is read from, and would be lost")
    found = import_files(
        paths,
        positions=positions,
        inputs=inputs,
        outputs=outputs,
        parameters=parameters,
        covariates=covariates,
        weights=weights,
        background=background,
        cells=cells,
        sample=sample,
        time=time,
        axes=axes,
        grid=grid,
        log=log,
        period=period,
        units=units,
        split=split,
    )
    title = str(paths[0]) if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
    show_table(Table(title, HEADER, found.table, [f"- {note}" for note in found.notes]))
    fields = found.fields
    if shuffle is not None:
        fields = fields.shuffle(shuffle)
        origin = {**fields.provenance["import"], "shuffled, seed": shuffle}
        fields.provenance = {**fields.provenance, "import": origin}
    fields.save(result)
    show(f"wrote {result}: {fields}")
    if plot:
        picture = result.with_suffix(".png")
        try:
            plots.save(sample_gallery(fields), picture)
            show(f"wrote {picture}")
        except ValueError as error:  # more than three coordinates, or positions only
            say(f"no picture: {error}")
    show(f"Next: {command('data', 'check', result)}")
