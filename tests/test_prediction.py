"""Predictions: for one sample or many, in any form, at points of choice."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

import lno.prediction
from lno import Fields, Operator


def test_predict_takes_one_or_many_in_any_form(operator: Operator, line_fields: Fields) -> None:
    x, u, *_ = line_fields[0]
    q = np.linspace(0.1, 2.9, 7)[:, None]
    one = operator.predict(x, u, q)
    assert one.shape == (7, 1)
    both = operator.predict(x, np.stack([u, 2 * u]), q)
    assert both.shape == (2, 7, 1)
    np.testing.assert_allclose(both[0], one, rtol=1e-4, atol=1e-6)
    ragged = operator.predict([x, x[:5]], [u, u[:5]], [q, q[:2]])
    assert [r.shape for r in ragged] == [(7, 1), (2, 1)]
    np.testing.assert_allclose(ragged[0], one, rtol=1e-4, atol=1e-6)
    tensor = operator.predict(torch.from_numpy(x), torch.from_numpy(u), torch.from_numpy(q))
    assert isinstance(tensor, torch.Tensor)
    assert np.array_equal(tensor.numpy(), one)
    assert operator.predict(x, u).shape == (24, 1)
    assert operator.predict(x[:1], u[:1], q).shape == (7, 1)  # a single observed point
    assert operator.predict(x.tolist(), u.tolist(), q.tolist()).shape == (7, 1)


def set_chunk(monkeypatch: pytest.MonkeyPatch, points: int) -> None:
    monkeypatch.setattr(lno.prediction, "CHUNK", points)


def test_chunks_of_points_do_not_change_the_prediction(
    operator: Operator, line_fields: Fields, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = operator.predict(line_fields)
    weights = np.exp(np.linspace(-1, 1, 24))
    x, u, *_ = line_fields[0]
    weighted = operator.predict(x, u, weights=weights)
    assert np.abs(weighted - whole[0]).max() > 1e-6
    for chunk in (1, 5, 40):
        set_chunk(monkeypatch, chunk)
        np.testing.assert_allclose(operator.predict(line_fields), whole, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(
            operator.predict(x, u, weights=weights), weighted, rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize(
    ("x", "u", "message"),
    [
        (np.zeros((5, 2)), np.zeros((5, 1)), r"x: expected 1 coordinate \(x0\), got 2"),
        (np.zeros((5, 1)), np.zeros((5, 3)), r"u: expected 1 channel \(f\), got 3"),
        (np.zeros((5, 1)), np.zeros((4, 1)), "u, sample 0: expected 5 points as in x, got 4"),
        (np.zeros((0, 1)), np.zeros((0, 1)), "has no points: expected at least one"),
        (
            np.full((5, 1), np.nan),
            np.zeros((5, 1)),
            "x, point 0.*expected a finite number, got nan",
        ),
        (np.zeros((5, 1)), np.full((5, 1), np.inf), "u, sample 0, point 0.*got inf"),
        ([], [], "expected an array"),
        (np.array(["a"]), np.zeros((1, 1)), "expected real numbers"),
    ],
)
def test_bad_input_is_named(operator: Operator, x: object, u: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        operator.predict(x, u)


def test_data_of_another_kind_are_not_evaluated(operator: Operator, line_fields: Fields) -> None:
    x, u, y = line_fields.x, line_fields.u, line_fields.y
    with pytest.raises(ValueError, match=r"x: expected 1 coordinate \(x0\), got 2"):
        operator.evaluate(Fields(np.concatenate([x] * 2, -1), u, y=y))
    with pytest.raises(ValueError, match=r"u: expected 1 channel \(f\), got 2"):
        operator.evaluate(Fields(x, np.concatenate([u] * 2, -1), y=y))
    with pytest.raises(ValueError, match="y: expected 1 channel, got 3"):
        operator.evaluate(Fields(x, u, y=np.concatenate([y] * 3, -1)))
    with pytest.raises(ValueError, match="Fields hold everything"):
        operator.predict(line_fields, x_query=x)


def test_weights_of_points(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.linspace(0, 3, 10)[:, None]
    u, half = np.sin(x), np.where(np.arange(10) < 5, 2.0, 0.0)
    some = operator.predict(x[:5], u[:5], x)
    for _ in range(2):
        np.testing.assert_allclose(operator.predict(x, u, x, weights=half), some, atol=1e-5)
        several = operator.predict(x, np.stack([u, u]), x, weights=np.stack([half, half]))
        np.testing.assert_allclose(several[1], some, atol=1e-5)
        ragged = operator.predict([x, x[:5]], [u, u[:5]], [x, x], weights=[half, half[:5]])
        assert isinstance(ragged, list)
        for predicted in ragged:
            np.testing.assert_allclose(predicted, some, atol=1e-5)
        set_chunk(monkeypatch, 3)  # parts in which no point counts
    for wrong, message in (
        (half[:5], "weights, sample 0: expected 10 points"),
        (np.ones((2, 10)), "same number of samples"),
        (np.full(10, np.inf), "weights, point 0, channel 'weight': expected a finite number"),
        (np.zeros(10), "not all zero"),
    ):
        with pytest.raises(ValueError, match=message):
            operator.predict(x, u[None], weights=wrong)


def test_lists_come_back_as_lists_of_single_predictions(operator: Operator) -> None:
    x, q = np.linspace(0, 3, 10)[:, None], np.linspace(0.2, 2.8, 7)[:, None]
    inputs = [np.sin(x), 2 * np.cos(x)]
    predictions = operator.predict([x, x], inputs, q)
    assert isinstance(predictions, list)
    for predicted, u in zip(predictions, inputs, strict=True):
        np.testing.assert_allclose(predicted, operator.predict(x, u, q), rtol=1e-4, atol=1e-6)
    assert np.abs(predictions[0] - predictions[1]).max() > 1e-3, "inputs that matter"


def test_a_prediction_that_is_not_finite_is_an_error(
    operator: Operator, line_fields: Fields
) -> None:
    with torch.no_grad():
        operator.model.head.output.bias.fill_(float("nan"))  # type: ignore[union-attr]
    with pytest.raises(RuntimeError, match="sample 0, point 0 is not finite"):
        operator.predict(line_fields)


def test_leaving_the_training_box_is_said(operator: Operator) -> None:
    inside, outside = np.linspace(0, 3, 5)[:, None], np.linspace(0, 6, 4)[:, None]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        operator.predict(inside, np.sin(inside))
    with pytest.warns(UserWarning, match=r"2 of 4 query positions lie outside .*0 <= x0 <= 3"):
        operator.predict(inside, np.sin(inside), outside)
