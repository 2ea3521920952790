"""One value of each type that could be passed by mistake, and what an error about it must say."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lno import Fields, RandomRatio, Recipe, Steady, Window
from lno.data.symmetry import square

TINY = {"width": 8, "latents": 4, "blocks": 1, "heads": 2, "layers": 1}
X = np.linspace(0, 1, 6)[:, None]
U = np.sin(3 * X + np.arange(5.0)[:, None, None])
FIELDS = Fields(X, U, y=U**2, names={"x": ["t"]})


class Awkward:
    """Like a pandas table with missing values: an array of objects."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.array([[1.0, None]], dtype=object)

    def __repr__(self) -> str:
        return "Awkward()"


class Refusing:
    """An object that cannot become an array."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        raise RuntimeError("no")


loop: list[Any] = []
loop.append(loop)
# One of each type that a user could pass by mistake.
WRONG: dict[str, Any] = {
    "none": None,
    "true": True,
    "zero": 0,
    "int": 5,
    "negative": -3,
    "huge": 10**30,
    "float": 0.5,
    "nan": float("nan"),
    "inf": float("inf"),
    "complex": 1j,
    "fraction": Fraction(1, 3),
    "text": "steady",
    "percent": "10%",
    "empty text": "",
    "bytes": b"x",
    "list": [],
    "texts": ["a", "b"],
    "numbers": [1, 2],
    "ragged": [[1.0], [2.0, 3.0]],
    "nested": [[[[0.0]]]],
    "holes": [None, 1.0],
    "loop": loop,
    "tuple": (),
    "pair": (3, 2),
    "set": {1},
    "mapping": {"x": 5},
    "other key": {5: "x"},
    "class": int,
    "task class": Steady,
    "function": square,
    "lambda": lambda: 0,
    "object": object(),
    "generator": (k for k in range(2)),
    "range": range(3),
    "path": Path("nowhere"),
    "scalar": np.float64(2.0),
    "vector": np.arange(3.0),
    "matrix": np.zeros((2, 2)),
    "cube": np.zeros((2, 3, 4)),
    "four axes": np.zeros((1, 2, 3, 4)),
    "no rows": np.zeros((0, 1)),
    "no channels": np.zeros((6, 0)),
    "text array": np.array(["a"]),
    "object array": np.array([[None, 1.0]], dtype=object),
    "complex array": np.zeros((5, 6, 1), complex),
    "dates": np.zeros((6, 1), "datetime64[s]"),
    "records": np.zeros(6, [("a", float)]),
    "masked": np.ma.masked_array(np.zeros((6, 1)), np.arange(6)[:, None] == 2),
    "unmasked": np.ma.masked_array(np.zeros((6, 1))),
    "list of masked": [np.ma.masked_array(np.zeros((6, 1)))] * 5,
    "huge array": np.full((6, 1), 1e308),
    "missing": Awkward(),
    "refusing": Refusing(),
    "tensor": torch.zeros(3),
    "bfloat16": torch.zeros(2, 2, dtype=torch.bfloat16),
    "sparse": torch.zeros(6, 1).to_sparse(),
    "meta": torch.zeros(6, 1, device="meta"),
    "complex tensor": torch.zeros(6, 1, dtype=torch.complex64),
    "fields": FIELDS.subset([0]),
    "recipe": Recipe(),
    "window": Window("t", 0.0, 0.5),
    "pattern": RandomRatio(0.5),
    "exception": ValueError("x"),
}
CLEAR = (ValueError, TypeError, OSError)
SHAPES = "beartype"  # in tests, what checks shapes in signatures may speak first


def shows(name: str, call: Callable[[Any], object], allowed: tuple[str, ...] = ()) -> list[str]:
    """What is wrong with the errors about each of the wrong values for an argument."""
    found = []
    for kind, value in WRONG.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # positions outside of the training data
            try:
                call(value)
            except CLEAR as error:
                said = str(error)
                last = name.split(".")[-1]
                if len(said) < 20 or not re.search(rf"\b{re.escape(last)}\b", said):
                    found.append(f"{name} = {kind}: unclear {type(error).__name__}: {said[:200]}")
            except Exception as error:
                if type(error).__module__.startswith(SHAPES):
                    continue
                found.append(f"{name} = {kind}: {type(error).__name__}: {str(error)[:200]}")
    return found


def check(name: str, call: Callable[[Any], object]) -> None:
    wrong = shows(name, call)
    assert not wrong, "\n".join(wrong)


def named(name: str, call: Callable[[Any], object], value: Any) -> object:
    """Paths that do not exist are named themselves."""
    try:
        return call(value)
    except OSError as error:
        raise type(error)(f"{name}: {error}") from error
