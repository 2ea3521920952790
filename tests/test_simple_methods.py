"""Simple methods are exact where they must be, and say why where they cannot be used."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lno import Completion, Fields, RandomRatio
from lno.data.normalize import Coordinates
from lno.data.spec import Sample
from lno.kernel_methods.kernel_ridge import KernelRidge
from lno.kernel_methods.krige import krige
from lno.simple_methods import (
    BACKGROUND,
    KRIGING,
    MEAN,
    NEAREST,
    REGRESSION,
    SimpleMethods,
    predict_simply,
    transfer,
)
from lno.tasks import Task

X = np.linspace(0, 1, 7)[:, None]


def predict(train: Fields, test: list[Sample], task: Task | None = None) -> SimpleMethods:
    return predict_simply(train, test, Coordinates.fit(train), task)


def predicted(found: SimpleMethods, name: str) -> list[np.ndarray]:
    [method] = [method for method in found.methods if method.name == name]
    return [values for values in method.predictions if values is not None]


def linear(samples: int, seed: int) -> Fields:
    """A linear map of three parameters to two channels of very different size."""
    parameters = np.random.default_rng(seed).normal(size=(samples, 3))
    shapes = np.stack((np.ones(7), X[:, 0], X[:, 0] ** 2))
    first = parameters @ shapes
    return Fields(X, y=np.stack((first, 1000 - 500 * first), -1), parameters=parameters)


def test_the_mean_of_two_samples_by_hand() -> None:
    train = Fields(X, np.zeros((2, 7, 1)), y=np.stack((X, 3 * X)))
    found = predict(train, [train[0]])
    np.testing.assert_allclose(predicted(found, MEAN)[0], 2 * X, rtol=1e-6)
    same = "all samples have the same inputs"
    assert found.left_out == {NEAREST: same, REGRESSION: same}


def test_the_nearest_sample_of_a_duplicate_is_the_sample() -> None:
    random = np.random.default_rng(0)
    train = Fields(X, random.normal(size=(9, 7, 2)), y=random.normal(size=(9, 7, 1)))
    test = [train[k] for k in (4, 0, 8)]
    for got, one in zip(predicted(predict(train, test), NEAREST), test, strict=True):
        np.testing.assert_allclose(got, one.y, rtol=1e-6)


def test_kernel_ridge_learns_a_linear_map_of_three_parameters() -> None:
    train, test = linear(40, 0), list(linear(10, 1))
    found = predict(train, test)
    wrong = {
        name: np.mean(
            [np.abs(y - one.y) for y, one in zip(predicted(found, name), test, strict=True)]
        )
        for name in (MEAN, NEAREST, REGRESSION)
    }
    assert wrong[REGRESSION] < 0.02 * wrong[MEAN] and wrong[NEAREST] < wrong[MEAN]


def test_kernel_ridge_by_hand() -> None:
    """Far apart inputs of a narrow kernel: each sample decides alone, and fields are kept."""
    inputs = np.array([[0.0], [1.0], [2.0], [3.0]])
    fields = np.array([1.0, -1.0, 2.0, -2.0])[:, None, None] * np.ones((1, 3, 1))
    found = KernelRidge.fit(inputs, fields)
    kernel = np.exp(-((inputs - inputs.T) ** 2) / (2 * found.length**2))
    weights = np.linalg.solve(kernel + found.ridge * np.eye(4), fields[:, 0, 0])
    expected = np.exp(-((0.4 - inputs[:, 0]) ** 2) / (2 * found.length**2)) @ weights
    np.testing.assert_allclose(found.predict(np.array([[0.4]])), np.full((1, 3, 1), expected))
    assert len(found.modes) == 1


def test_a_leave_one_out_error_is_that_of_leaving_one_out() -> None:
    """Length scale and ridge are the best ones when every sample is really left out."""
    random = np.random.default_rng(0)
    inputs = random.uniform(size=(12, 2))
    fields = (inputs @ [[1.0], [2.0]])[..., None] + 0.3 * random.normal(size=(12, 1, 1))
    found = KernelRidge.fit(inputs, fields)
    centred = (fields - fields.mean(0))[:, 0, 0]

    def left_out(length: float, ridge: float) -> float:
        kernel = np.exp(-((inputs[:, None] - inputs) ** 2).sum(-1) / (2 * length**2))
        errors = []
        for k in range(12):
            rest = np.arange(12) != k
            weights = np.linalg.solve(
                kernel[np.ix_(rest, rest)] + ridge * np.eye(11), centred[rest]
            )
            errors.append(kernel[k, rest] @ weights - centred[k])
        return float(np.square(errors).sum())

    least = min(
        left_out(found.length * 2.0**a, 10.0**b) for a in range(-6, 7) for b in range(-6, 0)
    )
    assert left_out(found.length, found.ridge) < 1.01 * least


def test_transfer_keeps_values_at_common_points_and_constants() -> None:
    random = np.random.default_rng(0)
    at, to = random.uniform(size=(30, 2)), random.uniform(size=(8, 2))
    values = random.normal(size=(30, 3))
    np.testing.assert_allclose(transfer(at, values, at[::3]), values[::3], rtol=1e-6)
    np.testing.assert_allclose(transfer(at, np.ones((30, 1)), to), 1.0)


def test_grids_of_one_shape_correspond_node_by_node() -> None:
    """Deformed grids: the positions are inputs, and nothing is interpolated."""
    stretch = np.arange(1.0, 7.0)[:, None, None]
    train = Fields(stretch * X, y=stretch * X**2, grid=(7,))
    one = Sample(3.5 * X, np.zeros((7, 0)), 3.5 * X, 3.5 * X**2)
    found = predict(train, [one])
    np.testing.assert_allclose(predicted(found, REGRESSION)[0], 3.5 * X**2, atol=2e-2)
    assert not any("interpolated" in method.note for method in found.methods)


@pytest.mark.parametrize("same", [True, False])
def test_meshes_with_the_same_cells_correspond_node_by_node(same: bool) -> None:
    """A mesh that moves with the shape; with other cells, its nodes are other nodes."""
    square = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])
    stretch = np.arange(1.0, 7.0)[:, None, None]
    cells = np.array([[0, 1, 2], [0, 2, 3]])
    train = Fields(stretch * square, y=stretch * np.arange(4.0)[:, None], cells=cells)
    given = cells if same else cells[:, ::-1]
    x, y = 3.5 * square, 3.5 * np.arange(4.0)[:, None]
    found = predict(train, [Sample(x, np.zeros((4, 0)), x, y, cells=given)])
    assert any("interpolated" in method.note for method in found.methods) != same
    if same:
        np.testing.assert_allclose(predicted(found, REGRESSION)[0], y, atol=2e-2)


def test_samples_on_different_points_are_interpolated() -> None:
    """A linear output whose slope is the input: known everywhere up to the spacing of points."""
    random = np.random.default_rng(0)
    x = [np.sort(random.uniform(size=(n, 1)), 0) for n in random.integers(60, 90, 12)]
    a = np.linspace(1, 2, 12)
    train = Fields(
        x,
        [k * np.ones_like(v) for k, v in zip(a, x, strict=True)],
        y=[k * v for k, v in zip(a, x, strict=True)],
    )
    one = Sample(X, np.full((7, 1), 1.52), X, 1.52 * X)
    found = predict(train, [one])
    np.testing.assert_allclose(predicted(found, MEAN)[0], 1.5 * X, atol=0.05)
    np.testing.assert_allclose(predicted(found, REGRESSION)[0], 1.52 * X, atol=0.08)
    assert all("interpolated between different points" in method.note for method in found.methods)


def test_sensors_find_the_sample_that_fits_them_and_are_kriged() -> None:
    x = np.linspace(0, 1, 40)[:, None]
    phase = np.linspace(0, 3, 9)[:, None, None]
    train = Fields(x, y=np.sin(4 * x + phase) + 300)
    task = Completion(RandomRatio(0.2))
    known, whole = train[5], task.prepare(train)
    assert known.y is not None
    seen = np.array([3, 20, 31])
    one = Sample(x[seen], known.y[seen], x, known.y)
    found = predict(whole, [one], task)
    np.testing.assert_allclose(predicted(found, NEAREST)[0], known.y, rtol=1e-6)
    coordinates = Coordinates.fit(whole)
    at, to = (coordinates.distance_features(torch.from_numpy(v))[None] for v in (x[seen], x))
    u = torch.from_numpy(known.y[seen])
    alone = krige(at, (u - u.mean())[None], to, axes=coordinates.distance_axes)[0] + u.mean()
    np.testing.assert_allclose(predicted(found, KRIGING)[0], alone, atol=1e-4)
    assert found.left_out == {REGRESSION: "the observed points differ from sample to sample"}


def test_kriging_about_a_linear_trend_knows_the_covariates() -> None:
    """Temperature falls with elevation, which jumps from place to place."""
    random = np.random.default_rng(0)
    place, height = np.linspace(0, 1, 40)[:, None], random.uniform(0, 3, (40, 1))
    y = np.sin(6 * place + np.arange(5.0)[:, None, None]) - 6.5 * height
    x, space = np.hstack((place, height)), 1
    data = Fields(x, y=y, space=space, names={"x": ["s", "elevation"]})
    seen = np.arange(0, 40, 2)
    test = [Sample(x[seen], one.y[seen], x, one.y) for one in data]  # type: ignore[index]
    found = predict(data, test, Completion(RandomRatio(0.5)))
    trend = "kriging with a linear trend in elevation"
    plain, better = (
        np.mean(
            [np.abs(v - one.y).mean() for v, one in zip(predicted(found, name), test, strict=True)]
        )
        for name in (KRIGING, trend)
    )
    assert better < 0.2 < plain
    few = [Sample(x[:4], one.y[:4], x, one.y) for one in data]  # type: ignore[index]
    same = predict(data, few, Completion(RandomRatio(0.5)))  # too few sensors for a slope
    for one, other in zip(predicted(same, KRIGING), predicted(same, trend), strict=True):
        np.testing.assert_allclose(one, other)


def test_of_many_samples_some_are_kriged() -> None:
    x = np.linspace(0, 1, 5)[:, None]
    train = Fields(x, y=np.sin(4 * x + np.linspace(0, 3, 70)[:, None, None]))
    task = Completion(RandomRatio(0.5))
    test = [Sample(x[:2], one.y[:2], x, one.y) for one in train if one.y is not None]
    [kriged] = [m for m in predict(task.prepare(train), test, task).methods if m.name == KRIGING]
    assert kriged.note == "on 64 of the 70 samples"
    assert sum(values is None for values in kriged.predictions) == 6


def test_all_methods_add_to_a_background() -> None:
    known = np.linspace(100, 500, 6)[:, None, None] * np.ones((6, 7, 1))
    train = Fields(X, np.zeros((6, 7, 0)), y=known + X, background=known)
    one = train[2]._replace(background=known[2] + 1000, y=known[2] + 1000 + X)
    found = predict(train, [one])
    np.testing.assert_allclose(predicted(found, MEAN)[0], one.y, rtol=1e-6)
    np.testing.assert_allclose(predicted(found, BACKGROUND)[0], known[2] + 1000)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"y": np.zeros((7, 3))}, "have 2 channels of y, the test samples 3"),
        ({"parameters": np.zeros(1)}, "have 3 parameters, the test samples 1"),
        ({"parameters": None}, "have 3 parameters, the test samples 0"),
        ({"u": np.zeros((7, 1))}, "have 0 channels of u, the test samples 1"),
        ({"x_query": np.zeros((7, 2))}, "have 1 coordinates, the test samples 2"),
        ({"background": np.zeros((7, 2))}, "a background in training and test samples"),
    ],
)
def test_samples_of_another_kind_are_refused(change: dict[str, np.ndarray], said: str) -> None:
    train = linear(5, 0)
    with pytest.raises(ValueError, match=said):
        predict(train, [train[0]._replace(**change)])
