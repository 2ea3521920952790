"""Which variables of a file are positions, inputs, outputs and so on.

A user names variables as text, `x,y`, or one array whose columns get names, `nodes:lon,lat`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from lno.data.checks import described, require_instance
from lno.data.grids import POINTS

FILE = "file"  # as the sample: every file is one


@dataclass(frozen=True)
class Term:
    """A variable, and names for its columns if they have any.

    >>> parse("positions", "nodes:lon,lat")
    (Term(variable='nodes', columns=('lon', 'lat')),)
    """

    variable: str
    columns: tuple[str, ...] = ()


Terms = tuple[Term, ...]


@dataclass(frozen=True)
class Roles:
    """Variables by what they are; empty where there are none.

    Args:
        positions: coordinates of the points.
        inputs, outputs: values at the points.
        parameters: numbers of a whole sample.
        covariates: known at all points, but no positions.
        weights: the size that each point stands for.
        background: a known first guess of the outputs.
        cells: triangles or quadrilaterals between the points.
    """

    positions: Terms = ()
    inputs: Terms = ()
    outputs: Terms = ()
    parameters: Terms = ()
    covariates: Terms = ()
    weights: Terms = ()
    background: Terms = ()
    cells: Terms = ()

    def each(self) -> Iterator[tuple[str, Terms]]:
        """Roles and their variables."""
        return ((field.name, getattr(self, field.name)) for field in fields(self))

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> Roles:
        """From texts or lists of texts, by role."""
        found = {role: parse(role, value) for role, value in given.items()}
        for role in ("weights", "cells"):
            if len(found.get(role, ())) > 1:
                raise ValueError(f"{role}: expected one variable, got {given[role]!r}")
        return cls(**found)


@dataclass(frozen=True)
class Layout:
    """How variables are arranged, and what to do with them.

    Args:
        sample: what tells samples apart: a column of a table, an axis by its name or number, a
            variable along it, or "file". None: found by names and shapes.
        time: the variable that is the time of a point, the last coordinate.
        axes: variables that are the coordinates along the axes of a grid.
        grid: where the points of a grid lie whose axes have no coordinates, as in `lno.grid`.
        log: channels of which the logarithm is kept.
        period: of coordinates, and of parameters, which are kept modulo it.
        units: of coordinates and channels.
        split: how many samples are for training, validation (if given) and testing, in this order.
    """

    sample: str | None = None
    time: str | None = None
    axes: tuple[str, ...] = ()
    grid: str = "endpoints"
    log: tuple[str, ...] = ()
    period: Mapping[str, float] | None = None
    units: Mapping[str, str] | None = None
    split: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.grid not in POINTS:
            raise ValueError(f"grid: expected one of {', '.join(POINTS)}, got {self.grid!r}")
        for name, length in (self.period or {}).items():
            if not isinstance(length, int | float) or not 0 < length < float("inf"):
                raise ValueError(f"period of {name}: expected a positive number, got {length!r}")


def parse(role: str, given: Any) -> Terms:
    """Variables of a role; after a colon stand the names of the columns of one of them.

    >>> parse("inputs", "a,b")
    (Term(variable='a', columns=()), Term(variable='b', columns=()))
    >>> parse("outputs", ["p", "velocity:u,v"])
    (Term(variable='p', columns=()), Term(variable='velocity', columns=('u', 'v')))
    """
    found: list[Term] = []
    for text in texts(role, given):
        begun = False  # a colon was seen: names of columns follow
        for piece in text.split(","):
            name, colon, column = (part.strip() for part in piece.partition(":"))
            if colon:
                begun = True
                found.append(Term(name, (column,)))
            elif begun:
                last = found[-1]
                found[-1] = Term(last.variable, (*last.columns, name))
            else:
                found.append(Term(name))
    for term in found:
        if not term.variable or not all(term.columns):
            raise ValueError(
                f"{role}: expected names like 'a,b', or 'nodes:lon,lat' for an array with columns; "
                f"got {given!r}"
            )
    return tuple(found)


def names(role: str, given: Any) -> tuple[str, ...]:
    """Names without columns, of a text like "lat,lon" or a list."""
    return tuple(name.strip() for text in texts(role, given) for name in text.split(","))


def pairs(role: str, given: Any) -> dict[str, str]:
    """Names and what is said of them: of a mapping, or of texts like "lon=360".

    >>> pairs("units", "T=K,lon=degrees east")
    {'T': 'K', 'lon': 'degrees east'}
    """
    if isinstance(given, Mapping):
        return {str(name): value for name, value in given.items()}
    found = {}
    for text in texts(role, given):
        for piece in text.split(","):
            name, equals, value = (part.strip() for part in piece.partition("="))
            if not equals or not name or not value:
                raise ValueError(f"{role}: expected pairs like lon=360, got {piece!r}")
            found[name] = value
    return found


def counts(role: str, given: Any) -> tuple[int, ...]:
    """Two or three numbers of samples, of a text like "800,100,100" or a list; none of None.

    >>> counts("split", "800,100,100"), counts("split", (900, 100)), counts("split", None)
    ((800, 100, 100), (900, 100), ())
    """
    if given is None:
        return ()
    several = given.split(",") if isinstance(given, str) else given
    if isinstance(several, list | tuple) and len(several) in (2, 3):
        found = [_count(value) for value in several]
        if all(found):
            return tuple(found)
    got = repr(given) if isinstance(given, str) else described(given)
    raise ValueError(
        f"{role}: expected two or three positive whole numbers, of training, validation (if given) "
        f"and test samples, like 800,100,100; got {got}"
    )


def _count(value: Any) -> int:
    """A positive whole number, also as text; 0: it is none."""
    if isinstance(value, str):
        return int(value) if value.strip().isdecimal() and len(value) < 16 else 0
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    return max(0, int(value)) if whole else 0


def texts(role: str, given: Any) -> Sequence[str]:
    """A text, or a list of texts, as a list; None is an empty one."""
    several = [] if given is None else given if isinstance(given, list | tuple) else [given]
    if not all(isinstance(text, str) and text.strip() for text in several):
        raise TypeError(f"{role}: expected names of variables as text, got {described(given)}")
    return several


def as_layout(given: Mapping[str, Any]) -> Layout:
    """A layout from what a user gives, as text or as Python values."""
    grid = given.get("grid")
    grid = "endpoints" if grid is None else grid
    require_instance("grid", grid, str, f"one of {', '.join(POINTS)}")
    period = {}
    for name, value in pairs("period", given.get("period")).items():
        try:
            period[name] = float(value)
        except (TypeError, ValueError):
            raise ValueError(f"period of {name}: expected a number, got {value!r}") from None
    single = {key: names(key, given.get(key)) for key in ("sample", "time")}
    for key, found in single.items():
        if len(found) > 1:
            raise ValueError(f"{key}: expected one name, got {', '.join(found)}")
    return Layout(
        sample=next(iter(single["sample"]), None),
        time=next(iter(single["time"]), None),
        axes=names("axes", given.get("axes")),
        grid=grid,
        log=names("log", given.get("log")),
        period=period,
        units=pairs("units", given.get("units")),
        split=counts("split", given.get("split")),
    )
