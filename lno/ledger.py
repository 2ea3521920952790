"""The ledger: every number that is shown anywhere comes from one of these files.

`results/<problem>/<model>/<name>.json` holds one run. Errors are fractions, not percent.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lno.config import from_dict, require_type, to_dict
from lno.files import read_json, write_json


@dataclass(frozen=True)
class Run:
    """One run: what was trained, on what, how, and what came out.

    Args:
        problem, model, recipe, protocol: names.
        seed, epochs, steps, members: numbers; epochs are fractional under a time budget.
        task: the task, as plain data.
        precision, hardware: what it was computed in and on.
        seconds: training time without compilation and evaluation, of all members together.
        compile_seconds: time spent compiling.
        peak_memory_gb: 1e9 bytes, beyond the resident data; None where it was not measured.
        parameters: weights of the model.
        data_hash: the digest of the training data.
        commit: the version of this package.
        config: the config of the model and the recipe, as plain data; "conditional" and
            "query_set" where predictions are made so.
        metrics: `{"test:ratio=0.01": {"relative_mae": 0.05}}`, errors by data set.
        curve: rows of step, seconds, loss, error.
        samples: the errors of each test sample, by data set, where they were kept.
        frames: of a rollout, the mean error of each frame.
    """

    problem: str
    model: str
    recipe: str
    protocol: str
    seed: int
    epochs: float
    steps: int
    task: dict[str, Any]
    hardware: str
    seconds: float
    parameters: int
    data_hash: str
    config: dict[str, Any]
    metrics: dict[str, dict[str, float]]
    members: int = 1
    precision: str = "fp32"
    compile_seconds: float = 0.0
    peak_memory_gb: float | None = None
    commit: str = ""
    curve: list[dict[str, Any]] = field(default_factory=list)
    samples: dict[str, list[float]] = field(default_factory=dict)
    frames: list[float] = field(default_factory=list)

    def save(self, results: str | Path, name: str) -> Path:
        """Write `results/<problem>/<model>/<name>.json`."""
        path = Path(results) / self.problem / self.model / f"{name}.json"
        write_json(path, to_dict(self))
        return path

    @staticmethod
    def load(path: str | Path) -> Run:
        """Read a file of `save`; whatever is wrong with it is a ValueError that names it."""
        content = read_json(path, "a run of the ledger")
        try:
            run = from_dict(Run, content)
            if run.members < 1:
                raise ValueError(f"members: expected at least 1, got {run.members}")
            if not run.metrics or not all(run.metrics.values()):
                raise ValueError(f"metrics: expected errors by data set, got {run.metrics}")
            for row in run.curve:
                for key in ("step", "seconds", "loss"):
                    require_type(f"curve: {key}", row.get(key), float)
                require_type("curve: error", row.get("error"), float | None)
            return run
        except ValueError as error:
            raise ValueError(f"{path} is not a run of the ledger: {error}") from error


def commit() -> str:
    """The commit of this package's source, marked where files were changed; empty if unknown.

    `$LNO_COMMIT` says it where the source is a copy without its history.
    """
    if "LNO_COMMIT" in os.environ:
        return os.environ["LNO_COMMIT"]
    try:
        _git("ls-files", "--error-unmatch", Path(__file__).name)  # else a repository around it
        return _git("describe", "--always", "--dirty", "--abbrev=12")
    except (OSError, subprocess.SubprocessError):
        return ""


def _git(*arguments: str) -> str:
    found = subprocess.run(
        ["git", *arguments],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=True,
        timeout=10,
    )
    return found.stdout.strip()
