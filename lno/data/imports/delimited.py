"""CSV files: a header, then a row for each point. Also with semicolons, tabs or blanks."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import numpy as np

from lno.data.csv_text import as_number, note_mark, opened, require_one_decimal_mark
from lno.data.foreign import ForeignFileError
from lno.data.imports.source import Source, Variable
from lno.text import visible

BLOCK = 4096  # rows


def read_delimited(path: Path) -> Source:
    """The columns of a CSV file; cells that are empty or NaN have no value.

    A column that holds text may name samples; as numbers it is an error with line and column.
    """
    parts: list[np.ndarray] = []
    block: list[list[float]] = []  # rows that are not in `parts` yet: lists take much memory
    first_text: dict[int, tuple[int, str]] = {}  # column: its first line that is no number
    marks: dict[str, tuple[int, str]] = {}
    with opened(path) as text:
        _require_once(path, text.header)
        for line, cells in text.rows:
            block.append(_numbers(line, cells, text.comma, first_text, marks))
            if len(block) == BLOCK:
                parts.append(np.array(block))
                block = []
    require_one_decimal_mark(path, marks)
    parts += [np.array(block)] if block else []
    rows = sum(map(len, parts))
    if rows == 0:
        raise ForeignFileError(f"{path} has no rows below its header: expected a point in each")
    table = np.concatenate(parts)
    variables = {
        name: _variable(path, k, (name, unit), table[:, k], first_text.get(k))
        for k, (name, unit) in enumerate(zip(text.header, text.units, strict=True))
    }
    commas = ("decimals have a comma: 1,5 is one and a half",) if "," in marks else ()
    return Source(str(path), variables, is_table=True, notes=(*text.notes, *commas))


def _numbers(
    line: int,
    cells: list[str],
    comma: bool,
    first_text: dict[int, tuple[int, str]],
    marks: dict[str, tuple[int, str]],
) -> list[float]:
    """The numbers in a row; cells that hold none are noted, and their decimal marks."""
    try:
        found = list(map(float, cells))
        if not comma and math.isfinite(sum(found)) and "_" not in "".join(cells):
            return found  # nearly always, and fast
    except ValueError:
        pass
    values = [as_number(cell, comma) for cell in cells]
    for k, value in enumerate(values):
        if value is None:
            first_text.setdefault(k, (line, cells[k]))
        elif comma:
            note_mark(marks, line, cells[k])
    return [math.nan if value is None else value for value in values]


def _variable(
    path: Path, k: int, label: tuple[str, str], values: np.ndarray, text: tuple[int, str] | None
) -> Variable:
    name, unit = label

    def read() -> np.ndarray:
        if text is not None:
            line, cell = text
            advice = ": write decimals with a point" if "," in cell else ""
            raise ForeignFileError(
                f"{path}, line {line}, column {visible(name)!r}: expected a number, got "
                f"{visible(cell[:80])!r}{advice}"
            )
        return values

    def texts() -> list[str]:
        with opened(path) as again:
            return [cells[k].strip() for _, cells in again.rows]

    return Variable(name, values.shape, read, text is None, ("row",), unit, texts)


def _require_once(path: Path, header: list[str]) -> None:
    twice = [name for name, count in Counter(header).items() if count > 1]
    if "" in twice:
        raise ForeignFileError(f"{path}: several columns have no name: name them, or delete them")
    if twice:
        raise ForeignFileError(f"{path}: the column {visible(twice[0])!r} appears more than once")
