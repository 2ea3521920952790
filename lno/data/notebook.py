"""How data look in a notebook: what there is, without reading any values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lno.data import columns
from lno.data.columns import Column
from lno.text import html_table, with_unit

if TYPE_CHECKING:
    from lno.data.fields import Fields

FEW = 8  # channels, whose names are all shown


def table(fields: Fields) -> str:
    """A row for each column: its shape, and the names and units of its channels."""
    rows: list[list[str]] = []
    for name in ("x", "u", "x_query", "y", "weights", "query_weights", "background", "cells"):
        column = fields.column(name)
        if column is not None and columns.channels(column) > 0:
            rows.append([name, _shape(column, len(fields)), _channels(fields, name)])
    if fields.parameters is not None:
        shape = f"{len(fields)} samples, {fields.parameters.shape[1]} numbers"
        rows.append(["parameters", shape, _channels(fields, "parameters")])
    if fields.grid is not None:
        gaps = "" if fields.grid_index is None else "some points are missing"
        rows.append(["grid", " × ".join(map(str, fields.grid)), gaps])
    if any(fields.period or ()):
        periods = ["–" if p is None else f"{p:g}" for p in fields.period or ()]
        rows.append(["period", "", ", ".join(periods)])
    if fields.frame:
        rows.append(["frame", "", fields.frame])
    return html_table(f"Fields: {len(fields)} samples", rows)


def _shape(column: Column, count: int) -> str:
    sizes = columns.sizes(column, count)
    low, high = int(sizes.min()), int(sizes.max())
    points = f"{low:,}" if low == high else f"{low:,}–{high:,}"
    shared = ", shared" if columns.is_shared(column) else ""
    return f"{points} × {columns.channels(column)}{shared}"


def _channels(fields: Fields, name: str) -> str:
    key = {"x_query": "x", "background": "y"}.get(name, name)
    if key not in fields.names:
        return ""
    pairs = zip(fields.names[key], fields.units[key], strict=True)
    shown = [with_unit(label, unit) for label, unit in pairs]
    return ", ".join(shown if len(shown) <= FEW else [*shown[:2], "…", shown[-1]])
