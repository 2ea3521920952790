"""What variables are likely to be, by their names and shapes, where a user does not say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from lno.data.foreign import ForeignFileError
from lno.data.importing.arrange import SAMPLE_NAMES, is_time
from lno.data.importing.shapes import FEW
from lno.data.imports.mesh import CENTRE
from lno.data.imports.source import Source, Variable
from lno.data.mapping import Layout, Roles, Term

# Names in lower case, the likely ones first.
SAMPLES = ("sample", "sample_id", "case", "case_id", "run", "run_id", "simulation", "realization")
POSITIONS = ("positions", "points", "nodes", "coords", "coordinates", "pos", "xy", "xyz", "x")
COORDINATES = (
    ("x", "y", "z"),
    ("x", "y"),
    ("lon", "lat"),
    ("longitude", "latitude"),
    ("x",),
    ("lat", "lon"),
    ("points:0", "points:1", "points:2"),  # ParaView
    ("points_0", "points_1", "points_2"),
    ("x-coordinate", "y-coordinate", "z-coordinate"),  # Fluent
    ("x-coordinate", "y-coordinate"),
)
CELLS = ("cells", "triangles", "elements", "faces", "connectivity")
WEIGHTS = ("weights",)
PARAMETERS = ("parameters", "params", "mu", "theta")
INPUTS = ("inputs", "input", "u", "a", "coefficient", "coeff", "permeability", "source", "forcing")
OUTPUTS = ("outputs", "output", "targets", "target", "y", "solution", "solutions", "sol", "values")
LONGITUDES = ("lon", "longitude")


def guess(source: Source, roles: Roles, layout: Layout, several: bool) -> tuple[Roles, Layout]:
    """Fill in what can be told from names and shapes.

    Positions, axes, samples, time and cells are filled in one by one. What is to be learned
    (inputs, outputs, parameters) is guessed as a whole, if the user says nothing of it.

    Args:
        source: the file, or the first one.
        roles: what the user says.
        layout: what the user says.
        several: whether there are more files.
    """
    _require_names(source, roles, layout)
    if source.is_table:
        layout = _guess_samples(source, roles, layout, several)
    if not (roles.inputs or roles.outputs or roles.parameters):
        roles = _guess_problem(source, roles, layout)
    if not roles.positions and not layout.axes:
        roles, layout = _guess_places(source, roles, layout)
    if layout.time is None:
        layout = _guess_time(source, roles, layout)
    at_centres = any(t.variable.endswith(CENTRE.format("").strip()) for t in roles.positions)
    name = _first(_free(source, roles, layout), CELLS)
    if name is not None and not roles.cells and not at_centres:
        found = source.variables[name]
        if len(found.shape) in (2, 3) and (found.shape[-1] in (3, 4) or found.shape[0] in (3, 4)):
            roles = replace(roles, cells=(Term(name),))
    if not roles.weights and (name := _first(_free(source, roles, layout), WEIGHTS)):
        roles = replace(roles, weights=(Term(name),))
    return roles, layout


def unused(source: Source, roles: Roles, layout: Layout) -> list[Variable]:
    """The variables that were not used, so that nothing is dropped silently."""
    parts = {term.variable.rpartition(".")[0] for term in roles.parameters}  # time of time.month
    return [source.variables[name] for name in _free(source, roles, layout) if name not in parts]


def period_of(name: str, values: np.ndarray) -> float | None:
    """360 for longitudes in degrees that go once around, else None.

    >>> period_of("lon", np.arange(0, 360, 2.5)), period_of("lon", np.arange(0, 90, 2.5))
    (360.0, None)
    """
    ticks = np.unique(values)
    if name.lower() not in LONGITUDES or len(ticks) < 4:
        return None
    steps = np.diff(ticks)
    even = np.allclose(steps, steps[0], rtol=1e-3)
    return 360.0 if even and abs(len(ticks) * steps.mean() - 360) < 1e-3 * 360 else None


def _require_names(source: Source, roles: Roles, layout: Layout) -> None:
    for role, terms in roles.each():
        for term in terms:
            source.find(term.variable, role)
    for name in layout.axes:
        source.find(name, "axes")
    if layout.time is not None:
        source.find(layout.time, "time")
    taken: dict[str, str] = {}
    for role, terms in roles.each():
        for term in terms:
            other = taken.setdefault(term.variable, role)
            if other != role and {other, role} & {"positions", "cells", "parameters", "outputs"}:
                raise ForeignFileError(
                    f"{source.name}: {term.variable!r} was named for {other} and for {role}: "
                    "expected each variable once"
                )


def _free(source: Source, roles: Roles, layout: Layout) -> list[str]:
    """Variables without a role."""
    used = {term.variable for _, terms in roles.each() for term in terms}
    used |= {*layout.axes, layout.time or "", layout.sample or ""}
    return [name for name in source.variables if name not in used]


def _first(names: Iterable[str], likely: Sequence[str]) -> str | None:
    lower = {name.lower(): name for name in names}
    return next((lower[name] for name in likely if name in lower), None)


def _guess_samples(source: Source, roles: Roles, layout: Layout, several: bool) -> Layout:
    """The columns of a table that tell samples apart, and of time.

    Where nothing else tells samples apart, every time is one.
    """
    free = _free(source, roles, layout)
    if layout.sample is None:
        layout = replace(layout, sample=_first(free, SAMPLES))
    time = next((name for name in free if is_time(name) and name != layout.sample), None)
    if time is None or layout.time is not None or roles.positions:
        return layout
    if layout.sample is None and not several:
        return replace(layout, sample=time)
    return replace(layout, time=time) if source.variables[time].is_number else layout


def _guess_time(source: Source, roles: Roles, layout: Layout) -> Layout:
    """The variable along an axis of time, where another one is that of the samples."""
    named = [source.variables[n] for n in _free(source, roles, layout) if is_time(n)]
    time = next(iter(named), None)
    values = [source.variables[t.variable] for t in (*roles.outputs, *roles.inputs)][:1]
    if time is None or not time.is_number or len(time.shape) != 1 or not values or source.is_table:
        return layout
    axes, shape = values[0].axes, values[0].shape
    if axes is not None:
        known = layout.sample in axes or any(axis.lower() in SAMPLE_NAMES for axis in axes)
        found = known and time.axes is not None and time.axes[0] in axes
    else:
        others = len(layout.axes) or 1
        found = len(shape) >= others + 2 and time.shape[0] in shape[1:]
        places = [source.variables[n].shape[0] for n in layout.axes]
        known = bool(places) or bool(roles.positions)
        found &= time.shape[0] not in places and (known or shape.count(time.shape[0]) == 1)
    return replace(layout, time=time.name) if found else layout


def _guess_places(source: Source, roles: Roles, layout: Layout) -> tuple[Roles, Layout]:
    """Positions by their names, or the coordinates along the axes of a grid."""
    free = {n: source.variables[n] for n in _free(source, roles, layout)}
    free = {name: v for name, v in free.items() if v.is_number}
    lower = {name.lower(): name for name in free}
    values = [source.variables[t.variable] for t in (*roles.outputs, *roles.inputs)]
    centres = [name for name in free if name.endswith(CENTRE.format("").strip())]
    if centres and values and values[0].axes and values[0].axes[0] == "centre":
        return replace(roles, positions=tuple(Term(n, (n[0],)) for n in centres)), layout
    for likely in POSITIONS:
        found = free.get(lower.get(likely, ""))
        if found is not None and len(found.shape) > 1 and found.shape[-1] <= 3:
            return replace(roles, positions=(Term(found.name),)), layout
    for several in COORDINATES:
        names = [lower[name] for name in several if name in lower]
        alike = len({len(free[name].shape) for name in names}) == 1  # x (n,) and y (s, n): a value
        if len(names) == len(several) and alike and (several[0] != "lat" or not source.is_table):
            return _as_axes([free[name] for name in names], values, roles, layout)
    return _along_time(source, roles, layout), layout


def _along_time(source: Source, roles: Roles, layout: Layout) -> Roles:
    """Times as positions, where values (samples, times) have nothing else: time series."""
    values = [source.variables[t.variable].shape for t in (*roles.outputs, *roles.inputs)]
    for name in _free(source, roles, layout):
        length = source.variables[name].shape
        alone = all(
            shape[1:2] == length and (len(shape) == 2 or (len(shape) == 3 and shape[2] <= FEW))
            for shape in values
        )
        if is_time(name) and values and len(length) == 1 and alone and not source.is_table:
            return replace(roles, positions=(Term(name),))
    return roles


def _as_axes(
    found: Sequence[Variable], values: Sequence[Variable], roles: Roles, layout: Layout
) -> tuple[Roles, Layout]:
    """Coordinates of every point, or along the axes of a grid, in the order that values have."""
    positions = replace(roles, positions=tuple(Term(v.name) for v in found))
    if not values or any(len(v.shape) != 1 for v in found):
        return positions, layout
    if found[0].axes is not None:
        one_axis = len({v.axes for v in found}) == 1 and len(found) > 1
        if one_axis or any(
            v.axes is None or v.axes[0] not in (values[0].axes or ()) for v in found
        ):
            return positions, layout
        order = sorted(found, key=lambda v: (values[0].axes or ()).index((v.axes or ("",))[0]))
        if len(found) == 1 and found[0].axes != (found[0].name,):
            return positions, layout
        return roles, replace(layout, axes=tuple(v.name for v in order))
    shape = values[0].shape
    lengths = [v.shape[0] for v in found]
    if len(found) == 1:
        return positions, layout
    if all(n in shape for n in lengths) and len(shape) > len(found):
        given = list(found)
        if len(set(lengths)) == len(lengths):
            given.sort(key=lambda v: shape.index(v.shape[0]))
        elif given[0].name.lower() in LONGITUDES:
            given.reverse()  # grids of the Earth are mostly kept as (lat, lon)
        return roles, replace(layout, axes=tuple(v.name for v in given))
    return positions, layout


def _guess_problem(source: Source, roles: Roles, layout: Layout) -> Roles:
    """Inputs, outputs and parameters, if the names leave no doubt."""
    places, with_axes = _guess_places(source, roles, layout)
    if roles.positions or layout.axes:
        places, with_axes = roles, layout
    free = [n for n in _free(source, places, with_axes) if source.variables[n].is_number]
    free = [n for n in free if n.lower() not in (*CELLS, *WEIGHTS, *SAMPLES)]
    if layout.time is None and not source.is_table:
        free = [n for n in free if not is_time(n)]
    parameters = _first(free, PARAMETERS)
    free = [n for n in free if n != parameters and CENTRE.format("").strip() not in n]
    outputs = _first(free, OUTPUTS)
    inputs = _first([n for n in free if n != outputs], INPUTS)
    if outputs is None and inputs is not None and len(free) == 2:
        # a → u: the other one of two is the output.
        outputs = next(n for n in free if n != inputs)
        if inputs.lower() == "u":
            inputs, outputs = outputs, inputs
    values = [n for n in free if len(source.variables[n].shape) > (0 if source.is_table else 1)]
    others = [v for n in _free(source, places, with_axes) if (v := source.variables[n]).shape[1:]]
    unread = any(not v.is_number for v in others)  # complex numbers may be the outputs
    if outputs is None and len(values) == 1 and not unread:
        outputs, inputs = values[0], None
    if outputs is None:
        raise ForeignFileError(
            f"cannot tell what is to be learned from {source.name}: say which variables are outputs"
            f" (and inputs, parameters). It holds {source.listed()}"
        )
    return replace(
        roles,
        outputs=(Term(outputs),),
        inputs=(Term(inputs),) if inputs else (),
        parameters=(Term(parameters),) if parameters else (),
    )
