from __future__ import annotations

import dataclasses
from pathlib import Path

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
    Rollout,
    Steady,
    Window,
)
from lno.data.krige import krige
from lno.tasks import from_json, to_json


@pytest.fixture
def plane() -> Fields:
    t, x = np.linspace(0, 1, 9), np.arange(8) / 8
    positions = np.stack(np.meshgrid(t, x, indexing="ij"), -1).reshape(-1, 2)
    y = np.random.default_rng(0).normal(size=(5, 72, 1))
    return Fields(positions, y=y, grid=(9, 8), period=(None, 1.0), names={"x": ["t", "x"]})


def draw(task: Steady, prepared: Fields, seed: int = 0, samples: int = 5):
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
    with pytest.raises(ValueError, match="no answers y"):
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
def test_tasks_round_trip_as_plain_data(task: Steady) -> None:
    assert from_json(to_json(task)) == task


# -- rollout ---------------------------------------------------------------------------------------


def films(samples: int = 6, seen: int = 3, frames: int = 4) -> Fields:
    random = np.random.default_rng(0)
    x = random.uniform(size=(20, 2))
    speed = random.uniform(1, 2, size=(samples, 1, 1))
    t = np.arange(seen + frames)
    film = 3 + np.sin(2 * np.pi * (x[None, :, :1] + 0.1 * speed * t))
    return Fields(x, film[..., :seen], y=film[..., seen:])


@pytest.mark.parametrize("chosen", [(2, 5), (4,)])
def test_every_window_of_a_film_is_a_sample(chosen: tuple[int, ...]) -> None:
    data, task = films(), Rollout(4)
    batch = task.draw(data.batch(chosen), None, torch.Generator())
    film = np.concatenate((data.u, data.y), -1)
    assert batch.u.shape == (4 * len(chosen), 20, 3)
    assert batch.x.shape == (1, 20, 2)
    assert batch.x_query is batch.x
    for k, (sample, start) in enumerate((s, t) for s in chosen for t in range(4)):
        np.testing.assert_allclose(batch.u[k], film[sample, :, start : start + 3], rtol=1e-6)
        np.testing.assert_allclose(batch.y[k], film[sample, :, start + 3 : start + 4], rtol=1e-6)


def test_all_frames_share_one_scale() -> None:
    data = films()
    scale = Rollout(4).normalizers(data)
    both = np.concatenate((data.u, data.y), -1)
    assert scale.u.mean == pytest.approx([both.mean()] * 3)
    assert scale.y.std == pytest.approx([both.std()])


def test_a_rollout_is_step_by_step_prediction() -> None:
    data = films()
    op = Operator.fit(
        data,
        task=Rollout(4),
        epochs=2,
        config={"width": 16, "latents": 8, "blocks": 1, "heads": 2, "layers": 1},
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


def test_a_rollout_survives_its_description_and_refuses_other_data() -> None:
    assert from_json(to_json(Rollout(7))) == Rollout(7)
    with pytest.raises(ValueError, match="expected 5 frames to predict"):
        Rollout(5).prepare(films())
    with pytest.raises(ValueError, match="leave out x_query"):
        Rollout(1).prepare(
            Fields(np.zeros((3, 1)), np.zeros((2, 3, 1)), np.ones((3, 1)), np.zeros((2, 3, 1)))
        )
    with pytest.raises(ValueError, match=r"Rollout\.frames must be a whole number"):
        Rollout(0)


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
    keys = {"width": 16, "latents": 8, "blocks": 1, "heads": 2, "layers": 1}
    op = Operator.fit(plane, task=task, epochs=1, config=keys, progress=False, device="cpu")
    outside = (plane.x[:, 0] < 0.25) | (plane.x[:, 0] > 0.75)
    changed = np.array(plane.y)
    changed[:, outside] += 100
    other = Fields(plane.x, y=changed, grid=plane.grid, period=plane.period, names=plane.names)
    [(_, a)] = op.evaluate_batches(plane)
    [(_, b)] = op.evaluate_batches(other)
    assert torch.equal(a, b)


# -- through the observations ----------------------------------------------------------------------


def test_exact_predictions_pass_through_the_observations_and_stay_the_models_elsewhere(
    plane: Fields, tmp_path: Path
) -> None:
    keys = {"width": 16, "latents": 8, "blocks": 1, "heads": 2, "layers": 1}
    task = Completion(RandomRatio(0.2, 0.5), exact=True)
    op = Operator.fit(plane, task=task, epochs=1, config=keys, progress=False, device="cpu")
    assert from_json(to_json(task)) == task
    x, u = plane.x[::7], plane.y[0, ::7]
    np.testing.assert_allclose(op.predict(x, u, x), u, atol=1e-4)
    learned = dataclasses.replace(op, task=Steady())
    coordinates, values = op.normalizers.x, torch.as_tensor(u)[None]
    at, queries = (coordinates.encode(torch.as_tensor(v))[None] for v in (x, plane.x))
    guess = [torch.as_tensor(learned.predict(x, u, v))[None] for v in (x, plane.x)]
    around = krige(at, values, queries, axes=coordinates.axes, guess=(guess[0], guess[1]))
    np.testing.assert_allclose(op.predict(x, u, plane.x), around[0], atol=1e-3)
    # The seam of a periodic coordinate is no place in particular.
    seam = op.predict(x, u, [[0.3, 0.0], [0.3, 1.0]])
    np.testing.assert_allclose(seam[0], seam[1], atol=1e-5)
    op.save(tmp_path / "a.safetensors")
    loaded = Operator.load(tmp_path / "a.safetensors", device="cpu")
    a, b = (o.predict(x, u, plane.x) for o in (loaded, op))
    np.testing.assert_allclose(a, b, atol=1e-6)
