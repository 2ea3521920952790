"""Costs of training steps, measured in turn by processes that compile at the same time.

Compiling a step takes a minute, measuring it a second. So several processes build, compile and
capture their steps at once, and wait. Then they measure one after the other, and each has the GPU
for itself.
"""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import torch

from lno.experiments.efficiency import Key, cost, keep, measure_all, named
from lno.experiments.queue import Say
from lno.processes import end_with_parent, how_it_ended, signals_kept_from_children, start
from lno.training.step import first_line

MEASURING_SECONDS = 4.0  # of one cost, when its step is compiled


@dataclass
class Worker:
    """A process that measures one cost."""

    key: Key
    process: SpawnProcess
    pipe: Connection

    def receive(self, deadline: float) -> tuple[str, Any]:
        """What the process says next: "warning", "ready", "row" or "failed", and what it is."""
        left = deadline - time.monotonic()
        if not self.pipe.poll(None if left == math.inf else max(0.0, left)):
            return "late", "the time was over before it was compiled"
        try:
            return self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            return "failed", f"its process {how_it_ended(self.process)}; try fewer at once"

    def wait(self, deadline: float, say: Say) -> tuple[str, Any]:
        """Pass warnings on, and return what comes after them."""
        while (said := self.receive(deadline))[0] == "warning":
            say(f"warning: {named(self.key)}: {said[1]}")
        return said


def measure_at_once(
    results: Path,
    wanted: Sequence[Key],
    at_once: int,
    precision: str = "auto",
    device: str = "auto",
    *,
    minutes: float | None = None,
    say: Say = lambda line: None,
) -> bool:
    """Like `efficiency.measure_all`, with several processes that compile at the same time.

    Args:
        results: the ledger.
        wanted: what to measure, in this order.
        at_once: how many processes.
        precision: as in `Operator.fit`.
        device: as in `Operator.fit`.
        minutes: after which it stops; what was not compiled by then is left out.
        say: called with a line for each cost that is known or could not be measured.

    Returns:
        whether all could be measured.
    """
    if at_once == 1 and minutes is None:
        return measure_all(results, wanted, precision, device, say)
    deadline = time.monotonic() + (math.inf if minutes is None else 60 * minutes)
    left, complete, longest = list(wanted), True, 0.0
    while left:
        begun = time.monotonic()
        if begun + longest > deadline:
            say(f"stopped with {len(left)} left to measure; the same command continues")
            return False
        some, left = left[:at_once], left[at_once:]
        complete &= _round(results, some, precision, device, deadline, say)
        longest = max(longest, time.monotonic() - begun)
    return complete


def _round(
    results: Path, keys: Sequence[Key], precision: str, device: str, deadline: float, say: Say
) -> bool:
    """Prepare some costs at once, then measure them one after the other."""
    workers, complete = [], True
    threads = max(1, torch.get_num_threads() // len(keys))
    try:
        for key in keys:
            with signals_kept_from_children():
                made = start(_work, key, precision, device, threads, name="lno cost", daemon=False)
            workers.append(Worker(key, *made))
        until = deadline - MEASURING_SECONDS * len(workers)
        prepared = [(worker, worker.wait(until, say)) for worker in workers]
        for worker in [worker for worker, (kind, _) in prepared if kind == "late"]:
            worker.process.kill()
            worker.process.join()
        for worker, (kind, text) in prepared:  # all others are waiting, or at their end
            if kind == "ready":
                worker.pipe.send("measure")
                kind, text = worker.wait(math.inf, say)
            if kind == "row":
                keep(results, worker.key, text)
                say(f"{named(worker.key)}: {text['milliseconds_per_step']:.2f} ms a step")
            else:
                complete = False
                say(f"{named(worker.key)} could not be measured: {text}")
            worker.process.kill()  # it has nothing left to do, and its memory is free at once
            worker.process.join()
    finally:
        for worker in workers:
            worker.process.kill()
            worker.process.join()
            worker.pipe.close()
    return complete


def _work(pipe: Connection, key: Key, precision: str, device: str, threads: int) -> None:
    """Prepare a step, say so, and measure it when told to."""
    end_with_parent()
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", str(threads))
    torch.set_num_threads(threads)

    def ready() -> None:
        pipe.send(("ready", ""))
        pipe.recv()

    shown: set[str] = set()

    def warn(message: Warning | str, *_: Any, **__: Any) -> None:
        if str(message) not in shown:
            shown.add(str(message))
            pipe.send(("warning", first_line(message) if isinstance(message, Warning) else message))

    said: tuple[str, Any]
    with warnings.catch_warnings():
        warnings.showwarning = warn
        try:
            said = ("row", cost(*key, precision, device, ready))
        except Exception as error:  # out of memory, say
            said = ("failed", first_line(error))
    pipe.send(said)
