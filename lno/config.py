"""Frozen dataclasses to plain dictionaries and back, strictly.

An unknown key, a missing one, and a value of the wrong type are errors.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import json
import numbers
import types
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


def to_dict(config: Any) -> dict[str, Any]:
    """The fields of a dataclass, ready for JSON; those that are dataclasses become dictionaries."""
    values = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    return {name: to_dict(v) if _is_dataclass(type(v)) else v for name, v in values.items()}


def from_dict(cls: type[T], values: Mapping[str, Any]) -> T:
    """Build a dataclass from a dictionary; what does not fit is an error that names the key.

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
            hint = did_you_mean(str(key), fields)
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
    converted = {key: _from_json(cls, fields[key], v) for key, v in values.items()}
    try:
        built = cls(**converted)  # first: what it says of wrong values says more
    except (TypeError, AttributeError, KeyError, OverflowError):
        _require_types(cls, converted)
        raise
    _require_types(cls, converted)
    return built


def _from_json(cls: type, field: dataclasses.Field, value: Any) -> Any:
    """JSON has neither tuples nor dataclasses: lists and mappings become what the field holds."""
    if isinstance(value, list) and "tuple" in str(field.type):
        return tuple(value)
    part = _part(cls, field.name) if isinstance(value, Mapping) else None
    return value if part is None else from_dict(part, value)


def require_part(cls: type, name: str, value: Any) -> None:
    """Raise unless `value` may be in this field, if it is one that holds a dataclass.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Size:
    ...     width: int = 3
    >>> Box = dataclasses.make_dataclass("Box", [("size", Size | None), ("name", str)])
    >>> from_dict(Box, to_dict(Box(Size(4), "mine")))
    Box(size=Size(width=4), name='mine')
    >>> require_part(Box, "size", 4)
    Traceback (most recent call last):
    ...
    ValueError: Box.size: expected Size(...) or null, got 4
    """
    if _part(cls, name) is not None:
        require_type(f"{cls.__name__}.{name}", value, _type_hints(cls)[name])


def _part(cls: type, name: str) -> type | None:
    """The dataclass that a field of a dataclass holds, or None."""
    hint = _type_hints(cls).get(name)
    return next((one for one in (hint, *get_args(hint)) if _is_dataclass(one)), None)


def _is_dataclass(cls: Any) -> bool:
    return isinstance(cls, type) and dataclasses.is_dataclass(cls)


def _require_types(cls: type, values: Mapping[str, Any]) -> None:
    hints = _type_hints(cls)
    for key, value in values.items():
        require_type(f"{cls.__name__}.{key}", value, hints.get(key, Any))


@functools.cache
def _type_hints(cls: type) -> dict[str, Any]:
    try:
        return get_type_hints(cls)
    except NameError:  # a name that exists for type checkers alone
        return {}


def require_type(name: str, value: Any, expected: Any) -> None:
    """Raise unless a value has the type of an annotation.

    >>> require_type("sizes", {"a": [1, 2]}, dict[str, list[int]])
    >>> require_type("sizes", {"a": [1, "2"]}, dict[str, list[int]])
    Traceback (most recent call last):
    ...
    ValueError: sizes: expected a mapping of texts to lists of whole numbers, got {'a': [1, '2']}
    """
    if not _has_type(value, expected):
        shown = repr(value)
        shown = shown if len(shown) <= 80 else f"{shown[:80]}..."
        raise ValueError(f"{name}: expected {_in_words(expected)}, got {shown}")


def _has_type(value: Any, expected: Any) -> bool:
    origin, inner = get_origin(expected), get_args(expected)
    if expected is Any:
        return True
    if origin in (Union, types.UnionType):
        return any(_has_type(value, one) for one in inner)
    if expected in _SCALARS:
        kind, _, _ = _SCALARS[expected]
        return isinstance(value, kind) and (expected is bool or not isinstance(value, bool))
    if origin is tuple:
        one_type = len(inner) == 2 and inner[1] is ...
        types_ = (inner[0],) * len(value) if one_type and isinstance(value, tuple) else inner
        return (
            isinstance(value, tuple)
            and len(value) == len(types_)
            and all(map(_has_type, value, types_))
        )
    if origin is list:
        return isinstance(value, list) and all(_has_type(v, inner[0]) for v in value)
    if origin is dict:
        return isinstance(value, Mapping) and all(
            _has_type(k, inner[0]) and _has_type(v, inner[1]) for k, v in value.items()
        )
    if _is_dataclass(expected):
        return isinstance(value, expected)
    # An object, which its class has checked: nothing that JSON can hold.
    return not isinstance(value, bool | int | float | str | list | dict | None)


def _in_words(expected: Any, several: bool = False) -> str:
    origin, inner = get_origin(expected), get_args(expected)
    if origin in (Union, types.UnionType):
        return " or ".join(_in_words(one, several) for one in inner)
    if expected in _SCALARS:
        _, one, many = _SCALARS[expected]
        return many if several else one
    if origin in (tuple, list):
        return f"{'lists' if several else 'a list'} of {_in_words(inner[0], True)}"
    if origin is dict:
        of = f" of {_in_words(inner[0], True)} to {_in_words(inner[1], True)}"
        return f"{'mappings' if several else 'a mapping'}{of}"
    if _is_dataclass(expected):
        return f"{expected.__name__}s" if several else f"{expected.__name__}(...)"
    return "anything" if expected is Any else str(getattr(expected, "__name__", expected))


# The types that JSON has, and their names, of one and of several.
_SCALARS: dict[Any, tuple[type, str, str]] = {
    int: (numbers.Integral, "a whole number", "whole numbers"),
    float: (numbers.Real, "a number", "numbers"),
    bool: (bool, "true or false", "true or false"),
    str: (str, "a text", "texts"),
    type(None): (type(None), "null", "null"),
}


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


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The nearest known name, as a hint for an error; upper and lower case count as near.

    >>> did_you_mean("Widht", ["width", "heads"]), did_you_mean("layers", ["width", "heads"])
    (" (did you mean 'width'?)", '')
    """
    lower = {other.lower(): other for other in known}
    close = difflib.get_close_matches(name.lower(), lower, n=1)
    return f" (did you mean {lower[close[0]]!r}?)" if close else ""


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
