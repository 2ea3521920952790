"""A finding about data: how bad, what was found, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lno.data import columns
from lno.data.fields import Fields

SEVERITIES = ("error", "warning", "note")  # the worst first
LISTED = 5  # numbers of samples, at most, in a message
ROLES = {"u": "input", "y": "output", "parameters": "parameter"}


@dataclass(frozen=True)
class Finding:
    """What a careful colleague would say about data.

    Args:
        severity: "error": results would be wrong; "warning": likely a mistake, or worse results;
            "note": worth knowing.
        what: what was found, with the number.
        advice: what to do.
    """

    severity: str
    what: str
    advice: str

    def __post_init__(self) -> None:
        if self.severity not in SEVERITIES:
            raise ValueError(f"severity: expected one of {SEVERITIES}, got {self.severity!r}")

    def __str__(self) -> str:
        return f"{self.severity}: {self.what}. {self.advice}"


@dataclass(frozen=True)
class Channel:
    """The values of a channel or parameter, of some samples if they are many.

    Args:
        role: input, output or parameter.
        name: of the channel.
        values: of all points of the samples; of a parameter, one for each sample.
    """

    role: str
    name: str
    values: np.ndarray

    def __str__(self) -> str:
        return f"{self.role} {self.name!r}"


def channels_of(fields: Fields, most: int) -> Iterator[Channel]:
    """The channels and parameters, with the values of at most `most` samples, spread evenly."""
    chosen = spread_evenly(len(fields), most)
    for key in ("u", "y"):
        column = fields.column(key)
        if column is None or columns.channels(column) == 0:
            continue
        arrays = [columns.sample(column, k) for k in chosen]
        values = np.concatenate(arrays)
        for c, name in enumerate(fields.names[key]):
            yield Channel(ROLES[key], name, values[:, c])
    if fields.parameters is not None:
        for p, name in enumerate(fields.names["parameters"]):
            yield Channel(ROLES["parameters"], name, np.asarray(fields.parameters)[:, p])


def spread_evenly(count: int, most: int) -> np.ndarray:
    """At most `most` of `count` numbers, from the first to the last.

    >>> spread_evenly(10, 4).tolist(), spread_evenly(3, 4).tolist()
    ([0, 3, 6, 9], [0, 1, 2])
    """
    if count <= most:
        return np.arange(count)
    return np.unique(np.linspace(0, count - 1, most).round().astype(int))


def listed(numbers: np.ndarray | list[int]) -> str:
    """The first numbers of samples, for messages."""
    shown = ", ".join(str(int(k)) for k in numbers[:LISTED])
    return shown + ", …" * (len(numbers) > LISTED)
