"""Processes that are killed, run out of disk space, or get in each other's way.

Each does real work in a folder: trains a tiny operator, makes a small data set, or writes a file
again and again. It runs in a forked process.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np

from fuzzing import text
from fuzzing.checkpoints import weights
from fuzzing.engine import CHANGED, REFUSED, SAME, Attack, Attacks, Section
from fuzzing.models import fit, waves
from fuzzing.mutate import Random
from lno import Fields, Operator, Recipe
from lno.data.tables import write_csv
from lno.ledger import Run
from lno.problems import make
from lno.problems.darcy import Darcy

RECIPE = Recipe(epochs=25, batch=3, ema=0.9)
PROBLEM, SAMPLES = Darcy(grid=29, every=4), 12
WORK = ("training", "making", "saving")


@contextmanager
def small_parts() -> Iterator[None]:
    """Data are made sample by sample, and every sample is saved at once."""
    with (
        mock.patch.object(Darcy, "batch", 16),
        mock.patch.object(make, "SAVE_SECONDS", 0.0),
    ):
        yield


def train(folder: Path, seed: int = 0) -> None:
    """Train, or go on training, and write the model."""
    resume = any((folder / "run").glob("checkpoint-*.safetensors"))
    settings = {"recipe": RECIPE, "epochs": None, "seed": seed, "resume": resume}
    operator = fit(waves(), folder=folder / "run", **settings)
    np.save(folder / f"weights-{seed}.npy", weights(operator).numpy())


def make_data(folder: Path, seed: int = 0) -> None:
    """Make data, or go on making them."""
    with small_parts():
        make.make_file(PROBLEM, SAMPLES, folder / "data.h5", seed=3)


def save(folder: Path, seed: int, base: Path, times: int = 10) -> None:
    """Write files again and again, with one of two contents in turn."""
    operators = [Operator.load(base / f"{k}.safetensors", "cpu") for k in range(2)]
    data = [waves(6), waves(7)]
    for k in range(seed, seed + times):
        operators[k % 2].save(folder / "model.safetensors")
        data[k % 2].save(folder / "data.h5")


def prepare(folder: Path) -> None:
    """What the undisturbed processes give, and how long they take."""
    seconds = {}
    for seed in (0, 1):
        (folder / f"{seed}").mkdir()
        start = time.monotonic()
        train(folder / f"{seed}", seed)
        seconds["training"] = time.monotonic() - start
        fit(waves(), seed=seed).save(folder / f"{seed}.safetensors")
    for name, work in (("making", make_data), ("saving", partial(save, seed=0, base=folder))):
        start = time.monotonic()
        work(folder=folder)
        seconds[name] = time.monotonic() - start
    text.prepare_json(folder)
    (folder / "seconds.json").write_text(json.dumps(seconds))


@dataclass
class Child:
    """A forked process; its error, if any, is in a file."""

    process: int
    log: Path

    @classmethod
    def start(cls, work: Callable[[], None], log: Path) -> Child:
        """Begin the work."""
        process = os.fork()
        if process == 0:
            os.setpgid(0, 0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            code = 0
            try:
                work()
            except Exception as error:
                code = 1
                unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
                resource.setrlimit(resource.RLIMIT_FSIZE, (unlimited, unlimited))
                known = isinstance(error, OSError | ValueError)
                log.write_text(json.dumps([known, f"{type(error).__name__}: {error}"]))
            finally:
                os._exit(code)
        return cls(process, log)

    def kill(self) -> None:
        """End it at once, as `kill -9` does."""
        os.kill(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)

    def end(self) -> str | None:
        """Wait for its end; the message of its error, if it raised one."""
        try:
            _, status = os.waitpid(self.process, 0)
        except BaseException:
            os.kill(self.process, signal.SIGKILL)
            raise
        if os.waitstatus_to_exitcode(status) == 0:
            return None
        if not self.log.exists():
            raise RuntimeError(f"a process died: {os.waitstatus_to_exitcode(status)}")
        known, message = json.loads(self.log.read_text())
        if not known:
            raise RuntimeError(message)
        return message


class Bench:
    """The work, its folder, and what is right."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.seconds = json.loads((base / "seconds.json").read_text())
        self.weights = [np.load(base / f"{k}" / f"weights-{k}.npy") for k in range(2)]
        with small_parts():
            self.digest = self.made()
        self.models = [(base / f"{k}.safetensors").read_bytes() for k in range(2)]
        self.fields = [waves(6).digest, waves(7).digest]

    def made(self) -> str:
        """The digest of the data."""
        return make.make(PROBLEM, SAMPLES, seed=3).digest

    def work(self, kind: str, folder: Path, seed: int = 0) -> Callable[[], None]:
        """The work of a process."""
        if kind == "saving":
            return partial(save, folder, seed, self.base)
        return partial({"training": train, "making": make_data}[kind], folder, seed)

    def is_right(self, kind: str, folder: Path, seed: int = 0) -> bool:
        """Whether the result is that of undisturbed work, and nothing was left behind."""
        left = [path.name for path in folder.rglob(".*")]
        if left:
            raise RuntimeError(f"left behind: {left}")
        if kind == "training":
            return np.array_equal(np.load(folder / f"weights-{seed}.npy"), self.weights[seed])
        if kind == "making":
            return Fields.load(folder / "data.h5").digest == self.digest
        return self.is_whole(folder)

    def is_whole(self, folder: Path) -> bool:
        """Whether the files that are there have one of the two contents."""
        model, data = folder / "model.safetensors", folder / "data.h5"
        return (not model.exists() or model.read_bytes() in self.models) and (
            not data.exists() or Fields.load(data).digest in self.fields
        )


# -- kills -----------------------------------------------------------------------------------------


def kills(base: Path) -> Attacks:
    """A process is killed once or twice at random times; another one ends its work."""
    bench = Bench(base)

    def attack(k: int, random: Random, work: Path) -> Attack:
        kind = ("training", "training", "making", "saving")[k % 4]
        waits = random.uniform(0, 1.1 * bench.seconds[kind], int(random.integers(1, 3)))

        def act() -> str:
            for seconds in waits:
                child = Child.start(bench.work(kind, work), work / "error.json")
                time.sleep(seconds)
                child.kill()
                if kind == "saving" and not bench.is_whole(work):
                    return CHANGED
            error = Child.start(bench.work(kind, work), work / "error.json").end()
            if error:
                raise RuntimeError(error)
            return SAME if bench.is_right(kind, work) else CHANGED

        return Attack(kind, act)

    return attack


# -- full disk -------------------------------------------------------------------------------------


def disk(base: Path) -> Attacks:
    """No file may grow beyond a random size, as on a full disk; then there is room again."""
    bench = Bench(base)
    run, values = Run.load(base / "run.json"), np.random.default_rng(0).random((500, 3))

    def attack(k: int, random: Random, work: Path) -> Attack:
        kind = (*WORK, "ledger", "csv")[k % 5]
        most = {"making": 15_000, "ledger": 1500, "csv": 30_000}.get(kind, 30_000)
        limit = int(random.integers(0, most))

        def write() -> None:
            if kind == "ledger":
                run.save(work, "run")
            elif kind == "csv":
                write_csv(work / "a.csv", ["x", "y", "z"], values)
            else:
                bench.work(kind, work)()

        def limited() -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
            write()

        def act() -> str:
            error = Child.start(limited, work / "error.json").end()
            (work / "error.json").unlink(missing_ok=True)
            names = ("run", "data.h5", "model.safetensors", "a.csv", "weights-0.npy")
            if error and not ("rite" in error and any(name in error for name in names)):
                raise RuntimeError(error)
            if kind == "saving" and not bench.is_whole(work):
                return CHANGED
            if error:
                again = Child.start(write, work / "error.json").end()
                if again:
                    raise RuntimeError(again)
            right = kind in ("ledger", "csv") or bench.is_right(kind, work)
            if kind == "ledger":
                right = Run.load(work / run.problem / run.model / "run.json") == run
            return CHANGED if not right else (REFUSED if error else SAME)

        return Attack(kind, act)

    return attack


# -- two writers -----------------------------------------------------------------------------------


def writers(base: Path) -> Attacks:
    """Two processes want the same place; one has it, or one comes after the other."""
    bench = Bench(base)

    def attack(k: int, random: Random, work: Path) -> Attack:
        kind = WORK[k % 3]
        delay = float(random.uniform(0, 1.2 * bench.seconds[kind] * (k % 2)))

        def act() -> str:
            first = Child.start(bench.work(kind, work, 0), work / "error-0.json")
            time.sleep(delay)
            second = Child.start(bench.work(kind, work, 1), work / "error-1.json")
            errors = [first.end(), second.end()]
            for log in work.glob("error-*.json"):
                log.unlink()
            for error in errors:
                refusal = ("is in use by", "already holds a run", "cannot resume from")
                if error and not (any(r in error for r in refusal) and len(error) > 40):
                    raise RuntimeError(error)
            if all(errors):
                raise RuntimeError(f"both were refused: {errors}")
            done = [seed for seed, error in enumerate(errors) if error is None]
            if kind == "training" and len(done) > 1:
                return CHANGED  # one of them has another's run
            return SAME if all(bench.is_right(kind, work, seed) for seed in done) else CHANGED

        return Attack(kind, act)

    return attack


KILLS = Section("kills", 120, prepare, kills)
DISK = Section("disk", 50, prepare, disk)
WRITERS = Section("writers", 30, prepare, writers)
