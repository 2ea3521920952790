"""Statistics that models keep are carried through everything that a run goes through."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.func import functional_call
from toy_model import EVERYTHING, SIZES, Toy, ToyConfig, fit, grid_samples, same, state

from lno import Operator, Spec, Steady
from lno.data import Batch
from lno.models import MODELS, build_model
from lno.training import budget
from lno.training import step as steps
from lno.training.distributed import Processes
from lno.training.inputs import model_spec
from lno.training.loop import next_batches
from lno.training.optim import OPTIMIZERS, Optimizer
from lno.training.samples import Samples
from lno.training.state import Training
from lno.training.step import Step

EVERY_KIND = pytest.mark.parametrize("kind", SIZES)


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS, "toy", (Toy, ToyConfig))


def training(
    kind: str = "toy", members: int = 1, seed: int = 0, **keys: object
) -> tuple[Training, Samples]:
    data, task, cpu = grid_samples(), Steady(), torch.device("cpu")
    scale = task.normalizers(data)
    spec, recipe = model_spec(data, scale), replace(EVERYTHING, **keys)
    models = [build_model(kind, SIZES[kind], spec, seed + k) for k in range(members)]
    made = Training(models, task, scale, recipe, data, None, cpu, seed)
    return made, Samples(data, scale, cpu)


def take(step: Step, samples: Samples, count: int) -> list[torch.Tensor]:
    losses = []
    for _ in range(count):
        losses.append(step(*next_batches(step.training, samples)))
        step.training.step += 1
    return losses


def test_training_uses_statistics_of_the_batch_and_evaluation_the_kept_ones() -> None:
    operator = fit()
    model = operator.model
    assert not model.training
    before, data = state(operator), grid_samples()
    assert before["norm.num_batches_tracked"] == 6  # nine samples in batches of three, twice
    error = operator.evaluate(data)["relative_l2"]
    assert same(before, state(operator))
    alone = operator.predict(data.subset([4]))
    assert torch.allclose(torch.tensor(operator.predict(data)[4]), torch.tensor(alone[0]))
    with torch.no_grad():
        model.norm.running_mean.add_(1.0)
    assert operator.evaluate(data)["relative_l2"] > error + 0.01


def test_every_model_that_has_statistics_is_tested() -> None:
    """And says so: forgotten ones would be lost in compiled steps."""
    for kind, (cls, _) in MODELS.items():
        model = cls(Spec(2, 1, 1, (8, 6)))
        before = {name: buffer.clone() for name, buffer in model.named_buffers()}
        x, u = torch.rand(1, 48, 2), torch.rand(3, 48, 1)
        if before:
            model.train()(x, u, x)
        changed = any(not torch.equal(b, before[name]) for name, b in model.named_buffers())
        assert changed == model.keeps_statistics == (kind in SIZES), kind


@EVERY_KIND
def test_statistics_are_changed_in_place_and_in_training_only(kind: str) -> None:
    made, samples = training(kind)
    statistics = made.statistics
    assert {b.data_ptr() for b in statistics.buffers} == {
        b.data_ptr() for b in made.models[0].buffers()
    }
    before = [(b.data_ptr(), b.clone()) for b in statistics.buffers]
    take(Step(made), samples, 2)
    after = [b.clone() for b in statistics.buffers]
    assert [b.data_ptr() for b in made.models[0].buffers()] == [at for at, _ in before]
    assert not any(torch.equal(b, old) for b, (_, old) in zip(after, before, strict=True))
    with made.predicting():
        kept = [b.clone() for b in statistics.buffers]
        [batch], _ = next_batches(made, samples)
        made.models[0](batch.x, batch.inputs, batch.x_query)
        assert all(map(torch.equal, statistics.buffers, kept))
    assert all(map(torch.equal, statistics.buffers, after))


@EVERY_KIND
def test_pausing_and_resuming_changes_no_bit(kind: str, tmp_path: Path) -> None:
    whole = state(fit(kind))
    for k in range(2):
        assert not fit(kind, folder=tmp_path, pause_after=1e-9, resume=k > 0).finished
    resumed = fit(kind, folder=tmp_path, resume=True)
    assert resumed.finished
    assert same(state(resumed), whole)


@EVERY_KIND
def test_each_member_is_the_model_of_its_seed(kind: str) -> None:
    together = fit(kind, members=2, seed=4)
    for k in range(2):
        alone, member = state(fit(kind, seed=4 + k)), state(together, k)
        for name, value in alone.items():
            torch.testing.assert_close(member[name], value, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("kind", "backend"), [("toy", "aot_eager"), ("ono", "eager")])
def test_a_compiled_step_uses_the_statistics_of_each_member(
    kind: str, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        steps,
        "compiled",
        lambda f: torch.compile(f, dynamic=False, fullgraph=True, backend=backend),
    )
    made, samples = training(kind, members=2)
    reference, others = training(kind, members=2)
    plain, fast = Step(reference), Step(made)
    fast.compiled = fast._compiled()
    for _ in range(2):
        batches, _ = next_batches(made, samples)
        expected = plain._differentiate(next_batches(reference, others)[0])
        torch.testing.assert_close(fast._differentiate(batches, fast=True), expected)
    torch.testing.assert_close(made.optimizer.gradient, reference.optimizer.gradient)
    for a, b in zip(made.models, reference.models, strict=True):
        torch.testing.assert_close(dict(a.named_buffers()), dict(b.named_buffers()))
    first, second = (next(model.buffers()) for model in made.models)
    assert (first - second).abs().max() > 0.1 * first.abs().max()


@pytest.fixture
def failing_captures(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA as far as capturing needs it, on the CPU; every capture fails."""

    class Stream:
        def wait_stream(self, other: object) -> None:
            pass

    @contextmanager
    def graph(*_: object, **__: object) -> Iterator[None]:
        raise RuntimeError("cholesky cannot be captured\nand more")
        yield

    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "CUDAGraph", object)
    monkeypatch.setattr(torch.cuda, "graph", graph)


@pytest.mark.usefixtures("failing_captures")
def test_a_capture_that_fails_leaves_the_eager_run() -> None:
    """Its warm-up passes leave no trace, neither in weights nor in statistics."""
    reference, samples = training(members=2)
    expected = take(Step(reference), samples, 5)
    made, samples = training(members=2)
    step = Step(made)
    step.capturable = True
    message = "without a CUDA graph: RuntimeError: cholesky cannot be captured$"
    with pytest.warns(UserWarning, match=message):
        losses = take(step, samples, 5)
    assert all(map(torch.equal, losses, expected))
    for a, b in zip(made.end(), reference.end(), strict=True):
        assert same(a.state_dict(), b.state_dict())


@pytest.mark.usefixtures("failing_captures")
@pytest.mark.filterwarnings("ignore:training continues without a CUDA graph")
def test_a_compiler_that_fails_leaves_the_uncompiled_run() -> None:
    def fail(*_: object) -> torch.Tensor:
        raise NotImplementedError("no code for complex numbers")

    made, samples = training()
    step = Step(made)
    step.capturable, step.compiled = True, fail
    with pytest.warns(UserWarning, match="uncompiled: NotImplementedError: no code for complex"):
        take(step, samples, 1)
    assert step.compiled is None and made.models[0].norm.num_batches_tracked == 1


@pytest.mark.usefixtures("failing_captures")
@pytest.mark.filterwarnings("ignore:training continues without a CUDA graph")
def test_without_a_graph_full_batches_have_the_compiled_loss() -> None:
    made, samples = training(batch=4)  # nine samples: the last batch of an epoch has one
    step, seen = Step(made), []

    def fast(state: dict[str, Tensor], batch: Batch) -> Tensor:
        seen.append(len(batch))
        return functional_call(step.losses[0], state, (batch,))

    step.capturable, step.compiled = True, fast
    take(step, samples, 1)
    seen.clear()  # of the warm-up
    losses = take(step, samples, 5)
    assert seen == [4, 4, 4]
    reference, samples = training(batch=4)
    expected = take(Step(reference), samples, 6)
    assert all(map(torch.equal, losses, expected[1:]))


@pytest.mark.gpu
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("members", [1, 2])
def test_a_captured_run_keeps_the_statistics_of_the_eager_one(
    compiled: bool, members: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if compiled:
        monkeypatch.setattr(steps, "COMPILE_FROM", 1)
    keys = {"precision": "fp32", "members": members}
    keys["recipe"] = replace(EVERYTHING, epochs=5, learning_rate=1e-5)
    on_cpu, captured = fit(**keys), fit(device="cuda", **keys)
    for k in range(members):
        expected = state(on_cpu, k)
        for name, value in state(captured, k).items():
            if name.startswith("norm.r") or name.startswith("norm.n"):
                torch.testing.assert_close(value.cpu(), expected[name], rtol=1e-3, atol=1e-4)


class Waiting(Toy):
    """Looks at a number in its forward pass, for which a GPU must wait."""

    def forward(self, x: Tensor, u: Tensor, x_query: Tensor, mask: Tensor | None = None) -> Tensor:
        assert float(u.sum()) != 0.5
        return super().forward(x, u, x_query, mask)


@pytest.mark.gpu
def test_a_model_that_no_graph_can_hold_trains_without_one(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = state(fit(precision="fp32"))
    monkeypatch.setitem(MODELS, "toy", (Waiting, ToyConfig))
    with pytest.warns(UserWarning, match="training continues without a CUDA graph"):
        found = state(fit(precision="fp32", device="cuda"))
    for name in ("norm.running_mean", "norm.num_batches_tracked"):
        torch.testing.assert_close(found[name].cpu(), expected[name], rtol=1e-2, atol=1e-3)


def test_measuring_the_speed_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "steps_within", lambda seconds, costs: 6)
    assert same(state(fit(minutes=0.002)), state(fit()))


def test_averaged_weights_come_with_averaged_statistics() -> None:
    made, samples = training(ema=0.8)
    step, norm = Step(made), made.models[0].norm
    average: torch.Tensor | None = None
    for _ in range(4):
        take(step, samples, 1)
        new = norm.running_mean.clone()
        average = new if average is None else 0.8 * average + 0.2 * new
    assert not torch.allclose(new, average)
    with made.predicting():
        torch.testing.assert_close(norm.running_mean, average)
    assert torch.equal(norm.running_mean, new) and norm.training
    [model] = made.end()
    torch.testing.assert_close(model.norm.running_mean, average)


@EVERY_KIND
def test_a_saved_operator_is_the_loaded_one(kind: str, tmp_path: Path) -> None:
    recipe, members = replace(EVERYTHING, epochs=1), 1 + (kind == "toy")
    operator, path = fit(kind, members=members, recipe=recipe), tmp_path / "a.safetensors"
    operator.save(path)
    loaded = Operator.load(path, "cpu")
    for k in range(members):
        assert same(state(loaded, k), state(operator, k))
    data = grid_samples()
    assert (loaded.predict(data) == operator.predict(data)).all()


def test_half_precision_is_for_weights_only(tmp_path: Path) -> None:
    operator, path = fit(), tmp_path / "a.safetensors"
    with torch.no_grad():
        operator.model.norm.running_var[0] = 1e5  # beyond float16
    operator.save(path, half=True)
    before, after = state(operator), state(Operator.load(path, "cpu"))
    assert torch.equal(after["norm.running_var"], before["norm.running_var"])
    assert torch.equal(after["mix"], before["mix"].half().float())


@pytest.mark.parametrize("name", ["norm.running_mean", "norm.num_batches_tracked"])
def test_a_file_without_statistics_is_refused(name: str, tmp_path: Path) -> None:
    operator, path = fit(), tmp_path / "a.safetensors"
    broken = copy.deepcopy(operator)
    del broken.model.norm._buffers[name.removeprefix("norm.")]
    broken.save(path)
    with pytest.raises(ValueError, match=f"{name}: expected .* got nothing"):
        Operator.load(path, "cpu")


def test_fine_tuning_goes_on_from_the_statistics() -> None:
    first = fit()
    before = state(first)
    tuned = fit(init=first, recipe=replace(EVERYTHING, epochs=1, ema=None))
    assert same(state(first), before)
    assert state(tuned)["norm.num_batches_tracked"] == 9
    assert not torch.equal(state(tuned)["norm.running_mean"], before["norm.running_mean"])


def test_processes_that_share_a_batch_do_not_have_its_statistics() -> None:
    model = Toy(Spec(2, 1, 1, (8, 6)))
    with pytest.raises(ValueError, match="Toy normalises with statistics of the whole batch"):
        Processes(0, 2, "samples").prepare(model)
    model.keeps_statistics = False
    Processes(0, 2, "samples").prepare(model)


def test_muon_leaves_complex_weights_and_convolutions_to_adam() -> None:
    model = Toy(Spec(2, 1, 1, (8, 6)), ToyConfig(width=32))
    optimizer = Optimizer([model], OPTIMIZERS["muon"])
    assert optimizer.matrices == []
    model.hidden = torch.nn.Linear(32, 32)
    optimizer = Optimizer([model], OPTIMIZERS["muon"])
    assert [tuple(values.shape) for values in optimizer.matrices] == [(1, 32, 32)]
