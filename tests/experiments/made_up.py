"""Runs that nobody made, for tests of what tables and figures say about a ledger."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lno.experiments.runs import RunSpec
from lno.ledger import Run


def fake(
    results: Path,
    spec: RunSpec,
    errors: Sequence[float],
    data_set: str = "test",
    error: str = "relative_l2",
    **more: Any,
) -> None:
    """Write runs of a spec, one for each error, from seed 0 on."""
    for seed, value in enumerate(errors):
        values = {
            "problem": spec.problem,
            "model": spec.model,
            "recipe": spec.setup,
            "protocol": "standard",
            "seed": seed,
            "epochs": spec.epochs or 50,
            "steps": 1000,
            "task": {"kind": "steady"},
            "hardware": "a GPU",
            "seconds": 30.0,
            "parameters": 2_000_000,
            "data_hash": "ab",
            "config": {},
            "metrics": {data_set: {error: value}},
            "members": 3,
            "precision": spec.precision,
            "peak_memory_gb": 1.5,
        }
        Run(**{**values, **more}).save(results, spec.name(seed))
