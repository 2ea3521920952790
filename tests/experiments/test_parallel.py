"""Several jobs at once: the same runs as one after the other, whatever happens to one of them."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from filed_runs import fake
from small_jobs import After, AfterFailing, Dying, Failing, Slow, save_data, tiny

from lno import cli
from lno.commands import reproduce
from lno.experiments import datasets, forward, parallel, plan, plus, scaling
from lno.experiments.parallel import Outcome, work_off_at_once
from lno.experiments.queue import Job, carry_out, work_off
from lno.experiments.runs import RunSpec
from lno.files import owning
from lno.ledger import Run
from lno.report.runs import timed
from lno.training.device import SHARED, SHARING, hardware, is_shared


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A data file; what is trained on it goes into a cache of the test."""
    monkeypatch.setenv("LNO_DATA", str(tmp_path / "cache"))
    return save_data(tmp_path / "fields.h5")


def without_times(run: Run) -> dict[str, Any]:
    """A run, without what depends on how fast it was."""
    known = asdict(run)
    for name in ("seconds", "compile_seconds", "hardware"):
        del known[name]
    for row in known["curve"]:
        del row["seconds"]
    return known


def same(a: Any, b: Any) -> bool:
    """Whether plain data agree, numbers up to rounding."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return a == (pytest.approx(b, rel=1e-4) if isinstance(b, float) else b)


def test_jobs_at_once_give_the_runs_of_one_after_the_other(
    data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [Job(tiny(data), (0, 1)), Job(tiny(data, 3, After), (0,)), Job(tiny(data, 4), (0,))]
    lines: list[str] = []
    at_once, alone = tmp_path / "at once", tmp_path / "alone"
    outcome = work_off_at_once(jobs, at_once, 2, device="cpu", say=lines.append)
    assert outcome == Outcome(done=True)
    first, after, other = map(str, jobs)
    began = {job: lines.index(f"started: {job}") for job in (first, after, other)}
    ended = {job: k for job in began for k, line in enumerate(lines) if f"done: {job}" in line}
    assert len(lines) == 6 and began[first] == 0 and began[other] == 1  # no progress bars
    assert ended[first] < began[after]  # which starts from it
    assert "relative L2" in lines[ended[first]] and "s of compiling" in lines[ended[first]]
    monkeypatch.setenv("LNO_DATA", str(tmp_path / "other cache"))
    assert work_off(jobs, alone, device="cpu")
    files = sorted(p.relative_to(at_once) for p in at_once.rglob("*.json"))
    assert len(files) == 4
    assert files == sorted(p.relative_to(alone) for p in alone.rglob("*.json"))
    for file in files:
        a, b = (Run.load(folder / file) for folder in (at_once, alone))
        assert same(without_times(a), without_times(b))
        assert SHARED in a.hardware and SHARED not in b.hardware


def test_a_job_that_fails_stops_no_other(data: str, tmp_path: Path) -> None:
    failing, dying = (Job(tiny(data, kind=kind), (0,)) for kind in (Failing, Dying))
    left_out, fine = Job(tiny(data, 3, AfterFailing), (0,)), Job(tiny(data), (0,))
    lines: list[str] = []
    outcome = work_off_at_once(
        [failing, left_out, dying, fine], tmp_path / "results", 2, device="cpu", say=lines.append
    )
    assert not outcome.done
    assert sorted(map(str, outcome.failed)) == sorted(map(str, (failing, dying, left_out)))
    assert fine.spec.path(tmp_path / "results", 0).exists()
    text = "\n".join(lines)
    assert f"failed: {failing}: RuntimeError: CUDA out of memory, says a test" in text
    assert f"failed: {dying}: its process was ended by signal 9 (SIGKILL)" in text
    assert f"left out: {left_out}: it starts from a run that failed" in text


def test_interrupted_jobs_are_saved_and_the_same_jobs_go_on(data: str, tmp_path: Path) -> None:
    jobs = [Job(tiny(data, epochs, Slow), (0,)) for epochs in (40, 41)]
    results, lines = tmp_path / "results", list[str]()
    folders = [job.spec.folder(job.seeds) for job in jobs]

    def saved() -> bool:
        return all(any(folder.glob("checkpoint-*")) for folder in folders)

    def interrupt() -> None:
        while not saved():
            time.sleep(0.1)
        os.kill(os.getpid(), signal.SIGTERM)

    waiter = threading.Thread(target=interrupt)
    waiter.start()
    with pytest.raises(KeyboardInterrupt):
        work_off_at_once(jobs, results, 2, device="cpu", say=lines.append)
    waiter.join()
    assert [line.split(":")[0] for line in lines] == ["started", "started", "paused", "paused"]
    assert saved() and not list(results.rglob("*.json"))
    assert work_off(jobs, results, device="cpu")
    for job in jobs:
        [run] = job.spec.runs(results, [0]).values()
        assert run.steps == job.spec.steps and run.curve[0]["step"] == 4
        assert SHARED in run.hardware  # although it did not share the device at its end


def test_when_the_time_is_over_nothing_starts_and_the_last_minutes_are_not_for_compiling(
    data: str, tmp_path: Path
) -> None:
    job, lines = Job(tiny(data), (0,)), list[str]()
    outcome = work_off_at_once(
        [job, job], tmp_path, 2, minutes=1e-12, device="cpu", say=lines.append
    )
    assert outcome == Outcome(done=False) and lines == []
    for minutes, started, in_time in ((1, 0, True), (1, 2, False), (9, 2, True), (-1, 0, False)):
        queue = parallel._Queue([], tmp_path, 2, time.time() + 60 * minutes, "cpu", lines.append)
        queue.started = started
        assert queue._in_time() == in_time


def test_a_job_asks_for_the_time_when_its_data_are_there(data: str, tmp_path: Path) -> None:
    job, results = Job(tiny(data), (0,)), tmp_path / "results"
    folder = job.spec.folder(job.seeds)
    assert carry_out(job, results, "cpu", lambda: 0.0) == (False, 0.0)
    assert not folder.exists()
    assert not carry_out(job, results, "cpu", lambda: 1e-9)[0]
    assert list(folder.glob("checkpoint-*")) and not results.exists()
    assert carry_out(job, results, "cpu", lambda: None)[0]
    assert job.spec.path(results, 0).exists()


def test_data_that_another_process_makes_are_waited_for(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = datasets.make_file
    calls, holding = [], threading.Event()

    def make(problem: Any, samples: int, path: Path, *more: Any) -> None:
        calls.append(path)
        with owning(path):
            holding.set()
            time.sleep(0.3)  # the other one comes while it is being made
            made(problem, samples, path, *more)

    monkeypatch.setattr(datasets, "make_file", make)
    found: list[Any] = []

    def read() -> None:
        found.append(datasets.dataset("darcy", device="cpu", show=False))

    other = threading.Thread(target=read)
    other.start()
    assert holding.wait(20)
    read()
    other.join()
    assert len(calls) == 1
    assert found[0][0].digest == found[1][0].digest


def test_the_command_starts_as_many_jobs_and_fails_if_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def work(jobs: list[Job], results: Path, at_once: int, **more: Any) -> Outcome:
        asked.append((at_once, more["minutes"]))
        return Outcome(False, (jobs[0],))

    monkeypatch.setenv("LNO_DATA", str(tmp_path))
    monkeypatch.setattr(reproduce, "work_off_at_once", work)
    words = ["--results", str(tmp_path), "--minutes", "7", "--jobs", "3"]
    for name in ("all", "forward"):
        assert cli.run(["reproduce", name, *words]) == 1
        said = capsys.readouterr().err
        assert "error: 1 job failed: " in said and "the same command tries them again" in said
    assert asked == [(3, 7.0)] * 2
    assert cli.run(["reproduce", "all", "--jobs", "0"]) == 2
    assert "--jobs" in capsys.readouterr().err


def test_what_a_shared_device_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu = torch.device("cpu")
    assert not is_shared(cpu) and SHARED not in hardware(cpu)
    assert hardware(cpu, shared=True).endswith(", shared")
    monkeypatch.setenv(SHARING, "1")
    assert is_shared(cpu) and hardware(cpu).endswith(", shared")


def test_runs_that_shared_a_gpu_have_errors_and_no_times(tmp_path: Path) -> None:
    spec = RunSpec("darcy", "lno", "paper", 100, "tf32")
    ours = RunSpec("darcy", "lno_plus", "fast", 100, "mixed")
    wide = replace(spec, changes=(("width", 64),))
    for each in (spec, ours, wide):
        fake(tmp_path, each, [0.01], members=1, hardware="a GPU, shared")
    timeless = [
        forward.table([spec], range(2), tmp_path).rows[0][-1],
        plus.table([ours], range(2), tmp_path).rows[0][2],
        *(row[1] for row in scaling.width_table([spec, wide], range(2), tmp_path).rows),
    ]
    assert timeless == ["shared", "1.000 (shared)", "error, %", "GB", "million parameters"]
    for each in (spec, ours, wide):  # a second seed that was alone
        fake(tmp_path, each, [0.01, 0.03], members=1)
        fake(tmp_path, each, [0.01], members=1, hardware="a GPU, shared", seconds=300.0)
    assert forward.table([spec], range(2), tmp_path).rows[0][-1] == "30"
    assert plus.table([ours], range(2), tmp_path).rows[0][2] == "2.000 ± 1.414 (30 s)"
    times = scaling.width_table([spec, wide], range(2), tmp_path).rows[1]
    assert times[1] == "ms a step" and {*times[3:5]} == {"30.00"}
    assert plan.estimate(spec, 1, tmp_path) == pytest.approx(0.03 * spec.steps / 60)
    assert [run.seed for run in timed(list(spec.runs(tmp_path, range(2)).values()))] == [1]
