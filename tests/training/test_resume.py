"""A run that was paused or killed and then resumed ends bit-for-bit like one that never was."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from small_runs import EVERYTHING, SMALL, fit, lines, weights

from lno import Completion, Fields, Operator, RandomRatio
from lno.files import UNSEALED, owning, seal
from lno.training import budget, state
from lno.training.device import SHARED, SHARING
from lno.training.run import stop_signals
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


def test_a_run_that_shared_its_device_says_so_when_it_goes_on_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {"recipe": EVERYTHING, "folder": tmp_path}
    monkeypatch.setenv(SHARING, "1")
    fit(lines(), pause_after=1e-9, **keys)
    monkeypatch.delenv(SHARING)
    last = fit(lines(), resume=True, **keys)
    assert last.provenance["hardware"].endswith(f", {SHARED}")


def test_a_checkpoint_that_does_not_say_whether_others_ran_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {"recipe": EVERYTHING, "folder": tmp_path}
    with monkeypatch.context() as patch:
        patch.delitem(state.SAVED, "shared")
        fit(lines(), pause_after=1e-9, **keys)
    last = fit(lines(), resume=True, **keys)
    assert last.finished and SHARED not in last.provenance["hardware"]


def test_pausing_and_resuming_lno_plus_changes_no_bit(tmp_path: Path) -> None:
    config = {"width": 16, "latents": 8, "rounds": 2}
    keys = {"recipe": EVERYTHING, "model": "lno_plus", "config": config}
    for k in range(3):
        fit(lines(), folder=tmp_path, pause_after=1e-9, resume=k > 0, **keys)
    last = fit(lines(), folder=tmp_path, resume=True, **keys)
    assert torch.equal(weights(last), weights(fit(lines(), **keys)))


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
        sys.path[:0] = {[str(folder) for folder in Path(__file__).parents[:2]]!r}
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
    def shorten(record: dict, tensors: dict[str, torch.Tensor]) -> None:
        tensors["optimizer.first"] = tensors["optimizer.first"][:1]  # would be broadcast

    rewrite(path, shorten)


def rewrite(path: Path, change: Callable[[dict, dict[str, torch.Tensor]], object]) -> None:
    """Change the content of a checkpoint, with a digest that fits."""
    with safe_open(path, framework="pt") as file:
        record = json.loads(file.metadata()[METADATA_KEY])
    tensors = {name: t.clone() for name, t in load_file(path).items()}
    change(record, tensors)
    save_file(tensors, path, {METADATA_KEY: json.dumps({**record, "digest": UNSEALED})})
    seal(path)


def flip(share: float) -> Callable[[Path], None]:
    """Flip one bit, at a share of the way through the tensors."""

    def change(path: Path) -> None:
        content = bytearray(path.read_bytes())
        start = 8 + int.from_bytes(content[:8], "little")
        content[start + int(share * (len(content) - start))] ^= 64
        path.write_bytes(content)

    return change


def replaced(old: bytes, new: bytes) -> Callable[[Path], None]:
    """Replace some bytes of the metadata by as many others."""

    def change(path: Path) -> None:
        content = path.read_bytes()
        assert old in content
        path.write_bytes(content.replace(old, new, 1))

    return change


def recorded(**values: object) -> Callable[[Path], None]:
    return lambda path: rewrite(path, lambda record, tensors: record.update(values))


def tensor(name: str, change: Callable[[torch.Tensor], object]) -> Callable[[Path], None]:
    return lambda path: rewrite(path, lambda record, tensors: change(tensors[name]))


POINT = {"step": 1, "seconds": 0.1, "losses": [0.5], "errors": [0.5]}
DAMAGES = {
    "cut": cut,
    "without metadata": without_metadata,
    "without a tensor": without_a_tensor,
    **{f"bit at {share}": flip(share) for share in (0.0, 0.3, 0.6, 0.999)},
    "version": replaced(rb"\"version\": 3", rb"\"version\": 4"),
    "key": replaced(rb"\"version\"", rb"\"versiom\""),
    "step in the text": replaced(rb"\"step\": 2", rb"\"step\": 3"),
    "name": lambda path: path.rename(path.with_name("checkpoint-000000099.safetensors")),
    "step": recorded(step=-1),
    "huge step": recorded(step=10**15, total_steps=10**15),
    "past the end": recorded(total_steps=1),
    "no number": recorded(seconds="long"),
    "not finite": recorded(seconds=float("nan")),
    "compiled": recorded(compiled="yes"),
    "recent": recorded(recent=[[1.0, 2.0]]),
    "recent is no list": recorded(recent=7),
    "curve": recorded(curve=7),
    "curve key": recorded(curve=[{"step": 1}]),
    "curve members": recorded(curve=[{**POINT, "losses": [0.1, 0.2]}]),
    "curve steps": recorded(curve=[{**POINT, "step": 10**9}]),
    "deep": recorded(curve=json.loads("[" * 300 + "]" * 300)),
    "identity": recorded(identity=None),
    "weight": tensor("model.0.trunk.input.weight", lambda t: t.fill_(float("nan"))),
    "generator": tensor("generator.0", lambda t: t.fill_(255)),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_checkpoint_falls_back_to_the_one_before(
    paused: Path, whole: Operator, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    for path in paused.glob("checkpoint-*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    damage(max(tmp_path.glob("checkpoint-*")))
    newest = max(tmp_path.glob("checkpoint-*")).name
    with pytest.warns(UserWarning, match=f"{newest} is damaged and was passed over"):
        paused_again = fit(
            lines(), recipe=EVERYTHING, folder=tmp_path, resume=True, pause_after=1e-9
        )
    assert paused_again.provenance["steps"] == 2
    with safe_open(tmp_path / "checkpoint-000000002.safetensors", "pt") as file:
        again = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    with safe_open(paused / "checkpoint-000000002.safetensors", "pt") as file:
        assert all(torch.equal(again[name], file.get_tensor(name)) for name in again)


@pytest.fixture(scope="module")
def paused(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the checkpoints of steps 1 and 2."""
    folder = tmp_path_factory.mktemp("paused")
    for k in range(2):
        fit(lines(), recipe=EVERYTHING, folder=folder, pause_after=1e-9, resume=k > 0)
    return folder


def test_a_damaged_checkpoint_changes_nothing_in_the_end(
    paused: Path, whole: Operator, tmp_path: Path
) -> None:
    for path in paused.glob("checkpoint-*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    flip(0.5)(max(tmp_path.glob("checkpoint-*")))
    with pytest.warns(UserWarning, match="is damaged"):
        resumed = fit(lines(), recipe=EVERYTHING, folder=tmp_path, resume=True)
    assert torch.equal(weights(resumed), weights(whole))


@pytest.mark.parametrize("version", [None, 1, 4])
def test_a_checkpoint_of_another_version_says_so(
    paused: Path, tmp_path: Path, version: int | None
) -> None:
    path = max(paused.glob("checkpoint-*"))
    copy = tmp_path / path.name
    copy.write_bytes(path.read_bytes())
    if version is None:  # as before there were versions
        with safe_open(path, framework="pt") as file:
            record = json.loads(file.metadata()[METADATA_KEY])
        del record["version"], record["digest"]
        save_file(load_file(path), copy, {METADATA_KEY: json.dumps(record)})
    else:
        recorded(version=version)(copy)
    with pytest.raises(ValueError, match=f"format version {version or 1}, this lno reads"):
        fit(lines(), recipe=EVERYTHING, folder=tmp_path, resume=True)


# -- one owner, signals, a full disk ---------------------------------------------------------------


def test_a_second_run_in_the_folder_is_refused_and_touches_nothing(
    paused: Path, tmp_path: Path
) -> None:
    for path in paused.glob("checkpoint-*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    mine, done, ready = tmp_path / ".checkpoint-000000009.1.tmp", threading.Event(), []

    def owner() -> None:
        with owning(tmp_path):
            mine.touch()
            ready.append(True)
            done.wait(60)

    thread = threading.Thread(target=owner)
    thread.start()
    try:
        while not ready:
            time.sleep(0.001)
        before = {p: p.stat().st_mtime_ns for p in tmp_path.iterdir()}
        for resume in (True, False):
            who = rf"in use by process {os.getpid()} on .* since \d"
            with pytest.raises(BlockingIOError, match=who):
                fit(lines(), recipe=EVERYTHING, folder=tmp_path, resume=resume)
        assert {p: p.stat().st_mtime_ns for p in tmp_path.iterdir()} == before
    finally:
        done.set()
        thread.join()


def test_the_next_owner_cleans_up(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    left = [f".metrics.jsonl.{dead.pid}.tmp", ".tmpZCAh8X", f".checkpoint-1.{dead.pid}.tmp"]
    live = f".metrics.jsonl.{os.getppid()}.tmp"
    for name in (*left, live, ".lno.lock"):
        (tmp_path / name).touch()
    fit(lines(), epochs=1, folder=tmp_path, pause_after=1e-9)
    assert [p.name for p in tmp_path.glob(".*")] == [live]


def test_a_full_disk_is_a_clear_error_and_loses_nothing(
    whole: Operator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = state.save_file, iter(range(1000))

    def full(*arguments: object) -> None:
        if next(calls) == 4:
            raise SafetensorError("I/O error: No space left on device (os error 28)")
        real(*arguments)

    monkeypatch.setattr(state, "save_file", full)
    message = r"stopped at step \d+ of \d+: cannot write .*: No space left.* make room and resume"
    with pytest.raises(OSError, match=message):
        fit(lines(), recipe=EVERYTHING, folder=tmp_path)
    assert len(list(tmp_path.glob("checkpoint-*"))) == 2 and not list(tmp_path.glob(".*"))
    resumed = fit(lines(), recipe=EVERYTHING, folder=tmp_path, resume=True)
    assert torch.equal(weights(resumed), weights(whole)) and curve(resumed) == curve(whole)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_kept_and_the_second_ends_at_once(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), stop_signals() as stopped:
        assert not stopped()
        os.kill(os.getpid(), number)
        assert stopped()
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("not ended")
    assert signal.getsignal(number) is before


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
