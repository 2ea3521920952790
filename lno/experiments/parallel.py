"""Several jobs at once, each in a process of its own: some compile while others train.

A process says what became of its job through a pipe and is told through it to stop: then it saves
its run, as after Ctrl-C, which the processes themselves never see. What it leaves behind is what a
job alone leaves: a run in the ledger, or checkpoints from which the same command continues.
"""

from __future__ import annotations

import _thread
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import torch

from lno.experiments.queue import Job, Say, carry_out, say_what_waits
from lno.processes import end_with_parent, how_it_ended, signals_kept_from_children, start
from lno.training.device import SHARING
from lno.training.progress import hidden
from lno.training.run import stop_signals

START_MINUTES = 1.5  # from the start of a process to the first steps of a compiled run
POLL_SECONDS = 0.5  # between two looks at the clock and at signals
END_SECONDS = 20.0  # for a process to end after its last message
LONGEST_ERROR = 600  # characters
STOP = "stop"


@dataclass(frozen=True)
class Outcome:
    """What came of several jobs.

    Args:
        done: whether all of them are done.
        failed: those that ended with an error, or start from one that did.
    """

    done: bool
    failed: tuple[Job, ...] = ()


@dataclass
class Worker:
    """A job and its process."""

    job: Job
    process: SpawnProcess
    pipe: Connection
    began: float = field(default_factory=time.perf_counter)

    def receive(self) -> tuple[str, str]:
        """The next message of the process: its kind and a text."""
        try:
            return self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            return "failed", (
                f"its process {how_it_ended(self.process)}. If memory was short, run fewer jobs at "
                "once"
            )

    def stop(self) -> None:
        """Have the process save its run and end."""
        with suppress(OSError):  # it is dead, which `receive` reports
            self.pipe.send(STOP)

    def end(self) -> None:
        """Wait for the end of the process, which has nothing left to do."""
        self.process.join(END_SECONDS)
        self.process.kill()
        self.process.join()
        self.pipe.close()


def work_off_at_once(
    jobs: Sequence[Job],
    results: Path,
    at_once: int,
    *,
    minutes: float | None = None,
    device: str = "auto",
    say: Say = lambda line: None,
) -> Outcome:
    """Like `work_off`, for several jobs at once; one that fails does not stop the others.

    Args:
        jobs: what is missing. They start in this order, those that others start from first.
        results: the ledger.
        at_once: how many processes.
        minutes: after which nothing new starts, and what is running pauses: of wall-clock time.
        device: as in `Operator.fit`.
        say: called with a line when a job begins and when it ends, and with its warnings.
    """
    deadline = None if minutes is None else time.time() + 60 * minutes
    ready = [job for job in jobs if job.spec.waits_for(results) is None]
    queue = _Queue(ready, results, min(at_once, len(ready)), deadline, device, say)
    with stop_signals() as interrupted:
        try:
            queue.run(interrupted)
        finally:
            for worker in queue.running:
                worker.process.kill()
                worker.end()
    if interrupted():
        raise KeyboardInterrupt
    say_what_waits([job for job in jobs if job not in ready], len(jobs), results, say)
    return Outcome(len(queue.finished) == len(jobs), tuple(queue.failed))


class _Queue:
    """Jobs that wait, run, and are over."""

    def __init__(
        self,
        jobs: Sequence[Job],
        results: Path,
        at_once: int,
        deadline: float | None,
        device: str,
        say: Say,
    ) -> None:
        self.waiting, self.results, self.at_once = list(jobs), results, at_once
        self.deadline, self.device, self.say = deadline, device, say
        self.running: list[Worker] = []
        self.finished: list[Job] = []
        self.failed: list[Job] = []
        self.started = 0

    def run(self, interrupted: Callable[[], bool]) -> None:
        """Work until all is done, the time is over, or a signal comes."""
        stopping = False
        while True:
            if interrupted() and not stopping:
                stopping = True
                for worker in self.running:
                    worker.stop()
            while not stopping and self._start_next():
                pass
            if not self.running:
                return
            there = wait([worker.pipe for worker in self.running], POLL_SECONDS)
            for worker in [w for w in self.running if w.pipe in there]:
                self._receive(worker)

    def _start_next(self) -> bool:
        """Start the first job that may start, if any; returns whether it did."""
        if len(self.running) >= self.at_once or not self._in_time():
            return False
        for job in self.waiting:
            if any(self._starts_from(job, other) for other in self.failed):
                self.waiting.remove(job)
                self.failed.append(job)
                self.say(f"left out: {job}: it starts from a run that failed")
                return True
            before = self.waiting[: self.waiting.index(job)]
            if any(self._starts_from(job, other) for other in (*before, *self._jobs())):
                continue
            self.waiting.remove(job)
            cores = torch.get_num_threads()
            arguments = (job, self.results, self.device, self.deadline, self.at_once, cores)
            with signals_kept_from_children():
                made = start(_work, *arguments, name="lno job", daemon=False)
            self.running.append(Worker(job, *made))
            self.started += 1
            self.say(f"started: {job}")
            return True
        return False

    def _in_time(self) -> bool:
        # Jobs start in order as long as there is time to train at all, also those that will not be
        # done: a paused run loses nothing but its compilation, which is done on cores that others
        # leave idle. To look for shorter ones would gain little, since a plan has the cheapest
        # first, and would put off long required runs until all short optional ones are done. In the
        # last minutes a new run would only compile, and end after the time is over.
        if self.deadline is None:
            return True
        left = (self.deadline - time.time()) / 60
        return left > (0.0 if self.started < self.at_once else START_MINUTES)

    def _jobs(self) -> list[Job]:
        return [worker.job for worker in self.running]

    @staticmethod
    def _starts_from(job: Job, other: Job) -> bool:
        return other.spec in job.spec.needs() and not {*job.seeds}.isdisjoint(other.seeds)

    def _receive(self, worker: Worker) -> None:
        """Handle a message of a process."""
        job, (kind, text) = worker.job, worker.receive()
        if kind == "warning":
            self.say(f"warning: {job}: {text}")
            return
        self.running.remove(worker)
        worker.end()
        seconds = f"{time.perf_counter() - worker.began:.0f} s in all"
        if kind == "finished":
            self.finished.append(job)
            self.say(f"done: {job}: {outcome_of(job, self.results)}, {seconds}")
        elif kind == "paused":
            self.say(f"paused: {job}, {seconds}")
        else:
            self.failed.append(job)
            self.say(f"failed: {job}: {text}")


def outcome_of(job: Job, results: Path) -> str:
    """Errors of the runs of a job on the first test set, and how long training took."""
    runs = list(job.spec.runs(results, job.seeds).values())
    if not runs:
        return "trained"
    errors = [next(iter(run.metrics.values()))["relative_l2"] for run in runs]
    shown = ", ".join(f"{100 * error:.3f} %" for error in errors)
    first = runs[0]
    return (
        f"relative L2 {shown}, {first.seconds:.0f} s of training, "
        f"{first.compile_seconds:.0f} s of compiling"
    )


# -- in the process of a job -----------------------------------------------------------------------


def _work(
    pipe: Connection,
    job: Job,
    results: Path,
    device: str,
    deadline: float | None,
    at_once: int,
    cores: int,
) -> None:
    """Carry out one of `at_once` jobs, which share the cores, and say what became of it."""
    end_with_parent()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    if at_once > 1:
        os.environ[SHARING] = "1"
    threads = max(1, cores // at_once)
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", str(threads))
    torch.set_num_threads(threads)

    def minutes() -> float | None:
        return None if deadline is None else (deadline - time.time()) / 60

    shown: set[str] = set()

    def warn(message: Warning | str, *_: Any, **__: Any) -> None:
        if str(message) not in shown:
            shown.add(str(message))
            pipe.send(("warning", str(message)))

    text = ""
    try:
        threading.Thread(target=_listen, args=(pipe,), daemon=True).start()
        with hidden(), warnings.catch_warnings():
            warnings.showwarning = warn
            kind = "finished" if carry_out(job, results, device, minutes)[0] else "paused"
    except KeyboardInterrupt:
        kind = "paused"
    except Exception as error:
        words = " ".join(str(error).split())  # compilers explain themselves at length
        kind, text = "failed", f"{type(error).__name__}: {words[:LONGEST_ERROR]}"
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    pipe.send((kind, text))


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _listen(pipe: Connection) -> None:
    """Pass on that the process shall stop, as if it had been sent a signal."""
    with suppress(EOFError, OSError):
        while pipe.recv() == STOP:
            _thread.interrupt_main(signal.SIGTERM)
