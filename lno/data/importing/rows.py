"""Tables whose rows are points: a file for each sample, or one column that tells samples apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from lno.data.foreign import ForeignFileError
from lno.data.imports.source import Source, Variable
from lno.data.mapping import FILE, Layout, Roles

ROW = "row"


def is_table(source: Source, roles: Roles, layout: Layout) -> bool:
    """Whether all variables that are used are columns of the same length, with the sample's."""
    if source.is_table:
        return True
    if layout.sample is None or layout.sample not in source.variables:
        return False
    shape = source.variables[layout.sample].shape
    every = (roles.positions, roles.inputs, roles.outputs, roles.covariates)
    used = [source.variables[term.variable].shape for terms in every for term in terms]
    return len(shape) == 1 and bool(roles.positions) and all(other == shape for other in used)


def split_rows(sources: Sequence[Source], roles: Roles, layout: Layout) -> list[Source]:
    """A source for each sample, in the order in which samples first appear.

    Without a column of samples every file is one. The rows of a sample may be in several files.
    """
    if not roles.positions and layout.time is None:
        raise ForeignFileError(
            f"{sources[0].name}: say which columns are the positions of the points; it holds "
            f"{sources[0].listed()}"
        )
    used = {term.variable for _, terms in roles.each() for term in terms}
    used |= {layout.time} if layout.time else set()
    if layout.sample in (None, FILE):
        return [
            Source(s.name, {n: _column(s.variables[n]) for n in used}, True, s.notes)
            for s in sources
        ]
    assert layout.sample is not None
    labels = np.concatenate([_labels(source, layout.sample) for source in sources])
    _, first, group = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))[group.ravel()]
    order = np.argsort(rank, kind="stable")
    ends = np.cumsum(np.bincount(rank))
    parts = np.split(order, ends[:-1])
    columns = {
        name: np.concatenate([source.variables[name].read() for source in sources]) for name in used
    }
    units = {name: sources[0].variables[name].unit for name in used}
    shown = [str(labels[index[0]]) for index in parts]
    return [
        Source(
            f"{sources[0].name}, {layout.sample} {label}",
            {
                n: _column(Variable(n, index.shape, _part(columns[n], index), unit=units[n]))
                for n in used
            },
            True,
            sources[0].notes if k == 0 else (),
            label,
        )
        for k, (label, index) in enumerate(zip(shown, parts, strict=True))
    ]


def _part(values: np.ndarray, index: np.ndarray) -> Callable[[], np.ndarray]:
    return lambda: values[index]


def _column(variable: Variable) -> Variable:
    return Variable(
        variable.name, variable.shape, variable.read, variable.is_number, (ROW,), variable.unit
    )


def _labels(source: Source, name: str) -> np.ndarray:
    """What each row says about its sample, numbers as numbers."""
    variable = source.find(name, "sample")
    if variable.is_number:
        values = variable.read()
        if np.isnan(values).any():
            row = int(np.argmax(np.isnan(values)))
            raise ForeignFileError(f"{source.name}: {name!r} has no value in row {row + 1}")
        return values
    assert variable.texts is not None
    found = np.array(variable.texts())
    if (found == "").any():
        row = int(np.argmax(found == ""))
        raise ForeignFileError(f"{source.name}: {name!r} has no value in row {row + 1}")
    return found
