"""Grids in space and time, read time by time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch

from lno import Fields, Operator, Snapshots, Spec
from lno.data.normalize import Normalizers
from lno.models import TransolverConfig
from lno.tasks import from_json, to_json
from lno.training.inputs import model_spec
from lno.training.recipe import Recipe
from lno.training.state import Training

GRID = (5, 4, 3)
TIMES = (2.0, 2.5, 4.0)
TRANSOLVER = TransolverConfig(16, 1, 2, 4, reference=None, time_input=True)
TINY = Recipe(epochs=1)
KEYS = {"progress": False, "device": "cpu", "task": Snapshots(3)}


def forged(samples: int = 7, parameters: bool = False) -> Fields:
    """A profile along the first axis, and outputs that grow with time."""
    random = np.random.default_rng(0)
    axes = np.meshgrid(np.linspace(0, 1, 5), np.linspace(0, 2, 4), TIMES, indexing="ij")
    x = np.stack(axes, -1).reshape(-1, 3)
    die = random.normal(size=(samples, 5))[:, :, None, None].repeat(4, 2).repeat(3, 3)
    u = die.reshape(samples, -1, 1)
    y = np.concatenate((u * x[:, 2:], x[:, :1] + u, u * x[:, 1:2] * x[:, 2:]), -1)
    load = random.uniform(size=(samples, 1)) if parameters else None
    return Fields(x, u, y=y, grid=GRID, parameters=load, names={"x": ["xi", "eta", "t"]})


@pytest.mark.parametrize("parameters", [False, True])
def test_a_drawn_sample_is_the_data_at_one_time(parameters: bool) -> None:
    data, task = forged(parameters=parameters), Snapshots(3)
    scale = task.normalizers(task.prepare(data))
    whole = scale.encode(data.batch(np.arange(7)))
    generator, seen = torch.Generator().manual_seed(0), set()
    for _ in range(6):
        batch = task.draw(whole, GRID, generator)
        assert batch.x.shape == (1, 20, 2) and batch.x_query is batch.x
        assert batch.parameters is not None and batch.parameters.shape == (7, 1 + parameters)
        for k in range(7):
            time = float(batch.parameters[k, -1])
            index = [0.0, 0.25, 1.0].index(round(time, 5))  # of 2, 2.5 and 4
            seen.add(index)
            rows = slice(index, None, 3)
            assert torch.equal(batch.x[0], whole.x[0, rows, :2])
            assert torch.equal(batch.u[k], whole.u[k, rows])
            assert torch.equal(batch.y[k], whole.y[k, rows])
            if parameters:
                assert batch.parameters[k, 0] == whole.parameters[k, 0]
    assert seen == {0, 1, 2}


def test_times_of_the_training_data_go_from_zero_to_one_and_all_else_is_standardised() -> None:
    data = forged()
    scale, usual = Snapshots(3).normalizers(data), Normalizers.fit(data)
    assert (scale.x.scale.mean[-1], scale.x.scale.std[-1]) == (2.0, 2.0)
    assert scale.x.scale.mean[:2] == usual.x.scale.mean[:2]
    assert (scale.u, scale.y) == (usual.u, usual.y)


def test_what_a_model_reads_has_one_coordinate_less_and_one_channel_more() -> None:
    task = Snapshots(3)
    assert task.model_spec(Spec(3, 1, 4, GRID)) == Spec(2, 2, 4, (5, 4))
    data = forged()
    assert model_spec(data, task.normalizers(data), task) == Spec(2, 2, 3, (5, 4))
    assert from_json(to_json(task)) == task == Snapshots(3)


def test_an_epoch_visits_every_sample_once_for_each_time() -> None:
    data, task = forged(), Snapshots(3)
    op = Operator.fit(
        data, epochs=2, recipe={"batch": 4}, validation=0.0, model="transolver", **KEYS
    )
    assert op.provenance["steps"] == 2 * 6  # ceil(7 · 3 / 4)
    assert op.provenance["epochs"] == 2
    training = object.__new__(Training)
    training.data, training.task, training.seeds = data, task, range(1)
    training.recipe = replace(TINY, batch=4)
    training._order, training._sizes = (-1, torch.empty(0)), None
    drawn = torch.cat([training.samples_at(k)[0] for k in range(6)])
    assert torch.bincount(drawn).tolist() == [3] * 7


@pytest.mark.parametrize(("model", "config"), [("transolver", TRANSOLVER), ("lno", tiny.LNO)])
def test_a_prediction_is_that_of_every_snapshot(model: str, config: object, tmp_path: Path) -> None:
    data = forged()
    op = Operator.fit(data, epochs=1, model=model, config=config, **KEYS)
    whole = op.predict(data)
    assert whole.shape == (7, 60, 3)
    scale = op.normalizers
    for k, time in enumerate((0.0, 0.25, 1.0)):
        rows = slice(k, None, 3)
        x = scale.x.encode(torch.as_tensor(data.x[rows]))[None, :, :2]
        u = scale.u.encode(torch.as_tensor(data.u[:, rows]))
        with torch.no_grad():
            read = torch.cat((u, torch.full_like(u, time)), -1)
            frame = scale.y.decode(op.model(x, read, x))
        np.testing.assert_allclose(whole[:, rows], frame, rtol=1e-4, atol=1e-5)
    difference = np.linalg.norm(whole - data.y, axis=(1, 2)) / np.linalg.norm(data.y, axis=(1, 2))
    assert op.evaluate(data)["relative_l2"] == pytest.approx(difference.mean(), rel=1e-5)
    one = op.predict(data.x, data.u[3])  # arrays, without a grid
    np.testing.assert_allclose(one, whole[3], rtol=1e-5, atol=1e-6)
    last = op.predict(data.x[2::3], data.u[3][2::3])  # one time alone
    np.testing.assert_allclose(last, whole[3][2::3], rtol=1e-5, atol=1e-6)
    op.save(tmp_path / "a.safetensors")
    loaded = Operator.load(tmp_path / "a.safetensors", device="cpu")
    assert loaded.task == Snapshots(3)
    assert loaded.labels.names["x"] == ["xi", "eta", "t"]
    np.testing.assert_array_equal(loaded.predict(data), whole)


def test_validation_is_the_error_of_whole_samples() -> None:
    train, test = forged().split(5, 2)
    op = Operator.fit(train, epochs=2, model="transolver", validation=test, **KEYS)
    assert op.model.config.time_input  # also where no config is given
    error = op.provenance["curve"][-1]["error"]
    assert error == pytest.approx(op.evaluate(test)["relative_l2"], rel=1e-4)


def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    data = forged()
    keys = {"epochs": 2, "model": "transolver", "config": TRANSOLVER, "validation": 0.0, **KEYS}
    whole = Operator.fit(data, **keys)
    first = Operator.fit(data, folder=tmp_path, pause_after=0.0, **keys)
    assert not first.finished
    resumed = Operator.fit(data, folder=tmp_path, resume=True, **keys)
    for a, b in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_the_gradient_loss_is_that_of_a_snapshot() -> None:
    recipe = {"gradient": 0.1, "batch": 2}
    op = Operator.fit(forged(), epochs=1, model="transolver", recipe=recipe, **KEYS)
    assert op.finished


def test_other_data_are_refused() -> None:
    data = forged()
    with pytest.raises(ValueError, match=r"expected data on a grid in space and time"):
        Snapshots(4).prepare(data)
    with pytest.raises(ValueError, match=r"expected data on a grid in space and time"):
        Snapshots(3).prepare(data.replace(period=(None, None, 3.0)))
    with pytest.raises(ValueError, match="expected whole snapshots"):
        moved = np.array(data.x)
        moved[7, 0] += 0.1
        Snapshots(3).prepare(data.replace(x=moved))
    op = Operator.fit(data, epochs=1, model="transolver", config=TRANSOLVER, **KEYS)
    with pytest.raises(ValueError, match="leave out x_query"):
        op.predict(data.x, data.u[0], x_query=data.x[::2])
    with pytest.raises(ValueError, match="expected whole snapshots"):
        op.predict(data.x[:-1], data.u[0][:-1])
    with pytest.raises(ValueError, match=r"Snapshots\.times must be a whole number"):
        Snapshots(0)


def test_a_backgrounds_correction_is_learned_at_each_time() -> None:
    data = forged()
    known = 100 + np.array(data.y)
    moved = data.replace(y=data.y + known, background=known)
    keys = {"epochs": 1, "model": "transolver", "config": TRANSOLVER, **KEYS}
    plain, with_background = (Operator.fit(d, **keys) for d in (data, moved))
    np.testing.assert_allclose(with_background.predict(moved), plain.predict(data) + known, 1e-4)


def test_a_model_moves_to_another_grid() -> None:
    op = Operator.fit(forged(), epochs=1, model="transolver", config=TRANSOLVER, **KEYS)
    axes = np.meshgrid(np.linspace(0, 1, 7), np.linspace(0, 2, 3), TIMES, indexing="ij")
    x = np.stack(axes, -1).reshape(-1, 3)
    fine = op.on_grid((7, 3, 3))
    assert fine.model.spec.grid == (7, 3)
    assert fine.predict(x, np.ones((63, 1))).shape == (63, 3)


@pytest.mark.gpu
def test_steps_on_a_gpu_are_those_of_the_cpu() -> None:
    """The step is captured as a CUDA graph: every replay must read its own times."""
    keys = {"epochs": 3, "model": "transolver", "config": TRANSOLVER, "validation": 0.0, **KEYS}
    on_cpu, on_gpu = (
        Operator.fit(forged(8), recipe={"batch": 4}, **{**keys, "device": device}, precision="fp32")
        for device in ("cpu", "cuda")
    )
    a, b = ([row["loss"] for row in op.provenance["curve"]] for op in (on_cpu, on_gpu))
    np.testing.assert_allclose(a, b, rtol=1e-3)
