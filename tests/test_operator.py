"""Operators: trained, tuned, kept in files, and the same for the same seed."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import LNO

from lno import Completion, Fields, Operator, RandomRatio, Recipe, Window
from lno.metrics import METRICS


def test_training_learns_an_operator(line_fields: Fields) -> None:
    untrained = Operator.fit(line_fields, epochs=1, config=LNO, progress=False)
    larger = {**LNO, "width": 32, "latents": 16}
    trained = Operator.fit(
        line_fields,
        epochs=60,
        recipe={"learning_rate": 5e-3},
        config=larger,
        validation=0.25,
        progress=False,
    )
    before = untrained.evaluate(line_fields)["relative_l2"]
    after = trained.evaluate(line_fields)["relative_l2"]
    assert after < 0.05 < 0.5 < before
    curve = trained.provenance["curve"]
    assert curve[-1]["error"] < curve[0]["error"]
    assert curve[-1]["step"] == 60 * 8  # thirty samples are left, four in a step


def test_the_same_seed_gives_the_same_bits(line_fields: Fields) -> None:
    torch.manual_seed(123)
    state = torch.random.get_rng_state()
    a, b = (Operator.fit(line_fields, epochs=3, config=LNO, seed=7, progress=False) for _ in "ab")
    other = Operator.fit(line_fields, epochs=3, config=LNO, seed=8, progress=False)
    assert np.array_equal(a.predict(line_fields), b.predict(line_fields))
    assert not np.array_equal(a.predict(line_fields), other.predict(line_fields))
    assert torch.equal(
        torch.random.get_rng_state(), state
    )  # the caller's random numbers are theirs


def test_a_loaded_operator_predicts_the_same_bits(
    operator: Operator, tmp_path: Path, line_fields: Fields
) -> None:
    operator.save(tmp_path / "a.safetensors")
    loaded = Operator.load(tmp_path / "a.safetensors")
    assert np.array_equal(loaded.predict(line_fields), operator.predict(line_fields))
    assert loaded.normalizers == operator.normalizers
    assert loaded.labels == operator.labels
    assert loaded.task == operator.task
    assert loaded.provenance == json.loads(json.dumps(operator.provenance))
    loaded.save(tmp_path / "b.safetensors")
    assert (tmp_path / "a.safetensors").read_bytes() == (tmp_path / "b.safetensors").read_bytes()


def test_tasks_survive_the_file(tmp_path: Path) -> None:
    t = np.linspace(0, 1, 30)[:, None]
    y = np.random.default_rng(0).normal(size=(6, 30, 1))
    task = Completion(RandomRatio(0.2, 0.5), Window("t", 0.2, 0.8))
    data = Fields(t, y=y, names={"x": ["t"]}, period=[2.0])
    op = Operator.fit(data, task=task, epochs=1, config=LNO, progress=False)
    op.save(tmp_path / "a.safetensors")
    loaded = Operator.load(tmp_path / "a.safetensors")
    assert loaded.task == task
    assert loaded.evaluate(data) == op.evaluate(data)
    assert loaded.labels.names["u"] == ["y0"]  # what is observed is the output itself


def test_ragged_training_equals_its_padding_free_meaning(line_fields: Fields) -> None:
    """Samples of different sizes train and predict; padding has no effect on a prediction."""
    kept = [24, 10, 17, 24, 5, 1, 24, 20] * 5
    samples = list(line_fields)
    x = [s.x[:k] for s, k in zip(samples, kept, strict=True)]
    u = [s.u[:k] for s, k in zip(samples, kept, strict=True)]
    data = Fields(x, u, line_fields.x, line_fields.y)
    op = Operator.fit(data, epochs=2, config=LNO, progress=False)
    batch = data.batch(np.arange(40))
    together = op.predict_batch(batch).mean()
    assert batch.mask is not None
    for k in range(len(data)):
        alone = op.predict(x[k], u[k], line_fields.x)
        np.testing.assert_allclose(together[k].numpy(), alone, rtol=1e-4, atol=1e-5)


def test_metrics_are_in_physical_units(line_fields: Fields) -> None:
    """Scaling the outputs by 1000 leaves relative errors and scales the absolute one."""
    scaled = Fields(line_fields.x, line_fields.u, y=1000 * line_fields.y)
    a = Operator.fit(line_fields, epochs=3, config=LNO, progress=False).evaluate(line_fields)
    b = Operator.fit(scaled, epochs=3, config=LNO, progress=False).evaluate(scaled)
    assert b["relative_l2"] == pytest.approx(a["relative_l2"], rel=1e-3)
    assert b["mse"] == pytest.approx(1e6 * a["mse"], rel=1e-3)


def test_fine_tuning_begins_where_the_first_training_ended(
    operator: Operator, line_fields: Fields
) -> None:
    nearby = Fields(line_fields.x, line_fields.u, y=line_fields.y + 0.1)
    still = Operator.fit(
        nearby,
        init=operator,
        recipe=Recipe(epochs=1, learning_rate=1e-12, weight_decay=0.0),
        progress=False,
    )
    np.testing.assert_allclose(still.predict(nearby), operator.predict(nearby), atol=1e-6)
    assert still.normalizers == operator.normalizers
    tuned = Operator.fit(
        nearby, init=operator, recipe=Recipe(epochs=60, learning_rate=3e-3), progress=False
    )
    assert tuned.evaluate(nearby)["mse"] < operator.evaluate(nearby)["mse"]
    wrong = Fields(line_fields.x, np.concatenate([line_fields.u] * 2, -1), y=line_fields.y)
    with pytest.raises(ValueError, match="cannot fine-tune: the operator was trained for"):
        Operator.fit(wrong, init=operator, epochs=1, progress=False)
    circle = Fields(line_fields.x, line_fields.u, y=line_fields.y, period=[7.0])
    around = Operator.fit(circle, epochs=1, config=LNO, progress=False)
    flat = Fields(np.repeat(line_fields.x, 2, -1), line_fields.u, y=line_fields.y)
    with pytest.raises(ValueError, match=r"coordinates have periods \(7.0,\), .* \(None, None\)"):
        Operator.fit(flat, init=around, epochs=1, progress=False)


def test_normalisers_see_training_samples_only(line_fields: Fields) -> None:
    """A marked sample in the held-back part leaves no trace in the normalisers or the weights."""
    plain = Operator.fit(line_fields, epochs=2, config=LNO, validation=0.25, progress=False)
    y = np.array(line_fields.y)
    held_back = np.random.default_rng([0, 1]).permutation(40)[:10]
    y[held_back[0]] = 1e6
    marked = Fields(line_fields.x, line_fields.u, y=y)
    other = Operator.fit(marked, epochs=2, config=LNO, validation=0.25, progress=False)
    assert other.normalizers == plain.normalizers
    assert np.array_equal(other.predict(line_fields), plain.predict(line_fields))


def test_bad_training_input_is_named(line_fields: Fields) -> None:
    def fit(data: Fields = line_fields, **keys: object) -> None:
        Operator.fit(data, epochs=1, progress=False, **{"config": LNO, **keys})  # type: ignore[arg-type]

    with pytest.raises(ValueError, match="no outputs y"):
        fit(Fields(line_fields.x, line_fields.u))
    with pytest.raises(ValueError, match=r"no key 'widht' \(did you mean 'width'\?\)"):
        fit(config={"widht": 3})
    with pytest.raises(ValueError, match="no model 'lnoo': expected one of lno"):
        fit(model="lnoo")
    with pytest.raises(ValueError, match=r"no key 'learning_rte' \(did you mean 'learning_rate'"):
        fit(recipe={"learning_rte": 1})
    with pytest.raises(ValueError, match=r"Recipe\.loss must be one of relative_l2"):
        fit(recipe={"loss": "l7"})
    with pytest.raises(ValueError, match="validation: expected a fraction"):
        fit(validation=1.5)
    with pytest.raises(ValueError, match="epochs and minutes both say"):
        fit(minutes=1.0)
    with pytest.raises(ValueError, match="the data have no weights of points"):
        fit(recipe={"weighted": True})
    with pytest.raises(ValueError, match="cannot compute on 'warp'"):
        fit(device="warp")
    with pytest.raises(ValueError, match="seed must be a whole number from 0 to"):
        fit(seed=-1)
    with pytest.raises(ValueError, match=r"validation: expected samples with .*out_channels=1"):
        fit(validation=Fields(line_fields.x, line_fields.u, y=np.zeros((40, 24, 3))))
    told = Fields(line_fields.x, line_fields.u, y=line_fields.y, provenance={"made": object()})
    with pytest.raises(ValueError, match="provenance of the data: expected plain JSON"):
        fit(told)


def test_an_operator_introduces_itself(operator: Operator) -> None:
    weights = f"{operator.parameters:,}"
    assert repr(operator) == f"Operator(lno with {weights} weights: f of x0 → df)"


def test_a_loss_that_is_not_finite_stops_the_run(
    line_fields: Fields, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, steps = METRICS["mse"], iter(range(1000))
    monkeypatch.setitem(METRICS, "mse", lambda *a: real(*a) * (np.inf if next(steps) == 2 else 1))
    with pytest.raises(RuntimeError, match=r"the loss became inf at step 3 of 9 \(learning rate"):
        Operator.fit(line_fields, epochs=1, recipe={"loss": "mse"}, config=LNO, progress=False)


def test_a_loss_that_ends_above_where_it_was_is_told(
    line_fields: Fields, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {
        "recipe": {"loss": "mse"},
        "config": LNO,
        "progress": False,
        "seed": 3,
        "epochs": 28,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        steady = Operator.fit(line_fields, **keys)
    # 252 steps are 25 intervals of ten, and two that belong to the last.
    assert [row["step"] for row in steady.provenance["curve"]][-2:] == [240, 252]
    real, steps = METRICS["mse"], iter(range(1000))
    monkeypatch.setitem(METRICS, "mse", lambda *a: real(*a) + (next(steps) > 240))
    with pytest.warns(
        UserWarning, match=r"of seed 3 became unstable: its loss was .* at step 2\d0"
    ):
        Operator.fit(line_fields, **keys)


@pytest.mark.gpu
def test_training_on_a_gpu_predicts_like_on_the_cpu(line_fields: Fields, tmp_path: Path) -> None:
    op = Operator.fit(line_fields, epochs=5, config=LNO, device="cuda", progress=False)
    op.save(tmp_path / "a.safetensors")
    on_cpu = Operator.load(tmp_path / "a.safetensors", device="cpu")
    np.testing.assert_allclose(
        op.predict(line_fields), on_cpu.predict(line_fields), rtol=1e-3, atol=1e-4
    )
    x = torch.as_tensor(line_fields.x).cuda()
    assert op.predict(x, torch.as_tensor(line_fields.u).cuda()).device.type == "cuda"
