"""`pandas.DataFrame`: a table whose rows are points."""

from __future__ import annotations

from typing import Any

import numpy as np

from lno.data.checks import described
from lno.data.csv_text import without_units
from lno.data.foreign import ForeignFileError
from lno.data.imports.source import Source, Variable

NAME = "the table"


def from_frame(table: Any) -> Source:
    """The columns of a DataFrame; an index that has a name is a column too."""
    if not hasattr(table, "reset_index") or not hasattr(table, "columns"):
        raise TypeError(f"table: expected a pandas.DataFrame, got {described(table)}")
    if any(name is not None for name in table.index.names):
        table = table.reset_index()
    names = [str(name) for name in table.columns]
    twice = [name for k, name in enumerate(names) if name in names[:k]]
    if twice:
        raise ForeignFileError(f"{NAME}: the column {twice[0]!r} appears more than once")
    if len(table) == 0:
        raise ForeignFileError(f"{NAME} has no rows: expected a point in each")
    labels = zip(*without_units(names), strict=True)
    variables = {
        name: _variable(name, unit, table.iloc[:, k]) for k, (name, unit) in enumerate(labels)
    }
    return Source(NAME, variables, is_table=True)


def _variable(name: str, unit: str, column: Any) -> Variable:
    numbers = getattr(column.dtype, "kind", "O") in "biuf"

    def read() -> np.ndarray:
        if not numbers:
            first = next((k for k, v in enumerate(column) if not isinstance(v, int | float)), 0)
            raise ForeignFileError(
                f"{NAME}, row {first}, column {name!r}: expected a number, got "
                f"{str(column.iloc[first])[:80]!r}"
            )
        return column.to_numpy(dtype=float, na_value=np.nan)

    def texts() -> list[str]:
        return ["" if missing else str(v) for v, missing in zip(column, column.isna(), strict=True)]

    return Variable(name, (len(column),), read, numbers, ("row",), unit, texts)
