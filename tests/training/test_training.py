from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import nn

from lno import Completion, Fields, Operator, RandomRatio, Recipe
from lno.training.optim import OPTIMIZERS
from lno.training.schedules import SCHEDULES
from lno.training.state import KEY

SMALL = {"width": 32, "latents": 8, "blocks": 1, "heads": 2, "layers": 1}
EVERYTHING = Recipe(
    epochs=4, batch=3, optimizer="muon", rate=2e-3, clip=1.0, ema=0.9, queries=10, decay_all=False
)


def weights(operator: Operator) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in operator.model.parameters()])


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("onecycle", {"pct_start": 0.2, "div_factor": 1e4, "final_div_factor": 1e4}),
        ("onecycle_torch", {}),
    ],
)
def test_onecycle_is_torchs_step_for_step(name: str, numbers: dict) -> None:
    parameter = nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.AdamW([parameter], betas=(0.9, 0.99))
    theirs = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-3, total_steps=97, **numbers)
    for step in range(97):
        pace = SCHEDULES[name](step, 97, 1)
        assert 1e-3 * pace.rate == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-9)
        assert pace.beta == pytest.approx(optimizer.param_groups[0]["betas"][0], rel=1e-9)
        optimizer.step()
        theirs.step()


def test_step_is_torchs_of_50_epochs_in_the_papers_500() -> None:
    """And the same shape in a run of any other length."""
    optimizer = torch.optim.AdamW([nn.Parameter(torch.zeros(1))], lr=1.0)
    theirs = torch.optim.lr_scheduler.StepLR(optimizer, step_size=50, gamma=0.7)
    for epoch in range(500):
        for step in range(3):
            rate = SCHEDULES["step"](3 * epoch + step, 1500, 500).rate
            assert rate == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-9)
        assert SCHEDULES["step"](epoch // 5, 100, 20).rate == rate
        optimizer.step()
        theirs.step()


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("steps", [1, 2, 5, 6, 100])
def test_schedules_are_sane_however_short_the_run(name: str, steps: int) -> None:
    rates = [SCHEDULES[name](k, steps, 1).rate for k in range(steps)]
    assert all(0 <= r <= 1 + 1e-12 for r in rates)
    assert max(rates) > 0


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimiser_lowers_the_loss(name: str, line_fields: Fields) -> None:
    recipe = Recipe(epochs=25, optimizer=name, rate=2e-3, schedule="cosine")
    operator = Operator.fit(
        line_fields, recipe=recipe, config=SMALL, validation=0.2, progress=False
    )
    curve = operator.provenance["curve"]
    assert curve[-1]["error"] < 0.5 * curve[0]["error"]


def test_a_running_mean_predicts_where_there_is_one(line_fields: Fields) -> None:
    plain = Operator.fit(line_fields, recipe=Recipe(epochs=2), config=SMALL, progress=False)
    mean = Operator.fit(
        line_fields, recipe=Recipe(epochs=2, ema=0.99), config=SMALL, progress=False
    )
    still = Operator.fit(
        line_fields, recipe=Recipe(epochs=2, ema=0.0), config=SMALL, progress=False
    )
    assert not torch.equal(weights(mean), weights(plain))
    torch.testing.assert_close(weights(still), weights(plain))  # a mean that forgets at once


def test_the_loss_in_physical_units_weighs_samples_by_their_size(line_fields: Fields) -> None:
    """Relative errors around a large mean: normalised outputs hide it, physical units do not."""
    y = np.array(line_fields.y) + 100
    data = Fields(line_fields.x, line_fields.u, y=y)
    losses = [
        Operator.fit(data, recipe=Recipe(epochs=1, physical=p), config=SMALL, progress=False)
        for p in (False, True)
    ]
    normalised, physical = (o.provenance["curve"][0]["loss"] for o in losses)
    assert physical < 0.05 < 0.5 < normalised


def test_the_curve_in_tensorboard_is_that_of_the_run(line_fields: Fields, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    keys = {"recipe": EVERYTHING, "config": SMALL, "progress": False, "folder": tmp_path}
    Operator.fit(line_fields, tensorboard=True, minutes=1e-9, **keys)
    whole = Operator.fit(line_fields, tensorboard=True, resume=True, **keys)
    shown = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    curve = whole.provenance["curve"]
    for name, key in (("loss", "loss"), ("validation error", "error")):
        got = {e.step: e.value for e in shown.Scalars(name)}
        assert got == pytest.approx({row["step"]: row[key] for row in curve})
    with pytest.raises(ValueError, match="tensorboard needs the folder"):
        Operator.fit(line_fields, tensorboard=True, **{**keys, "folder": None})


# -- resuming --------------------------------------------------------------------------------------


def test_stopping_and_resuming_gives_the_same_bits(line_fields: Fields, tmp_path: Path) -> None:
    def fit(**keys: object) -> Operator:
        return Operator.fit(
            line_fields,
            recipe=EVERYTHING,
            config=SMALL,
            progress=False,
            **keys,  # type: ignore[arg-type]
        )

    whole = fit()
    first = fit(folder=tmp_path, minutes=1e-9)
    assert not first.finished
    for _ in range(3):
        again = fit(folder=tmp_path, minutes=1e-9, resume=True)
        assert not again.finished
    last = fit(folder=tmp_path, resume=True)
    assert last.finished
    assert torch.equal(weights(last), weights(whole))
    a, b = (
        [{k: row[k] for k in ("step", "loss", "error")} for row in o.provenance["curve"]]
        for o in (whole, last)
    )
    assert a == b
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in lines] == [row["step"] for row in a]
    assert len(list(tmp_path.glob("checkpoint-*"))) == 2


def test_stopping_between_two_points_of_the_curve_does_not_move_it(
    line_fields: Fields, tmp_path: Path
) -> None:
    keys = {"epochs": 10, "config": SMALL, "progress": False}  # 90 steps, a point for every third

    def curve(operator: Operator) -> list[tuple[int, float]]:
        return [(row["step"], row["loss"]) for row in operator.provenance["curve"]]

    whole = Operator.fit(line_fields, **keys)
    for k in range(5):
        Operator.fit(line_fields, folder=tmp_path, minutes=1e-9, resume=k > 0, **keys)
    (tmp_path / "metrics.jsonl").write_text('{"step": 3, "sec')  # as a killed process leaves it
    (tmp_path / ".checkpoint-000000004.safetensors.1.tmp").touch()
    last = Operator.fit(line_fields, folder=tmp_path, resume=True, **keys)
    assert curve(last) == curve(whole)
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [step for step, _ in curve(whole)]
    assert not list(tmp_path.glob(".*"))


def test_runs_may_be_kept_from_any_thread(line_fields: Fields, tmp_path: Path) -> None:
    keys = {"epochs": 1, "config": SMALL, "progress": False, "folder": tmp_path}
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(lambda: Operator.fit(line_fields, **keys)).result().finished


def test_a_run_killed_at_a_random_step_resumes_with_the_same_bits(
    line_fields: Fields, tmp_path: Path
) -> None:
    line_fields.save(tmp_path / "data.h5")
    script = textwrap.dedent(f"""
        import sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from test_training import EVERYTHING, SMALL, replace
        from lno import Fields, Operator
        data = Fields.load({str(tmp_path / "data.h5")!r})
        Operator.fit(data, recipe=replace(EVERYTHING, epochs=40), config=SMALL,
                     folder={str(tmp_path / "run")!r}, progress=False)
    """)
    with subprocess.Popen([sys.executable, "-c", script]) as process:
        limit = time.monotonic() + 60
        while not list(tmp_path.glob("run/checkpoint-*")) and time.monotonic() < limit:
            time.sleep(0.01)
        time.sleep(random.uniform(0, 0.5))
        os.kill(process.pid, signal.SIGKILL)
    assert process.returncode == -9
    recipe = replace(EVERYTHING, epochs=40)
    keys = {"recipe": recipe, "config": SMALL, "progress": False}
    resumed = Operator.fit(line_fields, folder=tmp_path / "run", resume=True, **keys)
    assert torch.equal(weights(resumed), weights(Operator.fit(line_fields, **keys)))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def without_metadata(path: Path) -> None:
    save_file(load_file(path), path, {KEY: "[]"})


def without_a_tensor(path: Path) -> None:
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
    tensors = load_file(path)
    tensors["optimizer.first"] = tensors["optimizer.first"][:1]  # would be broadcast
    save_file(tensors, path, metadata)


@pytest.mark.parametrize("damage", [cut, without_metadata, without_a_tensor])
def test_a_damaged_checkpoint_falls_back_to_the_one_before(
    line_fields: Fields, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    keys = {"recipe": EVERYTHING, "config": SMALL, "progress": False, "folder": tmp_path}
    for k in range(2):
        Operator.fit(line_fields, minutes=1e-9, resume=k > 0, **keys)
    newest = max(tmp_path.glob("checkpoint-*"))
    damage(newest)
    resumed = Operator.fit(line_fields, resume=True, **keys)
    whole = Operator.fit(line_fields, **{**keys, "folder": None})
    assert torch.equal(weights(resumed), weights(whole))


def test_another_run_is_never_resumed(line_fields: Fields, tmp_path: Path) -> None:
    keys = {"recipe": EVERYTHING, "config": SMALL, "progress": False, "folder": tmp_path}
    Operator.fit(line_fields, minutes=1e-9, **keys)

    def resume(data: Fields = line_fields, **changes: object) -> None:
        Operator.fit(data, resume=True, **{**keys, **changes})

    with pytest.raises(ValueError, match=r"recipe\.rate was 0\.002 there and is 0\.5 now"):
        resume(recipe=replace(EVERYTHING, rate=0.5))
    with pytest.raises(ValueError, match=r"config\.latents was 8 there and is 16 now"):
        resume(config={**SMALL, "latents": 16})
    with pytest.raises(ValueError, match="seed was 0 there and is 1 now"):
        resume(seed=1)
    with pytest.raises(ValueError, match="data was "):
        resume(Fields(line_fields.x, line_fields.u, y=line_fields.y + 1))
    other = Operator.fit(line_fields, **{**keys, "folder": None, "seed": 5})
    with pytest.raises(ValueError, match="initial weights was "):
        resume(init=other, config=None)
    with pytest.raises(FileExistsError, match="holds a run already"):
        Operator.fit(line_fields, **keys)
    with pytest.raises(FileNotFoundError, match="no whole checkpoint"):
        resume(folder=tmp_path / "empty")
    with pytest.raises(ValueError, match="resume needs the folder"):
        resume(folder=None)


def test_completion_resumes_with_the_same_draws(tmp_path: Path) -> None:
    x = np.random.default_rng(0).uniform(size=(40, 2))
    data = Fields(x, y=np.random.default_rng(1).normal(size=(10, 40, 1)))
    keys = {
        "task": Completion(RandomRatio(0.1, 0.5)),
        "epochs": 3,
        "config": SMALL,
        "progress": False,
    }
    whole = Operator.fit(data, **keys)
    Operator.fit(data, folder=tmp_path, minutes=1e-9, **keys)
    resumed = Operator.fit(data, folder=tmp_path, resume=True, **keys)
    assert torch.equal(weights(resumed), weights(whole))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_save_the_run_and_say_how_to_go_on(number: int, tmp_path: Path) -> None:
    environment = {**os.environ, "LNO_DATA": str(tmp_path / "cache")}
    x = np.random.default_rng(0).uniform(size=(30, 2))
    u = np.random.default_rng(1).normal(size=(40, 30, 1))
    Fields(x, u, y=u**2).save(tmp_path / "data.h5")
    command = [sys.executable, "-m", "lno.cli", "train", str(tmp_path / "data.h5")]
    command += ["--out", str(tmp_path / "run"), "--epochs", "3000", "--device", "cpu"]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        limit = time.monotonic() + 60
        while not (tmp_path / "run" / "metrics.jsonl").exists() and time.monotonic() < limit:
            time.sleep(0.01)
        time.sleep(0.5)
        process.send_signal(number)
        said, complained = process.communicate(timeout=60)
    assert process.returncode == 130, complained
    assert "stopped early" in said
    assert "--resume" in said
    assert list((tmp_path / "run").glob("checkpoint-*"))
    assert Operator.load(tmp_path / "run" / "model.safetensors").finished is False


def test_the_small_preset_trains_stops_resumes_and_evaluates_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from lno import cli
    from lno.experiments import datasets

    monkeypatch.setenv("LNO_DATA", str(tmp_path / "cache"))
    tiny = datasets.Protocol(24, 8, {"grid": 29, "every": 2})
    monkeypatch.setitem(datasets.PROTOCOLS["small"], "darcy", tiny)

    def lno(*arguments: str) -> str:
        monkeypatch.setattr("sys.argv", ["lno", *arguments])
        with pytest.raises(SystemExit) as left:
            cli.main()
        assert left.value.code == 0, capsys.readouterr().err
        return capsys.readouterr().out

    run = ["train", "darcy", "--preset", "small", "--out", str(tmp_path / "run"), "--device", "cpu"]
    stopped = lno(*run, "--minutes", "0.05")
    assert "--resume" in stopped
    finished = lno(*run, "--epochs", "100", "--resume")
    assert "wrote" in finished
    rows = [json.loads(r) for r in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1]["error"] < 0.7 * rows[0]["error"]
    evaluated = lno("evaluate", str(tmp_path / "run" / "model.safetensors"), "--device", "cpu")
    assert evaluated.splitlines()[-1] == finished.splitlines()[-1]
