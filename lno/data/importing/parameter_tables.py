"""Parameters from a CSV file of their own, with a row for each sample."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from lno.data.csv_text import as_number
from lno.data.foreign import ForeignFileError
from lno.data.importing.arrange import SAMPLE
from lno.data.importing.assemble import Piece
from lno.data.importing.dates import with_date_parts
from lno.data.importing.names import own_name
from lno.data.imports import in_natural_order
from lno.data.imports.delimited import read_delimited
from lno.data.imports.source import Source
from lno.data.mapping import FILE, Layout, Term


def with_parameters(
    piece: Piece, term: Term, parts: Sequence[Source], layout: Layout
) -> tuple[Piece, list[list[str]], str]:
    """Add the columns of a CSV file; also the rows of the table of what was understood, and a note.

    Rows are found by a column that names the samples, if there is one. Else they are in the order
    of the samples.

    Args:
        piece: all samples.
        term: the file, and the columns that are wanted; none: all that hold numbers.
        parts: the files, or the parts of a table, that samples were read from.
        layout: says which column of a table tells samples apart.
    """
    source = with_date_parts(read_delimited(Path(term.variable)), term.columns)
    labels = _labels(parts) if len(parts) == piece.count else []
    key = _key(source, labels, None if layout.sample == FILE else layout.sample)
    wanted = tuple(map(own_name(source), term.columns)) or tuple(
        name for name, v in source.variables.items() if v.is_number and name != key
    )
    found = [source.find(name, "parameters").read() for name in wanted]
    if not found:
        raise ForeignFileError(f"{source.name}: expected columns of numbers, got {source.listed()}")
    if key is not None:
        rows, note = _by_name(source, key, labels), f"{source.name}: rows found by {key!r}"
        if len(found[0]) > len(rows):
            note += f", {len(found[0]) - len(rows)} of {len(found[0])} not used"
    else:
        rows, note = _in_order(source, len(found[0]), piece.count, parts)
    values = [column[rows] for column in found]
    own = [] if piece.parameters is None else [piece.parameters]
    names = {**piece.names, "parameters": [*piece.names.get("parameters", []), *wanted]}
    given = {name: source.variables[name].unit for name in wanted} | dict(layout.units or {})
    own_units = [given[name] for name in wanted]
    units = {**piece.units, "parameters": [*piece.units.get("parameters", []), *own_units]}
    ranges = {
        name: f"{np.min(v):.4g} to {np.max(v):.4g}" for name, v in zip(wanted, values, strict=True)
    }
    understood = [
        [
            "parameters" if name in ranges else "sample" if name == key else "not used",
            f"{term.variable}: {name}",
            str(source.variables[name].shape[0]),
            SAMPLE,
            ranges.get(name, ""),
        ]
        for name in source.variables
    ]
    parameters = np.column_stack([*own, *values])
    return replace(piece, parameters=parameters, names=names, units=units), understood, note


def _labels(parts: Sequence[Source]) -> list[set[str]]:
    """For each sample, what a table may call it: a value, or the name of its file."""
    return [
        {_plain(part.label)}
        if part.label
        else {_plain(part.name), _plain(Path(part.name).name), _plain(Path(part.name).stem)}
        for part in parts
    ]


def _plain(text: str) -> str:
    """A label as text; numbers, however they are written, as one text.

    >>> _plain("7"), _plain("7.0"), _plain(" run-7 ")
    ('7.0', '7.0', 'run-7')
    """
    number = as_number(text)
    return text.strip() if number is None or number != number else str(number)


def _key(source: Source, labels: Sequence[set[str]], sample: str | None) -> str | None:
    """The column that names the samples: called like theirs, or a text that holds some of them."""
    known = {label for several in labels for label in several}
    for name, variable in source.variables.items():
        texts = [] if variable.texts is None else variable.texts()
        text_or_same = not variable.is_number or name == sample
        if text_or_same and known & {_plain(text) for text in texts}:
            return name
    return None


def _by_name(source: Source, key: str, labels: Sequence[set[str]]) -> list[int]:
    """The row of each sample."""
    variable = source.variables[key]
    assert variable.texts is not None
    named: dict[str, int] = {}
    for row, text in enumerate(variable.texts()):
        if named.setdefault(_plain(text), row) != row:
            raise ForeignFileError(f"{source.name}, column {key!r}: {text!r} has two rows")
    rows: list[int] = []
    for several in labels:
        found = {named[label] for label in several if label in named}
        if len(found) != 1:
            shown = min(several, key=len)
            raise ForeignFileError(
                f"{source.name}, column {key!r}: expected one row for the sample {shown!r}, got "
                f"{len(found)}"
            )
        rows += found
    return rows


def _in_order(
    source: Source, rows: int, count: int, parts: Sequence[Source]
) -> tuple[list[int], str]:
    if rows != count:
        raise ForeignFileError(
            f"{source.name}: expected a row of parameters for each of the {count} samples, got "
            f"{rows} rows of numbers. With a column of the names of files or samples, further rows "
            "are left out"
        )
    files = [part.name for part in parts if not part.label]
    natural = in_natural_order(files)
    if files == sorted(files) and files != natural:
        k = next(k for k, name in enumerate(files) if name != natural[k])
        raise ForeignFileError(
            f"{source.name}: row {k + 1} may be that of {Path(files[k]).name}, as shells sort "
            f"files, or that of {Path(natural[k]).name}: add a column with the names of the files, "
            "or quote their pattern, which sorts 2 before 10"
        )
    note = f"{source.name}: rows are in the order of the samples"
    if len(files) == count > 1:
        note += f", {Path(files[0]).name} first and {Path(files[-1]).name} last"
    return list(range(count)), note
