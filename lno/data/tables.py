"""CSV files of points and values: a row for each point, a column for each coordinate or channel."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lno.data.csv_text import (
    KIND,
    Text,
    as_number,
    note_mark,
    opened,
    require_one_decimal_mark,
)
from lno.files import replacing
from lno.text import visible

PART = 65_536  # rows that are in memory at once


def read_csv(path: str | Path, wanted: Sequence[str]) -> np.ndarray:
    """Read the columns `wanted` of a CSV file with a header, in that order: (rows, columns).

    Other columns are ignored. A cell that is not a finite number is an error with its line number.
    """
    return read_numbered(path, wanted)[0]


def read_header(path: str | Path) -> list[str]:
    """The names of the columns of a CSV file, without and with their units."""
    with opened(_existing(path)) as text:
        return [*text.header, *text.written]


def read_numbered(path: str | Path, wanted: Sequence[str]) -> tuple[np.ndarray, list[int]]:
    """Like `read_csv`, with the line number of each row."""
    path = _existing(path)
    rows, lines = [], []
    marks: dict[str, tuple[int, str]] = {}
    with opened(path) as text:
        places = [_place(path, text, name, wanted) for name in wanted]
        for line, cells in text.rows:
            rows.append([_number(path, line, text.header[k], cells[k], text.comma) for k in places])
            lines.append(line)
            if text.comma:
                for k in places:
                    note_mark(marks, line, cells[k])
    require_one_decimal_mark(path, marks)
    if not rows:
        raise ValueError(f"{path} has no rows: expected at least one point")
    return np.array(rows, dtype=np.float64), lines


def _place(path: Path, text: Text, name: str, wanted: Sequence[str]) -> int:
    """The number of a column, by its name with or without the unit."""
    found = [
        k for k, names in enumerate(zip(text.header, text.written, strict=True)) if name in names
    ]
    if not found:
        got = visible(", ".join(text.written))
        inner = name.removeprefix("log(").removesuffix(")")
        hint = f". Add the column {name}: the natural logarithm of {inner}"
        raise ValueError(
            f"{path}: expected the columns {', '.join(wanted)}, got {got}"
            + hint * (name == f"log({inner})" and inner in text.header)
        )
    if len(found) > 1:
        raise ValueError(f"{path}: the column {name!r} appears more than once")
    return found[0]


def _existing(path: str | Path) -> Path:
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: expected {KIND}")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: expected {KIND}")
    return path


def write_csv(path: str | Path, names: Sequence[str], values: np.ndarray) -> None:
    """Write values (rows, columns) with a header, atomically."""
    write_columns(path, names, list(np.asarray(values).T))


def write_columns(path: str | Path, names: Sequence[str], columns: Sequence[np.ndarray]) -> None:
    """Write columns (rows,) with a header, atomically and a part at a time.

    Every number has the fewest digits that give it back in its own precision.
    """
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        for k in range(0, len(columns[0]), PART):
            rows = [column[k : k + PART].astype(str).tolist() for column in columns]
            writer.writerows(zip(*rows, strict=True))


def _number(path: Path, line: int, column: str, cell: str, comma: bool) -> float:
    value = as_number(cell, comma)
    if value is None or math.isnan(value):
        raise ValueError(
            f"{path}, line {line}, column {column!r}: expected a number, got {visible(cell[:80])!r}"
        )
    return value
