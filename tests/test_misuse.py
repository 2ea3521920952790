"""Misuse of the public functions: the error names the argument, and is never an internal one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from wrong_values import FIELDS, TINY, U, X, check, named, shows

from lno import (
    Completion,
    Fields,
    Intervals,
    Operator,
    Propagation,
    RandomRatio,
    Recipe,
    Reconstructor,
    Rollout,
    Snapshots,
    Steady,
    Window,
)
from lno.data.symmetry import square
from lno.models import MODELS

FIELDS_ARGUMENTS = [
    "x",
    "u",
    "x_query",
    "y",
    "parameters",
    "weights",
    "query_weights",
    "background",
    "cells",
    "grid",
    "grid_index",
    "geometry",
    "space",
    "period",
    "names",
    "units",
    "frame",
    "provenance",
]


@pytest.mark.parametrize("name", FIELDS_ARGUMENTS)
def test_fields(name: str) -> None:
    given = {"x": X, "u": U, "y": U}
    check(name, lambda value: Fields(**{**given, name: value}))


@pytest.mark.parametrize("name", ["index", "counts", "seed", "parts", "path", "lazy"])
def test_methods_of_fields(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if name == "index":
        for call in (FIELDS.subset, FIELDS.batch):
            wrong = [line for line in shows(name, call) if "IndexError: index: exp" not in line]
            assert not wrong, "\n".join(wrong)
        return
    calls: dict[str, Callable[[Any], object]] = {
        "counts": lambda value: named("split", FIELDS.split, value),
        "seed": FIELDS.shuffle,
        "parts": Fields.concatenate,
        "path": lambda value: named("path", Fields.load, value),
        "lazy": lambda value: value is True or Fields.load("nowhere", lazy=value),
    }
    check({"counts": "split"}.get(name, name), calls[name])


class Trained(Exception):
    """Stands for the training that would follow."""


FIT_ARGUMENTS = [
    "train_data",
    "epochs",
    "task",
    "model",
    "config",
    "recipe",
    "validation",
    "members",
    "init",
    "conditional",
    "symmetries",
    "device",
    "seed",
    "precision",
    "progress",
    "folder",
    "resume",
    "minutes",
    "pause_after",
    "split",
    "tensorboard",
]


@pytest.mark.parametrize("name", FIT_ARGUMENTS)
def test_fit(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)

    def stop(*_: Any, **__: Any) -> bool:
        raise Trained

    monkeypatch.setattr("lno.operator.run", stop)

    def fit(value: Any) -> None:
        given = {"train_data": FIELDS, "config": TINY, "device": "cpu", name: value}
        if (name == "init" and value is not None) or name == "model":
            del given["config"]
        try:
            Operator.fit(given.pop("train_data"), **given)
        except Trained:
            return

    if name == "config":  # names the key or the class of the config
        wrong = [line for line in shows(name, fit) if "LNOConfig" not in line]
        assert not wrong, "\n".join(wrong)
    elif name == "recipe":
        wrong = [line for line in shows(name, fit) if "Recipe" not in line]
        assert not wrong, "\n".join(wrong)
    else:
        check(name, fit)


CONSTRUCTORS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "Recipe": (Recipe, {}),
    "Rollout": (Rollout, {"frames": 2}),
    "Snapshots": (Snapshots, {"times": 2}),
    "Completion": (Completion, {"pattern": RandomRatio(0.5)}),
    "Propagation": (Propagation, {"window": Window("t", 0.0, 0.5)}),
    "Window": (Window, {"coordinate": "t", "low": 0.0, "high": 1.0}),
    "RandomRatio": (RandomRatio, {"low": 0.5}),
    "Intervals": (Intervals, {"steps": (2,)}),
    **{config.__name__: (config, {}) for _, config in MODELS.values()},
}


def constructor_arguments() -> Iterator[tuple[str, str]]:
    for name, (cls, _) in CONSTRUCTORS.items():
        yield from ((name, field) for field in cls.__dataclass_fields__)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("cls", "name"), list(constructor_arguments()))
def test_tasks_recipes_and_configs(cls: str, name: str) -> None:
    make, given = CONSTRUCTORS[cls]
    wrong = shows(f"{cls}.{name}", lambda value: make(**{**given, name: value}))
    other = {"low": "low <= high", "high": "low <= high", "width": f"{cls}.heads must"}
    wrong = [line for line in wrong if other.get(name, "?") not in line]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Fields(X, U, grid=20), r"grid: expected .* like \(64, 64\), got the int 20"),
        (
            lambda: Fields(X, U, period=1.0),
            r"period: expected .* like \(None, 1.0\), got the float",
        ),
        (lambda: Fields(X, U, names=["t"]), r'names: expected a mapping like \{"x".*got the list'),
        (lambda: Fields(X, U, units="m"), "units: expected a mapping .*, got the str 'm'"),
        (lambda: Fields(X, U, weights=5), "weights: expected one number for each point"),
        (lambda: Operator.fit(U), r"train_data: expected .*Fields.*got a ndarray of shape \(5, 6"),
        (lambda: Operator.fit(FIELDS, task="steady"), r"task: expected .*lno.Steady\(\)"),
        (lambda: Operator.fit(FIELDS, task=Steady), "task: expected .*got the class Steady"),
        (lambda: Operator.fit(FIELDS, init="a.safetensors"), r"init: expected .*Operator.load"),
        (lambda: Operator.fit(FIELDS, recipe="fast"), r"recipe: expected lno.Recipe"),
        (lambda: Operator.fit(FIELDS, config=5), r"config: expected .*LNOConfig"),
        (lambda: Operator.fit(FIELDS, device=3), "device: expected 'auto', 'cpu'"),
        (lambda: Operator.fit(FIELDS, members=0.5), "members must be a whole number from 1"),
        (lambda: Operator.fit(FIELDS, validation="10%"), "validation: expected the share"),
        (lambda: Operator.fit(FIELDS, symmetries=square), "got the function square: call it"),
        (
            lambda: Operator.fit(FIELDS, model="gnot", config=MODELS["lno"][1]()),
            r"config: expected GNOTConfig\(...\) for gnot, got the LNOConfig",
        ),
        (lambda: Completion(RandomRatio), "got the class RandomRatio"),
        (lambda: Intervals(3), r"Intervals.steps: expected a step for each axis"),
    ],
)
def test_common_mistakes_are_told_what_to_do(call: Callable[[], object], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        call()


@pytest.fixture(scope="module")
def reconstructor() -> Reconstructor:
    side = np.linspace(0, 1, 5)
    x = np.stack(np.meshgrid(side, side, indexing="ij"), -1).reshape(-1, 2)
    y = np.sin(x.sum(1, keepdims=True) + np.arange(6.0)[:, None, None])
    fields = Fields(x, y=y, grid=(5, 5))
    how: dict[str, Any] = {"epochs": 1, "config": TINY, "progress": False}
    task = Completion(RandomRatio(0.5))
    return Reconstructor(Operator.fit(fields, task=task, conditional=True, **how))


@pytest.mark.parametrize(
    "name",
    [
        *("completer", "propagator", "calibration", "x", "u", "noise", "seed"),
        *("samples", "patterns", "held_out", "folder"),
    ],
)
def test_reconstructors(
    name: str, reconstructor: Reconstructor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    side = np.linspace(0, 1, 5)
    x = np.stack(np.meshgrid(side, side, indexing="ij"), -1).reshape(-1, 2)
    given = {"x": x[::3], "u": np.ones((9, 1))}
    fields = Fields(x, y=np.ones((2, 25, 1)), grid=(5, 5))
    parts = {"completer": reconstructor.completer}
    calls: dict[str, Callable[[Any], object]] = {
        **dict.fromkeys(
            ("completer", "propagator", "calibration"),
            lambda value: Reconstructor(**{**parts, name: value}),
        ),
        **dict.fromkeys(
            ("x", "u", "noise", "seed"), lambda value: reconstructor(**{**given, name: value})
        ),
        "samples": lambda value: reconstructor.nonconformity(value, [RandomRatio(0.5)]),
        "patterns": lambda value: reconstructor.nonconformity(fields, value),
        "held_out": lambda value: reconstructor.calibrated(value, [RandomRatio(0.5)]),
        "folder": lambda value: named("folder", Reconstructor.load, value),
    }
    wrong = shows(name, calls[name])
    # Fields of another kind are told what the operators were trained on.
    wrong = [line for line in wrong if "= fields: unclear ValueError" not in line]
    assert not wrong, "\n".join(wrong)


def test_masks_and_names_survive_a_mapping_of_any_kind() -> None:
    class Names(Mapping[str, Any]):
        def __getitem__(self, key: str) -> Any:
            return {"x": ("t",)}[key]

        def __iter__(self) -> Iterator[str]:
            return iter(["x"])

        def __len__(self) -> int:
            return 1

    assert Fields(X, U, names=Names()).names["x"] == ["t"]
