"""Runs that nobody trained, for tests of what is said about them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lno.experiments.runs import RunSpec
from lno.ledger import Run


def file_run(
    results: Path, spec: RunSpec, errors: dict[str, float], seed: int = 0, **more: Any
) -> None:
    """A run of a spec with these errors, by test set, as fractions."""
    names = ("relative_l2", "relative_mae", "mse")
    kinds = {"completer": "completion", "propagator": "propagation"}
    values = {
        "problem": spec.problem,
        "model": spec.model,
        "recipe": spec.recipe,
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
