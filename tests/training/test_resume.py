"""A run that was paused or killed and then resumed ends bit-for-bit like one that never was."""

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
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from small_runs import EVERYTHING, SMALL, fit, lines, weights

from lno import Completion, Fields, Operator, RandomRatio
from lno.training import budget
from lno.training.state import METADATA_KEY


@pytest.fixture(scope="module")
def whole() -> Operator:
    """The run that is never interrupted."""
    return fit(lines(), recipe=EVERYTHING)


def curve(operator: Operator) -> list[tuple[object, ...]]:
    return [
        tuple(row[k] for k in ("step", "loss", "error")) for row in operator.provenance["curve"]
    ]


def test_pausing_and_resuming_changes_no_bit(whole: Operator, tmp_path: Path) -> None:
    for k in range(4):
        paused = fit(lines(), recipe=EVERYTHING, folder=tmp_path, pause_after=1e-9, resume=k > 0)
        assert not paused.finished
    last = fit(lines(), recipe=EVERYTHING, folder=tmp_path, resume=True)
    assert last.finished
    assert torch.equal(weights(last), weights(whole))
    assert curve(last) == curve(whole)
    lines_ = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in lines_] == [step for step, *_ in curve(whole)]
    assert len(list(tmp_path.glob("checkpoint-*"))) == 2


def test_pausing_between_two_points_of_the_curve_does_not_move_it(tmp_path: Path) -> None:
    keys = {"epochs": 6}  # 54 steps, a point at every second
    expected = curve(fit(lines(), **keys))
    for k in range(5):
        fit(lines(), folder=tmp_path, pause_after=1e-9, resume=k > 0, **keys)
    (tmp_path / "metrics.jsonl").write_text('{"step": 3, "sec')  # as a killed process leaves it
    (tmp_path / f".checkpoint-000000004.safetensors.{2**30}.tmp").touch()  # of no process
    last = fit(lines(), folder=tmp_path, resume=True, **keys)
    assert curve(last) == expected
    rows = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(row)["step"] for row in rows] == [step for step, *_ in expected]
    assert not list(tmp_path.glob(".*"))


def test_a_budgeted_run_killed_at_a_random_step_resumes_bit_for_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = textwrap.dedent(f"""
        import sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from small_runs import EVERYTHING, fit, lines
        fit(lines(), recipe=EVERYTHING, folder={str(tmp_path / "run")!r}, minutes=0.05)
    """)
    with subprocess.Popen([sys.executable, "-c", script]) as process:
        limit = time.monotonic() + 60
        while not (tmp_path / "run" / "metrics.jsonl").exists() and time.monotonic() < limit:
            time.sleep(0.01)
        time.sleep(random.uniform(0, 0.5))
        os.kill(process.pid, signal.SIGKILL)
    assert process.returncode == -9
    with safe_open(max(tmp_path.glob("run/checkpoint-*")), framework="pt") as file:
        total = json.loads(file.metadata()[METADATA_KEY])["total_steps"]
    keys = {"recipe": EVERYTHING, "minutes": 0.05}
    resumed = fit(lines(), folder=tmp_path / "run", resume=True, **keys)
    assert resumed.provenance["steps"] == total
    monkeypatch.setattr(budget, "steps_within", lambda seconds, costs: total)
    assert torch.equal(weights(resumed), weights(fit(lines(), **keys)))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def without_metadata(path: Path) -> None:
    save_file(load_file(path), path, {METADATA_KEY: "[]"})


def without_a_tensor(path: Path) -> None:
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
    tensors = load_file(path)
    tensors["optimizer.first"] = tensors["optimizer.first"][:1]  # would be broadcast
    save_file(tensors, path, metadata)


@pytest.mark.parametrize("damage", [cut, without_metadata, without_a_tensor])
def test_a_damaged_checkpoint_falls_back_to_the_one_before(
    whole: Operator, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    keys = {"recipe": EVERYTHING, "folder": tmp_path}
    for k in range(2):
        fit(lines(), pause_after=1e-9, resume=k > 0, **keys)
    damage(max(tmp_path.glob("checkpoint-*")))
    assert torch.equal(weights(fit(lines(), resume=True, **keys)), weights(whole))


def test_another_run_is_never_resumed(whole: Operator, tmp_path: Path) -> None:
    keys = {"recipe": EVERYTHING, "folder": tmp_path}
    fit(lines(), pause_after=1e-9, **keys)

    def resume(data: Fields | None = None, **changes: object) -> None:
        fit(data or lines(), resume=True, **{**keys, **changes})

    learning_rate = r"recipe\.learning_rate was 0\.002 there and is 0\.5 now"
    with pytest.raises(ValueError, match=learning_rate):
        resume(recipe=replace(EVERYTHING, learning_rate=0.5))
    with pytest.raises(ValueError, match=r"config\.latents was 8 there and is 16 now"):
        resume(config={**SMALL, "latents": 16})
    with pytest.raises(ValueError, match="seed was 0 there and is 1 now"):
        resume(seed=1)
    with pytest.raises(ValueError, match="data was "):
        resume(Fields(lines().x, lines().u, y=np.asarray(lines().y) + 1))
    with pytest.raises(ValueError, match="initial weights was "):
        resume(init=whole, config=None)
    with pytest.raises(FileExistsError, match="already holds a run"):
        fit(lines(), **keys)
    with pytest.raises(FileNotFoundError, match="no intact checkpoint"):
        resume(folder=tmp_path / "empty")
    with pytest.raises(ValueError, match="resume needs the folder"):
        resume(folder=None)


def test_completion_resumes_with_the_same_draws(tmp_path: Path) -> None:
    x = np.random.default_rng(0).uniform(size=(40, 2))
    data = Fields(x, y=np.random.default_rng(1).normal(size=(10, 40, 1)))
    keys = {"task": Completion(RandomRatio(0.1, 0.5)), "epochs": 3}
    expected = fit(data, **keys)
    fit(data, folder=tmp_path, pause_after=1e-9, **keys)
    resumed = fit(data, folder=tmp_path, resume=True, **keys)
    assert torch.equal(weights(resumed), weights(expected))
