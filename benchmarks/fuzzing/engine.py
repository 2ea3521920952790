"""Running attacks in a worker process, with limits, and judging what comes out.

An attack makes a file (or something else that is wrong) and an action that uses it. The action runs
in a forked process. It ends in one of `OUTCOMES`.
"""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import multiprocessing
import resource
import shutil
import signal
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

SECONDS = 10  # that a case may take
GRACE = 2  # more, until the process is killed: native code does not see the alarm
ALLOWANCE = 64 << 20  # bytes of memory, besides twice what an honest file of that size needs
PER_BYTE = 8  # memory that an honest file needs for each byte that it has, text parsed included
ADDRESS_SPACE = (
    6 << 30
)  # more than the process had at its start: an attack must not stop the machine

SAME, WRITTEN, REFUSED = "same", "as written", "refused"
CHANGED, UNCLEAR, CRASH, HANG, MEMORY = "changed", "unclear", "crash", "hang", "memory"
HDF5 = "hang in HDF5"
OUTCOMES = {
    REFUSED: "an error that names the file and says why, in 20 characters or more",
    SAME: "bit-for-bit the values of the undamaged file, or the result of the undisturbed run",
    WRITTEN: "the changed file is a valid one (its digest fits, or it has none): loaded as it says",
    CHANGED: "loaded with other values, unnoticed",
    UNCLEAR: "another error",
    CRASH: "the process died",
    HANG: f"longer than {SECONDS} s",
    MEMORY: f"more than twice what an honest file of that size needs, plus {ALLOWANCE >> 20} MiB",
    HDF5: f"longer than {SECONDS} s inside the HDF5 library",
}
GOOD = {SAME, WRITTEN, REFUSED, HDF5}  # the last is not ours to mend
_INTERNAL = ("KeyError", "TypeError", "AttributeError", "IndexError", "RecursionError")


def names_the_file(error: BaseException, path: Path | None) -> bool:
    """Whether an error is one that a user understands: of the right kind, long enough, with names.

    Without a path, any error counts that our own code raised.
    """
    message = str(error)
    kinds = (
        (ValueError, OSError) if path is not None else (ValueError, OSError, TypeError, IndexError)
    )
    if not isinstance(error, kinds) or len(message) < 20:
        return False
    if any(name in message for name in _INTERNAL):
        return False
    if path is not None:
        return path.name in message
    if isinstance(error, OSError) and error.filename is not None:
        return True  # the system's own words, which name the file
    last = traceback.extract_tb(error.__traceback__)[-1]
    return "/lno/" in last.filename and (last.line or "").lstrip().startswith("raise")


@dataclass(frozen=True)
class Attack:
    """One attack.

    Args:
        name: what kind of attack it is.
        act: uses what is wrong; returns `SAME`, `WRITTEN` or `CHANGED`, or raises.
        path: the file; None where there is none.
        clear: whether an error is a clear one.
    """

    name: str
    act: Callable[[], str]
    path: Path | None = None
    clear: Callable[[BaseException, Path | None], bool] = names_the_file


Attacks = Callable[[int, np.random.Generator, Path], Attack]


@dataclass(frozen=True)
class Section:
    """Attacks on one kind of thing.

    Args:
        name: of the section.
        count: how many attacks are made unless something else is asked for.
        prepare: makes what is needed in a folder; runs in a process of its own, since PyTorch
            cannot train in a process whose parent has trained.
        open: called with that folder in the worker; gives the function that makes attack k.
    """

    name: str
    count: int
    prepare: Callable[[Path], None]
    open: Callable[[Path], Attacks]


@dataclass
class Result:
    """The outcomes of a section."""

    name: str
    counts: Counter[str] = field(default_factory=Counter)
    kinds: dict[str, Counter[str]] = field(default_factory=dict)
    bad: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def cases(self) -> int:
        """How many attacks were made."""
        return sum(self.counts.values())

    def row(self, seed: int) -> dict[str, Any]:
        """As plain data."""
        kinds = {name: dict(counts) for name, counts in sorted(self.kinds.items())}
        return {
            "name": self.name,
            "cases": self.cases,
            "outcomes": {name: self.counts[name] for name in OUTCOMES},
            "kinds": kinds,
            "bad": self.bad[:20],
            "seed": seed,
            "seconds": round(self.seconds, 1),
        }


def run_section(
    section: Section,
    folder: Path,
    count: int | None = None,
    seed: int = 0,
    deadline: float = float("inf"),
    only: int | None = None,
) -> Result:
    """Make the attacks of a section, in worker processes.

    Args:
        section: what to attack.
        folder: an empty one to work in.
        count: how many attacks; None: as many as the section has.
        seed: attack k depends on the seed and k alone.
        deadline: of `time.monotonic()`, after which no attack begins.
        only: make this attack only.
    """
    start, result = time.monotonic(), Result(section.name)
    count = section.count if count is None else count
    fork = multiprocessing.get_context("fork")
    base, work = folder / "base", folder / "work"
    base.mkdir(parents=True)
    preparing = fork.Process(target=section.prepare, args=(base,))
    preparing.start()
    preparing.join()
    if preparing.exitcode != 0:
        raise RuntimeError(f"cannot prepare the attacks on {section.name}")
    worker: _Worker | None = None
    for k in range(count) if only is None else [only]:
        if time.monotonic() > deadline:
            break
        if worker is None:
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir()
            worker = _Worker(fork, section, base, work, seed)
        name, outcome, detail, lost = worker.attack(k)
        result.counts[outcome] += 1
        result.kinds.setdefault(name.partition(": ")[0], Counter())[outcome] += 1
        if outcome not in GOOD or outcome == HDF5:
            result.bad.append({"case": k, "kind": name, "outcome": outcome, "detail": detail})
        if lost:
            worker = None
    if worker is not None:
        worker.end()
    result.seconds = time.monotonic() - start
    return result


class _Worker:
    """A process that makes attacks one after the other."""

    def __init__(self, fork: Any, section: Section, base: Path, work: Path, seed: int) -> None:
        self.ours, theirs = fork.Pipe()
        self.trace = work.with_name("trace.txt")
        arguments = (theirs, section, base, work, seed, self.trace)
        self.process = fork.Process(target=_serve, args=arguments)
        self.process.start()
        theirs.close()
        assert self._receive(300)[0] == "ready"

    def _receive(self, seconds: float) -> Any:
        if not self.ours.poll(seconds):
            return None
        try:
            return self.ours.recv()
        except EOFError:
            return ()

    def attack(self, k: int) -> tuple[str, str, str, bool]:
        """Kind, outcome and details of attack k, and whether the worker is lost."""
        self.ours.send(k)
        found = self._receive(300)
        name = found[0] if found else "?"
        if found:
            found = self._receive(SECONDS + GRACE)
        if found:
            return name, *found, False
        self.process.kill() if found is None else None
        self.process.join()
        if found == ():
            return name, CRASH, f"exit code {self.process.exitcode}", True
        where = self.trace.read_text() if self.trace.exists() else ""
        frames = [line for line in where.splitlines() if "File " in line]
        top = frames[0] if frames else ""
        ours = ("/lno/data/store.py", "/lno/data/imports/hdf5.py")  # that call HDF5
        inside = "h5py" in top or "h5netcdf" in top or any(name in top for name in ours)
        short = [frame.split("/")[-1].replace('"', "") for frame in frames[:4]]
        return name, HDF5 if inside else HANG, ", called from ".join(short), True

    def end(self) -> None:
        """Tell the process to end."""
        self.ours.send(None)
        self.process.join()


class _OverTime(BaseException):
    """An action took too long."""


def _ring(number: int, frame: FrameType | None) -> None:
    raise _OverTime


def _serve(
    pipe: Connection, section: Section, base: Path, work: Path, seed: int, trace: Path
) -> None:
    """The worker: attacks as their numbers come."""
    space = int(_status("VmSize")) + ADDRESS_SPACE
    resource.setrlimit(resource.RLIMIT_AS, (space, space))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGALRM, _ring)
    attacks = section.open(base)
    gc.freeze()  # what is imported need not be looked through again
    pipe.send(("ready",))
    while (k := pipe.recv()) is not None:
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        attack = attacks(k, np.random.default_rng([seed, k]), work)
        pipe.send((attack.name,))
        with trace.open("w") as file:
            faulthandler.dump_traceback_later(SECONDS + GRACE / 2, file=file)
            outcome = judge(attack)
            faulthandler.cancel_dump_traceback_later()
        pipe.send(outcome)


def judge(attack: Attack) -> tuple[str, str]:
    """The outcome of an attack, and details."""
    size = attack.path.stat().st_size if attack.path is not None and attack.path.is_file() else 0
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # memory that is free already would hide growth
    before, detail = _reset_peak(), ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            signal.setitimer(signal.ITIMER_REAL, SECONDS)
            try:
                outcome = attack.act()
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
    except _OverTime:
        outcome = HANG
    except MemoryError as error:
        outcome, detail = MEMORY, f"MemoryError: {error}"
    except Exception as error:
        detail = f"{type(error).__name__}: {error}"[:600]
        outcome = REFUSED if attack.clear(error, attack.path) else UNCLEAR
        if outcome == UNCLEAR:
            where = traceback.extract_tb(error.__traceback__)[-1]
            detail += f" [{Path(where.filename).name}, line {where.lineno}]"
    growth = _status("VmHWM") - before
    if growth > 2 * PER_BYTE * size + ALLOWANCE:
        outcome, detail = MEMORY, f"{growth:,} bytes for a file of {size:,}; {outcome}: {detail}"
    return outcome, detail


def _reset_peak() -> int:
    """Reset the peak memory of this process, and return what it uses."""
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmHWM")


def _status(key: str) -> int:
    """A number of bytes that Linux knows of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) << 10
    raise OSError(f"/proc/self/status has no {key}: this harness needs Linux")
