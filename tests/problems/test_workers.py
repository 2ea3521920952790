"""Several processes make the same data, and none outlives its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from toy_problems import Fragile, Stiff, Stopped, signal_at

from lno.data import Fields
from lno.problems import Airfoil, Elasticity, Pipe, Plasticity, Problem, workers
from lno.problems import make as maker
from lno.problems.make import make, make_file


def children() -> set[int]:
    """The processes that this one has started, but for Python's resource tracker."""
    found = set()
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            command = (path / "cmdline").read_text()
        except (OSError, ValueError):
            continue  # it has just ended
        if parent == os.getpid() and "resource_tracker" not in command:
            found.add(int(path.name))
    return found


def wait_until(true: Callable[[], object], seconds: float = 60) -> None:
    limit = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < limit, "nothing happened"
        time.sleep(0.01)


def test_several_processes_make_the_same_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after SIGTERM, and continued with another number of processes."""
    monkeypatch.setattr(maker, "SAVE_SECONDS", 0.0)
    whole, before = make(Stiff(), 50, seed=1, first=7), children()
    with pytest.raises(KeyboardInterrupt):
        progress = signal_at(20, signal.SIGTERM)
        make_file(Stiff(), 50, tmp_path / "a.h5", 1, "cpu", progress, first=7, workers=2)
    assert children() == before
    reported: list[int] = []
    made = make_file(Stiff(), 50, tmp_path / "a.h5", 1, "cpu", reported.append, 7, workers=3)
    assert reported == [20, *range(24, 50, 4), 50]
    assert made.digest == whole.digest == Fields.load(tmp_path / "a.h5").digest
    assert made.provenance == whole.provenance
    assert children() == before
    assert list(tmp_path.iterdir()) == [tmp_path / "a.h5"]


@pytest.mark.parametrize("problem", [Airfoil(), Elasticity(), Pipe(), Plasticity()])
def test_all_workers_have_work(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where there are few samples: the solvers take seconds for one."""
    team: list[Mock] = []

    def start(*_: object) -> Mock:
        team.append(Mock(part=None))
        return team[-1]

    monkeypatch.setattr(workers, "_start", start)
    monkeypatch.setattr(workers, "wait", Mock(side_effect=Stopped))
    with pytest.raises(Stopped):
        make(problem, 16, workers=8)
    assert len(team) == 8
    assert [worker.send.call_args.args for worker in team] == [
        (k, range(k, k + 1)) for k in range(8)
    ]


def test_parts_without_workers_have_samples_for_all_threads() -> None:
    sizes: list[int] = []
    for threads in (1, 2, 8):
        torch.set_num_threads(threads)
        done: list[int] = []
        make(Stiff(easy=2.0), 100, progress=done.append)
        sizes.append(done[0])
    assert sizes == [4, 16, 64]


@pytest.mark.parametrize(
    ("what", "kind", "message"),
    [
        (
            "die",
            RuntimeError,
            r"signal 9 \(SIGKILL\) while it solved samples 12 to 15. The machine",
        ),
        ("raise", RuntimeError, "ArithmeticError: no such luck"),
    ],
)
def test_a_failing_worker_is_an_error_that_loses_nothing_before_it(
    what: str, kind: type[Exception], message: str, tmp_path: Path
) -> None:
    before = children()
    with pytest.raises(kind, match=message):
        make_file(Fragile(what=what), 40, tmp_path / "a.h5", seed=3, workers=2)
    assert children() == before
    [part] = tmp_path.glob(".*.parts/*.h5")
    assert Fields.load(part).digest == make(Stiff(), 12, seed=3).digest


@pytest.mark.skipif(not Path("/proc").exists(), reason="needs /proc")
def test_workers_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    """Even one that is busy: the solver of sample 14 sleeps for ten minutes."""
    script = textwrap.dedent(f"""
        import sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from lno.problems import make
        from toy_problems import Fragile
        make.SAVE_SECONDS = 0.0
        problem = Fragile(what="sleep", folder={str(tmp_path)!r})
        make.make_file(problem, 40, {str(tmp_path / "a.h5")!r}, seed=3, workers=2)
    """)
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        wait_until(lambda: list(tmp_path.glob("*.pid")) and parts(tmp_path) >= 3)
        process.kill()
        process.wait(30)
    [worker] = tmp_path.glob("*.pid")
    wait_until(lambda: not Path("/proc", worker.stem).exists(), 30)
    assert parts(tmp_path) >= 3 and not (tmp_path / "a.h5").exists()


def parts(folder: Path) -> int:
    return len(list(folder.glob(".*.parts/*.h5")))


def test_what_workers_cannot_do_is_said_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"workers: expected 1 on cuda, .*--device cpu"):
        make(Stiff(), 2, device="cuda", workers=2)
    with pytest.raises(ValueError, match="workers must be a whole number from 1"):
        make(Stiff(), 2, workers=0)

    @dataclass(frozen=True)
    class Local(Stiff):
        pass

    with pytest.raises(ValueError, match="other processes cannot import Local"):
        make(Local(), 8, workers=2)
