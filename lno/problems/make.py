"""Making data sets. Sample k of a seed is bit-for-bit the same, however it is made.

A problem draws the random input of a sample from (seed, index) alone, on the CPU. It solves any
number of inputs at once and gives each the same solution whatever the others are. So a data set can
be made in parts, continued after an interruption, and extended, and it stays the same.
"""

from __future__ import annotations

import glob
import hashlib
import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lno.config import require_count, to_dict
from lno.data import Fields
from lno.files import owning, remove
from lno.problems.problem import Problem

SAVE_SECONDS = 20.0  # about this much work is lost at most when a run is killed
Progress = Callable[[int], None]


def generator(seed: int, index: int) -> np.random.Generator:
    """The random numbers of sample `index` of data set `seed`."""
    return np.random.default_rng([seed, index])


def make(
    problem: Problem,
    samples: int,
    seed: int = 0,
    device: str = "cpu",
    progress: Progress = lambda done: None,
    first: int = 0,
) -> Fields:
    """Draw and solve samples of a problem.

    Args:
        problem: with its physics and resolution.
        samples: how many.
        seed: of the data set.
        device: where to solve, "cpu" or "cuda". Solutions may differ in rounding between the two.
        progress: called with the number of samples that are done.
        first: the number of the first sample.
    """
    parts = []
    for part in _parts(problem, first, first + samples, seed, device):
        parts.append(part)
        progress(sum(map(len, parts)))
    return Fields.concatenate(parts)


def make_file(
    problem: Problem,
    samples: int,
    out: str | Path,
    seed: int = 0,
    device: str = "cpu",
    progress: Progress = lambda done: None,
) -> Fields:
    """Like `make`, into a file. Run again after an interruption, it continues.

    The file appears when it is complete. Finished parts are kept in a hidden folder beside it. The
    name of the folder has the hash of everything that the samples depend on, so a run with other
    settings never continues it. Ctrl-C and SIGTERM save the samples that are solved and raise
    KeyboardInterrupt; a second one stops that too. While one process makes a file, another is
    refused with a `BlockingIOError`.
    """
    out = Path(out)
    folder = out.with_name(f".{out.name}.{identity(problem, seed, device)}.parts")
    out.parent.mkdir(parents=True, exist_ok=True)
    with owning(out), sigterm_as_interrupt():
        kept = _finished(folder)
        first, saved = sum(map(len, kept)), time.monotonic()
        fresh: list[tuple[int, Fields]] = []  # parts that are not saved yet, and where they begin
        progress(min(first, samples))

        def flush() -> None:
            # An interruption may come between any two of these lines: a part that is saved twice is
            # the same file.
            nonlocal fresh, saved
            if fresh:
                start, part = fresh[0][0], Fields.concatenate([part for _, part in fresh])
                part.save(folder / f"{start:09d}.h5")
                kept.append(part)
            fresh, saved = [], time.monotonic()

        try:
            for part in _parts(problem, first, samples, seed, device):
                start = fresh[-1][0] + len(fresh[-1][1]) if fresh else sum(map(len, kept))
                fresh.append((start, part))
                progress(start + len(part))
                if time.monotonic() - saved > SAVE_SECONDS:
                    flush()
        except KeyboardInterrupt:
            flush()
            raise
        parts = [*kept, *(part for _, part in fresh)]
        whole = Fields.concatenate(parts).subset(np.arange(samples))
        whole.save(out)
        for left in out.parent.glob(f".{glob.escape(out.name)}.*.parts"):  # of other settings too
            remove(left)
    return whole


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """While inside, SIGTERM raises KeyboardInterrupt, as Ctrl-C does; in the main thread only."""
    old = signal.getsignal(signal.SIGTERM)
    if threading.current_thread() is not threading.main_thread() or old is not signal.SIG_DFL:
        yield  # somebody else decides what SIGTERM means
        return

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, old)


def identity(problem: Problem, seed: int, device: str) -> str:
    """A short hash of everything that the samples depend on."""
    settings = json.dumps(_provenance(problem, seed, device), sort_keys=True)
    return hashlib.sha256(settings.encode()).hexdigest()[:12]


def _provenance(problem: Problem, seed: int, device: str) -> dict[str, Any]:
    kind = torch.device(device).type  # solutions are bit-for-bit equal on one kind of device only
    return {"problem": problem.name, "seed": seed, "parameters": to_dict(problem), "device": kind}


def _parts(problem: Problem, first: int, last: int, seed: int, device: str) -> Iterator[Fields]:
    """Samples first to last − 1 in parts; the next part is drawn while one is solved."""
    require_count("samples", last, 10**9)
    require_count("seed", seed, 2**32, least=0)
    provenance, where = _provenance(problem, seed, device), torch.device(device)
    # Small parts on a CPU, where solving takes longer: progress shows, and little work can be lost.
    step = problem.batch if where.type == "cuda" else max(1, problem.batch // 16)

    with ThreadPoolExecutor() as pool:

        def draw(start: int) -> list[Future[np.ndarray]]:
            indices = range(start, min(start + step, last))
            return [pool.submit(problem.draw, generator(seed, k)) for k in indices]

        try:
            pending = draw(first)
            for start in range(first, last, step):
                inputs = [future.result() for future in pending]
                pending = draw(start + step)
                yield problem.fields(inputs, problem.solve(inputs, where), provenance)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _finished(folder: Path) -> list[Fields]:
    """The parts that an earlier run has left: consecutive, from the first sample on."""
    parts: list[Fields] = []
    for path in sorted(folder.glob("*.h5")) if folder.exists() else []:
        try:
            part = Fields.load(path)
        except ValueError:
            break  # damaged: this part and those after it are made again
        if int(path.stem) != sum(map(len, parts)):
            break
        parts.append(part)
    return parts
