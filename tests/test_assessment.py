"""Breakdowns of made-up errors show what the errors were made to depend on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from lno import Completion, Fields, Operator, RandomRatio, Rollout
from lno.assessment import OPERATOR, Assessment, Rival, assess, binned
from lno.data import Batch
from lno.prediction import Prediction

CONFIG = {"width": 8, "latents": 4, "blocks": 1, "heads": 1, "layers": 1}
X = np.linspace(0, 1, 16)[:, None]


def wrong_by(data: Fields, error: Callable[[Batch], Tensor], **keys: Any) -> Operator:
    """An operator whose predictions are the outputs of the data plus a known error."""
    made = Operator.fit(data, epochs=1, config=CONFIG, progress=False, device="cpu", **keys)

    def predict(batch: Batch) -> Prediction:
        assert batch.y is not None
        return Prediction((batch.y + error(batch))[None])

    made.predict_batch = predict  # type: ignore[method-assign, assignment]
    return made


def waves(samples: int = 40) -> Fields:
    """Two channels and two parameters, the first of which grows from sample to sample."""
    load = np.linspace(1, 2, samples)
    other = np.random.default_rng(0).permutation(load)
    y = np.sin(6 * X + other[:, None, None]) * [1.0, 50.0] + [0.0, 100.0]
    names = {"y": ["a", "b"], "parameters": ["load", "other"]}
    return Fields(X, y=y, parameters=np.stack((load, other), 1), names=names)


def growing(batch: Batch) -> Tensor:
    assert batch.y is not None and batch.parameters is not None
    return 0.01 * batch.parameters[:, :1, None] * batch.y


def test_an_error_that_grows_with_a_parameter() -> None:
    data = waves()
    found = assess(wrong_by(data, growing), data)
    assert data.parameters is not None
    np.testing.assert_allclose(found.relative, 0.01 * data.parameters[:, 0], rtol=1e-4)
    (values, load), (_, other) = found.by_parameter().values()
    assert load is not None and other is not None
    assert np.array_equal(values, data.parameters[:, 0])
    np.testing.assert_allclose(load.median, 0.01 * load.at, rtol=1e-4)
    assert (np.diff(load.median) > 0).all() and not (np.diff(other.median) > 0).all()


def test_errors_are_those_of_evaluate() -> None:
    x = [X[:n] for n in (16, 9, 12, 16, 7, 11)]
    data = Fields(x, [np.cos(v) for v in x], y=[np.sin(v) for v in x])
    made = Operator.fit(data, epochs=1, config=CONFIG, progress=False, device="cpu")
    found, expected = assess(made, data), made.errors(data)
    assert found.errors == expected
    for one, prediction, known in zip(found.samples, found.predictions, data, strict=True):
        assert prediction.shape == known.y.shape  # type: ignore[union-attr]
        np.testing.assert_allclose(one.y, known.y, rtol=1e-6)


def test_what_the_operator_knows_beside_the_data_counts() -> None:
    """A climatology and the sphere are in the operator, not in the file that it is tested on."""
    random = np.random.default_rng(0)
    x = np.stack((random.uniform(-80, 80, 30), random.uniform(0, 360, 30)), 1)
    month, phase = np.tile([0.0, 1.0], 10), random.uniform(0, 6, (20, 1))
    y = 20 * month[:, None] + np.sin(np.deg2rad(x[:, 1]) + phase)
    names = {"x": ["lat", "lon"], "y": ["T"], "parameters": ["month"]}
    data = Fields(x, y=y[..., None], parameters=month[:, None], names=names)
    keys = {"task": Completion(RandomRatio(0.3)), "conditional": True, "config": CONFIG}
    keys |= {"epochs": 1, "progress": False, "device": "cpu", "background": "climatology:month"}
    made = Operator.fit(data.replace(sphere=("lat", "lon")), **keys)
    found = assess(made, data, data)
    assert found.errors == made.errors(data)
    errors = {rival.name: rival.errors["relative_l2"].mean() for rival in found.rivals}
    assert errors["kriging"] < errors["background alone"]


def test_an_error_in_one_channel_only() -> None:
    data = waves()
    found = assess(wrong_by(data, lambda batch: batch.y * torch.tensor([0.0, 0.1])), data)
    assert list(found.channels) == ["a", "b"]
    np.testing.assert_allclose(found.channels["a"], 0, atol=1e-7)
    np.testing.assert_allclose(found.channels["b"], 0.1, rtol=1e-4)


def test_an_error_that_grows_with_the_distance_from_sensors() -> None:
    x = np.random.default_rng(0).uniform(size=(200, 2))
    data = Fields(x, y=np.random.default_rng(1).normal(size=(12, 200, 1)))

    def error(batch: Batch) -> Tensor:
        place, std = made.normalizers.x.distance_features, made.normalizers.y.std[0]
        apart = torch.cdist(place(batch.x_query).expand(len(batch), -1, -1), place(batch.x))
        return std * apart.amin(2)[..., None]

    made = wrong_by(data, error, task=Completion(RandomRatio(0.05)))
    curve = assess(made, data).distances
    assert curve is not None and (np.diff(curve.median) > 0).all()
    np.testing.assert_allclose(curve.median, curve.at, rtol=1e-3, atol=1e-3)


def test_an_error_that_grows_where_points_are_sparse() -> None:
    squeezed = np.linspace(0, 1, 60)[:, None] ** 3
    y = np.random.default_rng(0).normal(size=(8, 60, 1))
    data = Fields(squeezed, y, y=y)
    gaps = torch.from_numpy(np.gradient(squeezed[:, 0]))[None, :, None]
    found = assess(wrong_by(data, lambda batch: 0 * batch.y + gaps), data)
    assert found.spacings is not None and (np.diff(found.spacings.median) > 0).all()
    assert found.distances is None
    even = data.replace(x=np.linspace(0, 1, 60)[:, None])
    assert assess(wrong_by(even, lambda batch: batch.y), even).spacings is None


def test_an_error_in_the_last_frame_only() -> None:
    frames = np.random.default_rng(0).normal(size=(6, 16, 6))
    data = Fields(X, frames[..., :2], y=frames[..., 2:])
    last = torch.tensor([0.0, 0.0, 0.0, 0.2])
    found = assess(wrong_by(data, lambda batch: batch.y * last, task=Rollout(4)), data)
    np.testing.assert_allclose(found.errors.frames, [0, 0, 0, 0.2], atol=1e-6)
    assert list(found.channels) == ["channel 0 of a frame"]


def test_bins_hold_equal_numbers_and_equal_values_stay_together() -> None:
    random = np.random.default_rng(0)
    x = random.choice([1.0, 2.0, 2.0 + 1e-9, 5.0], 100)
    curve = binned(x, x**2)
    assert curve is not None
    np.testing.assert_allclose(curve.at, [1, 2, 5], rtol=1e-6)
    np.testing.assert_allclose(curve.median, [1, 4, 25], rtol=1e-6)
    assert binned(np.ones(100), x) is None  # nothing varies
    assert binned(x[:5], x[:5]) is None  # too few


# -- the verdict -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def assessed() -> Assessment:
    data = waves()
    train, test = data.split(30, 10)
    return assess(wrong_by(train, growing), test, train)


def test_simple_methods_come_with_the_training_samples(assessed: Assessment) -> None:
    own, *others = assessed.rivals
    assert own.name == OPERATOR and np.array_equal(own.errors["relative_l2"], assessed.relative)
    names = ["mean of the training samples", "nearest training sample", "kernel ridge regression"]
    assert [rival.name for rival in others] == names
    assert assessed.seen == 0


def test_test_samples_that_were_trained_on_are_counted() -> None:
    data = waves()
    found = assess(wrong_by(data, growing), data.subset([3, 5]), data)
    assert found.seen == 2
    np.testing.assert_allclose(found.rivals[2].errors["relative_l2"], 0, atol=1e-6)  # nearest


def test_the_verdict_names_the_winner_with_both_numbers(assessed: Assessment) -> None:
    def between(ours: list[float], theirs: list[float]) -> str:
        both = {OPERATOR: ours, "kriging": theirs, "mean": [9.0] * len(ours)}
        rivals = [Rival(k, {"relative_l2": np.array(v)}) for k, v in both.items()]
        count = assessed.samples[: len(ours)]
        return replace(assessed, rivals=rivals, samples=count).verdict()

    better = between([0.05, 0.06, 0.07], [0.01, 0.02, 0.03])
    assert better == (
        "A simple baseline is better: kriging has a mean relative L2 error of 2 %, the operator "
        "6 %, on 3 held-out samples."
    )
    worse = between([0.01, 0.02, 0.03], [0.05, 0.06, 0.08])
    assert worse.startswith("The operator beats the simple baselines: the best of them, kri")
    assert "6.33 %, the operator 2 %" in worse
    alike = between([0.01, 0.02, 0.03], [0.02, 0.01, 0.031])
    assert alike.startswith("A simple baseline is about as good: kriging has")
    unsure = between([0.2, 0.02, 0.03, 0.2], [0.02, 0.03, 0.04, 0.19])
    assert unsure.startswith("A simple baseline may be better: kriging has")
    always = between([0.01 * k**3 for k in range(1, 9)], [0.009 * k**3 for k in range(1, 9)])
    assert always.startswith("A simple baseline is better")  # on 8 of 8, though the means are close
    same = between([0.01, 0.02, 0.03], [0.01, 0.02, 0.03])
    assert same.startswith("A simple baseline is about as good")
    ties = between([0.1] * 8 + [0.2, 0.3], [0.1] * 8 + [0.1, 0.1])  # better on 2, equal on 8
    assert ties.startswith("A simple baseline may be better")
    some = between([0.01, 0.5, 0.01], [0.02, np.nan, 0.02])  # on the samples of both
    assert "kriging, has a mean relative L2 error of 2 %, the operator 1 %" in some
    assert between([0.2], [0.1]).endswith("the operator 20 %, on one held-out sample.")


def test_data_without_outputs_and_of_another_kind_are_refused() -> None:
    data = waves()
    made = wrong_by(data, growing)
    with pytest.raises(ValueError, match="no outputs y"):
        assess(made, data.replace(y=None))
    with pytest.raises(ValueError, match=r"parameters: expected 2 numbers \(load, other\), got 0"):
        assess(made, data.replace(parameters=None))
    with pytest.raises(RuntimeError, match="a prediction is not finite"):
        assess(wrong_by(data, lambda batch: batch.y / 0), data)
    with pytest.raises(ValueError, match="have 1 channels of y, the test samples 2"):
        assess(made, data, Fields(X, y=data.y[..., :1], parameters=data.parameters))
