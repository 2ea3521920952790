"""The forward problems on a small scale, for tests: sizes, a spec, and how runs are made."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lno.experiments.plan import jobs_of_table
from lno.experiments.queue import work_off
from lno.experiments.runs import RunSpec
from lno.files import write_json
from lno.models import LNOConfig, TransolverConfig

LNO = LNOConfig(width=16, latents=8, blocks=1, heads=2, layers=1)
TRANSOLVER = TransolverConfig(width=16, layers=1, heads=2, slices=4, reference=3)
PAPER = RunSpec("darcy", "lno", "paper", 3, "fp32")


def train_missing(
    specs: Sequence[RunSpec], seeds: Sequence[int], results: Path, **options: Any
) -> bool:
    """Train the runs of specs that the ledger lacks; returns whether none is missing any more."""
    return work_off(jobs_of_table(specs, seeds, results), results, **options)


def write_costs(results: Path, *rows: tuple[str, str, int, float], hardware: str = "a GPU") -> None:
    """A table of costs with the milliseconds of a step by problem, model and batch."""
    made = [
        {
            "problem": problem,
            "model": model,
            "precision": "tf32",
            "batch": batch,
            "parameters": 5,
            "milliseconds_per_step": ms,
            "seconds_per_epoch": ms / 4,
            "peak_memory_gb": 0.5,
            "hardware": hardware,
        }
        for problem, model, batch, ms in rows
    ]
    write_json(results / "benchmarks" / "efficiency.json", {"rows": made})
