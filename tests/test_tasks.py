from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch

from lno import (
    Completion,
    Fields,
    Intervals,
    Operator,
    Propagation,
    RandomRatio,
    Rollout,
    Steady,
    Window,
    prediction,
)
from lno.kernel_methods.krige import ConditionedModels
from lno.tasks import Task, from_json, to_json


@pytest.fixture
def plane() -> Fields:
    t, x = np.linspace(0, 1, 9), np.arange(8) / 8
    positions = np.stack(np.meshgrid(t, x, indexing="ij"), -1).reshape(-1, 2)
    y = np.random.default_rng(0).normal(size=(5, 72, 1))
    return Fields(positions, y=y, grid=(9, 8), period=(None, 1.0), names={"x": ["t", "x"]})


def draw(task: Task, prepared: Fields, seed: int = 0, samples: int = 5):
    generator = torch.Generator().manual_seed(seed)
    return task.draw(prepared.batch(np.arange(samples)), prepared.grid, generator)


def test_steady_is_the_data_themselves(plane: Fields) -> None:
    batch = plane.batch([0, 1])
    assert Steady().prepare(plane) is plane
    assert Steady().draw(batch, plane.grid, torch.Generator()) is batch


def test_completion_observes_true_values_inside_the_window_only(plane: Fields) -> None:
    task = Completion(RandomRatio(0.1, 0.5), Window("t", 0.25, 0.75))
    prepared = task.prepare(plane)
    assert prepared.grid == (5, 8)
    batch = draw(task, prepared)
    assert batch.mask is not None
    for k in range(5):
        truth = {
            tuple(p): float(v) for p, v in zip(plane.x.tolist(), plane.y[k, :, 0], strict=True)
        }
        seen = batch.x[k][batch.mask[k]].tolist()
        assert all(0.25 <= t <= 0.75 for t, _ in seen)
        assert len({tuple(p) for p in seen}) == len(seen)
        values = batch.u[k][batch.mask[k], 0].tolist()
        assert [truth[tuple(p)] for p in seen] == values


def test_unobserved_values_do_not_leak_into_what_a_model_reads(plane: Fields) -> None:
    task = Completion(RandomRatio(0.2))
    prepared = task.prepare(plane)
    before = draw(task, prepared)
    y = np.array(prepared.y)
    for k in range(5):
        observed = {tuple(p) for p in before.x[k].tolist()}
        hidden = [i for i, p in enumerate(prepared.x.tolist()) if tuple(p) not in observed]
        y[k, hidden] += 100
    after = draw(task, Fields(prepared.x, y=y, grid=prepared.grid, names={"x": ["t", "x"]}))
    assert torch.equal(before.x, after.x)
    assert torch.equal(before.u, after.u)
    assert not torch.equal(before.y, after.y)


def test_draws_are_new_each_time_and_the_same_for_the_same_seed(plane: Fields) -> None:
    task = Completion(RandomRatio(0.2))
    prepared = task.prepare(plane)
    generator = torch.Generator().manual_seed(1)
    first, second = (task.draw(prepared.batch([0]), None, generator) for _ in range(2))
    assert not torch.equal(first.x, second.x)
    again = draw(task, prepared, seed=1, samples=1)
    assert torch.equal(again.x, first.x)


def test_fixed_intervals_observe_every_nth_point(plane: Fields) -> None:
    task = Completion(Intervals((4, 2)))
    batch = draw(task, task.prepare(plane))
    assert batch.mask is None
    expected = [[t, x] for t in (0.0, 0.5, 1.0) for x in (0.0, 0.25, 0.5, 0.75)]
    assert batch.x[3].tolist() == expected


def test_completion_of_ragged_fields_never_observes_padding() -> None:
    random = np.random.default_rng(1)
    x = [random.uniform(size=(n, 2)) for n in (30, 7, 1)]
    fields = Fields(x, y=[p.sum(1, keepdims=True) for p in x])
    task = Completion(RandomRatio(0.3, 1.0))
    batch = draw(task, task.prepare(fields), samples=3)
    for k in range(3):
        real = batch.x[k] if batch.mask is None else batch.x[k][batch.mask[k]]
        values = batch.u[k] if batch.mask is None else batch.u[k][batch.mask[k]]
        assert 1 <= len(real) <= len(x[k])
        torch.testing.assert_close(real.sum(1, keepdim=True), values)


def test_completion_needs_whole_fields() -> None:
    with pytest.raises(ValueError, match="no outputs y"):
        Completion(RandomRatio(0.1)).prepare(Fields(np.zeros((3, 1)), np.zeros((2, 3, 1))))


@pytest.mark.parametrize(
    "task",
    [
        Steady(),
        Completion(RandomRatio(0.1)),
        Completion(RandomRatio(0.1, 0.2), Window("t", 0.0, 0.5)),
        Completion(Intervals((2, 4))),
    ],
)
def test_tasks_round_trip_as_plain_data(task: Task) -> None:
    assert from_json(to_json(task)) == task


# -- rollout ---------------------------------------------------------------------------------------


def trajectories(samples: int = 6, seen: int = 3, frames: int = 4) -> Fields:
    random = np.random.default_rng(0)
    x = random.uniform(size=(20, 2))
    speed = random.uniform(1, 2, size=(samples, 1, 1))
    t = np.arange(seen + frames)
    trajectory = 3 + np.sin(2 * np.pi * (x[None, :, :1] + 0.1 * speed * t))
    return Fields(x, trajectory[..., :seen], y=trajectory[..., seen:])


@pytest.mark.parametrize("chosen", [(2, 5), (4,)])
def test_every_window_of_a_film_is_a_sample(chosen: tuple[int, ...]) -> None:
    data, task = trajectories(), Rollout(4)
    batch = task.draw(data.batch(chosen), None, torch.Generator())
    trajectory = np.concatenate((data.u, data.y), -1)
    assert batch.u.shape == (4 * len(chosen), 20, 3)
    assert batch.x.shape == (1, 20, 2)
    assert batch.x_query is batch.x
    for k, (sample, start) in enumerate((s, t) for s in chosen for t in range(4)):
        np.testing.assert_allclose(batch.u[k], trajectory[sample, :, start : start + 3], rtol=1e-6)
        np.testing.assert_allclose(
            batch.y[k], trajectory[sample, :, start + 3 : start + 4], rtol=1e-6
        )


def test_all_frames_share_one_scale() -> None:
    data = trajectories()
    scale = Rollout(4).normalizers(data)
    both = np.concatenate((data.u, data.y), -1)
    assert scale.u.mean == pytest.approx([both.mean()] * 3)
    assert scale.y.std == pytest.approx([both.std()])


def test_a_rollout_is_step_by_step_prediction() -> None:
    data = trajectories()
    op = Operator.fit(
        data,
        task=Rollout(4),
        epochs=2,
        config=tiny.LNO,
        progress=False,
        device="cpu",
    )
    whole = op.predict(data.x, data.u)
    assert whole.shape == (6, 20, 4)
    one = dataclasses.replace(op, task=Steady())
    seen = np.array(data.u)
    for k in range(4):
        frame = one.predict(data.x, seen)
        np.testing.assert_allclose(whole[..., k : k + 1], frame, rtol=1e-5, atol=1e-6)
        seen = np.concatenate((seen[..., 1:], frame), -1)
    errors = np.linalg.norm(whole - data.y, axis=(1, 2)) / np.linalg.norm(data.y, axis=(1, 2))
    assert op.evaluate(data)["relative_l2"] == pytest.approx(errors.mean(), rel=1e-5)
    elsewhere = op.predict(data.x, data.u, x_query=np.array(data.x)[::-1][:7])
    np.testing.assert_allclose(elsewhere, whole[:, ::-1][:, :7], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("model", ["lno", "lno_plus"])
def test_a_model_of_increments_adds_them_to_the_last_frame(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An untrained step is the last frame plus the output of the model, at any points."""
    data, task = trajectories(), Rollout(4, increments=True)
    config = tiny.LNO if model == "lno" else {"width": 8, "latents": 4, "rounds": 2}
    keys = {"model": model, "config": config, "progress": False, "device": "cpu"}
    op = Operator.fit(data, task=task, epochs=2, **keys)
    assert from_json(to_json(task)) == task
    plain = dataclasses.replace(op, task=Steady())
    mean = op.normalizers.y.mean[0]
    whole, seen = op.predict(data), np.array(data.u)
    for k in range(4):
        frame = seen[..., -1:] + plain.predict(data.x, seen) - mean
        np.testing.assert_allclose(whole[..., k : k + 1], frame, rtol=1e-5, atol=1e-5)
        seen = np.concatenate((seen[..., 1:], frame), -1)
    some = np.array(data.x)[::-1][:7]
    elsewhere = op.predict(data.x, data.u, x_query=some)
    np.testing.assert_allclose(elsewhere, whole[:, ::-1][:, :7], rtol=1e-4, atol=1e-5)
    monkeypatch.setattr(prediction, "CHUNK", 12)  # two points of each of the six samples
    np.testing.assert_allclose(op.predict(data), whole, rtol=1e-4, atol=1e-5)
    streamed = op.predict(data.x, data.u, x_query=some)
    np.testing.assert_allclose(streamed, elsewhere, rtol=1e-4, atol=1e-5)


def test_a_model_of_increments_whose_output_is_zero_predicts_the_last_frame() -> None:
    """A model whose output is zero predicts the last frame, also where it was not observed."""
    data = trajectories()
    op = Operator.fit(
        data, task=Rollout(4, increments=True), epochs=1, config=tiny.LNO, progress=False
    )
    for weights in op.model.parameters():
        weights.data.zero_()
    last = np.repeat(np.asarray(data.u)[..., -1:], 4, -1)
    np.testing.assert_allclose(op.predict(data), last, rtol=1e-5)
    between = op.predict(data.x, data.u, x_query=np.random.default_rng(1).uniform(size=(9, 2)))
    assert data.u.min() <= between.min() and between.max() <= data.u.max()
    assert op.evaluate(data)["mse"] == pytest.approx(np.square(last - data.y).mean(), rel=1e-4)


def test_a_rollout_survives_its_description_and_refuses_other_data() -> None:
    assert from_json(to_json(Rollout(7))) == Rollout(7)
    with pytest.raises(ValueError, match="expected 5 channels of y, 5 frames of 1"):
        Rollout(5).prepare(trajectories())
    with pytest.raises(ValueError, match="leave out x_query"):
        Rollout(1).prepare(
            Fields(np.zeros((3, 1)), np.zeros((2, 3, 1)), np.ones((3, 1)), np.zeros((2, 3, 1)))
        )
    with pytest.raises(ValueError, match=r"Rollout\.frames must be a whole number"):
        Rollout(0)
    with pytest.raises(ValueError, match=r"Rollout\.increments: expected true or false, got 1"):
        Rollout(2, increments=1)  # type: ignore[arg-type]


# -- propagation -----------------------------------------------------------------------------------


def test_propagation_observes_the_window_and_asks_for_the_whole(plane: Fields) -> None:
    task = Propagation(Window("t", 0.25, 0.75))
    prepared = task.prepare(plane)
    inside = (plane.x[:, 0] >= 0.25) & (plane.x[:, 0] <= 0.75)
    np.testing.assert_array_equal(prepared.x, plane.x[inside])
    np.testing.assert_array_equal(prepared.u, plane.y[:, inside])
    np.testing.assert_array_equal(prepared.x_query, plane.x)
    np.testing.assert_array_equal(prepared.y, plane.y)
    scale = task.normalizers(prepared)
    assert scale.u == scale.y
    assert from_json(to_json(task)) == task


def test_what_lies_outside_of_the_window_is_not_seen(plane: Fields) -> None:
    task = Propagation(Window("t", 0.25, 0.75))
    op = Operator.fit(plane, task=task, epochs=1, config=tiny.LNO, progress=False, device="cpu")
    outside = (plane.x[:, 0] < 0.25) | (plane.x[:, 0] > 0.75)
    changed = np.array(plane.y)
    changed[:, outside] += 100
    other = Fields(plane.x, y=changed, grid=plane.grid, period=plane.period, names=plane.names)
    a, b = (
        op.predict_batch(task.prepare(data).batch(np.arange(len(data)))).mean()
        for data in (plane, other)
    )
    assert torch.equal(a, b)


# -- conditioned on the observations ---------------------------------------------------------------


def test_conditional_predictions_pass_through_the_observations(
    plane: Fields, tmp_path: Path
) -> None:
    task = Completion(RandomRatio(0.2, 0.5))
    keys = {"config": tiny.LNO, "progress": False, "device": "cpu", "members": 2}
    op = Operator.fit(plane, task=task, epochs=1, conditional=True, **keys)
    x, u = plane.x[::7], plane.y[0, ::7]
    np.testing.assert_allclose(op.predict(x, u, x), u, atol=1e-4)
    # Each member is the prior mean of a Gaussian process, and the prediction is their mean.
    alone = dataclasses.replace(op, conditional=False)
    coordinates, values = op.normalizers.x, torch.as_tensor(u)[None]
    at, queries = (coordinates.encode(torch.as_tensor(v))[None] for v in (x, plane.x))
    prior = [
        torch.stack([torch.as_tensor(alone.member(k).predict(x, u, v))[None] for k in range(2)])
        for v in (x, plane.x)
    ]
    given = (at, values, queries, *prior)
    expected = ConditionedModels(*given, axes=coordinates.axes).mean.mean(0)
    by_likelihood = dataclasses.replace(op, covariance=None)
    np.testing.assert_allclose(by_likelihood.predict(x, u, plane.x), expected[0], atol=1e-3)
    # The seam of a periodic coordinate is no place in particular.
    seam = op.predict(x, u, [[0.3, 0.0], [0.3, 1.0]])
    np.testing.assert_allclose(seam[0], seam[1], atol=1e-5)
    op.save(tmp_path / "a.safetensors")
    loaded = Operator.load(tmp_path / "a.safetensors", device="cpu")
    assert loaded.conditional and loaded.covariance == op.covariance
    a, b = (o.predict(x, u, plane.x) for o in (loaded, op))
    np.testing.assert_allclose(a, b, atol=1e-6)


def test_residuals_are_those_of_the_model_alone(plane: Fields) -> None:
    task = Completion(RandomRatio(0.3))
    op = Operator.fit(
        plane, task=task, epochs=1, conditional=True, config=tiny.LNO, progress=False, device="cpu"
    )
    prepared = task.prepare(plane)
    batch = task.observe(prepared.batch([0, 1]), prepared.spec.grid, torch.Generator())
    found = op.predict_batch(batch).residuals
    alone = dataclasses.replace(op, conditional=False).predict_batch(batch.at_observed()).mean()
    assert found is not None
    torch.testing.assert_close(found[0], batch.u.float() - alone, atol=1e-5, rtol=1e-4)


def test_only_an_observed_field_can_be_conditioned(line_fields: Fields) -> None:
    with pytest.raises(ValueError, match="use Completion"):
        Operator.fit(line_fields, epochs=1, conditional=True, config=tiny.LNO, progress=False)
    op = Operator.fit(line_fields, epochs=1, config=tiny.LNO, progress=False)
    with pytest.raises(ValueError, match="noise: only a conditional operator"):
        op.predict(line_fields.x, line_fields.u, noise=0.1)


# -- what data may bring ---------------------------------------------------------------------------


def test_a_rollout_of_two_channels_a_frame_predicts_both() -> None:
    """Frames (a, b): trained windows hold whole frames, each channel with a scale of its own."""
    x = np.linspace(0, 1, 9)[:, None]
    t = np.arange(6)[:, None, None] * 0.1 + np.random.default_rng(0).random(8)[None, :, None]
    frames = np.stack((np.sin(6 * (x[:, 0] + t)), 100 + 50 * np.cos(6 * (x[:, 0] + t))), -1)
    series = frames.transpose(1, 2, 0, 3).reshape(8, 9, 12)  # frame by frame, channel fastest
    data = Fields(x, series[..., :6], y=series[..., 6:])
    task = Rollout(3, channels=2)
    scale = task.normalizers(task.prepare(data))
    assert len(scale.y.mean) == 2 and scale.u.mean == scale.y.mean * 3
    np.testing.assert_allclose(scale.y.mean, frames.mean((0, 1, 2)))
    batch = task.draw(data.batch([1, 4]), None, torch.Generator())
    np.testing.assert_array_equal(batch.u[4], series[4, :, 2:8])
    np.testing.assert_array_equal(batch.y[4], series[4, :, 8:10])
    op = Operator.fit(data, task=task, epochs=1, config=tiny.LNO, progress=False, device="cpu")
    step = dataclasses.replace(op, task=Steady())
    first = step.predict(x, data.u)
    again = step.predict(x, np.concatenate((data.u[..., 2:], first), -1))
    np.testing.assert_allclose(op.predict(data)[..., 2:4], again, rtol=1e-4, atol=1e-4)
    assert len(op.errors(data).frames) == 3
    with pytest.raises(ValueError, match="whole frames of 2 channels"):
        task.prepare(Fields(x, series[..., :5], y=series[..., 6:]))


def test_completion_observes_differences_from_the_background(plane: Fields) -> None:
    """With y − background unchanged, a background of any size leaves the correction as it is."""
    random = np.random.default_rng(1)
    background = 30 + 5 * random.random(plane.y.shape)
    moved = plane.replace(y=plane.y + background, background=background)
    task = Completion(RandomRatio(0.3))
    keys = {"config": tiny.LNO, "progress": False, "device": "cpu", "epochs": 2, "task": task}
    plain, known = (Operator.fit(data, **keys, conditional=True) for data in (plane, moved))
    mean = plain.normalizers.y.mean
    np.testing.assert_allclose(known.normalizers.y.mean, mean, atol=1e-9)
    at = slice(None, None, 5)
    x, u, here = plane.x[at], plane.y[0, at], background[0, at]
    a = plain.predict(x, u, plane.x) + background[0]
    b = known.predict(x, u + here, plane.x, background=background[0])
    np.testing.assert_allclose(a, b, atol=2e-4)
    errors = [op.errors(data).samples["mse"] for op, data in ((plain, plane), (known, moved))]
    np.testing.assert_allclose(*errors, rtol=1e-3, atol=1e-8)


def test_parameters_decide_where_nothing_else_does() -> None:
    """Samples on one mesh, told apart by two numbers alone."""
    x = np.linspace(0, 1, 16)[:, None]
    p = np.random.default_rng(0).uniform(-1, 1, (64, 2))
    data = Fields(x, y=p[:, None, :1] + p[:, None, 1:] * x, parameters=p)
    train, test = data.split(56, 8)
    recipe = {"learning_rate": 1e-2, "batch": 8}
    keys = {"config": tiny.LNO, "progress": False, "device": "cpu", "validation": 0.0}
    op = Operator.fit(train, epochs=20, recipe=recipe, **keys)
    assert op.evaluate(test)["relative_l2"] < 0.1
    one = op.predict(x, parameters=p[60], x_query=x)
    assert np.abs(one[:, 0] - data.y[60, :, 0]).max() < 0.2
    with pytest.raises(ValueError, match=r"parameters: expected 2 numbers .*, got 0"):
        op.predict(x)


def test_a_single_observed_point_is_refused_and_pointed_to_parameters() -> None:
    p = np.random.default_rng(0).uniform(-1, 1, (6, 1, 1))
    x = np.linspace(0, 1, 5)[:, None]
    data = Fields(np.zeros((1, 1)), u=p, x_query=x, y=p * x)
    with pytest.raises(ValueError, match=r"parameters=array"):
        Operator.fit(data, epochs=1, progress=False)
