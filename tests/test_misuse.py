"""Misuse of the public functions: the answer names the argument, and is never an internal error."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

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
from lno.training.device import pick_device

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
    """What is wrong with the answers to each of the wrong values for an argument."""
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
        "counts": lambda value: _named("split", FIELDS.split, value),
        "seed": FIELDS.shuffle,
        "parts": Fields.concatenate,
        "path": lambda value: _named("path", Fields.load, value),
        "lazy": lambda value: value is True or Fields.load("nowhere", lazy=value),
    }
    check({"counts": "split"}.get(name, name), calls[name])


def _named(name: str, call: Callable[[Any], object], value: Any) -> object:
    """Paths that do not exist are named themselves."""
    try:
        return call(value)
    except OSError as error:
        raise type(error)(f"{name}: {error}") from error


@pytest.fixture(scope="module")
def operator() -> Operator:
    return Operator.fit(FIELDS, epochs=1, config=TINY, progress=False, device="cpu")


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


@pytest.mark.parametrize(
    "name", ["x", "u", "x_query", "parameters", "weights", "background", "noise"]
)
def test_predict(name: str, operator: Operator) -> None:
    given = {"x": X, "u": U[0]}
    check(name, lambda value: operator.predict(**{**given, name: value}))
    several = {"x": X, "u": U}
    check(name, lambda value: operator.predict(**{**several, name: value}))


@pytest.mark.parametrize("name", ["test", "task", "seed", "where"])
def test_evaluate(name: str, operator: Operator) -> None:
    check(name, lambda value: operator.errors(**{"test": FIELDS, name: value}))
    if name != "where":
        check(name, lambda value: operator.evaluate(**{"test": FIELDS, name: value}))


@pytest.mark.parametrize("name", ["path", "half", "device", "grid", "k"])
def test_files_and_parts_of_operators(
    name: str, operator: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    operator.save("good.safetensors")
    calls: dict[str, list[Callable[[Any], object]]] = {
        "path": [
            lambda value: _named("path", Operator.load, value),
            lambda value: _named("path", operator.save, value),
        ],
        "half": [lambda value: operator.save("a.safetensors", half=value)],
        "device": [lambda value: Operator.load("good.safetensors", value), pick_device],
        "grid": [operator.on_grid],
    }
    if name == "k":
        wrong = [line for line in shows(name, operator.member) if "no member" not in line]
        assert not wrong, "\n".join(wrong)
        return
    for call in calls[name]:
        check(name, call)


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
        "folder": lambda value: _named("folder", Reconstructor.load, value),
    }
    wrong = shows(name, calls[name])
    # Fields of another kind are told what the operators were trained on.
    wrong = [line for line in wrong if "= fields: unclear ValueError" not in line]
    assert not wrong, "\n".join(wrong)


def masked(values: np.ndarray, hidden: bool) -> np.ma.MaskedArray:
    mask = np.zeros(values.shape, bool)
    mask.flat[0] = hidden
    return np.ma.masked_array(values, mask if hidden else np.ma.nomask)


@pytest.mark.parametrize("hidden", [True, False])
@pytest.mark.parametrize("as_list", [False, True])
def test_masked_arrays_are_refused_everywhere(
    hidden: bool, as_list: bool, operator: Operator
) -> None:
    """Under a mask stands a fill value, like −999. Whoever reads it has a wrong answer."""

    def given(values: np.ndarray) -> Any:
        if not as_list:
            return masked(values, hidden)
        return [masked(v, hidden) for v in values] if values.ndim == 3 else [masked(values, hidden)]

    sizes = np.full((6,), 1.0)
    for name, call in {
        "x": lambda: Fields(given(X), U[:1] if as_list else U),
        "u": lambda: Fields(X, given(U)),
        "y": lambda: Fields(X, U, y=given(U)),
        "weights": lambda: Fields(X, U, weights=given(sizes)),
        "parameters": lambda: Fields(X, U, parameters=masked(np.ones((5, 1)), hidden)),
    }.items():
        with pytest.raises(ValueError, match=rf"^{name}\b.*masked array.*Leave out points"):
            call()
    for name, call in {
        "x": lambda: operator.predict(given(X), U[:1] if as_list else U[0]),
        "u": lambda: operator.predict(X, given(U)),
        "x_query": lambda: operator.predict(X, U[:1] if as_list else U[0], given(X)),
        "weights": lambda: operator.predict(X, U[0], weights=given(sizes)),
    }.items():
        with pytest.raises(ValueError, match=rf"^{name}\b.*masked array"):
            call()


def test_missing_values_of_tables_are_refused(operator: Operator) -> None:
    table = np.array([[v] for v in (0.1, None, 0.3)], dtype=object)  # as pandas gives them
    with pytest.raises(
        ValueError, match=r"u: expected real numbers, got dtype object: of a pandas"
    ):
        Fields(X[:3], table[None])
    with pytest.raises(
        ValueError, match=r"u: expected real numbers, got dtype object: of a pandas"
    ):
        operator.predict(X[:3], table)
    with pytest.raises(ValueError, match=r"u, sample 0, point 1.*got nan"):
        operator.predict(X[:3], table.astype(float))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_tensors_of_half_precision_are_converted(dtype: torch.dtype, operator: Operator) -> None:
    x, u = torch.linspace(0, 1, 6)[:, None].to(dtype), torch.ones(6, 1, dtype=dtype)
    expected = operator.predict(x.float(), u.float())
    assert torch.equal(operator.predict(x, u), expected)
    assert torch.equal(operator.predict([x], [u])[0], expected)
    weights = torch.ones(6, dtype=dtype)
    assert Fields(x, u[None], weights=weights).weights.dtype == np.float32


@pytest.mark.parametrize("conditional", [False, True])
@pytest.mark.parametrize("name", ["x", "x_query"])
def test_positions_that_cannot_be_encoded_are_refused(name: str, conditional: bool) -> None:
    fields = Fields(np.arange(6)[:, None] / 6, y=U, period=(1.0,))
    op = Operator.fit(
        fields,
        task=Completion(RandomRatio(0.5)),
        conditional=conditional,
        epochs=1,
        config=TINY,
        progress=False,
    )
    for far in (1e308, 1e300, 1e17, np.float32(1e9)):
        given = {"x": fields.x[:3], "u": U[0, :3], "x_query": fields.x}
        given[name] = (np.full((3, 1), far) * (1 - np.arange(3)[:, None] / 8)).astype(type(far))
        with pytest.raises(
            ValueError, match=rf"^{name}, coordinate 0: .* period 1|^{name}: 1e\+30"
        ):
            op.predict(**given)
    # A thousand periods away is the same place.
    near, away = (op.predict(fields.x[:3] + k, U[0, :3], fields.x) for k in (0.0, 1000.0))
    assert np.allclose(near, away, atol=1e-3)


def test_noise_is_any_real_number() -> None:
    fields = Fields(X, y=U)
    task = Completion(RandomRatio(0.5))
    how: dict[str, Any] = {"epochs": 1, "config": TINY, "progress": False}
    op = Operator.fit(fields, task=task, conditional=True, **how)
    expected = op.predict(X[:3], U[0, :3], X, noise=0.5)
    for noise in (np.float64(0.5), np.float32(0.5), Fraction(1, 2)):
        assert np.array_equal(op.predict(X[:3], U[0, :3], X, noise=noise), expected)  # type: ignore[arg-type]
    check("noise", lambda value: op.predict(X[:3], U[0, :3], X, noise=value))


def test_values_that_cannot_be_encoded_are_refused(operator: Operator) -> None:
    with pytest.raises(ValueError, match=r"^u: 1e\+300 is too large to be standardised"):
        operator.predict(X, np.full((6, 1), 1e300))
    with pytest.raises(ValueError, match=r"^x: 1e\+300 is too large"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        operator.predict(np.full((6, 1), 1e300), np.ones((6, 1)))


def test_one_sample_and_several_do_not_mix(operator: Operator) -> None:
    for given, message in (
        ({"x": X[None], "u": U[0]}, "u: expected values of each sample.*as x has several"),
        ({"x": X, "u": U[0], "x_query": X[None]}, "u: expected values of each sample.*as x_query"),
        ({"x": [X, X], "u": U[0]}, "u: expected values of each sample"),
        ({"x": [X, X], "u": U}, "same number of samples everywhere: x has 2, u has 5"),
        ({"x": X[:, 0], "u": U[0]}, r"x: expected an array .*got shape \(6,\)"),
        ({"x": X, "u": U[0, :, 0]}, r"u: expected an array .*got shape \(6,\)"),
        ({"x": X, "u": U[None]}, r"u: expected an array .*got shape \(1, 5, 6, 1\)"),
        ({"x": X[:0], "u": U[0, :0]}, "x, sample 0 has no points"),
        ({"x": X, "u": U[0], "x_query": X[:0]}, "x_query, sample 0 has no points"),
    ):
        with pytest.raises(ValueError, match=message):
            operator.predict(**given)
    assert operator.predict(X, U[0]).shape == (6, 1)
    assert operator.predict(X, U).shape == (5, 6, 1)  # positions that samples share


def test_masks_and_names_survive_a_mapping_of_any_kind() -> None:
    class Names(Mapping[str, Any]):
        def __getitem__(self, key: str) -> Any:
            return {"x": ("t",)}[key]

        def __iter__(self) -> Iterator[str]:
            return iter(["x"])

        def __len__(self) -> int:
            return 1

    assert Fields(X, U, names=Names()).names["x"] == ["t"]
