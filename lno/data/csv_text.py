"""The text of CSV files as programs and people write them: units, semicolons, blanks, encodings.

Above the header there may be blank lines and lines of remarks, which begin with # or %. Such a line
may be the header itself. Names may hold a unit, `p [Pa]` or `T (K)`, and the line below the header
may hold units only. Where semicolons or blanks separate the cells, decimals may have a comma.
Text that is not UTF-8 is UTF-16 with a byte order mark, or Windows-1252, which includes Latin-1.
"""

from __future__ import annotations

import codecs
import csv
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from lno import limits
from lno.data.foreign import ForeignFileError
from lno.text import visible

SEPARATORS = (",", ";", "\t")
BLANK = " "  # runs of them, where there is no other separator
CHUNK = 1 << 20  # bytes of which the encoding is found at once
CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f]")  # characters that only binary files have
REMARKS = ("#", "%")
MISSING = {"", "nan", "na", "n/a", "null", "none"}  # cells without a value, in lower case
KIND = "a CSV file with a header"
WITH_UNIT = (re.compile(r"(.*\S)\s*\[([^\[\]]+)\]"), re.compile(r"(.*\S)\s+\(([^()]+)\)"))
QUOTED, DECIMAL_COMMA = re.compile(r'"[^"]*"'), re.compile(r"(?<=\d),(?=\d)")

Row = tuple[int, list[str]]  # the number of its line, and its cells


@dataclass(frozen=True)
class Text:
    """A CSV file.

    Args:
        written: the names of its columns, as they are written.
        header: the names without units.
        units: of the columns; empty where there is none.
        rows: line number and cells of each row that is not empty.
        comma: whether decimals may have a comma.
        notes: what a user should know of how it was read.
    """

    written: list[str]
    header: list[str]
    units: list[str]
    rows: Iterator[Row]
    comma: bool
    notes: tuple[str, ...]


@contextmanager
def opened(path: Path) -> Iterator[Text]:
    """Open a CSV file; whatever is wrong with it while it is read names the file and the line."""
    reader: Iterator[list[str]] | None = None
    skipped = 0
    try:
        encoding, notes = _encoding(path)
        with path.open(encoding=encoding, newline="") as file:
            remark, head, skipped = _first_lines(file)
            first, below = head[0], head[-1] if len(head) > 1 else ""
            separator = _separator(first, below)
            lines: Iterable[str] = itertools.chain(head, file)
            if separator == BLANK:
                notes += ("columns are separated by blanks",)
                lines = (line.strip() for line in lines)
            blanks = separator == BLANK
            reader = csv.reader(lines, delimiter=separator, skipinitialspace=blanks, strict=True)
            cells = _cells_of(first, separator)
            names = _names_of(remark, separator, len(cells))
            if len(names) != len(cells) or not any(map(_is_number, cells)):
                names = [name.strip() for name in next(reader, [])]
                if blanks:
                    names = _names_of(first, separator, len(_cells_of(below, separator)))
            _require_header(path, names, skipped + 1)
            rows = _checked(path, reader, len(names), skipped)
            header, units = without_units(names)
            written, rows = _units_below(rows)
            if written:
                units = [low or unit for unit, low in zip(units, written, strict=True)]
                notes += ("the line below the header holds units",)
            yield Text(names, header, units, rows, blanks or separator == ";", notes)
    except UnicodeDecodeError as error:
        raise ForeignFileError(
            f"{path} is not {KIND} in UTF-8: {error}. If it is a table, save it as CSV UTF-8"
        ) from error
    except csv.Error as error:
        line = skipped + getattr(reader, "line_num", 0)
        raise ForeignFileError(f"{path}, line {line}: not {KIND}: {error}") from error


def as_number(cell: str, comma: bool = False) -> float | None:
    """The number in a cell; NaN where it is empty; None where it is something else.

    >>> as_number(" 1e-3 "), as_number("NA"), as_number("1,5"), as_number("inf")
    (0.001, nan, None, None)
    >>> as_number("1,5", comma=True), as_number("1.000,5", comma=True)
    (1.5, None)
    """
    text = cell.strip()
    if text.lower() in MISSING:
        return math.nan
    if comma:
        text = text.replace(",", ".")
    try:
        value = math.inf if "_" in text else float(text)  # Python reads 1_000 as a number
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def without_units(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Names and units apart, unless two names would become the same.

    >>> without_units(["x", "p [Pa]", "T (K)", "log(a)"])
    (['x', 'p', 'T', 'log(a)'], ['', 'Pa', 'K', ''])
    >>> without_units(["T [K]", "T [C]"])
    (['T [K]', 'T [C]'], ['', ''])
    """
    parts = [_apart(name) for name in names]
    short = [name for name, _ in parts]
    if len(set(short)) < len(set(names)):
        return list(names), [""] * len(names)
    return short, [unit for _, unit in parts]


def require_one_decimal_mark(path: Path, marks: dict[str, tuple[int, str]]) -> None:
    """Raise where numbers of a file have commas, and others points: one would be read wrongly.

    Args:
        path: the file.
        marks: for "," and ".", the first line and cell with one.
    """
    if len(marks) == 2:
        (comma, with_comma), (point, with_point) = marks[","], marks["."]
        raise ForeignFileError(
            f"{path}: expected one decimal mark, got {visible(with_comma)!r} in line {comma} and "
            f"{visible(with_point)!r} in line {point}: write decimals with a point and without "
            "thousands separators"
        )


def note_mark(marks: dict[str, tuple[int, str]], line: int, cell: str) -> None:
    """Remember the first cells with a comma and with a point."""
    for mark in (",", "."):
        if mark in cell:
            marks.setdefault(mark, (line, cell.strip()))


def _apart(name: str) -> tuple[str, str]:
    for pattern in WITH_UNIT:
        if found := pattern.fullmatch(name):
            return found[1].strip(), found[2].strip()
    return name, ""


def _encoding(path: Path) -> tuple[str, tuple[str, ...]]:
    """The encoding of a file, and what a user should know of it."""
    if not path.is_file():  # a pipe can be read only once
        return "utf-8-sig", ()
    with path.open("rb") as file:
        mark = file.read(2)
    if mark in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
        if _is_text(path, "utf-16"):
            return "utf-16", ("the text is UTF-16",)
    elif not _decodes(path, "utf-8-sig") and _is_text(path, "cp1252"):
        return "cp1252", ("the text is not UTF-8: it was read as Windows-1252 (Latin-1)",)
    return "utf-8-sig", ()


def _decodes(path: Path, encoding: str) -> bool:
    try:
        for _ in _decoded(path, encoding):
            pass
    except UnicodeDecodeError:
        return False
    return True


def _is_text(path: Path, encoding: str) -> bool:
    """Whether a file has this encoding and no control characters."""
    return _decodes(path, encoding) and not any(map(CONTROL.search, _decoded(path, encoding)))


def _decoded(path: Path, encoding: str) -> Iterator[str]:
    with path.open(encoding=encoding, newline="") as file:
        while part := file.read(CHUNK):
            yield part


def _first_lines(file: TextIO) -> tuple[str, list[str], int]:
    """The remark above the header, the header and the line below it, and how many lines are above.

    Between the header and the line below it there may be blank ones, which are kept.
    """
    remark, skipped = "", 0
    line = file.readline()
    while line and (not line.strip() or line.lstrip().startswith(REMARKS)):
        text = line.strip()
        remark = text.lstrip("".join(REMARKS)) if text else remark
        skipped += 1
        line = file.readline()
    head = [line]
    while line and (len(head) == 1 or not head[-1].strip()):
        line = file.readline()
        head.append(line)
    return remark, head, skipped


def _separator(first: str, below: str) -> str:
    """What separates the cells: blanks where nothing else does, and the next line has some too.

    A separator in quotes does not count, nor does a decimal comma beside semicolons.

    >>> _separator('"x, m";"y, m";"z, m"', ""), _separator("1,5;2,5;3,5", "")
    (';', ';')
    >>> _separator("x  y  p", "0.0  1.0  2.0")
    ' '
    """
    text = QUOTED.sub("", first)
    text = DECIMAL_COMMA.sub("", text) if ";" in text else text
    found, cells = max(SEPARATORS, key=text.count), first.split()
    if len(cells) < 2 or len(below.split()) < 2:
        return found
    numbers = all(_is_number(cell) and cell[-1] != "," for cell in cells)  # below a remark
    return BLANK if numbers or found not in text else found


def _names_of(line: str, separator: str, width: int) -> list[str]:
    """The names in a header. Between blanks they may be followed by a unit, or hold single blanks.

    >>> _names_of("x [m]  y [m]  p", " ", 3), _names_of("wall shear  mass flow", " ", 2)
    (['x [m]', 'y [m]', 'p'], ['wall shear', 'mass flow'])
    """
    names = _cells_of(line, separator)
    if separator == BLANK and len(names) != width:
        with_units = re.sub(r"(?<!\s)\s+(?=[\[(])", "\0", line.strip())
        for other in (with_units.split(), re.split(r"\s{2,}|\t", line.strip())):
            if len(other) == width:
                return [name.replace("\0", " ").strip('"') for name in other]
    return names


def _cells_of(line: str, separator: str) -> list[str]:
    lines, blanks = [line.strip()], separator == BLANK
    try:
        found = next(csv.reader(lines, delimiter=separator, skipinitialspace=blanks), [])
        return [cell.strip() for cell in found]
    except csv.Error:
        return []


def _is_number(cell: str) -> bool:
    value = as_number(cell, comma=True)
    return value is not None and not math.isnan(value)


def _checked(path: Path, reader: Iterator[list[str]], width: int, skipped: int) -> Iterator[Row]:
    for cells in reader:
        if not (cells and cells[0].strip()) and not any(cell.strip() for cell in cells):
            continue
        line = skipped + getattr(reader, "line_num", 0)
        if len(cells) != width:
            raise ForeignFileError(
                f"{path}, line {line}: expected {width} cells as in the header, got {len(cells)}"
            )
        yield line, cells


def _units_below(rows: Iterator[Row]) -> tuple[list[str], Iterator[Row]]:
    """The units in the first row, if it holds any, and the other rows.

    It has no number, and the next row has one below a text of it.
    """
    head = list(itertools.islice(rows, 2))
    every: Iterable[Row] = itertools.chain(head, rows)
    if len(head) == 2:
        first, second = ([cell.strip() for cell in cells] for _, cells in head)
        is_text = [as_number(cell, comma=True) is None for cell in first]
        no_number = all(text or not cell for text, cell in zip(is_text, first, strict=True))
        if no_number and any(map(min, is_text, map(_is_number, second))):
            units = [cell.strip("[]() ") for cell in first]
            return units, itertools.chain(head[1:], rows)
    return [], iter(every)


def _require_header(path: Path, header: Sequence[str], line: int) -> None:
    if not any(header):
        raise ForeignFileError(
            f"{path} has no header: expected the names of its columns in line {line}"
        )
    if len(header) > limits.IMPORT_VARIABLES:
        raise ForeignFileError(
            f"{path}, line {line}: expected at most {limits.IMPORT_VARIABLES:,} columns, got "
            f"{len(header):,}"
        )
    if all(name and as_number(name) is not None for name in header):
        raise ForeignFileError(
            f"{path}, line {line}: expected the names of the columns, got numbers "
            f"({visible(', '.join(header[:4]))}): add a line like x,y,temperature"
        )
