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


def file_run(
    results: Path, spec: RunSpec, errors: dict[str, float], seed: int = 0, **more: Any
) -> None:
    """A run of a spec with these errors, by test set, as fractions."""
    names = ("relative_l2", "relative_mae", "mse")
    kinds = {"completer": "completion", "propagator": "propagation"}
    values = {
        "problem": spec.problem,
        "model": spec.model,
        "recipe": spec.setup,
        "protocol": spec.protocol,
        "seed": seed,
        "epochs": spec.epochs or 0,
        "steps": 10,
        "task": {"kind": kinds.get(spec.recipe.removeprefix("our-").split("-")[0], "steady")},
        "hardware": "a GPU",
        "seconds": 30.0,
        "parameters": 5,
        "data_hash": "",
        "config": {},
        "metrics": {key: dict.fromkeys(names, error) for key, error in errors.items()},
        "precision": spec.precision,
    }
    Run(**{**values, **more}).save(results, spec.name(seed))
