"""Long training of small models: how much they overfit, and what reduces it.

    python benchmarks/small_overfitting.py darcy
    python benchmarks/small_overfitting.py elasticity

The models of `small_ladder.py`, trained several times longer: on Darcy flow (22 × 22 points) for 60
epochs, on Elasticity for 40, with the linear schedule. Errors are those on held-out samples and on
training samples. A row takes ten minutes or more of one core; rows that were measured before are
kept, and several processes may measure different `--rows`. Writes
results/benchmarks/small_overfitting_PROBLEM.json.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

import torch
from small_ladder import LINEAR, PLUS, RESULTS, SETTINGS, Row, add_rows, summary, trained

from lno.problems import Darcy

LONG = {
    "darcy": replace(SETTINGS["darcy"], problem=Darcy(grid=169, every=8), epochs=60),
    "elasticity": replace(SETTINGS["elasticity"], epochs=40),
}
EVERY = 5  # of the training samples are tested
DECAY: dict[str, Any] = {**LINEAR, "weight_decay": 0.1}
PLAIN = {"LNO+": Row(recipe=LINEAR), "weight decay 0.1": Row(recipe=DECAY)}
ON_GRIDS = {
    "weight decay 0.3": Row(recipe={**LINEAR, "weight_decay": 0.3}),
    "5 × 5 convolution, weight decay 0.1": Row(config=replace(PLUS, local=5), recipe=DECAY),
    "eight rounds, weight decay 0.1": Row(config=replace(PLUS, rounds=8), recipe=DECAY),
}
ROWS = {"darcy": {**PLAIN, **ON_GRIDS}, "elasticity": PLAIN}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problem", choices=LONG)
    parser.add_argument("--rows", nargs="*", metavar="LABEL")
    options = parser.parse_args()
    torch.set_num_threads(1)
    setting = LONG[options.problem]
    training, test = setting.data()
    samples = {"relative_l2": test, "training": training.subset(range(0, len(training), EVERY))}

    def measure(row: Row) -> dict[str, Any]:
        operator = trained(options.problem, setting, row, training)
        errors = {key: operator.evaluate(some)["relative_l2"] for key, some in samples.items()}
        return summary(operator, errors)

    result = RESULTS / f"small_overfitting_{options.problem}.json"
    add_rows(result, ROWS[options.problem], options.rows, measure, setting.recorded)


if __name__ == "__main__":
    main()
