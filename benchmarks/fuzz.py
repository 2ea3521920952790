"""Attack the library and count what happens.

    python benchmarks/fuzz.py [--only models …] [--count models=100 …] [--seconds N] [--case K]

Damaged and forged files, wrong arguments, killed processes, full disks, two writers at once. Every
attack depends on the seed and its number alone, and runs in a process with limits of time and
memory. Prints a table, writes results/benchmarks/fuzz.json, and fails if an outcome is a bad one.
`docs/reliability.md` explains what is promised. Needs Linux; about eight minutes on one core.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import torch
from fuzzing import SECTIONS
from fuzzing.engine import ALLOWANCE, GOOD, OUTCOMES, SECONDS, Result, run_section

from lno.files import write_json
from lno.training.device import hardware

RESULT = Path(__file__).parents[1] / "results" / "benchmarks" / "fuzz.json"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="*", choices=list(SECTIONS), default=list(SECTIONS))
    parser.add_argument("--seconds", type=float, default=float("inf"), help="start no case later")
    parser.add_argument("--count", nargs="*", default=[], help="N, or SECTION=N for these only")
    parser.add_argument("--case", type=int, help="this case alone, and what came of it")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    torch.set_num_threads(1)
    counts = dict(one.split("=") for one in options.count if "=" in one)
    only = list(counts) or options.only
    every = next((int(one) for one in options.count if "=" not in one), None)
    deadline = time.monotonic() + options.seconds
    rows = json.loads(options.out.read_text())["rows"] if options.out.exists() else []
    good = True
    for name in only:
        count = int(counts[name]) if name in counts else every
        with tempfile.TemporaryDirectory() as folder:
            result = run_section(
                SECTIONS[name], Path(folder), count, options.seed, deadline, options.case
            )
        show(result)
        good &= all(outcome in GOOD for outcome in result.counts)
        rows = [row for row in rows if row["name"] != name] + [result.row(options.seed)]
    if options.case is None:
        order = list(SECTIONS)
        content = {
            "rows": sorted(rows, key=lambda row: order.index(row["name"])),
            "seconds_limit": SECONDS,
            "memory_allowance_mb": ALLOWANCE >> 20,
            "hardware": hardware(torch.device("cpu")),
        }
        write_json(options.out, content)
    sys.exit(0 if good else 1)


def show(result: Result) -> None:
    counts = ", ".join(f"{result.counts[name]} {name}" for name in OUTCOMES if result.counts[name])
    print(f"{result.name}: {result.cases} cases in {result.seconds:.0f} s: {counts}", flush=True)
    for bad in result.bad:
        print("   {case} {kind}: {outcome}: {detail}".format(**bad), flush=True)


if __name__ == "__main__":
    main()
