"""Backgrounds: climatologies of the training samples, and inputs that are a first guess."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lno import Completion, Fields, Operator, RandomRatio
from lno.data.climatology import Climatology, with_channel

X = np.linspace(0, 1, 12)[:, None]
MONTH = np.tile([1.0, 2.0, 3.0], 10)[:, None]
NAMES = {"x": ["x"], "y": ["T"], "parameters": ["month"]}
FIT = {
    "config": {"width": 8, "latents": 4, "blocks": 1, "heads": 2},
    "epochs": 1,
    "progress": False,
    "device": "cpu",
}


def seasons(noise: float = 0.1) -> Fields:
    y = (10 * MONTH + np.sin(6 * X[:, 0]))[..., None]
    y = y + noise * np.random.default_rng(0).normal(size=(30, 1, 1))
    return Fields(X, y=y, parameters=MONTH, names=NAMES)


def test_means_are_those_of_the_samples_of_each_value() -> None:
    data = seasons()
    found = Climatology.fit(data, "month")
    for month in (1, 2, 3):
        expected = np.asarray(data.y)[MONTH[:, 0] == month].mean(0)
        assert np.allclose(found.at(X, np.array([float(month)])), expected)


def test_a_coordinate_gives_the_mean_over_all_others() -> None:
    lat, lon = (v.ravel() for v in np.meshgrid(np.arange(4.0), np.arange(5.0), indexing="ij"))
    x, y = np.stack((lat, lon), 1), (lat**2 + np.array([[1.0], [-1.0]]) * lon)[..., None]
    found = Climatology.fit(Fields(x, y=y, names={"x": ["lat", "lon"]}), "lat")
    assert np.allclose(found.at(x), lat[:, None] ** 2)


def test_samples_with_gaps_have_the_mean_of_what_there_is() -> None:
    there = [np.arange(12), np.arange(6), np.arange(12), np.arange(6)]
    y = [np.full((len(i), 1), float(k)) for k, i in enumerate(there)]
    ragged = Fields([X[i] for i in there], y=y, parameters=np.array([[1.0], [1.0], [2.0], [2.0]]))
    found = Climatology.fit(ragged, "parameter0")
    assert found.at(X, np.array([1.0])).ravel().tolist() == [0.5] * 6 + [0.0] * 6


def test_an_operator_applies_its_climatology_by_itself(tmp_path: Path) -> None:
    data = seasons()
    train, test = data.split(24, 6)
    task = Completion(RandomRatio(0.2, 0.4))
    op = Operator.fit(train, task=task, background="climatology:month", conditional=True, **FIT)
    op.save(tmp_path / "op.safetensors")
    loaded = Operator.load(tmp_path / "op.safetensors", "cpu")
    assert loaded.evaluate(test) == op.evaluate(test)
    assert op.evaluate(test)["relative_l2"] < 0.01  # a model of one epoch knows nothing else
    y = np.asarray(test.y)[1]
    guess = loaded.predict(X[::4], y[::4], x_query=X, parameters=MONTH[25])
    assert np.abs(guess - y).max() < 0.1
    with pytest.raises(ValueError, match=r"month = 7: the climatology .* has 1, 2, 3"):
        loaded.predict(X[::4], y[::4], x_query=X, parameters=[7.0])
    # It is that of the samples that were trained on, none of those held out.
    used = op.background
    assert isinstance(used, Climatology)
    assert not np.allclose(used.means, Climatology.fit(data, "month").means)


def test_an_input_may_be_the_background() -> None:
    data = seasons()
    u = np.concatenate((np.asarray(data.y) + 0.5, np.ones((30, 12, 1))), -1)
    guessed = Fields(X, u, y=data.y, names={"x": ["x"], "u": ["guess", "load"], "y": ["T"]})
    moved = with_channel(guessed, "guess")
    assert moved.names["u"] == ["load"] and np.allclose(moved.background, u[..., :1])
    op = Operator.fit(guessed, background="guess", **FIT)
    assert op.labels.names["u"] == ["load"]
    assert op.evaluate(guessed)["relative_l2"] < 0.05  # of a model that has learned nothing
    assert np.abs(op.predict(guessed) - data.y).mean() < 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("climatology:moth", r"coordinate 'moth' \(did you mean 'month'\?\)"),
        ("gues", "the data have no input 'gues'"),
    ],
)
def test_what_is_not_there_is_said(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Operator.fit(seasons(), background=text, **FIT)


def test_a_background_of_the_data_is_not_forgotten(tmp_path: Path) -> None:
    data = seasons()
    op = Operator.fit(data.replace(background=np.asarray(data.y) + 1), **FIT)
    op.save(tmp_path / "op.safetensors")
    for one in (op, Operator.load(tmp_path / "op.safetensors", "cpu")):
        with pytest.raises(ValueError, match="was trained with a background"):
            one.predict(X, parameters=[1.0])
        with pytest.raises(ValueError, match="was trained with a background"):
            one.evaluate(data)


def test_a_mean_needs_several_samples_of_each_value() -> None:
    days = seasons().replace(parameters=np.arange(30.0)[:, None])
    with pytest.raises(ValueError, match="30 different values in 30 training samples"):
        Climatology.fit(days, "month")
