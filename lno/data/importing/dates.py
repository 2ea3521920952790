"""Parts of dates as parameters: `time.month` is the month of the dates of `time`, as in xarray."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

import numpy as np

from lno.config import did_you_mean
from lno.data.foreign import ForeignFileError
from lno.data.imports.source import Source, Variable
from lno.text import visible


def _since(dates: np.ndarray, unit: str, larger: str) -> np.ndarray:
    """How many units since the last beginning of a larger one."""
    begun = dates.astype(f"M8[{larger}]").astype(f"M8[{unit}]")
    return (dates.astype(f"M8[{unit}]") - begun).astype(np.int64)


PARTS: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "year": lambda dates: dates.astype("M8[Y]").astype(np.int64) + 1970,
    "month": lambda dates: _since(dates, "M", "Y") + 1,
    "day": lambda dates: _since(dates, "D", "M") + 1,
    "dayofyear": lambda dates: _since(dates, "D", "Y") + 1,
    "hour": lambda dates: _since(dates, "h", "D"),
}


def with_date_parts(source: Source, names: Sequence[str]) -> Source:
    """A file with the parts of dates that are named, like `time.month`, as further variables.

    >>> time = Variable("time", (2,), lambda: np.zeros(2), False, texts=lambda: ["2000-03", "2001"])
    >>> with_date_parts(Source("a.npz", {"time": time}), ["time.month"]).listed()
    'time (2,), time.month (2,)'
    """
    parts = {name: _part(source, name) for name in names if base_of(source, name) is not None}
    return replace(source, variables={**source.variables, **parts}) if parts else source


def base_of(source: Source, name: str) -> str | None:
    """The variable of which a name is a part; None: it is not a part of any."""
    base, _, _ = name.rpartition(".")
    return base if name not in source.variables and base in source.variables else None


def _part(source: Source, name: str) -> Variable:
    base, _, part = name.rpartition(".")
    dated, where = source.variables[base], f"{source.name}, parameters {visible(name)!r}"
    if part not in PARTS:
        raise ForeignFileError(
            f"{where}: no part {visible(part)!r} of dates{did_you_mean(part, PARTS)}; expected one "
            f"of {', '.join(PARTS)}"
        )
    if dated.dates is None and (dated.is_number or dated.texts is None):
        raise ForeignFileError(
            f"{where}: expected dates in {visible(base)!r}, got numbers. If they count months, "
            f"take {visible(base)!r} itself, with its period: 12"
        )

    def read() -> np.ndarray:
        dates = np.asarray(_dates(source, dated))
        return np.where(np.isnat(dates), np.nan, PARTS[part](dates))

    return Variable(name, dated.shape, read, axes=dated.axes)


def _dates(source: Source, variable: Variable) -> np.ndarray:
    """The dates that a variable holds, as such or as text."""
    if variable.dates is not None:
        return variable.dates()
    assert variable.texts is not None
    texts, place = np.unique(np.array(variable.texts(), dtype=str), return_inverse=True)
    found = np.array([as_date(text) for text in texts], "M8[us]")
    if np.isnat(found).any():
        first = int(np.argmax(np.isnat(found)[place.ravel()]))
        what = "row" if source.is_table else "entry"
        raise ForeignFileError(
            f"{source.name}, {visible(variable.name)!r}, {what} {first + 1}: expected a date like "
            f"2020-01-31, got {visible(texts[place.ravel()[first]])[:80]!r}"
        )
    return found[place.ravel()].reshape(variable.shape)


def as_date(text: str) -> np.datetime64:
    """A date in the form of ISO 8601, by its own clock where it has a time zone; else NaT.

    >>> [str(as_date(text)) for text in ("2020-01-31T12:00+01:00", "2020-01", "31.1.2020")]
    ['2020-01-31T12:00:00.000000', '2020-01', 'NaT']
    """
    if re.fullmatch(r"\d{4}(-(0[1-9]|1[0-2]))?", text):
        return np.datetime64(text)
    try:
        return np.datetime64(datetime.fromisoformat(text).replace(tzinfo=None))
    except ValueError:
        return np.datetime64("NaT")
