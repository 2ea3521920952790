"""Bounds contain what they promise: on synthetic residuals, and of trained operators."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from small_operators import Trained, lines, train

from lno import Completion, Fields, Operator, RandomRatio, Rollout
from lno.calibration import factor
from lno.models import MODELS
from lno.trust import Trust, check
from lno.trust.bounds import Bounds, samples_to_fit
from lno.trust.trust import measure
from lno.trust.widths import Errors, Widths


def synthetic(random: np.random.Generator, samples: int) -> list[Errors]:
    """Residuals of samples of different sizes, larger on the right and of some samples."""
    found = []
    for _ in range(samples):
        x = random.uniform(0, 3, (random.integers(5, 40), 1))
        difficulty = random.lognormal(sigma=0.7)
        scale = difficulty * np.array([1.0, 300.0]) * (0.2 + x)
        terms = np.zeros((4, len(x), 2))
        terms[1] = difficulty * random.lognormal(sigma=0.3)
        terms[2] = random.exponential(size=(len(x), 2))
        found.append(Errors(x, scale * np.abs(random.standard_t(4, (len(x), 2))), terms))
    return found


@pytest.mark.parametrize(("samples", "level"), [(9, 0.9), (20, 0.9), (60, 0.8)])
def test_the_promise_holds_on_average_over_calibrations(
    line: Trained, samples: int, level: float
) -> None:
    random, shares = np.random.default_rng(0), []
    for _ in range(80):
        known, new = (synthetic(random, n) for n in (samples, 10))
        count = samples_to_fit(samples, level)
        bounds = Bounds.calibrate(line.operator, known[:count], known[count:], level)
        shares.append(np.mean([bounds.contained(line.operator, one) for one in new], axis=0))
    mean, error = np.mean(shares, 0), np.std(shares, 0) / np.sqrt(len(shares))
    assert np.all(mean > level - 3 * error)
    calibrating = samples - samples_to_fit(samples, level)
    assert np.all(mean < level + 1 / (calibrating + 1) + 3 * error)  # and no wider than need be


def test_fields_of_different_sizes_count_alike() -> None:
    few, many = np.array([5.0]), np.linspace(0, 1, 1000)
    assert factor([few, *[many] * 19], 0.9) == pytest.approx(1 - 0.1 / 19, abs=1e-3)
    assert factor([few] + [many] * 9, 0.9) == 5.0  # it is a tenth of the fields
    table = np.random.default_rng(0).uniform(size=(30, 7))
    assert factor(table, 0.9) == factor(list(table), 0.9) == np.sort(table, axis=None)[-15]


def test_widths_follow_the_residuals(line: Trained) -> None:
    random = np.random.default_rng(1)
    widths = Widths.fit(line.operator, synthetic(random, 400))
    at = np.array([[0.5], [2.5]])
    near, far = np.zeros((2, 4, 2, 2))
    near[1], far[1] = 0.5, 3.0
    usual, difficult = (widths.at(line.operator, at, terms) for terms in (near, far))
    np.testing.assert_allclose(usual[1] / usual[0], 2.7 / 0.7, rtol=0.15)  # of 0.2 + x
    assert np.all(difficult > 2.5 * usual)
    np.testing.assert_allclose(usual[:, 1] / usual[:, 0], 300, rtol=0.15)


def test_profiles_are_linear_between_cells_and_go_round_a_circle(line: Trained) -> None:
    op = line.operator  # on a line from 0 to 3
    widths = Widths((3,), (1.0, 1.0, 2.0, 2.0, 4.0, 4.0), (1.0, 1.0, *[0.0] * 6))
    x = np.array([[-1.0], [0.5], [1.0], [1.5], [2.25], [9.0]])
    found = widths.at(op, x, np.zeros((4, 6, 2))) - 1e-3 * np.array(op.normalizers.y.std)
    np.testing.assert_allclose(found, np.repeat([[1.0], [1.0], [1.5], [2.0], [3.5], [4.0]], 2, 1))
    circle = replace(op.normalizers.x, period=(3.0,))
    periodic = replace(op, normalizers=replace(op.normalizers, x=circle), trust=Trust())
    around = widths.at(periodic, np.array([[0.0], [3.0], [2.75], [-0.25]]), np.zeros((4, 4, 2)))
    around = around - 1e-3 * np.array(op.normalizers.y.std)
    np.testing.assert_allclose(around[:, 0], [2.5, 2.5, 3.25, 3.25])


def inside(trained: Trained, samples: Fields) -> np.ndarray:
    """The share of points inside the bounds of `predict`, of each channel."""
    found = trained.operator.predict(samples, bounds=0.9)
    truth = [sample.y for sample in samples]
    rows = zip(found.lower, truth, found.upper, strict=True)
    return np.mean([((a <= y) & (y <= b)).mean(0) for a, y, b in rows], axis=0)


@pytest.mark.filterwarnings("ignore:.* lie outside the box", "ignore:out of distribution")
def test_bounds_of_trained_operators_contain_new_samples(
    darcy: Trained, line: Trained, cloud: Trained
) -> None:
    """Up to the error of a mean over so few samples; each channel by itself."""
    for trained in (darcy, line, cloud):
        shares = inside(trained, trained.test)
        assert np.all(shares > 0.87)
        np.testing.assert_allclose(check(trained.operator, trained.test).contained, shares)
        found = trained.operator.predict(trained.test, bounds=0.9)
        plain = trained.operator.predict(trained.test)
        for a, b in zip(found.prediction, plain, strict=True):
            assert np.array_equal(a, b)


def test_bounds_widen_for_samples_of_another_kind(darcy: Trained) -> None:
    assert darcy.others is not None
    widths = []
    with pytest.warns(UserWarning, match="out of distribution"):
        for samples in (darcy.test, darcy.others):
            found = darcy.operator.predict(samples, bounds=0.9)
            widths.append((found.upper - found.lower).mean())
    assert widths[1] > 1.5 * widths[0]


def test_bounds_come_in_the_form_of_the_question(line: Trained) -> None:
    import torch

    x, u, *_ = line.test[0]
    keys = {"parameters": line.test.parameters[0], "bounds": 0.9}
    one = line.operator.predict(x, u, **keys)
    assert one.prediction.shape == one.lower.shape == one.upper.shape == (20, 2)
    assert np.all(one.lower < one.prediction) and np.all(one.prediction < one.upper)
    assert not one.flagged and len(one.scores) == 1
    listed = line.operator.predict([x], [u], **keys)
    np.testing.assert_allclose(listed.lower[0], one.lower, rtol=1e-4, atol=1e-4)
    tensor = line.operator.predict(torch.from_numpy(x), torch.from_numpy(u), **keys)
    assert isinstance(tensor.upper, torch.Tensor) and tensor.upper.dtype == torch.float32
    # A point has the bounds that it has among others.
    some = line.operator.predict(x, u, x[3:5], **keys)
    np.testing.assert_allclose(some.upper, one.upper[3:5], rtol=1e-3, atol=1e-3)


def test_every_frame_of_a_rollout_has_its_bounds() -> None:
    random = np.random.default_rng(0)
    x = np.linspace(0, 1, 12)[:, None]
    phase = random.uniform(0, 6, (110, 1, 1))
    frames = np.sin(6 * x + phase + 0.5 * np.arange(7)) * random.uniform(0.5, 1, (110, 1, 1))
    data = Fields(x, frames[..., :2], y=frames[..., 2:])
    trained = train(*data.split(50, 30, 30), task=Rollout(5), epochs=6)
    assert len(trained.operator.trust.bounds.factors) == 5
    assert np.all(inside(trained, trained.test) > 0.85)
    found = trained.operator.predict(trained.test, bounds=0.9)
    widths = (found.upper - found.lower).mean((0, 1))
    errors = np.abs(found.prediction - trained.test.y).mean((0, 1))
    assert np.ptp(np.log(widths / errors)) < 0.5  # like the errors of each frame


def test_members_that_disagree_make_bounds_wider() -> None:
    data, held_out = lines(100).split(60, 40)
    trained = train(data, held_out, held_out, epochs=4, members=3)
    _, errors = measure(trained.operator, held_out)
    assert all(one.terms[3].any() for one in errors)
    few = trained.operator.calibrated(held_out.split(9)[0])  # too few to fit widths to
    widths = few.trust.bounds.widths
    one = errors[0]
    more = one.terms.copy()
    more[3] *= 2
    before, after = (widths.at(few, one.x, terms) for terms in (one.terms, more))
    np.testing.assert_allclose(after - before, one.terms[3])


@pytest.mark.gpu
def test_bounds_on_a_gpu_are_those_of_the_cpu(line: Trained, tmp_path: Path) -> None:
    line.operator.save(tmp_path / "a.safetensors")
    there = Operator.load(tmp_path / "a.safetensors", "cuda")
    near, far = (op.predict(line.test, bounds=0.9) for op in (line.operator, there))
    np.testing.assert_allclose(far.upper, near.upper, rtol=1e-3, atol=1e-2)
    for a, b in zip(near.scores[0], far.scores[0], strict=True):
        assert a.value == pytest.approx(b.value, rel=1e-3, abs=1e-6)
    again = there.calibrated(line.held_out)
    np.testing.assert_allclose(
        again.trust.bounds.factors, line.operator.trust.bounds.factors, rtol=1e-2
    )


@pytest.fixture(scope="module")
def completer() -> Trained:
    random = np.random.default_rng(0)
    x = np.linspace(0, 1, 40)[:, None]
    phase = random.uniform(0, 6, (110, 1, 1))
    data = Fields(x, y=np.sin(9 * x + phase) + 0.5 * np.sin(23 * x - 2 * phase))
    task = Completion(RandomRatio(0.1, 0.3))
    return train(*data.split(50, 30, 30), task=task, conditional=True, epochs=3)


def test_bounds_of_conditional_operators_are_tight_at_the_sensors(completer: Trained) -> None:
    assert min(check(completer.operator, completer.test).contained) > 0.87
    sample = completer.test[0]
    assert sample.y is not None
    at = np.array([0, 5, 12, 24, 39])
    found = completer.operator.predict(sample.x[at], sample.y[at], sample.x, bounds=0.9)
    widths = (found.upper - found.lower)[:, 0]
    assert widths[at].max() < 0.2 * widths[[18, 31]].min()
    with pytest.raises(ValueError, match="noise: bounds are calibrated for exact observations"):
        completer.operator.predict(sample.x, sample.y, noise=0.1, bounds=0.9)


@pytest.mark.parametrize("model", ["deeponet", "gnot", "transolver", "lno_plus"])
def test_every_model_has_bounds(model: str) -> None:
    config = {"width": 16, **({} if model in ("deeponet", "lno_plus") else {"heads": 2})}
    data = lines(60)
    if model == "transolver":
        config |= {"convolution": False, "reference": None}
    trained = train(*data.split(20, 20, 20), model=model, config=config, epochs=1)
    assert np.all(inside(trained, trained.test) > 0.8)
    names = [score.name for score in trained.operator.distribution(trained.test)[0]]
    tokens = ["latent"] if MODELS[model][0].streams else []
    assert names == ["inputs", "parameters", "positions", "points", *tokens]
