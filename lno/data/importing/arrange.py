"""What the axes of each variable are, where the format names them: samples, points, channels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lno.config import did_you_mean
from lno.data.foreign import ForeignFileError
from lno.data.imports.source import Source
from lno.data.mapping import FILE, Layout, Roles, Term

SAMPLE, CHANNEL, CELLS = "samples", "channels", ("cells", "corners")
SAMPLE_NAMES = ("sample", "samples", "case", "member", "realization", "ensemble", "run", "batch")
Axes = tuple[str, ...]
Points = tuple[tuple[str, int], ...]  # names and lengths of the axes of points


@dataclass(frozen=True)
class Arrangement:
    """The axes of all variables that are used.

    Args:
        axes: of each variable, by its name: `SAMPLE`, those of points, `CHANNEL`.
        points: the axes of the points, in the order of the grid.
        coordinates: for each coordinate its variable, or its axis where the grid is the unit one.
        samples: how many; None: the variables have no such axis and are one sample.
        is_grid: whether the points form a grid.
    """

    axes: dict[str, Axes]
    points: Points
    coordinates: tuple[Term | str, ...]
    samples: int | None
    is_grid: bool


def by_names(source: Source, roles: Roles, layout: Layout) -> Arrangement:
    """The arrangement of variables whose axes have names."""

    def axes_of(names: Sequence[str]) -> list[str]:
        every = (source.variables[name].axes or () for name in names)
        return list(dict.fromkeys(axis for axes in every for axis in axes))

    values = axes_of([t.variable for t in (*roles.outputs, *roles.inputs)])
    time = [] if layout.time is None else axes_of([layout.time])
    given = axes_of([t.variable for t in roles.positions]) or axes_of(layout.axes)
    sample = _named_sample(source, values, [axis for axis in given if axis in values], layout)
    known = [axis for axis in given if axis in values and axis != sample]
    points = known or [axis for axis in values if axis not in (sample, *time)]
    points = [axis for axis in points if axis not in time]
    points += [axis for axis in time if axis in values and axis != sample]
    if not points:
        raise ForeignFileError(
            f"{source.name}: {', '.join(values) or 'nothing'} are the axes of the values, and none "
            "is left for the points: name the axis of the samples with sample"
        )
    found: dict[str, Axes] = {}
    lengths: dict[str, int] = {}
    for _, terms in roles.each():
        for term in terms:
            variable = source.variables[term.variable]
            lengths |= dict(zip(variable.axes or (), variable.shape, strict=True))
            found[term.variable] = tuple(
                SAMPLE if axis == sample else _own(axis) if axis in points else CHANNEL
                for axis in variable.axes or ()
            )
    for role in ("positions", "inputs", "outputs", "covariates", "weights", "background"):
        for term in getattr(roles, role):
            variable = source.variables[term.variable]
            if not set(variable.axes or ()) & set(points):
                advice = "A number per sample is a parameter"
                if {*(variable.axes or ()), *points} >= {"point", "centre"}:
                    advice = (
                        "One is at the nodes of the mesh, the other in its cells: convert one in "
                        "the program that made the file (in ParaView: 'Cell Data to Point Data')"
                    )
                raise ForeignFileError(
                    f"{source.name}: {role}: {variable.described()} has none of the axes of the "
                    f"points, {', '.join(points)}. {advice}"
                )
    found |= {term.variable: CELLS for term in roles.cells}
    for name in (*layout.axes, *([layout.time] if layout.time else [])):
        found[name] = tuple(
            SAMPLE if axis == sample else _own(axis) for axis in source.variables[name].axes or ()
        )
    coordinates: list[Term | str] = list(roles.positions) or [Term(name) for name in layout.axes]
    if not coordinates:
        for axis in points:
            own = source.variables.get(axis)
            if axis not in time:
                alone = own is not None and own.axes == (axis,) and own.is_number
                coordinates.append(Term(axis) if alone else _own(axis))
                found |= {axis: (_own(axis),)} if alone else {}
    coordinates += [Term(layout.time)] if layout.time else []
    shape = tuple((_own(axis), lengths[axis]) for axis in points)
    cloud = source.is_table or (bool(roles.positions) and len(known) == 1)
    samples = None if sample is None else lengths[sample]
    return Arrangement(found, shape, tuple(coordinates), samples, not cloud)


def is_time(name: str) -> bool:
    """Whether a name is likely that of time; T is a temperature."""
    return name == "t" or name.lower() == "time"


def _own(axis: str) -> str:
    """An axis of points, which may be called like one of ours."""
    return f"axis {axis}" if axis in (SAMPLE, CHANNEL) else axis


def _named_sample(
    source: Source, values: list[str], points: list[str], layout: Layout
) -> str | None:
    """The axis of the samples; None where there is none."""
    wanted = layout.sample
    if wanted == FILE or (source.is_table and wanted is None):
        return None
    if wanted is not None:
        along = source.variables[wanted].axes if wanted in source.variables else None
        axis = along[0] if along and len(along) == 1 else wanted
        if axis not in values:
            hint = did_you_mean(wanted, values)
            raise ForeignFileError(
                f"{source.name}: no axis {wanted!r} for sample{hint}; the values have the axes "
                f"{', '.join(values)}"
            )
        return axis
    likely = [axis for axis in values if axis.lower() in SAMPLE_NAMES]
    if likely:
        return likely[0]
    free = [axis for axis in values if axis not in points]
    in_time = [axis for axis in free if is_time(axis) and layout.time is None]
    if in_time and len(values) > 1:
        return in_time[0]
    if points:
        return free[0] if free and free[0] == values[0] else None
    bare = [axis for axis in free if axis not in source.variables]
    return bare[0] if len(free) > 1 and bare[:1] == free[:1] and len(bare) < len(free) else None
