"""What the axes of each variable are, where only their lengths are known.

An arrangement is looked for that the shapes of all variables fit, the likely ones first.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from lno.data.foreign import ForeignFileError
from lno.data.importing.arrange import CELLS, CHANNEL, SAMPLE, Arrangement, Axes, Points
from lno.data.imports.source import Source, Variable
from lno.data.mapping import FILE, Layout, Roles, Term

POINT = "points"
UNIT_NAMES = ("x", "y", "z")  # of the axes of a grid that has no coordinates
FEW = 4  # channels or coordinates, at most, that an axis may be if nothing else says so


def by_shapes(source: Source, roles: Roles, layout: Layout) -> Arrangement:
    """The arrangement of variables whose axes have lengths only."""
    for strict in (True, False):  # first with as many channels as names for them were given
        for points, positions, coordinates, is_grid in _hypotheses(source, roles, layout):
            found = _fit(source, roles, layout, points, positions, strict)
            if found is not None:
                axes, samples = found
                return Arrangement(axes, points, coordinates, samples, is_grid)
    used = [
        f"{role} {source.variables[term.variable].described()}"
        for role, terms in roles.each()
        for term in terms
        if role != "cells"
    ]
    used += [f"axes {source.variables[name].described()}" for name in layout.axes]
    raise ForeignFileError(
        f"{source.name}: the shapes do not fit together: {', '.join(used)}. Expected positions "
        "(points, coordinates) or (samples, points, coordinates), inputs and outputs (samples, "
        "points, channels), parameters (samples, parameters), or grids (samples, …) with axes. "
        "Inputs and outputs are at the same points; for others use "
        "lno.Fields(x, u, x_query, y) in Python"
    )


Hypothesis = tuple[Points, dict[str, Axes], tuple[Term | str, ...], bool]


def _hypotheses(source: Source, roles: Roles, layout: Layout) -> Iterator[Hypothesis]:
    """Axes of points that the variables may have, the likely ones first."""
    in_time: list[tuple[str, Variable]] = []
    if layout.time is not None:
        in_time = [(layout.time, source.find(layout.time, "time"))]
    for points, positions, coordinates, is_grid in _places(source, roles, layout):
        if not in_time:
            yield points, positions, coordinates, is_grid
            continue
        [(name, variable)] = in_time
        every = (*coordinates, Term(name))
        if len(variable.shape) == 1:
            axis = (name, variable.shape[0])
            yield (*points, axis), {**positions, name: (name,)}, every, is_grid
        shapes = {len(axes): axes for axes in positions.values()}
        if len(variable.shape) in shapes:  # a time for each point
            same = shapes[len(variable.shape)]
            yield points, {**positions, name: same}, every, is_grid


def _places(source: Source, roles: Roles, layout: Layout) -> Iterator[Hypothesis]:
    if layout.axes:
        variables = [source.find(name, "axes") for name in layout.axes]
        for variable in variables:
            if len(variable.shape) != 1:
                raise ForeignFileError(
                    f"{source.name}: axes: expected {variable.name} with one axis, got "
                    f"{variable.shape}; coordinates of every point are positions"
                )
        points = tuple((v.name, v.shape[0]) for v in variables)
        labels: dict[str, Axes] = {v.name: (v.name,) for v in variables}
        yield points, labels, tuple(Term(v.name) for v in variables), True
    elif roles.positions:
        yield from _given_places(source, roles.positions)
    else:
        for shape in _unit_shapes(source, roles, layout):
            names = UNIT_NAMES if len(shape) <= 3 else [f"x{k}" for k in range(len(shape))]
            points = tuple(zip(names, shape, strict=False))
            yield points, {}, tuple(name for name, _ in points), True


def _given_places(source: Source, terms: Sequence[Term]) -> Iterator[Hypothesis]:
    """From arrays of coordinates: one with columns, or one for each coordinate."""
    variables = [source.variables[term.variable] for term in terms]
    shapes = [v.shape for v in variables]
    one, coordinates = len(terms) == 1, tuple(terms)
    columns = len(terms[0].columns) if one else 1

    def labelled(axes: Axes) -> dict[str, Axes]:
        return {v.name: (*axes, CHANNEL) if with_channel else axes for v in variables}

    with_channel = one and len(shapes[0]) > 1 and shapes[0][-1] in (columns, *range(1, FEW))
    with_channel &= not (columns > 1 and shapes[0][-1] != columns)
    lead = shapes[0][:-1] if with_channel else shapes[0]
    if len(set(shapes)) == 1 and lead:
        if len(lead) == 1:
            yield ((POINT, lead[0]),), labelled((POINT,)), coordinates, False
        if len(lead) > 1:
            points = _grid_axes(lead[1:])
            inner = tuple(name for name, _ in points)
            yield points, labelled((SAMPLE, *inner)), coordinates, len(lead) > 2
            points = _grid_axes(lead)
            yield points, labelled(tuple(name for name, _ in points)), coordinates, True
    if all(len(shape) == 1 for shape in shapes) and not one:
        points = tuple((v.name, v.shape[0]) for v in variables)
        yield points, {v.name: (v.name,) for v in variables}, coordinates, True


def _grid_axes(shape: Sequence[int]) -> Points:
    if len(shape) == 1:
        return ((POINT, shape[0]),)
    return tuple((f"axis {k}", n) for k, n in enumerate(shape))


def _unit_shapes(source: Source, roles: Roles, layout: Layout) -> Iterator[tuple[int, ...]]:
    """Shapes of a grid that values (samples, …) may have, with channels last, first or none."""
    terms = roles.outputs or roles.inputs
    for term in terms[:1]:
        shape = source.variables[term.variable].shape
        if layout.sample != FILE:
            at = _number(layout.sample)
            if not shape or (at is not None and not -len(shape) <= at < len(shape)):
                return
            shape = tuple(n for k, n in enumerate(shape) if k != (at or 0) % len(shape))
        if not shape:
            raise ForeignFileError(
                f"{source.name}: {source.variables[term.variable].described()} has one number for "
                "each sample: expected values at points, such as the field that it is computed "
                "from. If the file is one sample, say sample: file"
            )
        if layout.time is not None:  # taken away, wherever it is
            length = source.find(layout.time, "time").shape
            places = [k for k, n in enumerate(shape) if (n,) == length]
            shape = tuple(n for k, n in enumerate(shape) if k not in places[:1])
        named = len(term.columns)
        last = len(shape) > 1 and (shape[-1] == named if named > 1 else shape[-1] <= FEW)
        first = len(shape) > 1 and (shape[0] == named if named > 1 else shape[0] <= FEW)
        small = len(shape) > 2 or named > 1  # (samples, 64, 2) is a grid of 64 × 2 otherwise
        if last and small:
            yield shape[:-1]
        if first and small:
            yield shape[1:]
        yield shape
        if last and not small:
            yield shape[:-1]


def _fit(
    source: Source,
    roles: Roles,
    layout: Layout,
    points: Points,
    positions: dict[str, Axes],
    strict: bool,
) -> tuple[dict[str, Axes], int | None] | None:
    """Axes of all variables and the number of samples under a hypothesis; None: it does not fit."""
    sizes = {v: source.variables[v].shape for v in positions}
    counts = {
        shape[axes.index(SAMPLE)]
        for shape, axes in zip(sizes.values(), positions.values(), strict=True)
        if SAMPLE in axes
    }
    number, samples = _number(layout.sample), next(iter(counts), None)
    alone = layout.sample == FILE
    if layout.sample is not None and number is None and not alone:
        named = source.find(layout.sample, "sample")
        if len(named.shape) != 1 or (samples is not None and samples != named.shape[0]):
            return None
        samples = named.shape[0]
    found = dict(positions)
    values = [*roles.outputs, *roles.inputs, *roles.background, *roles.covariates, *roles.weights]
    for term in values:
        shape = source.variables[term.variable].shape
        axes = _match(shape, points, samples, len(term.columns) * strict, number, alone)
        if axes is None:
            return None
        found[term.variable] = axes
        if SAMPLE in axes:
            samples = shape[axes.index(SAMPLE)]
    for term in roles.parameters:
        shape = source.variables[term.variable].shape
        own = _parameter_axes(shape, samples, number)
        if own is None:
            return None
        found[term.variable] = own
        samples = shape[own.index(SAMPLE)] if SAMPLE in own else samples
    for term in roles.cells:
        found[term.variable] = CELLS
    return found, samples


def _parameter_axes(shape: tuple[int, ...], samples: int | None, number: int | None) -> Axes | None:
    if len(shape) > 2:
        return None
    if samples is None:
        return (CHANNEL,) * len(shape)
    last = number is not None and len(shape) == 2 and number in (1, -1)
    axes = ((), (SAMPLE,), (CHANNEL, SAMPLE) if last else (SAMPLE, CHANNEL))[len(shape)]
    return axes if not shape or shape[axes.index(SAMPLE)] == samples else None


def _match(
    shape: tuple[int, ...],
    points: Points,
    samples: int | None,
    columns: int,
    number: int | None,
    alone: bool,
) -> Axes | None:
    """The axes of values: the points in any order, one after the other; samples and channels.

    Args:
        shape: of the values.
        points: the axes that they must have.
        samples: how many, if that is known.
        columns: how many channels have names; 0: not known.
        number: of the axis of samples, if the user says so.
        alone: the file is one sample.
    """
    if number is not None:
        if not -len(shape) <= number < len(shape):
            return None
        at = number % len(shape)
        rest = _match((*shape[:at], *shape[at + 1 :]), points, None, columns, None, True)
        whole = None if rest is None else (*rest[:at], SAMPLE, *rest[at:])
        return whole if samples is None or shape[at] == samples else None
    for order in itertools.permutations(points):
        names, lengths = (tuple(part) for part in zip(*order, strict=True))
        for axes in _patterns(names, alone):
            if len(axes) != len(shape):
                continue
            known = dict(zip(names, lengths, strict=True))
            known |= {SAMPLE: samples} if samples is not None else {}
            known |= {CHANNEL: columns} if columns else {}
            if all(known.get(axis, n) == n for axis, n in zip(axes, shape, strict=True)):
                return axes
    return None


def _patterns(points: Axes, alone: bool) -> Iterator[Axes]:
    if not alone:
        yield (SAMPLE, *points)
        yield (SAMPLE, *points, CHANNEL)
        yield (SAMPLE, CHANNEL, *points)
    yield points
    yield (*points, CHANNEL)
    yield (CHANNEL, *points)


def _number(sample: str | None) -> int | None:
    """The number of an axis, if that is what tells samples apart."""
    text = sample or ""
    return int(text) if text.lstrip("-").isdigit() and len(text) < 4 else None
