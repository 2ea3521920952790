"""The table at the top of the README: a few measurements, each with the command that repeats it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lno.experiments import efficiency
from lno.experiments.ablations import EPOCHS
from lno.experiments.evidence import errors_of
from lno.experiments.runs import RunSpec
from lno.files import read_json
from lno.ledger import Run
from lno.report.runs import model_name
from lno.report.tables import Table

RATIO = "0.01"  # of the points, that the quickstart is compared at


def table(results: Path) -> Table:
    """What was measured, and how to measure it again."""
    rows = [
        [
            f"Burgers' equation, {100 * float(RATIO):g} % of points observed",
            *_reconstruction(results),
        ],
        ["coverage of 90 % bounds", *_coverage(results)],
        ["training step of LNO, compared with plain PyTorch", *_step(results)],
        ["LNO compared with Transolver, Darcy flow", *_transolver(results)],
        ["zero-shot resolution, Darcy flow", *_finer(results)],
        ["peak memory of a prediction", *_memory(results)],
    ]
    return Table("Highlights", ["what", "measured", "command"], rows)


def _reconstruction(results: Path) -> tuple[str, str]:
    errors = []
    for model in ("lno", "kriging", "rbf"):
        run = Run.load(results / "burgers" / model / "quickstart.json")
        error = run.metrics[f"test:ratio={RATIO}"]["relative_mae"]
        errors.append(f"{model_name(model)} {100 * error:.1f} %")
    return f"relative MAE: {', '.join(errors)}", "`lno quickstart`"


def _coverage(results: Path) -> tuple[str, str]:
    found = _measured(results, "pretrained")
    shares = [100 * each["all"] for each in found["by_sensors"].values()]
    text = f"{min(shares):.0f} to {max(shares):.0f} % of the points, on held-out samples"
    return text, "`lno reproduce pretrained`"


def _step(results: Path) -> tuple[str, str]:
    found = _measured(results, "training_step")
    text = f"{found['geomean']['tf32']:.0f} times faster (geometric mean, {found['hardware']})"
    return text, "`python benchmarks/training_step.py`"


def _transolver(results: Path) -> tuple[str, str]:
    """The cost of an epoch, and the error after equally many."""
    by, pair = efficiency.as_printed(results), ("lno", "transolver")
    ours, theirs = (by["darcy", model] for model in pair)
    time, memory = (ours[key] / theirs[key] for key in ("seconds_per_epoch", "peak_memory_gb"))
    specs = [RunSpec("darcy", model, "paper", EPOCHS["darcy"], "tf32") for model in pair]
    a, b = (found.error for found in errors_of(specs, results).values())
    text = (
        f"{time:.2f} times the time and {memory:.2f} times the memory of an epoch; "
        f"{a / b:.2f} times the error after {EPOCHS['darcy']} epochs"
    )
    return text, "`lno reproduce efficiency`, `lno reproduce forward`"


def _finer(results: Path) -> tuple[str, str]:
    """The error of LNO+ on the grid of training and on the finest, for small models."""
    found = {row["label"]: row for row in _measured(results, "small_resolution")["rows"]}
    errors = found["LNO+, jitter and weights"]["relative_l2"].items()
    (coarse, before), *_, (fine, after) = errors
    text = (
        f"relative L2 of LNO+ trained on {coarse}² points: {100 * before:.2f} % there, "
        f"{100 * after:.2f} % on {fine}²"
    )
    return text, "`python benchmarks/small_resolution.py`"


def _memory(results: Path) -> tuple[str, str]:
    most = max(_measured(results, "memory_predict")["rows"], key=lambda row: row["points"])
    text = f"{most['extra_gb']:.2f} GB for {most['points']:,} points in and out (CPU)"
    return text, "`python benchmarks/memory_predict.py`"


def _measured(results: Path, name: str) -> Any:
    return read_json(results / "benchmarks" / f"{name}.json")
