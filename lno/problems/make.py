"""Making data sets: sample k of a seed is the same however it is made.

A problem is a frozen dataclass whose fields are its physics and resolution. Its `draw` makes the
random input of one sample from (seed, index) alone, on the CPU; `solve` takes any number of inputs
and gives each the same solution whatever its companions; `fields` gives both their meaning.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from lno.config import require_count, to_dict
from lno.data import Fields

SAVE_SECONDS = 20.0  # at most about this much work is lost when a run is killed
Progress = Callable[[int], None]


class Problem(Protocol):
    """What a problem offers to be made into data."""

    name: ClassVar[str]
    batch: ClassVar[int]  # how many samples a GPU solves at once

    def draw(self, random: np.random.Generator) -> np.ndarray:
        """The random input of one sample."""

    def solve(self, inputs: Tensor) -> Tensor:
        """Solutions of a batch of inputs."""

    def fields(
        self, inputs: np.ndarray, solutions: np.ndarray, provenance: dict[str, Any]
    ) -> Fields:
        """Inputs and solutions of samples as data."""


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
    """Draw and solve `samples` samples of `seed`, from number `first` on.

    `progress` hears how many are done.
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
    """Like `make`, into a file that appears when it is whole; a run that was cut off continues.

    What is finished so far waits in a hidden folder beside `out`, named after everything that
    decides the samples: other settings never continue it.
    """
    out = Path(out)
    folder = out.with_name(f".{out.name}.{identity(problem, seed, device)}.parts")
    kept = _finished(folder)
    done, saved = sum(map(len, kept)), time.monotonic()
    fresh: list[Fields] = []
    progress(min(done, samples))

    def flush() -> None:
        nonlocal fresh, saved
        if fresh:
            part = Fields.concatenate(fresh)
            part.save(folder / f"{done - len(part):09d}.h5")
            kept.append(part)
        fresh, saved = [], time.monotonic()

    try:
        for part in _parts(problem, done, samples, seed, device):
            fresh.append(part)
            done += len(part)
            progress(done)
            if time.monotonic() - saved > SAVE_SECONDS:
                flush()
    except KeyboardInterrupt:
        flush()
        raise
    whole = Fields.concatenate([*kept, *fresh]).subset(np.arange(samples))
    whole.save(out)
    shutil.rmtree(folder, ignore_errors=True)
    return whole


def identity(problem: Problem, seed: int, device: str) -> str:
    """A short name for everything that decides the bits of a sample."""
    decides = json.dumps(_provenance(problem, seed, device), sort_keys=True)
    return hashlib.sha256(decides.encode()).hexdigest()[:12]


def _provenance(problem: Problem, seed: int, device: str) -> dict[str, Any]:
    kind = torch.device(device).type  # solutions are equal to the bit on one kind of device only
    return {"problem": problem.name, "seed": seed, "parameters": to_dict(problem), "device": kind}


def _parts(problem: Problem, first: int, last: int, seed: int, device: str) -> Iterator[Fields]:
    """Samples first..last in parts; the next part is drawn on all cores while one is solved."""
    require_count("samples", last, 10**9)
    require_count("seed", seed, 2**32, least=0)
    provenance = _provenance(problem, seed, device)
    # A CPU solves few at a time: progress is seen, and little is lost when it is cut off.
    step = problem.batch if provenance["device"] == "cuda" else max(1, problem.batch // 16)

    with ThreadPoolExecutor() as pool:

        def draw(start: int) -> list[Future[np.ndarray]]:
            indices = range(start, min(start + step, last))
            return [pool.submit(problem.draw, generator(seed, k)) for k in indices]

        try:
            pending = draw(first)
            for start in range(first, last, step):
                inputs = np.stack([future.result() for future in pending])
                pending = draw(start + step)
                solved = problem.solve(torch.from_numpy(inputs).to(device)).cpu().numpy()
                yield problem.fields(inputs, solved, provenance)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _finished(folder: Path) -> list[Fields]:
    """The parts that an earlier run left: consecutive, from the first sample on."""
    parts: list[Fields] = []
    for path in sorted(folder.glob("*.h5")) if folder.exists() else []:
        try:
            part = Fields.load(path)
        except ValueError:
            break  # damaged: made anew, with what follows it
        if int(path.stem) != sum(map(len, parts)):
            break
        parts.append(part)
    return parts
