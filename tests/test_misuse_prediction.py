"""Misuse of trained operators: arrays that cannot be what they are given for."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from wrong_values import FIELDS, TINY, U, X, check, named, shows

from lno import Completion, Fields, Operator, RandomRatio
from lno.training.device import pick_device


@pytest.fixture(scope="module")
def operator() -> Operator:
    return Operator.fit(FIELDS, epochs=1, config=TINY, progress=False, device="cpu")


@pytest.mark.parametrize(
    "name", ["x", "u", "x_query", "parameters", "weights", "background", "noise", "bounds"]
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


def test_calibrated(operator: Operator) -> None:
    check("level", lambda value: operator.calibrated(FIELDS, value))
    check("x", lambda value: operator.distribution(value, U[0]))


@pytest.mark.parametrize("name", ["path", "half", "device", "grid", "k"])
def test_files_and_parts_of_operators(
    name: str, operator: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    operator.save("good.safetensors")
    calls: dict[str, list[Callable[[Any], object]]] = {
        "path": [
            lambda value: named("path", Operator.load, value),
            lambda value: named("path", operator.save, value),
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


def masked(values: np.ndarray, hidden: bool) -> np.ma.MaskedArray:
    mask = np.zeros(values.shape, bool)
    mask.flat[0] = hidden
    return np.ma.masked_array(values, mask if hidden else np.ma.nomask)


@pytest.mark.parametrize("hidden", [True, False])
@pytest.mark.parametrize("as_list", [False, True])
def test_masked_arrays_are_refused_everywhere(
    hidden: bool, as_list: bool, operator: Operator
) -> None:
    """Under a mask stands a fill value, like −999. Whoever reads it predicts something wrong."""

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


def test_the_wrong_number_of_coordinates_is_named(operator: Operator) -> None:
    d = X.shape[-1]
    few = X[..., : d - 1] if d > 1 else np.concatenate((X, X), -1)
    word = rf"^x: expected {d} coordinates? \(.*\), got {few.shape[-1]}$"
    with pytest.raises(ValueError, match=word):
        operator.predict(few, U[0])
    with pytest.raises(ValueError, match=word):
        operator.predict([few, few], [U[0], U[0]])
    with pytest.raises(ValueError, match="parameters: expected an array of numbers, got a dict"):
        operator.predict(X, U[0], parameters={"load": 3})


def test_an_operator_shows_its_parameters() -> None:
    data = Fields(X, y=U, parameters=np.arange(float(len(U)))[:, None])
    made = Operator.fit(data, epochs=1, config=TINY, progress=False, device="cpu")
    assert ", parameters parameter0 → y0)" in repr(made)
