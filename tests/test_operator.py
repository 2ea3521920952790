from __future__ import annotations

import ast
import json
import pickle
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import lno.operator
from lno import Completion, Fields, Operator, RandomRatio, Recipe, Window
from lno.metrics import METRICS
from lno.operator_file import KEY, VERSION

SMALL = {"width": 16, "latents": 8, "blocks": 1, "heads": 2, "layers": 1}


@pytest.fixture
def operator(line_fields: Fields) -> Operator:
    return Operator.fit(line_fields, epochs=2, config=SMALL, progress=False)


def test_training_learns_an_operator(line_fields: Fields) -> None:
    untrained = Operator.fit(line_fields, epochs=1, config=SMALL, progress=False)
    larger = {**SMALL, "width": 32, "latents": 16}
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
    a, b = (Operator.fit(line_fields, epochs=3, config=SMALL, seed=7, progress=False) for _ in "ab")
    other = Operator.fit(line_fields, epochs=3, config=SMALL, seed=8, progress=False)
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
    op = Operator.fit(data, task=task, epochs=1, config=SMALL, progress=False)
    op.save(tmp_path / "a.safetensors")
    loaded = Operator.load(tmp_path / "a.safetensors")
    assert loaded.task == task
    assert loaded.evaluate(data) == op.evaluate(data)
    assert loaded.labels.names["u"] == ["y0"]  # what is observed is the answer itself


def test_predict_takes_one_or_many_in_any_form(operator: Operator, line_fields: Fields) -> None:
    x, u, *_ = line_fields[0]
    q = np.linspace(0.1, 2.9, 7)[:, None]
    one = operator.predict(x, u, q)
    assert one.shape == (7, 1)
    both = operator.predict(x, np.stack([u, 2 * u]), q)
    assert both.shape == (2, 7, 1)
    np.testing.assert_allclose(both[0], one, rtol=1e-4, atol=1e-6)
    ragged = operator.predict([x, x[:5]], [u, u[:5]], [q, q[:2]])
    assert [r.shape for r in ragged] == [(7, 1), (2, 1)]
    np.testing.assert_allclose(ragged[0], one, rtol=1e-4, atol=1e-6)
    tensor = operator.predict(torch.from_numpy(x), torch.from_numpy(u), torch.from_numpy(q))
    assert isinstance(tensor, torch.Tensor)
    assert np.array_equal(tensor.numpy(), one)
    assert operator.predict(x, u).shape == (24, 1)
    assert operator.predict(x[:1], u[:1], q).shape == (7, 1)  # a single observed point
    assert operator.predict(x.tolist(), u.tolist(), q.tolist()).shape == (7, 1)


def set_chunk(monkeypatch: pytest.MonkeyPatch, points: int) -> None:
    monkeypatch.setattr(lno.prediction, "CHUNK", points)


def test_chunks_of_points_do_not_change_the_prediction(
    operator: Operator, line_fields: Fields, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = operator.predict(line_fields)
    weights = np.exp(np.linspace(-1, 1, 24))
    x, u, *_ = line_fields[0]
    weighted = operator.predict(x, u, weights=weights)
    assert np.abs(weighted - whole[0]).max() > 1e-6
    for chunk in (1, 5, 40):
        set_chunk(monkeypatch, chunk)
        np.testing.assert_allclose(operator.predict(line_fields), whole, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(
            operator.predict(x, u, weights=weights), weighted, rtol=1e-4, atol=1e-5
        )


def test_ragged_training_equals_its_padding_free_meaning(line_fields: Fields) -> None:
    """Samples of different sizes train and predict; padding has no effect on a prediction."""
    kept = [24, 10, 17, 24, 5, 1, 24, 20] * 5
    samples = list(line_fields)
    x = [s.x[:k] for s, k in zip(samples, kept, strict=True)]
    u = [s.u[:k] for s, k in zip(samples, kept, strict=True)]
    data = Fields(x, u, line_fields.x, line_fields.y)
    op = Operator.fit(data, epochs=2, config=SMALL, progress=False)
    batch = data.batch(np.arange(40))
    together = op.predict_batch(batch).mean()
    assert batch.mask is not None
    for k in range(len(data)):
        alone = op.predict(x[k], u[k], line_fields.x)
        np.testing.assert_allclose(together[k].numpy(), alone, rtol=1e-4, atol=1e-5)


def test_metrics_are_in_physical_units(line_fields: Fields) -> None:
    """Scaling the answers by 1000 leaves relative errors and scales the absolute one."""
    scaled = Fields(line_fields.x, line_fields.u, y=1000 * line_fields.y)
    a = Operator.fit(line_fields, epochs=3, config=SMALL, progress=False).evaluate(line_fields)
    b = Operator.fit(scaled, epochs=3, config=SMALL, progress=False).evaluate(scaled)
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
    around = Operator.fit(circle, epochs=1, config=SMALL, progress=False)
    flat = Fields(np.repeat(line_fields.x, 2, -1), line_fields.u, y=line_fields.y)
    with pytest.raises(ValueError, match=r"coordinates have periods \(7.0,\), .* \(None, None\)"):
        Operator.fit(flat, init=around, epochs=1, progress=False)


def test_normalisers_see_training_samples_only(line_fields: Fields) -> None:
    """A marked sample in the held-back part leaves no trace in the normalisers or the weights."""
    plain = Operator.fit(line_fields, epochs=2, config=SMALL, validation=0.25, progress=False)
    y = np.array(line_fields.y)
    held_back = np.random.default_rng([0, 1]).permutation(40)[:10]
    y[held_back[0]] = 1e6
    marked = Fields(line_fields.x, line_fields.u, y=y)
    other = Operator.fit(marked, epochs=2, config=SMALL, validation=0.25, progress=False)
    assert other.normalizers == plain.normalizers
    assert np.array_equal(other.predict(line_fields), plain.predict(line_fields))


@pytest.mark.parametrize(
    ("x", "u", "message"),
    [
        (np.zeros((5, 2)), np.zeros((5, 1)), r"x: expected 1 coordinates \(x0\), got 2"),
        (np.zeros((5, 1)), np.zeros((5, 3)), r"u: expected 1 channels \(f\), got 3"),
        (np.zeros((5, 1)), np.zeros((4, 1)), "u, sample 0: expected 5 points as in x, got 4"),
        (np.zeros((0, 1)), np.zeros((0, 1)), "has no points: expected at least one"),
        (
            np.full((5, 1), np.nan),
            np.zeros((5, 1)),
            "x, point 0.*expected a finite number, got nan",
        ),
        (np.zeros((5, 1)), np.full((5, 1), np.inf), "u, sample 0, point 0.*got inf"),
        ([], [], "expected an array"),
        (np.array(["a"]), np.zeros((1, 1)), "expected real numbers"),
    ],
)
def test_bad_input_is_named(operator: Operator, x: object, u: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        operator.predict(x, u)


def test_bad_training_input_is_named(line_fields: Fields) -> None:
    def fit(data: Fields = line_fields, **keys: object) -> None:
        Operator.fit(data, epochs=1, progress=False, **{"config": SMALL, **keys})  # type: ignore[arg-type]

    with pytest.raises(ValueError, match="no answers y"):
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


def test_data_of_another_kind_are_not_evaluated(operator: Operator, line_fields: Fields) -> None:
    x, u, y = line_fields.x, line_fields.u, line_fields.y
    with pytest.raises(ValueError, match=r"x: expected 1 coordinates \(x0\), got 2"):
        operator.evaluate(Fields(np.concatenate([x] * 2, -1), u, y=y))
    with pytest.raises(ValueError, match=r"u: expected 1 channels \(f\), got 2"):
        operator.evaluate(Fields(x, np.concatenate([u] * 2, -1), y=y))
    with pytest.raises(ValueError, match="y: expected 1 channels, got 3"):
        operator.evaluate(Fields(x, u, y=np.concatenate([y] * 3, -1)))
    with pytest.raises(ValueError, match="Fields hold everything"):
        operator.predict(line_fields, x_query=x)


def test_weights_of_points(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.linspace(0, 3, 10)[:, None]
    u, half = np.sin(x), np.where(np.arange(10) < 5, 2.0, 0.0)
    some = operator.predict(x[:5], u[:5], x)
    for _ in range(2):
        np.testing.assert_allclose(operator.predict(x, u, x, weights=half), some, atol=1e-5)
        several = operator.predict(x, np.stack([u, u]), x, weights=np.stack([half, half]))
        np.testing.assert_allclose(several[1], some, atol=1e-5)
        ragged = operator.predict([x, x[:5]], [u, u[:5]], [x, x], weights=[half, half[:5]])
        assert isinstance(ragged, list)
        for answer in ragged:
            np.testing.assert_allclose(answer, some, atol=1e-5)
        set_chunk(monkeypatch, 3)  # parts in which no point counts
    for wrong, message in (
        (half[:5], "weights, sample 0: expected 10 points"),
        (np.ones((2, 10)), "same number of samples"),
        (np.full(10, np.inf), "weights, point 0, channel 'weight': expected a finite number"),
        (np.zeros(10), "not all zero"),
    ):
        with pytest.raises(ValueError, match=message):
            operator.predict(x, u[None], weights=wrong)


def test_an_operator_introduces_itself(operator: Operator) -> None:
    weights = f"{operator.parameters:,}"
    assert repr(operator) == f"Operator(lno with {weights} weights: f of x0 → df)"


def test_lists_come_back_as_lists_of_single_predictions(operator: Operator) -> None:
    x, q = np.linspace(0, 3, 10)[:, None], np.linspace(0.2, 2.8, 7)[:, None]
    inputs = [np.sin(x), 2 * np.cos(x)]
    answers = operator.predict([x, x], inputs, q)
    assert isinstance(answers, list)
    for answer, u in zip(answers, inputs, strict=True):
        np.testing.assert_allclose(answer, operator.predict(x, u, q), rtol=1e-4, atol=1e-6)
    assert np.abs(answers[0] - answers[1]).max() > 1e-3, "inputs that matter"


def test_a_loss_that_is_not_finite_stops_the_run(
    line_fields: Fields, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, steps = METRICS["mse"], iter(range(1000))
    monkeypatch.setitem(METRICS, "mse", lambda *a: real(*a) * (np.inf if next(steps) == 2 else 1))
    with pytest.raises(RuntimeError, match=r"the loss became inf at step 3 of 9 \(learning rate"):
        Operator.fit(line_fields, epochs=1, recipe={"loss": "mse"}, config=SMALL, progress=False)


def test_a_loss_that_ends_above_where_it_was_is_told(
    line_fields: Fields, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {"recipe": {"loss": "mse"}, "config": SMALL, "progress": False, "seed": 3, "epochs": 28}
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


def test_a_prediction_that_is_not_finite_is_an_error(
    operator: Operator, line_fields: Fields
) -> None:
    with torch.no_grad():
        operator.model.head.output.bias.fill_(float("nan"))  # type: ignore[union-attr]
    with pytest.raises(RuntimeError, match="sample 0, point 0 is not finite"):
        operator.predict(line_fields)


def test_leaving_the_training_box_is_said(operator: Operator) -> None:
    inside, outside = np.linspace(0, 3, 5)[:, None], np.linspace(0, 6, 4)[:, None]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        operator.predict(inside, np.sin(inside))
    with pytest.warns(UserWarning, match=r"2 of 4 query positions lie outside .*0 <= x0 <= 3"):
        operator.predict(inside, np.sin(inside), outside)


# -- files -----------------------------------------------------------------------------------------


def rewrite(path: Path, change: dict[str, object], metadata: dict[str, str]) -> Path:
    """The file with parts of its JSON or its metadata changed."""
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        found = dict(file.metadata())
    content = json.loads(found[KEY])
    for key, value in change.items():
        target, *inner = key.split(".")
        if inner:
            content[target][inner[0]] = value
        else:
            content[target] = value
    new = path.with_name("changed.safetensors")
    save_file(load_file(path), new, metadata or {KEY: json.dumps(content)})
    return new


@pytest.mark.parametrize(
    ("change", "metadata", "message"),
    [
        ({}, {"format": "other"}, "its metadata lack the key 'lno.operator'"),
        ({"version": VERSION + 1}, {}, f"this lno reads up to {VERSION}: update"),
        ({"version": "x"}, {}, "format version must be a whole number"),
        ({"version": 1}, {}, "Train the model again"),
        ({}, {KEY: "{"}, "Expecting property name"),
        ({}, {KEY: "[]"}, "damaged or not"),
        ({}, {KEY: "[" * 100_000}, "damaged or not"),
        ({"model": "gpt"}, {}, "'gpt', which this lno does not have"),
        ({"config.width": 10**9}, {}, "width must be a whole number from 1 to 8192"),
        ({"config.width": 4096}, {}, "weight trunk.input.weight: expected"),
        ({"config.surprise": 1}, {}, "LNOConfig has no key 'surprise'"),
        ({"config.blocks": 2}, {}, "weight blocks.1"),
        ({"normalizers": {}}, {}, "damaged or not"),
        (
            {"normalizers.y": {"mean": [0.0], "std": [0.0]}},
            {},
            "expected positive standard deviations",
        ),
        ({"normalizers.y": {"mean": [0.0, 1.0], "std": [1.0, 1.0]}}, {}, "do not fit the model"),
        ({"task": {"kind": "mystery"}}, {}, "expected 'kind' to be one of steady"),
        ({"labels": None}, {}, "Labels expects a mapping"),
        ({"conditional": "yes"}, {}, "expected true or false"),
        ({"conditional": True}, {}, "can be conditioned on"),
        ({"query_set": -1}, {}, "query_set must be a whole number"),
        ({"spec.out_channels": -5}, {}, "out_channels"),
    ],
)
def test_changed_files_are_refused(
    operator: Operator, tmp_path: Path, change: dict, metadata: dict, message: str
) -> None:
    operator.save(tmp_path / "a.safetensors")
    with pytest.raises(ValueError, match=message) as caught:
        Operator.load(rewrite(tmp_path / "a.safetensors", change, metadata))
    assert "changed.safetensors" in str(caught.value)


def test_missing_and_foreign_weights_are_refused(operator: Operator, tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    operator.save(path)
    from safetensors import safe_open

    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    weights = load_file(path)
    save_file({**weights, "extra": torch.zeros(1)}, path, metadata)
    with pytest.raises(ValueError, match="weight extra does not belong"):
        Operator.load(path)
    save_file({k: v.double() for k, v in weights.items()}, path, metadata)
    with pytest.raises(ValueError, match=r"expected .* torch.float32, got .* torch.float64"):
        Operator.load(path)
    save_file(weights, path)
    with pytest.raises(ValueError, match="its metadata lack the key"):
        Operator.load(path)


def test_damaged_files_are_refused(operator: Operator, tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    operator.save(path)
    whole = path.read_bytes()
    for kept in (0, 1, 8, 9, 100, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:kept])
        with pytest.raises(ValueError, match="a\\.safetensors"):
            Operator.load(path)
    path.write_bytes(np.random.default_rng(0).bytes(5000))
    with pytest.raises(ValueError, match="a\\.safetensors"):
        Operator.load(path)
    with pytest.raises(FileNotFoundError, match="does not exist: expected a model file"):
        Operator.load(tmp_path / "missing.safetensors")
    with pytest.raises(IsADirectoryError, match="is a folder"):
        Operator.load(tmp_path)


def test_pickles_are_never_opened(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple:
            return open, (str(tmp_path / "boom"), "w")

    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        (tmp_path / "bomb.safetensors").write_bytes(pickle.dumps(Bomb(), protocol))
        with pytest.raises(ValueError, match=r"bomb\.safetensors"):
            Operator.load(tmp_path / "bomb.safetensors")
    torch.save({"weights": torch.zeros(3)}, tmp_path / "torch.safetensors")
    with pytest.raises(ValueError, match="pickles can run any code and are never opened"):
        Operator.load(tmp_path / "torch.safetensors")
    assert not (tmp_path / "boom").exists()


def test_the_package_has_no_way_to_unpickle() -> None:
    for source in Path(lno.operator.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(source.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [alias.name for alias in node.names] + [getattr(node, "module", None) or ""]
                assert not {"pickle", "dill", "joblib", "cloudpickle"} & set(names), source
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func)
                assert name not in {"torch.load", "eval", "exec"}, source
                keywords = {k.arg: ast.unparse(k.value) for k in node.keywords}
                if name == "np.load":
                    assert keywords["allow_pickle"] == "False", source


def test_a_killed_save_leaves_the_old_file(operator: Operator, tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    operator.save(path)
    before = path.read_bytes()
    script = textwrap.dedent(f"""
        import os, lno
        from lno import operator_file
        op = lno.Operator.load({str(path)!r})
        real = operator_file.save_file
        def half(weights, target, metadata):
            real(weights, target, metadata)
            with open(target, "r+b") as file:
                file.truncate(os.path.getsize(target) // 2)
            target.with_name(".tmpZCAh8X").touch()  # as safetensors leaves it
            os.kill(os.getpid(), 9)
        operator_file.save_file = half
        op.save({str(path)!r})
    """)
    done = subprocess.run([sys.executable, "-c", script], check=False)
    assert done.returncode == -9
    assert path.read_bytes() == before
    operator.save(path)
    assert list(tmp_path.iterdir()) == [path]  # nothing of the dead process is left


def test_a_save_that_fails_says_why_and_keeps_the_old_file(
    operator: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.safetensors"
    operator.save(path)
    before = path.read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("lno.operator_file.save_file", full)
    with pytest.raises(OSError, match=r"cannot write .*a\.safetensors: No space left"):
        operator.save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.gpu
def test_training_on_a_gpu_predicts_like_on_the_cpu(line_fields: Fields, tmp_path: Path) -> None:
    op = Operator.fit(line_fields, epochs=5, config=SMALL, device="cuda", progress=False)
    op.save(tmp_path / "a.safetensors")
    on_cpu = Operator.load(tmp_path / "a.safetensors", device="cpu")
    np.testing.assert_allclose(
        op.predict(line_fields), on_cpu.predict(line_fields), rtol=1e-3, atol=1e-4
    )
    x = torch.as_tensor(line_fields.x).cuda()
    assert op.predict(x, torch.as_tensor(line_fields.u).cuda()).device.type == "cuda"
