"""Making data sets. Sample k of a seed is bit-for-bit the same, however it is made.

A problem draws the random input of a sample from (seed, index) alone, on the CPU. It solves any
number of inputs at once and gives each the same solution whatever the others are. So a data set can
be made in parts, by several processes or machines, continued after an interruption, and extended,
and it stays the same. What happens to samples that do not converge is in `lno.problems.attempts`.
"""

from __future__ import annotations

import glob
import hashlib
import json
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lno.config import require_count, to_dict
from lno.data import Fields
from lno.files import owning, remove
from lno.problems.attempts import ATTEMPTS, Part, generator, joined_provenance, solve_part
from lno.problems.problem import Problem
from lno.problems.workers import solve_in_processes

__all__ = ["generator", "identity", "make", "make_file", "sigterm_as_interrupt"]

SAVE_SECONDS = 20.0  # between two writes; a kill also loses the parts that are not finished
Progress = Callable[[int], None]


def make(
    problem: Problem,
    samples: int,
    seed: int = 0,
    device: str = "cpu",
    progress: Progress = lambda done: None,
    first: int = 0,
    workers: int = 1,
) -> Fields:
    """Draw and solve samples of a problem.

    Args:
        problem: with its physics and resolution.
        samples: how many.
        seed: of the data set.
        device: where to solve, "cpu" or "cuda". Solutions may differ in rounding between the two.
        progress: called with the number of samples that are done.
        first: the index of the first sample.
        workers: how many processes solve, on a CPU. Each of them uses one thread.

    The provenance has everything that the samples depend on, the index of the first one, and their
    digest. It lists samples that did not converge at first, see `lno.problems.attempts`.
    """
    wanted, parts, done = require_samples(samples, seed, first), [], 0
    with closing(_parts(problem, wanted, seed, device, workers)) as solved:
        for part in solved:
            parts.append(part)
            done += len(part)
            progress(done)
    return _whole(parts, wanted)


def make_file(
    problem: Problem,
    samples: int,
    out: str | Path,
    seed: int = 0,
    device: str = "cpu",
    progress: Progress = lambda done: None,
    first: int = 0,
    workers: int = 1,
) -> Fields:
    """Like `make`, into a file. Run again after an interruption, it continues.

    The file appears when it is complete. Finished parts are kept in a hidden folder beside it. The
    name of the folder has the hash of everything that the samples depend on and the index of the
    first one, so a run with other settings never continues it. Ctrl-C and SIGTERM save the parts
    that are finished up to the first one that is not, and raise KeyboardInterrupt; a second one
    stops that too. Errors save them too. A part has one sample or a few, see `_part_size`. While
    one process makes a file, another is refused with a `BlockingIOError`.
    """
    out, wanted = require_file_name(out), require_samples(samples, seed, first)
    which = identity(problem, seed, device) + (f"-{first}" if first else "")
    folder = out.with_name(f".{out.name}.{which}.parts")
    out.parent.mkdir(parents=True, exist_ok=True)
    with owning(out), sigterm_as_interrupt():
        kept = _finished(folder, first, problem.version)
        begin, saved = first + sum(map(len, kept)), time.monotonic()
        fresh: list[tuple[int, Fields]] = []  # parts that are not saved yet, and where they begin
        progress(min(begin - first, samples))

        def flush() -> None:
            # An interruption may come between any two of these lines: a part that is saved twice is
            # the same file.
            nonlocal fresh, saved
            if fresh:
                start, parts = fresh[0][0], [part for _, part in fresh]
                part = _whole(parts, range(start, start + sum(map(len, parts))))
                # Not compressed: that would take a third of the time of the fastest solvers.
                part.save(folder / f"{start:09d}.h5", compress=False)
                kept.append(part)
            fresh, saved = [], time.monotonic()

        try:
            left = range(begin, wanted.stop)
            with closing(_parts(problem, left, seed, device, workers)) as solved:
                for part in solved:
                    start = (
                        fresh[-1][0] + len(fresh[-1][1]) if fresh else first + sum(map(len, kept))
                    )
                    fresh.append((start, part))
                    progress(start + len(part) - first)
                    if time.monotonic() - saved > SAVE_SECONDS:
                        flush()
            whole = _whole([*kept, *(part for _, part in fresh)], wanted)
            whole.save(out)  # inside: if the disk is full, say, the samples are not solved again
        except BaseException:
            flush()
            raise
        for rest in out.parent.glob(f".{glob.escape(out.name)}.*.parts"):  # of other settings too
            remove(rest)
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
    """A short hash of everything that the samples depend on.

    Version 1 of a generator is left out, so that the cache finds files from before versions.
    """
    record = _provenance(problem, seed, device)
    if record["version"] == 1:
        del record["version"]
    settings = json.dumps(record, sort_keys=True)
    return hashlib.sha256(settings.encode()).hexdigest()[:12]


def _provenance(problem: Problem, seed: int, device: str) -> dict[str, Any]:
    kind = torch.device(device).type  # solutions are bit-for-bit equal on one kind of device only
    return {
        "problem": problem.name,
        "version": problem.version,
        "seed": seed,
        "parameters": to_dict(problem),
        "device": kind,
    }


def require_samples(samples: int, seed: int, first: int) -> range:
    """The indices of the samples; impossible numbers are errors."""
    require_count("samples", samples, 10**9)
    require_count("seed", seed, 2**32 - 1, least=0)
    require_count("first", first, 10**9 - samples, least=0)
    return range(first, first + samples)


def require_file_name(out: str | Path) -> Path:
    """The path to write; a folder is an error before the work, not after it."""
    if Path(out).is_dir():
        raise IsADirectoryError(
            f"cannot write {out}: expected the name of a file, got a folder. Choose a name in it, "
            f"like {Path(out) / 'data.h5'}, or another one."
        )
    return Path(out)


def _parts(
    problem: Problem, samples: range, seed: int, device: str, workers: int
) -> Generator[Fields, None, None]:
    """The samples in parts. One that has no solution is an error, after the samples before it."""
    require_count("workers", workers, 1024)
    provenance, where = _provenance(problem, seed, device), torch.device(device)
    if workers > 1 and where.type != "cpu":
        raise ValueError(
            f"workers: expected 1 on {where.type}, where one process solves many samples at once; "
            f"got {workers}. Leave it out, or solve on the CPU (--device cpu)."
        )
    step = _part_size(problem, where, workers)
    ranges = [samples[k : k + step] for k in range(0, len(samples), step)]
    if workers > 1:
        parts = solve_in_processes(problem, ranges, provenance, workers)
    else:
        parts = _solve_here(problem, ranges, where, provenance)
    with closing(parts):
        for part in parts:
            if part.fields is not None:
                yield part.fields
            if part.unconverged:
                raise RuntimeError(_not_converged(problem, part.unconverged))


def _part_size(problem: Problem, device: torch.device, workers: int) -> int:
    """How many samples a part has: few on a CPU, so that progress shows and little can be lost.

    One process solves several samples at once there, in threads, and the part ends with the slowest
    of them. With two for each thread, the others wait less.
    """
    if device.type == "cuda":
        return problem.batch
    threads = 1 if workers > 1 else torch.get_num_threads()
    return problem.cpu_batch * (2 * threads if threads > 1 else 1)


def _solve_here(
    problem: Problem, ranges: Sequence[range], device: torch.device, provenance: Mapping[str, Any]
) -> Generator[Part, None, None]:
    """Parts, solved by this process; the next one is drawn while one is solved."""
    with ThreadPoolExecutor() as pool:

        def draw(samples: range) -> list[Future[np.ndarray]]:
            return [pool.submit(problem.draw, generator(provenance["seed"], k)) for k in samples]

        try:
            pending = draw(ranges[0]) if ranges else []
            for samples, following in zip_longest(ranges, ranges[1:], fillvalue=range(0)):
                inputs = [future.result() for future in pending]
                pending = draw(following)
                yield solve_part(problem, inputs, samples.start, device, provenance)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _not_converged(problem: Problem, samples: Sequence[int]) -> str:
    which = f"sample{'s' * (len(samples) > 1)} {', '.join(map(str, samples))}"
    each = "each" if len(samples) > 1 else "it"
    return (
        f"{problem.title}: {which} did not converge, nor did any of {ATTEMPTS} other inputs that "
        f"were drawn for {each}. Change the settings: {problem}. Samples that were solved before "
        "are kept where a file is made."
    )


def _whole(parts: Sequence[Fields], samples: range) -> Fields:
    """Consecutive parts as one, cut to these samples, with what is known of all of them."""
    fields = Fields.concatenate(parts).subset(np.arange(len(samples)))
    record = joined_provenance([part.provenance for part in parts], samples)
    fields.provenance = {**record, "digest": fields.digest}
    return fields


def _finished(folder: Path, first: int, version: int) -> list[Fields]:
    """The parts that an earlier run has left: consecutive, from the first sample on."""
    parts: list[Fields] = []
    for path in sorted(folder.glob("*.h5")) if folder.exists() else []:
        try:
            part = Fields.load(path)
        except ValueError:
            break  # damaged: this part and those after it are made again
        if int(path.stem) != first + sum(map(len, parts)):
            break
        if part.provenance.get("version") != version:
            break  # from before generators had versions
        parts.append(part)
    return parts
