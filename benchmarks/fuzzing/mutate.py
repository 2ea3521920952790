"""Random changes of bytes and of JSON."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np

Random = np.random.Generator
WRONG: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    3,
    10**9,
    2**63,
    10**30,
    -(2**63),
    0.5,
    1e308,
    -1e308,
    1e-320,
    float("nan"),
    float("inf"),
    "",
    "lno",
    "\u0000\u001b[2J",
    "../../etc/passwd",
    "x" * 100_000,
    [],
    [[]],
    [None],
    [1],
    [1, 2, 3],
    ["a", "b"],
    [0.0] * 1000,
    [10**9],
    {},
    {"x": []},
    {"kind": "steady"},
    {"": {}},
)


def pick(random: Random, values: Any) -> Any:
    """One of several values."""
    return values[int(random.integers(len(values)))]


def flip(data: bytes, random: Random, start: int = 0, stop: int | None = None) -> bytes:
    """The data with one flipped bit between start and stop."""
    changed = bytearray(data)
    changed[int(random.integers(start, stop or len(data)))] ^= 1 << int(random.integers(8))
    return bytes(changed)


def scramble(data: bytes, random: Random) -> bytes:
    """The data with some bytes overwritten: random ones, zeros, ones, or others of the data."""
    changed, size = bytearray(data), int(random.integers(1, 1 + min(64, len(data))))
    at = int(random.integers(len(data) - size + 1))
    other = int(random.integers(len(data) - size + 1))
    new = (random.bytes(size), bytes(size), b"\xff" * size, data[other : other + size])
    changed[at : at + size] = pick(random, new)
    return bytes(changed)


def resize(data: bytes, random: Random) -> bytes:
    """The data cut off, extended, or with a piece missing or doubled."""
    at, size = int(random.integers(len(data))), int(random.integers(1, 1 + len(data) // 4))
    kind = int(random.integers(6))
    if kind <= 1:
        return data[:at]
    if kind == 2:
        return data[:-1] if random.integers(2) else data[: int(random.integers(0, 16))]
    if kind == 3:
        return data + pick(random, (b"\0", bytes(size), random.bytes(size)))
    if kind == 4:
        return data[:at] + data[at + size :]
    return data[:at] + data[at : at + size] + data[at:]


def damage(data: bytes, random: Random) -> bytes:
    """The data, damaged in one of these ways."""
    return pick(random, (flip, scramble, resize))(data, random)


def places(content: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values inside of JSON."""
    inner: list[tuple[Any, Any]] = []
    if isinstance(content, dict):
        inner = list(content.items())
    elif isinstance(content, list):
        inner = list(enumerate(content[:3]))
    found = [at] if at else []
    for key, value in inner:
        found += places(value, (*at, key))
    return found


def change(content: Any, random: Random) -> Any:
    """JSON with one change: a wrong value, a missing or an additional key, a deep or huge value."""
    content = copy.deepcopy(content)
    at = pick(random, places(content))
    holder = content
    for key in at[:-1]:
        holder = holder[key]
    kind, last = int(random.integers(10)), at[-1]
    old = holder[last]
    if kind == 0:
        del holder[last]
    elif kind == 1 and isinstance(holder, dict):
        holder[pick(random, ("new", "", "__class__", last.upper(), " " + last))] = old
    elif kind == 2:
        holder[last] = nested(int(pick(random, (5, 150, 250, 5000))), bool(random.integers(2)))
    elif kind == 3 and isinstance(old, int | float) and not isinstance(old, bool):
        factor = pick(random, (-1, 0, 2, 10, 1000, 10**6, 10**12))
        holder[last] = old * factor if abs(old) < 1e100 else 0
    elif kind == 4 and isinstance(old, list):
        holder[last] = pick(random, (old + old, old[:-1], old[::-1], old * 5000, [old]))
    elif kind == 5 and isinstance(old, str):
        holder[last] = pick(random, (old[:-1], old + "x", old.upper(), [old], "\ud800", old * 500))
    else:
        holder[last] = pick(random, WRONG)
    return content


class Deep:
    """A list or an object nested so deeply that `json.dumps` would fail; see `dumps`."""

    def __init__(self, depth: int, as_object: bool) -> None:
        opening, closing = ('{"a":', "}") if as_object else ("[", "]")
        self.text = opening * depth + "0" + closing * depth


def nested(depth: int, as_object: bool) -> Any:
    """A deeply nested value."""
    return Deep(depth, as_object)


def dumps(content: Any) -> str:
    """JSON text of content that may hold `Deep` values."""
    found: list[Deep] = []

    def name(value: Any) -> str:
        found.append(value)
        return f"deep value {len(found) - 1}"

    text = json.dumps(content, default=name)
    for k, value in enumerate(found):
        text = text.replace(f'"deep value {k}"', value.text)
    return text


def canonical(content: Any) -> str:
    """JSON text that is the same for 1 and 1.0, and whatever the order of keys."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: plain(v) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [plain(v) for v in value]
        if isinstance(value, int) and not isinstance(value, bool):
            return float(value) if abs(value) < 2**53 else str(value)
        return value

    return json.dumps(plain(content), sort_keys=True)
