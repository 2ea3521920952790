"""Training steps of two versions of this package, measured in turn on one GPU.

    git worktree add ../before COMMIT
    python benchmarks/two_versions.py ../before [CASE ...] [--at-once 16] [--rounds 3]

Each version is measured by its own benchmarks/training_step.py, in processes that import its own
`lno`: one for each case and precision. So many are compiled at the same time as --at-once says
(default: as many as there are cores). Then they are measured one after the other, the two versions
in turn, --rounds times, and the median counts. The plain step is measured once, for both.

Writes two files like that of training_step.py whenever some cases are done, in results/benchmarks:
two_versions_before.json for the other version, two_versions_now.json for this one. Prints speeds as
ratios to plain, and whether this version is at least 0.95 of the other.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parents[1]
KINDS = ("tf32", "mixed")
MARK = "measured: "  # begins a line of a process that is meant for us


class Version:
    """A process that has compiled one kind of step of one version, and measures it when told to."""

    def __init__(self, folder: Path, case: str, kind: str) -> None:
        paths = [str(folder), str(folder / "benchmarks")]
        # One thread each: all processes compile at once.
        environment = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "1", "OMP_NUM_THREADS": "1"}
        environment["PYTHONPATH"] = os.pathsep.join(paths)
        words = [sys.executable, __file__, str(folder), case, "--kind", kind]
        self.name, self.found = f"{case} {kind} of {folder}", list[list[float]]()
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def wait(self) -> list[float]:
        """Milliseconds and GB that the process says next; nothing when it is ready."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(MARK):
                return json.loads(line.removeprefix(MARK))
        raise RuntimeError(f"its process ended with status {self.process.wait()}")

    def measure(self) -> bool:
        """Measure once more; False: the process has failed, and said why."""
        assert self.process.stdin is not None
        try:
            print(file=self.process.stdin, flush=True)
            self.found.append(self.wait())
        except (RuntimeError, BrokenPipeError) as error:
            print(f"{self.name}: {error}", file=sys.stderr, flush=True)
            return False
        return True

    def end(self) -> None:
        """End the process; its memory is free then."""
        self.process.kill()
        self.process.wait()


def serve(folder: Path, case: str, kind: str) -> None:
    """In a process: compile a step, and measure it for every line that comes in."""
    sys.path[0] = str(folder / "benchmarks")  # not this folder
    module: Any = import_module("training_step")
    lno = import_module("lno")
    assert Path(lno.__file__).is_relative_to(folder), f"lno is {lno.__file__}"
    original, cuda = module.measure, module.torch.cuda

    def measure(step: Any, resident: int) -> tuple[float, float]:
        cuda.reset_peak_memory_stats()  # before the first step, which captures the graph
        for _ in range(3):
            step()
        cuda.synchronize()
        peak = (cuda.max_memory_allocated() - resident) / 1e9
        print(MARK + "[]", flush=True)
        for _ in sys.stdin:
            milliseconds, later = original(step, resident)
            print(MARK + json.dumps([milliseconds, max(peak, later)]), flush=True)
        return 0.0, 0.0

    module.measure = measure
    if kind == "plain":
        module.plain(module.CASES[case])
    else:
        module.ours(module.CASES[case], kind)


def measure_cases(folders: list[Path], cases: list[str], rounds: int) -> list[list[dict[str, Any]]]:
    """The rows of some cases, of each version; a case that fails is left out."""
    versions: dict[str, dict[tuple[Path, str], Version]] = {}
    try:
        for case in cases:
            kinds = [(folders[-1], "plain"), *((f, kind) for kind in KINDS for f in folders)]
            versions[case] = {(f, kind): Version(f, case, kind) for f, kind in kinds}
        done = [case for case, own in versions.items() if are_ready(list(own.values()))]
        if done:  # what is measured first has to wake up the GPU
            first = next(iter(versions[done[0]].values()))
            first.measure()
            first.found.clear()
        for k in range(rounds):
            for case in list(done):
                chosen = [v for (_, kind), v in versions[case].items() if kind != "plain" or k == 0]
                if not all(version.measure() for version in chosen):
                    done.remove(case)
    finally:
        for version in (v for own in versions.values() for v in own.values()):
            version.end()
    return [[row_of(case, folder, versions[case]) for case in done] for folder in folders]


def are_ready(versions: list[Version]) -> bool:
    """Wait until all processes have compiled their steps; False: one failed, and has said why.

    The others of its case then end: they would compile while another case is measured.
    """
    for version in versions:
        try:
            version.wait()
        except RuntimeError as error:
            print(f"{version.name}: {error}", file=sys.stderr, flush=True)
            for each in versions:
                each.end()
            return False
    return True


def row_of(case: str, folder: Path, versions: dict[tuple[Path, str], Version]) -> dict[str, Any]:
    """A row of the result of one version."""
    row: dict[str, Any] = {
        "case": case,
        "points": import_module("training_step").CASES[case].points,
    }
    for (own, kind), version in versions.items():
        if kind == "plain" or own == folder:
            times, memories = zip(*version.found, strict=True)
            row[f"{kind}_ms"], row[f"{kind}_gb"] = median(times), max(memories)
    return row


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path, help="of the other version")
    parser.add_argument("cases", nargs="*")
    parser.add_argument("--at-once", type=int, default=os.cpu_count() or 4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--results", type=Path, default=ROOT / "results" / "benchmarks")
    parser.add_argument("--kind", help=argparse.SUPPRESS)
    options = parser.parse_args()
    folder = options.folder.resolve()
    if options.kind:
        serve(folder, options.cases[0], options.kind)
        return
    start = time.monotonic()
    sys.path.insert(0, str(ROOT))
    module: Any = import_module("training_step")
    cases, found = options.cases or list(module.CASES), [list[dict[str, Any]](), []]
    if unknown := [case for case in cases if case not in module.CASES]:
        parser.error(f"no case {unknown[0]!r}: expected {', '.join(module.CASES)}")
    names = ("two_versions_before.json", "two_versions_now.json")
    size = max(1, options.at_once // (2 * len(KINDS)))  # plain steps are not compiled
    for first in range(0, len(cases), size):
        rows = measure_cases([folder, ROOT], cases[first : first + size], options.rounds)
        for name, own, new in zip(names, found, rows, strict=True):
            own += new
            if own:
                module.write(options.results / name, own)
        for row in rows[1]:
            print(module.describe(row), f"[{time.monotonic() - start:.0f} s]", flush=True)
    module.compare(found[1], found[0])


if __name__ == "__main__":
    main()
