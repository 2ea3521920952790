"""Training steps on a CPU beside other programs, by how long OpenMP threads wait actively.

    python benchmarks/busy_cpu.py [--threads 2]

A small LNO is trained with as many threads as there are cores, while other processes keep 0, 1 or
2 times as many cores busy: with the default of OpenMP, with what the `lno` command sets, and with
threads that sleep at once. Milliseconds of a step, the median of three processes taken in turn.
Takes some minutes; writes results/benchmarks/busy_cpu.json.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import torch

from lno.cli import SPIN_COUNT
from lno.data import Spec
from lno.files import write_json
from lno.models import LNO, LNOConfig

RESULT = Path(__file__).parents[1] / "results" / "benchmarks" / "busy_cpu.json"
SETTINGS = {
    "default": {},
    "lno": {"GOMP_SPINCOUNT": SPIN_COUNT},
    "passive": {"OMP_WAIT_POLICY": "passive"},
}
STEPS, REPEATS = 20, 3


def step_ms(threads: int) -> float:
    """Milliseconds of a training step in this process."""
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = LNO(Spec(2, 1, 1), LNOConfig(width=64, latents=64, blocks=2))
    optimizer = torch.optim.AdamW(model.parameters())
    x, u = torch.rand(4, 1024, 2), torch.rand(4, 1024, 1)
    for k in range(STEPS + 3):
        if k == 3:
            start = time.perf_counter()
        optimizer.zero_grad()
        model(x, u, x).square().mean().backward()
        optimizer.step()
    return 1000 * (time.perf_counter() - start) / STEPS


def measure(setting: str, threads: int) -> float:
    """The same in a process with other settings of OpenMP, which are read when torch is loaded."""
    plain = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "GOMP_"))}
    command = [sys.executable, __file__, "--step", "--threads", str(threads)]
    done = subprocess.run(
        command, env={**plain, **SETTINGS[setting]}, capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def keep_busy() -> None:
    while True:
        pass


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--step", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        print(step_ms(options.threads))
        return
    rows = []
    for others in (0, options.threads, 2 * options.threads):
        busy = [multiprocessing.Process(target=keep_busy, daemon=True) for _ in range(others)]
        for process in busy:
            process.start()
        times: dict[str, list[float]] = {setting: [] for setting in SETTINGS}
        for _ in range(REPEATS):
            for setting, each in times.items():
                each.append(measure(setting, options.threads))
        for process in busy:
            process.kill()
        row = {setting: statistics.median(each) for setting, each in times.items()}
        rows.append({"busy_processes": others, **row})
        shown = ", ".join(f"{setting} {ms:.0f} ms" for setting, ms in row.items())
        print(f"{others} other processes: {shown}", flush=True)
    write_json(RESULT, {"threads": options.threads, "rows": rows})


if __name__ == "__main__":
    main()
