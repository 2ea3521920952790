"""Tables without the rows and columns that still wait for a run: these are named in one sentence.

A page of cells that all say "missing" hides what is known. A missing cell in a row and a column
that have results stays: a table never looks more complete than it is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from lno.report.html import MISSING, PUBLISHED
from lno.report.tables import Table

EMPTY = ("", "–", "cannot", "not given")  # cells that are neither a result nor waiting for one
_COMMAND = re.compile(r"`lno [^`]+`$")
OURS = ", ours"  # the end of a row's name beside one "as published"


def compact(table: Table) -> tuple[Table, str]:
    """The rows and columns with results, and a sentence about the others; empty: there are none.

    A row "as published" goes with our rows of the same name.

    >>> rows = [["FNO", "missing", "missing"], ["LNO", "0.5", "missing"]]
    >>> small, said = compact(Table("Errors", ["model", "Darcy", "Pipe"], rows))
    >>> small.header, small.rows
    (['model', 'Darcy'], [['LNO', '0.5']])
    >>> said
    'Not run yet: FNO. Columns without results yet: Pipe.'
    """
    ours = [row for row in table.rows if not row[0].endswith(PUBLISHED)]
    results = [
        c for c, name in enumerate(table.header) if c >= table.keys and name not in table.aside
    ]
    waiting = [row for row in ours if _waits([row[c] for c in results])]
    gone = [c for c in results if _waits([row[c] for row in ours])]
    if waiting and len(waiting) == len(ours):
        return replace(table, rows=[], notes=[], footnotes={}), _nothing(table)
    if not waiting and not gone:
        return table, ""
    kept = [row for row in table.rows if row not in waiting and not _follows(row, ours, waiting)]
    columns = [c for c in range(len(table.header)) if c not in gone]
    rows, missing = _names(ours, waiting, table.keys), [table.header[c] for c in gone]
    said = [f"Not run yet: {_listed(rows)}."] if rows else []
    said += [f"Columns without results yet: {_listed(missing)}."] if missing else []
    left = {row[0] for row in kept}
    small = replace(
        table,
        header=[table.header[c] for c in columns],
        rows=[[row[c] for c in columns] for row in kept],
        footnotes={name: notes for name, notes in table.footnotes.items() if name in left},
    )
    return small, " ".join(said)


def _nothing(table: Table) -> str:
    """What is said instead of a table that has no run yet, with the command below it."""
    command = _COMMAND.search(table.notes[-1]) if table.notes else None
    return f"Not run yet: “{table.title}”{f' ({command.group()})' if command else ''}."


def _listed(names: Sequence[str]) -> str:
    """Names with commas and an "and"; with semicolons where a name has a comma.

    >>> _listed(["a", "b", "c"]), _listed(["a, 1", "b"])
    ('a, b and c', 'a, 1; b')
    """
    if any("," in name for name in names):
        return "; ".join(names)
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def _waits(cells: Sequence[str]) -> bool:
    """Whether cells wait for runs, and no cell has a result."""
    waiting = [cell.startswith(MISSING) for cell in cells]
    return any(waiting) and all(
        waits or cell in EMPTY for waits, cell in zip(waiting, cells, strict=True)
    )


def _follows(row: Sequence[str], ours: Sequence[list[str]], waiting: Sequence[list[str]]) -> bool:
    """Whether a row "as published" is beside rows of ours that all wait."""
    if not row[0].endswith(PUBLISHED):
        return False
    name = row[0].removesuffix(f", {PUBLISHED}")
    beside = [each for each in ours if each[0] == name or each[0].startswith(f"{name},")]
    return bool(beside) and all(each in waiting for each in beside)


def _names(ours: Sequence[list[str]], waiting: Sequence[list[str]], keys: int) -> list[str]:
    """Rows that wait: by their first cell where all with that cell do, otherwise by all keys."""
    with_results = {row[0] for row in ours if row not in waiting}
    names = []
    for row in waiting:
        first, rest = row[0].removesuffix(OURS), ", ".join(row[1:keys])
        names.append(f"{first} ({rest})" if rest and row[0] in with_results else first)
    return list(dict.fromkeys(names))
