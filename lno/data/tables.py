"""CSV files of points and values: a row for each point, a column for each coordinate or channel."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from lno.files import replacing

PART = 65_536  # rows that are in memory at once


def read_csv(path: str | Path, wanted: Sequence[str]) -> np.ndarray:
    """Read the columns `wanted` of a CSV file with a header, in that order: (rows, columns).

    Other columns are ignored. A cell that is not a finite number is an error with its line number.
    """
    return read_numbered(path, wanted)[0]


def read_header(path: str | Path) -> list[str]:
    """The names of the columns of a CSV file."""
    lines = _lines(Path(path))
    return [name.strip() for name in lines[0][1]] if lines else []


def _lines(path: Path) -> list[tuple[int, list[str]]]:
    """The rows of a CSV file with the numbers of their lines."""
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: expected a CSV file with a header")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: expected a CSV file with a header")
    lines: list[tuple[int, list[str]]] = []
    try:
        reader = csv.reader(io.StringIO(path.read_text(encoding="utf-8-sig")), strict=True)
        lines.extend((reader.line_num, line) for line in reader)
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a CSV file: {error}") from error
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: not a CSV file: {error}") from error
    return lines


def read_numbered(path: str | Path, wanted: Sequence[str]) -> tuple[np.ndarray, list[int]]:
    """Like `read_csv`, with the line number of each row."""
    path = Path(path)
    lines = _lines(path)
    header = [name.strip() for name in lines[0][1]] if lines else []
    missing = [name for name in wanted if name not in header]
    if missing:
        got = ", ".join(header) or "nothing"
        hint = ": separate them by commas" if len(header) == 1 and ";" in got else ""
        raise ValueError(
            f"{path}, line 1: expected the columns {', '.join(wanted)}, got {got}{hint}"
        )
    twice = [name for name in wanted if header.count(name) > 1]
    if twice:
        raise ValueError(f"{path}, line 1: the column {twice[0]!r} appears more than once")
    places = [header.index(name) for name in wanted]
    rows, numbers = [], []
    for number, line in lines[1:]:
        if not any(cell.strip() for cell in line):
            continue
        if len(line) != len(header):
            raise ValueError(
                f"{path}, line {number}: expected {len(header)} cells, got {len(line)}"
            )
        rows.append([_number(path, number, header[k], line[k]) for k in places])
        numbers.append(number)
    if not rows:
        raise ValueError(f"{path} has no rows: expected at least one point")
    return np.array(rows, dtype=np.float64), numbers


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


def _number(path: Path, line: int, column: str, cell: str) -> float:
    try:
        value = math.nan if "_" in cell else float(cell)  # Python reads 1_000 as a number
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{path}, line {line}, column {column!r}: expected a number, got {cell!r}")
    return value
