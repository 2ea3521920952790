"""CSV files: a header, then a row for each point. Also with semicolons or tabs."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from lno.data.foreign import ForeignFileError
from lno.data.imports.source import Source, Variable
from lno.text import visible

SEPARATORS = (",", ";", "\t")
MISSING = {"", "nan", "na", "n/a", "null", "none"}  # cells without a value, in lower case
BLOCK = 4096  # rows
KIND = "a CSV file with a header"


def read_delimited(path: Path) -> Source:
    """The columns of a CSV file; cells that are empty or NaN have no value.

    A column that holds text may name samples; as numbers it is an error with line and column.
    """
    parts: list[np.ndarray] = []
    block: list[list[float]] = []  # rows that are not in `parts` yet: lists take much memory
    first_text: dict[int, tuple[int, str]] = {}  # column: its first line that is no number
    with _rows(path) as (header, lines):
        for number, cells in lines:
            block.append(_numbers(number, cells, first_text))
            if len(block) == BLOCK:
                parts.append(np.array(block))
                block = []
    parts += [np.array(block)] if block else []
    rows = sum(map(len, parts))
    if rows == 0:
        raise ForeignFileError(f"{path} has no rows below its header: expected a point in each")
    table = np.concatenate(parts)
    variables = {
        name: _variable(path, k, name, table[:, k], first_text.get(k))
        for k, name in enumerate(header)
    }
    return Source(str(path), variables, is_table=True)


def _numbers(line: int, cells: list[str], first_text: dict[int, tuple[int, str]]) -> list[float]:
    """The numbers in a row; cells that hold none are noted."""
    try:
        found = list(map(float, cells))
        if math.isfinite(sum(found)) and "_" not in "".join(cells):
            return found  # nearly always, and fast
    except ValueError:
        pass
    values = [as_number(cell) for cell in cells]
    for k, value in enumerate(values):
        if value is None:
            first_text.setdefault(k, (line, cells[k]))
    return [math.nan if value is None else value for value in values]


def as_number(cell: str) -> float | None:
    """The number in a cell; NaN where it is empty; None where it is something else.

    >>> as_number(" 1e-3 "), as_number("NA"), as_number("1,5"), as_number("inf")
    (0.001, nan, None, None)
    """
    text = cell.strip()
    if text.lower() in MISSING:
        return math.nan
    try:
        value = math.inf if "_" in text else float(text)  # Python reads 1_000 as a number
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _variable(
    path: Path, k: int, name: str, values: np.ndarray, text: tuple[int, str] | None
) -> Variable:
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
        with _rows(path) as (_, lines):
            return [cells[k].strip() for _, cells in lines]

    return Variable(name, values.shape, read, text is None, ("row",), texts=texts)


@contextmanager
def _rows(path: Path) -> Iterator[tuple[list[str], Iterator[tuple[int, list[str]]]]]:
    """The names of the columns, and line number and cells of each row that is not empty."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            head = file.readline()
            file.seek(0)
            separator = max(SEPARATORS, key=head.count)
            reader = csv.reader(file, delimiter=separator, strict=True)
            header = [name.strip() for name in next(reader, [])]
            _require_header(path, header)
            yield header, _checked(path, reader, header)
    except UnicodeDecodeError as error:
        raise ForeignFileError(f"{path} is not {KIND}: {error}") from error
    except csv.Error as error:
        line = reader.line_num
        raise ForeignFileError(f"{path}, line {line}: not {KIND}: {error}") from error


def _checked(path: Path, reader: Any, header: Sequence[str]) -> Iterator[tuple[int, list[str]]]:
    for cells in reader:
        if not (cells and cells[0].strip()) and not any(cell.strip() for cell in cells):
            continue
        if len(cells) != len(header):
            raise ForeignFileError(
                f"{path}, line {reader.line_num}: expected {len(header)} cells as in the header, "
                f"got {len(cells)}"
            )
        yield reader.line_num, cells


def _require_header(path: Path, header: Sequence[str]) -> None:
    if not any(header):
        raise ForeignFileError(f"{path} has no header: expected the names of its columns in line 1")
    if all(name and as_number(name) is not None for name in header):
        raise ForeignFileError(
            f"{path}, line 1: expected the names of the columns, got numbers "
            f"({visible(', '.join(header[:4]))}): add a line like x,y,temperature"
        )
    twice = [name for k, name in enumerate(header) if name in header[:k]]
    if twice:
        raise ForeignFileError(
            f"{path}, line 1: the column {visible(twice[0])!r} appears more than once"
        )
