"""Fields for data files, how they are compared, and files that must be refused."""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from lno.data import Fields, store

KINDS = ("uniform", "shared", "ragged")
MEANING = {
    "names": {"x": ["t", "länge"], "u": ["p"], "y": ["v", "w"]},
    "units": {"x": ["s", "m"], "u": ["Pa"], "y": ["m/s", ""]},
    "frame": "reference grid",
    "period": [None, 2.0],
    "provenance": {"made by": "a test", "seeds": [1, 2]},
}


def make(kind, s=6, seed=0, dtype=np.float32):
    rng = np.random.default_rng(seed)
    n = rng.integers(1, 9, s) if kind == "ragged" else np.full(s, 5)
    q = rng.integers(1, 9, s) if kind == "ragged" else np.full(s, 4)

    def draw(sizes, c):
        return [rng.standard_normal((k, c)).astype(dtype) for k in sizes]

    x, x_query = draw(n, 2), draw(q, 2)
    if kind == "shared":
        x, x_query = x[0], x_query[0]
    grid = None if kind == "ragged" else (2, 2)
    return Fields(x, draw(n, 1), x_query, draw(q, 2), grid=grid, **MEANING)


def assert_equal(a, b, keys=("grid", "period", "names", "units", "frame", "provenance")):
    assert len(a) == len(b)
    for one, other in zip(a, b, strict=True):
        for v, w in zip(one, other, strict=True):
            assert (v is None) == (w is None)
            if v is not None:
                assert v.dtype == w.dtype
                np.testing.assert_array_equal(v, w)
    for key in keys:
        assert getattr(a, key) == getattr(b, key)


def only(folder):
    return sorted(p.name for p in Path(folder).iterdir())


def in_another_process(code, *args):
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, args)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def refuse(path, *, lazy=False, kinds=ValueError):
    """The message of the error that loading `path` must raise."""
    with pytest.raises(kinds) as caught:
        Fields.load(path, lazy=lazy)
    message = str(caught.value)
    assert len(message) >= 20
    assert str(path) in message
    return message


def mark(key, value):
    """Set an attribute, or a part of the meaning, which is JSON, to some text."""

    def how(file):
        if key in store.MEANING:
            parts = {k: json.dumps(v) for k, v in json.loads(file.attrs["meaning"]).items()}
            pairs = (f'"{k}": {v}' for k, v in {**parts, key: value}.items())
            file.attrs["meaning"] = f"{{{', '.join(pairs)}}}"
        else:
            file.attrs[key] = value

    return how
