"""Frozen dataclasses to plain dictionaries and back, strictly: an unknown key is an error."""

from __future__ import annotations

import dataclasses
import difflib
import json
import numbers
from collections.abc import Mapping
from typing import Any, TypeVar

T = TypeVar("T")


def to_dict(config: Any) -> dict[str, Any]:
    """The fields of a dataclass, ready for JSON (one level deep)."""
    return {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}


def from_dict(cls: type[T], values: Mapping[str, Any]) -> T:
    """Build a dataclass from a dictionary; unknown and missing keys are errors that name them.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Size:
    ...     width: int = 3
    >>> from_dict(Size, {"widht": 4})
    Traceback (most recent call last):
    ...
    ValueError: Size has no key 'widht' (did you mean 'width'?); its keys are: width
    """
    if not isinstance(values, Mapping):
        raise ValueError(f"{cls.__name__} expects a mapping of its keys, got {values!r}")
    fields = {field.name: field for field in dataclasses.fields(cls) if field.init}  # type: ignore[arg-type]
    for key in values:
        if key not in fields:
            close = difflib.get_close_matches(str(key), fields, n=1)
            hint = f" (did you mean {close[0]!r}?)" if close else ""
            raise ValueError(
                f"{cls.__name__} has no key {key!r}{hint}; its keys are: {', '.join(fields)}"
            )
    missing = [
        name
        for name, field in fields.items()
        if name not in values
        and field.default is dataclasses.MISSING
        and field.default_factory is dataclasses.MISSING
    ]
    if missing:
        raise ValueError(f"{cls.__name__} needs the key {missing[0]!r}, which is missing")
    # JSON has no tuples: a list becomes one where the dataclass says so.
    return cls(
        **{
            key: tuple(v) if isinstance(v, list) and "tuple" in str(fields[key].type) else v
            for key, v in values.items()
        }
    )


def to_tagged(value: Any, table: Mapping[str, type]) -> dict[str, Any]:
    """Like `to_dict`, with `kind` naming the class as `table` does."""
    for kind, cls in table.items():
        if type(value) is cls:
            return {"kind": kind, **to_dict(value)}
    raise ValueError(f"{type(value).__name__} is not one of: {', '.join(table)}")


def from_tagged(values: Mapping[str, Any], table: Mapping[str, type]) -> Any:
    """Build the class that `values["kind"]` names in `table` from the other keys."""
    kind = values.get("kind") if isinstance(values, Mapping) else None
    if not isinstance(kind, str) or kind not in table:
        raise ValueError(f"expected 'kind' to be one of {', '.join(table)}, got {values!r}")
    return from_dict(table[kind], {k: v for k, v in values.items() if k != "kind"})


def require_count(name: str, value: Any, most: int, least: int = 1) -> None:
    """Raise unless `value` is a whole number from `least` to `most`."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ValueError(f"{name} must be a whole number from {least} to {most}, got {value!r}")


def require_range(name: str, value: Any, low: float, high: float) -> None:
    """Raise unless `value` is a number with low <= value <= high."""
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not number or not low <= value <= high:
        raise ValueError(f"{name} must be a number from {low:g} to {high:g}, got {value!r}")


def require_heads(name: str, heads: Any, width: int) -> None:
    """Raise unless `heads` is a whole number that divides the width."""
    require_count(f"{name}.heads", heads, width)
    if width % heads:
        raise ValueError(
            f"{name}.heads must divide the width {width}, got {heads}: each head has width / heads "
            "features"
        )


def require_json(what: str, value: Any) -> None:
    """Raise unless a value can be written into files: before the work."""
    try:
        json.dumps(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{what}: expected plain JSON, {error}") from None
