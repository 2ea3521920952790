from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from small_runs import SMALL, all_columns, weights
from small_runs import fit as small_fit

from lno import Completion, Fields, Operator, RandomRatio, Recipe
from lno.data.symmetry import square
from lno.models import build_model
from lno.tasks import Rollout, Steady, Task
from lno.training import budget
from lno.training import samples as holding
from lno.training import step as steps
from lno.training.distributed import Processes
from lno.training.inputs import model_spec
from lno.training.loop import next_batches
from lno.training.precision import (
    PRECISIONS,
    autocast,
    matmul_precision,
    pick_precision,
)
from lno.training.samples import Samples
from lno.training.state import Training
from lno.training.step import Loss, Step


def fit(data: Fields, **keys: object) -> Operator:
    return small_fit(data, **{"epochs": 2, **keys})


def test_streamed_samples_train_like_resident_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With everything that a sample may bring: parameters, weights, a background."""
    data, recipe = all_columns(), Recipe(epochs=2, weighted=True, physical=True)
    resident = fit(data, epochs=None, recipe=recipe)
    data.save(tmp_path / "a.h5")
    lazy = fit(Fields.load(tmp_path / "a.h5", lazy=True), epochs=None, recipe=recipe)
    monkeypatch.setattr(holding, "fits", lambda data, device: False)
    streamed = fit(data, epochs=None, recipe=recipe)
    assert torch.equal(weights(streamed), weights(resident))
    assert torch.equal(weights(lazy), weights(resident))


def test_padding_of_ragged_samples_does_not_count() -> None:
    """A step on samples of different sizes has the mean loss of each alone."""
    data, task, cpu = all_columns(ragged=True), Steady(), torch.device("cpu")
    scale = task.normalizers(data)
    recipe = Recipe(weighted=True, physical=True)
    model = build_model("lno", SMALL, model_spec(data, scale), 0)
    loss = Loss(model, Training([model], task, scale, recipe, data, None, cpu, 0))
    samples = Samples(data, scale, cpu)
    [together] = samples.batches(torch.tensor([[0, 1, 2, 3]]))
    alone = [loss(samples.batches(torch.tensor([[k]]))[0]) for k in range(4)]
    assert together.query_mask is not None
    assert loss(together).item() == pytest.approx(torch.stack(alone).mean().item(), rel=1e-5)


def test_the_loss_of_increments_is_that_of_frames() -> None:
    """A model whose output is zero predicts persistence: the loss is the change of each frame."""
    random, task, cpu = np.random.default_rng(0), Rollout(2, increments=True), torch.device("cpu")
    frames = 3 + random.normal(size=(4, 30, 5))
    data = Fields(random.uniform(size=(30, 2)), frames[..., :3], y=frames[..., 3:])
    scale = task.normalizers(data)
    model = build_model("lno", SMALL, model_spec(data, scale, task), 0)
    for each in model.parameters():
        each.data.zero_()
    seen, following = frames[..., 2:4], frames[..., 3:]
    changes = np.linalg.norm(following - seen, axis=1) / np.linalg.norm(following, axis=1)
    [batch] = Samples(data, scale, cpu).batches(torch.arange(4)[None])
    for queries in (None, 7):
        recipe = Recipe(physical=True, queries=queries)
        training = Training([model], task, scale, recipe, data, None, cpu, 0)
        drawn = task.draw(batch, None, torch.Generator().manual_seed(0), queries)
        expected = changes.mean()
        if queries is not None:
            chosen = torch.randperm(30, generator=torch.Generator().manual_seed(0))[:queries]
            some = [v[:, chosen.numpy()] for v in (following - seen, following)]
            norms = [np.linalg.norm(v, axis=1) for v in some]
            expected = (norms[0] / norms[1]).mean()
        assert Loss(model, training)(drawn).item() == pytest.approx(expected, rel=1e-4)
    with pytest.raises(ValueError, match="cannot interpolate its last frame"):
        Loss(model, replace(training, processes=Processes(0, 2, "points")))


@pytest.mark.parametrize("queries", [None, 7])
def test_the_loss_of_increments_is_one_graph(queries: int | None) -> None:
    """And needs no values to be traced, so that a step never waits for a GPU."""
    random, task, cpu = np.random.default_rng(0), Rollout(2, increments=True), torch.device("cpu")
    data = Fields(
        random.uniform(size=(30, 2)), random.normal(size=(4, 30, 3)), y=np.ones((4, 30, 2))
    )
    scale = task.normalizers(data)
    model = build_model("lno", SMALL, model_spec(data, scale, task), 0)
    training = Training([model], task, scale, Recipe(queries=queries), data, None, cpu, 0)
    [batch] = Samples(data, scale, cpu).batches(torch.arange(4)[None])
    batch = task.draw(batch, None, torch.Generator().manual_seed(0), queries)
    loss = Loss(model, training)
    torch._dynamo.reset()
    traced = torch.compile(loss, dynamic=False, fullgraph=True, backend="eager")
    assert traced(batch).item() == pytest.approx(loss(batch).item(), rel=1e-5)


def test_what_does_not_fit_is_streamed() -> None:
    x = [np.zeros((3, 1)), np.ones((2, 1))]
    assert not holding.fits(Fields(x, y=[p + 1 for p in x]), torch.device("cpu"))
    huge = np.broadcast_to(np.zeros((1, 1, 1), np.float32), (10**6, 10**4, 1))
    for name in ("y", "background", "weights"):
        small = Fields(np.zeros((2, 1)), y=np.zeros((3, 2, 1)))
        assert holding.fits(small, torch.device("cpu"))
        setattr(small, name, huge)
        assert not holding.fits(small, torch.device("cpu"))


def test_precision_is_a_policy() -> None:
    cpu = torch.device("cpu")
    assert [pick_precision("auto", torch.device(d)) for d in ("cpu", "cuda")] == ["fp32", "tf32"]
    with pytest.raises(ValueError, match="no precision 'fp8': expected auto, fp32, tf32, mixed"):
        pick_precision("fp8", cpu)
    before = torch.get_float32_matmul_precision()
    for name in PRECISIONS:
        with matmul_precision(name), autocast(name, cpu):
            assert torch.is_autocast_enabled("cpu") == (name == "mixed")
            assert torch.backends.cudnn.allow_tf32 == (name != "fp32")
        assert torch.get_float32_matmul_precision() == before


def test_mixed_precision_learns_too(line_fields: Fields) -> None:
    recipe = Recipe(epochs=15, learning_rate=5e-3)
    exact, mixed = (
        fit(line_fields, epochs=None, recipe=recipe, precision=p, device="cpu").evaluate(
            line_fields
        )
        for p in ("fp32", "mixed")
    )
    assert mixed["relative_l2"] < 2 * exact["relative_l2"] + 0.02


@pytest.mark.gpu
@pytest.mark.parametrize("compiled", [False, True])
def test_a_captured_step_is_the_eager_one(
    compiled: bool, line_fields: Fields, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Muon gives all directions of a gradient the same length, also those that are rounding errors.
    # At the usual learning rate, a change of the data by 1e-7 moves the final weights by 8 % of
    # their way; at this one by 0.5 %; another moving average or clipping moves them by 20 to 30 %.
    recipe = Recipe(epochs=5, batch=8, clip=1.0, ema=0.9, learning_rate=1e-5)
    keys = {"device": "cpu", "precision": "fp32", "epochs": None}
    begun = fit(line_fields, recipe=replace(recipe, learning_rate=1e-12), **keys)
    on_cpu = fit(line_fields, recipe=recipe, **keys)
    if compiled:
        monkeypatch.setattr(steps, "COMPILE_FROM", 1)
    captured = fit(line_fields, recipe=recipe, **{**keys, "device": "cuda"})
    way, apart = (weights(on_cpu) - weights(o) for o in (begun, captured))
    assert apart.norm() < 0.03 * way.norm()
    a, b = (o.provenance["curve"] for o in (captured, on_cpu))
    assert [r["loss"] for r in a] == pytest.approx([r["loss"] for r in b], rel=1e-3)


@pytest.mark.gpu
@pytest.mark.parametrize("compiled", [False, True])
def test_captured_members_are_what_each_is_alone(
    compiled: bool, line_fields: Fields, monkeypatch: pytest.MonkeyPatch
) -> None:
    if compiled:
        monkeypatch.setattr(steps, "COMPILE_FROM", 1)
    recipe = Recipe(epochs=5, batch=8, clip=1.0, ema=0.9, optimizer="muon")
    keys = {"device": "cuda", "precision": "fp32", "recipe": recipe, "epochs": None}
    together = fit(line_fields, members=3, seed=4, **keys)
    for k in range(3):
        alone = fit(line_fields, seed=4 + k, **keys)
        assert (weights(together.member(k)) - weights(alone)).abs().max() < 1e-3


@pytest.mark.gpu
def test_a_captured_run_resumes_bit_for_bit(line_fields: Fields, tmp_path: Path) -> None:
    keys = {"device": "cuda", "epochs": None, "recipe": Recipe(epochs=6, batch=8)}
    whole = fit(line_fields, **keys)
    fit(line_fields, folder=tmp_path, pause_after=1e-9, **keys)
    resumed = fit(line_fields, folder=tmp_path, resume=True, **keys)
    assert torch.equal(weights(resumed), weights(whole))


@pytest.mark.gpu
def test_a_captured_budgeted_run_resumes_bit_for_bit(
    line_fields: Fields, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The graph captured while measuring goes on from the restored weights."""
    monkeypatch.setattr(budget, "steps_within", lambda seconds, costs: 30)
    keys = {"device": "cuda", "epochs": None, "recipe": Recipe(epochs=6, batch=8, ema=0.9)}
    whole = fit(line_fields, **keys)  # 5 steps in each of 6 epochs
    measured = fit(line_fields, minutes=0.01, **keys)
    assert torch.equal(weights(measured), weights(whole))
    fit(line_fields, folder=tmp_path, minutes=0.01, pause_after=1e-9, **keys)
    resumed = fit(line_fields, folder=tmp_path, resume=True, **keys)
    assert torch.equal(weights(resumed), weights(whole))


@pytest.mark.gpu
def test_completion_is_drawn_alike_on_every_device() -> None:
    x = np.random.default_rng(0).uniform(size=(40, 2))
    data = Fields(x, y=np.random.default_rng(1).normal(size=(10, 40, 1)))
    keys = {"task": Completion(RandomRatio(0.1, 0.5)), "precision": "fp32"}
    curves = [fit(data, device=device, **keys).provenance["curve"] for device in ("cpu", "cuda")]
    a, b = ([row["loss"] for row in curve] for curve in curves)
    assert a == pytest.approx(b, rel=1e-3)


def test_the_last_batch_of_an_epoch_may_be_smaller(line_fields: Fields) -> None:
    recipe = replace(Recipe(epochs=2), batch=27)
    operator = fit(line_fields, epochs=None, recipe=recipe, validation=0.0, device="cpu")
    assert operator.provenance["curve"][-1]["step"] == 4


@pytest.mark.gpu
@pytest.mark.parametrize(
    "task", [Steady(), Completion(RandomRatio(0.1, 0.5)), Rollout(1, increments=True)]
)
def test_steps_never_wait_for_the_device(task: Task) -> None:
    side = np.linspace(0, 1, 8)
    x = np.stack(np.meshgrid(side, side, indexing="ij"), -1).reshape(64, 2)
    values = np.random.default_rng(0).normal(size=(2, 12, 64, 1))
    data = task.prepare(Fields(x, values[0], y=values[1], grid=(8, 8)))
    scale, device = task.normalizers(data), torch.device("cuda")
    spec = model_spec(data, scale)
    models = [build_model("lno", SMALL, spec, seed).to(device) for seed in range(2)]
    recipe = Recipe(epochs=10, batch=4, queries=32, clip=1.0, ema=0.9)
    training = Training(models, task, scale, recipe, data, None, device, 0, symmetries=square())
    samples, step = Samples(data, scale, device), Step(training)
    try:
        for k in range(8):
            if k == 3:
                torch.cuda.set_sync_debug_mode("error")
            step(*next_batches(training, samples))
            training.step += 1
    finally:
        torch.cuda.set_sync_debug_mode("default")
