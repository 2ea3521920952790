"""Ablations of LNO+ at sizes that one CPU core trains in minutes.

    python benchmarks/small_ladder.py elasticity
    python benchmarks/small_ladder.py darcy
    python benchmarks/small_ladder.py ns2d

`lno reproduce ladder` in small: models of width 64 with 64 latent positions on Elasticity (972
points), Darcy flow (43 × 43) or Navier–Stokes (32 × 32), trained for a short time. Each row is LNO+
with one change, or another model with the same recipe; further seeds show how much is chance. All
rows but those that say otherwise have the paper's learning-rate schedule and predict frames, not
increments. Rows that were measured before are kept; each takes about five minutes. Writes
results/benchmarks/small_ladder_PROBLEM.json.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from lno import Fields, Operator, Rollout
from lno.data.symmetry import Symmetry
from lno.experiments.ours import LNO_PLUS
from lno.files import read_json, write_json
from lno.models import LNOConfig, LNOPlusConfig, TransolverConfig
from lno.problems import PROBLEMS, Darcy, Elasticity, NS2d, Problem
from lno.problems.make import make
from lno.problems.ns2d import flow_symmetries

RESULTS = Path(__file__).parents[1] / "results" / "benchmarks"
PLUS = LNOPlusConfig(width=64, latents=64)
LNO = LNOConfig(width=64, latents=64, blocks=8, heads=4)
TRANSOLVER = TransolverConfig(width=64, slices=32, mlp_ratio=2, convolution=False, reference=None)
LINEAR = {"schedule": "linear"}


@dataclass(frozen=True)
class Setting:
    """The data of a problem, and how long models are trained on them."""

    problem: Problem
    symmetries: tuple[Symmetry, ...]
    train: int = 1000
    test: int = 200
    epochs: int = 10
    batch: int = 4

    def data(self) -> tuple[Fields, Fields]:
        """Training and test samples."""
        samples = make(self.problem, self.train + self.test, seed=0)
        training, test = samples.split(self.train, self.test)
        return training, test

    @property
    def recorded(self) -> dict[str, Any]:
        """What a file says of it."""
        return {"epochs": self.epochs, "samples": self.train}


@dataclass(frozen=True)
class Row:
    """What is trained: a model with its sizes, what changes in the recipe and the task, a seed."""

    model: str = "lno_plus"
    config: Any = PLUS
    recipe: dict[str, Any] = field(default_factory=dict)
    task: dict[str, Any] = field(default_factory=dict)
    seed: int = 0


def seed_name(seed: int) -> str:
    """What the label of a row says of its seed."""
    return f", seed {seed}" if seed else ""


SETTINGS = {
    "elasticity": Setting(Elasticity(), PROBLEMS["elasticity"].symmetries),
    "darcy": Setting(Darcy(grid=169, every=4), PROBLEMS["darcy"].symmetries),
    "ns2d": Setting(NS2d(grid=128, every=4), flow_symmetries(32), 200, 80, epochs=8, batch=1),
}
PLAIN = {
    **{f"LNO+{seed_name(k)}": Row(seed=k) for k in range(3)},
    **{
        f"{k} octaves of Fourier features": Row(config=replace(PLUS, octaves=k))
        for k in (0, 3, 4, 6, 8)
        if k != PLUS.octaves
    },
    "latent positions without places": Row(config=replace(PLUS, located=False)),
    "one round of four blocks": Row(config=replace(PLUS, rounds=1, blocks=4)),
    "eight rounds": Row(config=replace(PLUS, rounds=8)),
    **{f"linear schedule{seed_name(k)}": Row(recipe=LINEAR, seed=k) for k in range(3)},
    "linear schedule, 0 octaves": Row(config=replace(PLUS, octaves=0), recipe=LINEAR),
    "linear schedule, 6 octaves": Row(config=replace(PLUS, octaves=6), recipe=LINEAR),
    "linear schedule, 128 latent positions": Row(config=replace(PLUS, latents=128), recipe=LINEAR),
    "AdamW for Muon": Row(recipe={"optimizer": "adamw"}),
    "LNO": Row("lno", LNO),
    "LNO, linear schedule": Row("lno", LNO, LINEAR),
    "Transolver": Row("transolver", TRANSOLVER),
    "Transolver, linear schedule": Row("transolver", TRANSOLVER, LINEAR),
    "Transolver, AdamW": Row("transolver", TRANSOLVER, {"optimizer": "adamw"}),
}
CHANGE = {"increments": True}
ROLLOUTS = {
    **{f"LNO+{seed_name(k)}": Row(seed=k) for k in range(2)},
    **{f"increments{seed_name(k)}": Row(task=CHANGE, seed=k) for k in range(2)},
    "increments, linear schedule": Row(recipe=LINEAR, task=CHANGE),
    "increments, linear schedule, 5 × 5 convolution": Row(
        config=replace(PLUS, local=5), recipe=LINEAR, task=CHANGE
    ),
    "LNO": Row("lno", LNO),
    "LNO, increments": Row("lno", LNO, task=CHANGE),
}
LOCAL = replace(PLUS, local=5)
ON_GRIDS = {"linear schedule, 5 × 5 convolution": Row(config=LOCAL, recipe=LINEAR)}
ROWS = {"elasticity": PLAIN, "darcy": {**PLAIN, **ON_GRIDS}, "ns2d": ROLLOUTS}


def trained(problem: str, setting: Setting, row: Row, data: Fields) -> Operator:
    """The operator of a row."""
    preset = LNO_PLUS["fast"][problem]
    recipe = replace(preset.recipe, epochs=setting.epochs, batch=setting.batch, schedule="onecycle")
    task = preset.task
    if isinstance(task, Rollout):
        task = replace(task, increments=False)
    return Operator.fit(
        data,
        task=replace(task, **row.task),
        model=row.model,
        config=row.config,
        recipe=recipe.changed(row.recipe),
        symmetries=setting.symmetries,
        validation=0.0,
        device="cpu",
        seed=row.seed,
        progress=False,
    )


def summary(operator: Operator, errors: dict[str, Any]) -> dict[str, Any]:
    """What a file says of an operator."""
    return {
        "parameters": operator.parameters,
        **errors,
        "seconds": operator.provenance["seconds"],
        "hardware": operator.provenance["hardware"],
    }


def add_rows(
    result: Path,
    known: Mapping[str, Row],
    labels: Sequence[str] | None,
    measure: Callable[[Row], dict[str, Any]],
    setting: dict[str, Any],
) -> None:
    """Measure the rows that a file lacks, and write it after each of them.

    Args:
        result: the file.
        known: all rows, in their order.
        labels: the rows that are asked for; None: all.
        measure: from a row to what is written beside its label.
        setting: what holds for all rows.
    """

    def measured() -> dict[str, Any]:  # another process may have added rows
        return {r["label"]: r for r in read_json(result)["rows"]} if result.exists() else {}

    for label in labels or known:
        if label in measured():
            continue
        row = {"label": label, **measure(known[label])}
        errors = row["relative_l2"]
        shown = errors.values() if isinstance(errors, dict) else [errors]
        print(f"{label:48s}", *(f"{100 * error:.2f} %" for error in shown), flush=True)
        rows = measured() | {label: row}
        ordered = [rows[name] for name in known if name in rows]
        write_json(result, {"rows": ordered, **setting})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problem", choices=SETTINGS)
    parser.add_argument("--rows", nargs="*", metavar="LABEL")
    options = parser.parse_args()
    torch.set_num_threads(1)
    setting = SETTINGS[options.problem]
    training, test = setting.data()

    def measure(row: Row) -> dict[str, Any]:
        operator = trained(options.problem, setting, row, training)
        return summary(operator, {"relative_l2": operator.evaluate(test)["relative_l2"]})

    result = RESULTS / f"small_ladder_{options.problem}.json"
    add_rows(result, ROWS[options.problem], options.rows, measure, setting.recorded)


if __name__ == "__main__":
    main()
