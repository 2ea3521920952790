"""What training does: optimisers, moving averages, units, logs, signals, the command line."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from small_runs import EVERYTHING, SMALL, all_columns, fit, lines, weights

from lno import Fields, Operator, Recipe
from lno.training.optim import OPTIMIZERS


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimiser_lowers_the_loss(name: str) -> None:
    recipe = Recipe(epochs=12, optimizer=name, learning_rate=4e-3, schedule="cosine")
    curve = fit(lines(), recipe=recipe, validation=0.2).provenance["curve"]
    assert curve[-1]["error"] < 0.5 * curve[0]["error"]


def test_the_moving_average_makes_the_predictions() -> None:
    plain, average, still = (
        fit(lines(), recipe=Recipe(epochs=2, ema=ema)) for ema in (None, 0.99, 0.0)
    )
    assert not torch.equal(weights(average), weights(plain))
    torch.testing.assert_close(weights(still), weights(plain))  # an average of the last value only


def test_the_loss_in_physical_units_weighs_samples_by_their_size() -> None:
    """Relative errors around a large mean: standardised outputs hide it, physical units do not."""
    data = Fields(lines().x, lines().u, y=np.array(lines().y) + 100)
    standardised, physical = (
        fit(data, recipe=Recipe(epochs=1, physical=p)).provenance["curve"][0]["loss"]
        for p in (False, True)
    )
    assert physical < 0.05 < 0.5 < standardised


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_validation_measures_what_evaluate_measures(ragged: bool, weighted: bool) -> None:
    """In physical units, with background and parameters, and point weights where asked."""
    data = all_columns(ragged)
    train, held_out = data.split(12, 4)
    recipe = Recipe(epochs=1, weighted=weighted)
    operator = fit(train, recipe=recipe, validation=held_out)
    error = operator.provenance["curve"][-1]["error"]
    assert error == pytest.approx(operator.evaluate(held_out)["relative_l2"], rel=1e-5)
    other = Operator(**{**vars(operator), "weighted": not weighted})
    assert error != pytest.approx(other.evaluate(held_out)["relative_l2"], rel=1e-4)


def test_the_curve_in_tensorboard_is_that_of_the_run(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    keys = {"recipe": EVERYTHING, "folder": tmp_path}
    fit(lines(), tensorboard=True, pause_after=1e-9, **keys)
    whole = fit(lines(), tensorboard=True, resume=True, **keys)
    shown = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    curve = whole.provenance["curve"]
    for name, key in (("loss", "loss"), ("validation error", "error")):
        got = {e.step: e.value for e in shown.Scalars(name)}
        assert got == pytest.approx({row["step"]: row[key] for row in curve})


def test_tensorboard_needs_a_folder() -> None:
    with pytest.raises(ValueError, match="tensorboard needs the folder"):
        fit(lines(), epochs=1, tensorboard=True)


def test_runs_may_be_kept_from_any_thread(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(lambda: fit(lines(), epochs=1, folder=tmp_path))
        assert run.result().finished


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_save_the_run_and_say_how_to_resume(
    number: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from lno import cli

    if threading.current_thread() is not threading.main_thread():
        pytest.skip("only the main thread receives signals")
    u = np.random.default_rng(1).normal(size=(20, 12, 1))
    Fields(np.random.default_rng(0).uniform(size=(12, 2)), u, y=u**2).save(tmp_path / "data.h5")
    run = tmp_path / "run"
    command = ["lno", "train", str(tmp_path / "data.h5"), "--out", str(run)]
    monkeypatch.setattr("sys.argv", [*command, "--epochs", "400", "--device", "cpu"])

    def send() -> None:
        limit = time.monotonic() + 60
        while not (run / "metrics.jsonl").exists() and time.monotonic() < limit:
            time.sleep(0.01)
        os.kill(os.getpid(), number)

    sender = threading.Thread(target=send)
    sender.start()
    with pytest.raises(SystemExit) as left:
        cli.main()
    sender.join()
    said = capsys.readouterr()
    assert left.value.code == 130, said.err
    assert "stopped early" in said.out
    assert "--resume" in said.out
    assert list(run.glob("checkpoint-*"))
    assert Operator.load(run / "model.safetensors").finished is False


def test_the_small_preset_trains_pauses_resumes_and_evaluates_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from lno import cli
    from lno.problems import Darcy, Protocol

    monkeypatch.setenv("LNO_DATA", str(tmp_path / "cache"))
    monkeypatch.setitem(Darcy.protocols, "small", Protocol(24, 8, {"grid": 29, "every": 2}))

    def lno(*arguments: str) -> str:
        monkeypatch.setattr("sys.argv", ["lno", *arguments])
        with pytest.raises(SystemExit) as left:
            cli.main()
        assert left.value.code == 0, capsys.readouterr().err
        return capsys.readouterr().out

    run = ["train", "darcy", "--preset", "small", "--out", str(tmp_path / "run"), "--device", "cpu"]
    run += ["--epochs", "60"]
    assert "--resume" in lno(*run, "--pause-after", "0.01")
    finished = lno(*run, "--resume")
    assert "wrote" in finished
    rows = [json.loads(r) for r in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["error"] < 0.7 * rows[0]["error"]
    evaluated = lno("evaluate", str(tmp_path / "run" / "model.safetensors"), "--device", "cpu")
    assert evaluated.splitlines()[-1] == finished.splitlines()[-1]


def test_a_recipe_refuses_what_it_cannot_do() -> None:
    with pytest.raises(ValueError, match=r"Recipe\.learning_rate must be a number from"):
        Recipe(learning_rate=0.0)
    with pytest.raises(ValueError, match=r"Recipe\.weighted must be True or False, got 1"):
        Recipe(weighted=1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="Recipe has no key 'rate'"):
        fit(lines(), recipe={"rate": 1e-3}, config=SMALL)
