"""Solving parts of a data set in several processes on a CPU, with the same results in order.

Each process has a pipe to its parent, gets the range of a part, and sends back the solved part. The
processes write no files and can be killed at any time. They leave Ctrl-C and SIGTERM to the parent,
and they end when it does, whatever ended it.
"""

from __future__ import annotations

import traceback
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch

from lno.problems.attempts import Part, generator, in_words, solve_part
from lno.problems.problem import Problem
from lno.processes import end_with_parent, how_it_ended, signals_kept_from_children, start

AHEAD = 4  # parts for each process that may be solved before an earlier one is finished


@dataclass
class Worker:
    """A process, and the number of the part that it is solving."""

    process: SpawnProcess
    pipe: Connection
    part: int | None = None

    def send(self, part: int, samples: range) -> None:
        """Have it solve a part."""
        self.part = part
        with suppress(OSError):  # it is dead, which `receive` reports
            self.pipe.send((samples.start, samples.stop))

    def receive(self, samples: range) -> Part | Exception:
        """What it made of its part, or the error that it raised, or that it died."""
        self.part = None
        try:
            return self.pipe.recv()
        except (EOFError, OSError):
            self.process.join()
            return _death(self.process, samples)


def solve_in_processes(
    problem: Problem, parts: Sequence[range], provenance: Mapping[str, Any], workers: int
) -> Generator[Part, None, None]:
    """Solve parts on the CPU, each in one thread of one of several processes.

    Parts come in order. If one fails, its error is raised after the parts before it have come.
    """
    _require_importable(problem)
    team: list[Worker] = []
    results: dict[int, Part | Exception] = {}
    given, failed = 0, False
    try:
        with signals_kept_from_children():
            while len(team) < min(workers, len(parts)):
                team.append(_start(problem, provenance))
        for due in range(len(parts)):
            while due not in results:
                for worker in team:
                    last = min(len(parts), due + AHEAD * len(team))
                    if worker.part is None and given < last and not failed:
                        worker.send(given, parts[given])
                        given += 1
                busy = {worker.pipe: worker for worker in team if worker.part is not None}
                for pipe in wait(list(busy)):
                    worker = busy[pipe]  # type: ignore[index]
                    part = worker.part
                    assert part is not None
                    results[part] = worker.receive(parts[part])
                    failed |= isinstance(results[part], Exception)
            result = results.pop(due)
            if isinstance(result, Exception):
                raise result
            yield result
    finally:
        for worker in team:
            worker.process.kill()
        for worker in team:
            worker.process.join()
            worker.pipe.close()


def _start(problem: Problem, provenance: Mapping[str, Any]) -> Worker:
    return Worker(*start(_work, problem, dict(provenance), name="lno worker", daemon=True))


def _work(pipe: Connection, problem: Problem, provenance: dict[str, Any]) -> None:
    """What a process does: solve one part after the other."""
    end_with_parent()
    torch.set_num_threads(1)
    device, seed = torch.device("cpu"), provenance["seed"]
    while True:
        try:
            start, stop = pipe.recv()
        except EOFError:
            return
        try:
            inputs = [problem.draw(generator(seed, k)) for k in range(start, stop)]
            result: Part | Exception = solve_part(problem, inputs, start, device, provenance)
        except Exception as error:
            result = _portable(error)
        pipe.send(result)


def _portable(error: Exception) -> Exception:
    """The error as text, which any process can read, with the traceback of this one."""
    known = type(error) in (ValueError, RuntimeError, MemoryError)
    text = f"{error}" if known else f"{type(error).__name__}: {error}"
    plain = type(error)(text) if known else RuntimeError(text)
    plain.add_note("In a worker process:\n" + "".join(traceback.format_exception(error)))
    return plain


def _death(process: SpawnProcess, samples: range) -> RuntimeError:
    if (process.exitcode or 0) < 0:
        advice = "The machine may have run out of memory: use fewer workers"
    else:
        advice = (
            "Its message is above. A script that uses workers needs `if __name__ == '__main__':`, "
            "and problems are defined in a module that can be imported"
        )
    return RuntimeError(
        f"a worker process {how_it_ended(process)} while it solved {in_words(samples)}. {advice}. "
        "Finished parts of a file are kept: run the same command again to continue."
    )


def _require_importable(problem: Problem) -> None:
    try:
        ForkingPickler.dumps(problem)
    except Exception as error:
        raise ValueError(
            f"workers: other processes cannot import {type(problem).__name__} ({error}). Define it "
            "at the top level of a module, or use one worker."
        ) from None
