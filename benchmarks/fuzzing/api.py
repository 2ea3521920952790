"""Misuse of the public functions: arguments of wrong types and impossible values.

A wrong argument must raise an error of lno itself. An argument of an unusual type
that can be converted must give the same as the usual one.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fuzzing.engine import CHANGED, SAME, Attack, Attacks, Section
from fuzzing.models import SMALL, fit, waves
from fuzzing.mutate import Random
from lno import Completion, Fields, Intervals, Operator, RandomRatio, Recipe, Rollout, Spec, Window
from lno.models import LNO, LNOConfig, build_model

Call = Callable[[Any], Any]

OTHERS: tuple[Any, ...] = (
    object(),
    {"a": 1},
    {1, 2},
    b"bytes",
    1j,
    datetime.date(2020, 1, 1),
    print,
)
NOT_ARRAY: tuple[Any, ...] = (
    *OTHERS,
    "text",
    5,
    2.5,
    True,
    [],
    [None],
    [[1, 2], [3]],
    ["a", "b"],
    np.array("a"),
    np.zeros((6, 0, 1)),
    np.zeros((6, 8)),
    np.zeros((2, 2, 2, 2, 2)),
    np.full((6, 8, 1), np.nan),
    np.full((6, 8, 1), np.inf),
    np.zeros((6, 8, 1), complex),
    np.full((6, 8, 1), "a"),
    np.full((6, 8, 1), None),
    np.zeros((6, 8, 1), "M8[s]"),
    np.zeros((6, 8, 1), [("a", "f4")]),
    np.ma.masked_equal(np.arange(48.0).reshape(6, 8, 1), 3.0),
    [np.ma.masked_equal(np.arange(8.0).reshape(8, 1), 3.0)] * 6,
    torch.full((6, 8, 1), torch.nan),
    torch.zeros(6, 8, 1, dtype=torch.complex64),
    torch.zeros(6, 8, 1).to_sparse(),
    torch.zeros(6, 8, 1, device="meta"),
)
NOT_COUNT: tuple[Any, ...] = (*OTHERS, "3", 2.5, -1, True, [1], float("nan"), 10**30, np.zeros(3))
NOT_NUMBER: tuple[Any, ...] = (*OTHERS, "3", -1.0, [1.0], float("nan"), np.zeros(3), True)
NOT_NAME: tuple[Any, ...] = (*OTHERS, 5, "nonsense", "", ["lno"], None, True)
NOT_PATH: tuple[Any, ...] = (*OTHERS, 5, None, [], 2.5, "", "a\0b", "x" * 5000)
NOT_OBJECT: tuple[Any, ...] = (*OTHERS, 5, "text", [1], np.zeros(3), True)


def alternatives(values: np.ndarray) -> tuple[Any, ...]:
    """The same numbers, which are multiples of 1/8, in other types."""
    swapped = values.astype(values.dtype.newbyteorder())
    return (
        values.astype(np.float64),
        swapped,
        np.asfortranarray(values),
        values[..., ::-1, :][..., ::-1, :],
        np.ma.masked_array(values),
        torch.from_numpy(values),
        torch.from_numpy(values).to(torch.bfloat16),
        torch.from_numpy(values).half(),
        torch.from_numpy(values).requires_grad_(),
        list(values) if values.ndim == 3 else values.astype(np.float16),
    )


def calls(folder: Path) -> tuple[list[tuple[str, Call, Any]], list[tuple[str, Call, Any]]]:
    """Wrong calls, and unusual ones: a name, what to call, and its argument."""
    data = Fields.load(folder / "data.h5")
    operator = Operator.load(folder / "a.safetensors", "cpu")
    x, u, y = np.asarray(data.x), np.asarray(data.u), np.asarray(data.y)
    wrong: list[tuple[str, Call, Any]] = []

    def add(name: str, call: Call, bad: tuple[Any, ...]) -> None:
        wrong.extend((name, call, value) for value in bad)

    def new(**changes: Any) -> Fields:
        return Fields(**{"x": x, "u": u, "y": y, **changes})

    def keyword(function: Callable[..., Any], key: str) -> Call:
        return lambda value: function(**{key: value})

    for key in ("x", "u", "y", "x_query", "background"):
        add(f"Fields({key})", keyword(new, key), NOT_ARRAY)
    for key in ("weights", "query_weights", "grid_index", "cells", "parameters"):
        add(f"Fields({key})", keyword(new, key), (*OTHERS, "text", 5, ["a"], np.full(8, np.nan)))
    for key in ("names", "units"):
        bad = (*NOT_OBJECT, ["t", "f", "g"], {"x": 5}, {"x": [1, 2, 3]}, {5: ["a"]})
        add(f"Fields({key})", keyword(new, key), tuple(b for b in bad if b is not None))
    add("Fields(grid)", keyword(new, "grid"), (*NOT_OBJECT, 8.0, (8.5,), ("8",), (-8,), (), (4,)))
    add(
        "Fields(period)",
        keyword(new, "period"),
        (*OTHERS, 5, "text", 1.0, (-1.0,), (np.nan,), ("1",)),
    )
    add("Fields(space)", keyword(new, "space"), (*NOT_COUNT, 0, 2))
    add("Fields(geometry)", keyword(new, "geometry"), (*NOT_OBJECT, {"u": 5}, {"u": ["zz"]}))
    add("Fields(frame)", keyword(new, "frame"), (*OTHERS, 5, ["a"]))
    add("Fields(provenance)", keyword(new, "provenance"), NOT_OBJECT[:1] + NOT_OBJECT[2:])

    add("Fields.load", Fields.load, NOT_PATH)
    add("Fields.save", data.save, NOT_PATH)
    add("Fields.split", data.split, (*NOT_COUNT, 0, 7))
    add("Fields.subset", data.subset, (*OTHERS, "text", [99], [-99], [0.5], [None], [[0]]))
    add("Fields.batch", data.batch, (*OTHERS, "text", [99], [0.5], [None]))
    add("Fields.shuffle", data.shuffle, (*OTHERS, "text", -1, 2.5))
    add("Fields[k]", data.__getitem__, (*OTHERS, "text", 99, -99, 2.5))
    add("Fields.concatenate", Fields.concatenate, (*OTHERS, 5, [], [5], [data, None], "text"))

    def train(**changes: Any) -> Operator:
        settings = {"epochs": 1, "config": SMALL["lno"], **changes}
        return fit(settings.pop("train_data", data), **settings)

    pairs: dict[str, tuple[Any, ...]] = {
        "train_data": (*NOT_OBJECT, u, "data.h5", None),
        "epochs": (*NOT_COUNT, 0),
        "task": (*NOT_OBJECT, "steady", Rollout, Rollout(3)),
        "model": tuple(value for value in NOT_NAME if value is not None),  # None: chosen by a rule
        "config": (*NOT_OBJECT, {"widht": 3}, {"width": "8"}, {"width": 10**9}, {"heads": 3}),
        "recipe": (*NOT_OBJECT, {"epochz": 3}, {"batch": 0}, {"learning_rate": "fast"}),
        "validation": (*NOT_OBJECT, 1.5, -0.5, float("nan"), u),
        "members": (*NOT_COUNT, 0),
        "init": (*NOT_OBJECT, "a.safetensors", operator.model),
        "device": NOT_NAME,
        "seed": NOT_COUNT,
        "folder": tuple(p for p in NOT_PATH if p not in (None, "")),
        "minutes": NOT_NUMBER,
        "pause_after": NOT_NUMBER,
        "precision": NOT_NAME,
        "split": NOT_NAME,
        "symmetries": (*NOT_OBJECT, ["flip"]),
    }
    for key, bad in pairs.items():
        add(f"fit({key})", keyword(train, key), bad)

    def predict(**changes: Any) -> Any:
        return operator.predict(**{"x": x, "u": u, **changes})

    for key in ("x", "u", "x_query"):
        add(f"predict({key})", keyword(predict, key), NOT_ARRAY)
    for key in ("parameters", "weights", "background"):
        add(f"predict({key})", keyword(predict, key), (*NOT_OBJECT, [], np.full((6, 8), np.nan)))
    add("predict(noise)", keyword(predict, "noise"), (*NOT_NUMBER, 1.0))
    add("predict(x)", keyword(predict, "x"), (np.zeros((8, 3)),))
    add("evaluate(test)", operator.evaluate, (*NOT_OBJECT, None, u, "data.h5"))
    add("evaluate(task)", lambda task: operator.evaluate(data, task=task), (*NOT_OBJECT, "steady"))
    add("evaluate(seed)", lambda seed: operator.evaluate(data, seed=seed), NOT_COUNT)
    add("Operator.load", Operator.load, NOT_PATH)
    add("Operator.load(device)", lambda d: Operator.load(folder / "a.safetensors", d), NOT_NAME)
    add("Operator.save", operator.save, NOT_PATH)
    add("Operator.member", operator.member, (*OTHERS, "0", -1, 1, 0.5))

    for key in ("epochs", "batch"):
        add(f"Recipe({key})", keyword(Recipe, key), (*NOT_COUNT, 0))
    for key in ("learning_rate", "weight_decay", "beta2", "ema", "clip"):
        add(f"Recipe({key})", keyword(Recipe, key), NOT_NUMBER)
    for key in ("optimizer", "schedule"):
        add(f"Recipe({key})", keyword(Recipe, key), NOT_NAME)
    for key in ("width", "latents", "blocks", "heads", "layers"):
        add(f"LNOConfig({key})", keyword(LNOConfig, key), (*NOT_COUNT, -2, "8"))
    add("LNOConfig(attention)", keyword(LNOConfig, "attention"), NOT_NAME)
    add("RandomRatio", RandomRatio, (*NOT_NUMBER, 0.0, 1.5))
    add("Intervals", Intervals, (*OTHERS, 5, "text", True, [0], [2.5]))
    add("Rollout", Rollout, (*NOT_COUNT, 0))
    add("Completion", Completion, NOT_OBJECT)
    add("Completion(window)", lambda w: Completion(RandomRatio(0.2), w), NOT_OBJECT)
    add("Window", lambda low: Window("t", low, 1.0), (*OTHERS, "0", 2.0, float("nan")))
    add("build_model", lambda kind: build_model(kind, None, data.spec, 0), NOT_NAME)
    add("LNO(spec)", lambda spec: LNO(spec, LNOConfig(**SMALL["lno"])), (*NOT_OBJECT, Spec))

    unusual: list[tuple[str, Call, Any]] = []
    for key, values in (("x", x), ("u", u), ("y", y), ("x_query", x), ("background", y)):
        usual = new(**{key: values})

        def same_fields(value: Any, key: str = key, usual: Fields = usual) -> bool:
            other = new(**{key: value}).batch(range(6))
            pair = (getattr(usual.batch(range(6)), key), getattr(other, key))
            return torch.equal(*(v.double().expand(6, -1, -1) for v in pair))

        unusual += [(f"Fields({key})", same_fields, v) for v in alternatives(values)]
    for key, values in (("x", x), ("u", u), ("x_query", x)):
        expected = np.asarray(predict(**{key: values}))

        def same_prediction(value: Any, key: str = key, expected: np.ndarray = expected) -> bool:
            got = predict(**{key: value})
            got = [g.detach().numpy() if isinstance(g, torch.Tensor) else g for g in got]
            return np.allclose(np.stack(got), expected, 1e-5, 1e-6)

        unusual += [(f"predict({key})", same_prediction, v) for v in alternatives(values)]
    return wrong, unusual


def prepare(folder: Path) -> None:
    """Data whose numbers are multiples of 1/8, and an operator."""
    base = waves()
    x = np.arange(8, dtype=np.float32)[:, None] / 8
    u, y = ((np.asarray(v) * 8).round().astype(np.float32) / 8 for v in (base.u, base.y))
    data = Fields(x, u, y=y)
    data.save(folder / "data.h5")
    fit(data).save(folder / "a.safetensors")


def attacks(folder: Path) -> Attacks:
    """The function that makes wrong or unusual call k."""
    wrong, unusual = calls(folder)
    every = [*((*call, False) for call in wrong), *((*call, True) for call in unusual)]
    order = np.random.default_rng(0).permutation(len(every))

    def attack(k: int, random: Random, work: Path) -> Attack:
        name, call, value, usable = every[order[k % len(every)]]

        def act() -> str:
            os.chdir(work)  # where a path that is accepted leads
            found = call(value)
            return SAME if usable and found else CHANGED

        shown = f"{type(value).__name__} {str(value)[:30]!r}"
        return Attack(f"{name}: {shown}" if not usable else f"{name}: unusual {shown}", act)

    return attack


SECTION = Section("api", 1311, prepare, attacks)
