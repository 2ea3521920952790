"""Errors on finer grids than that of training, at sizes that one CPU core trains in minutes.

    python benchmarks/small_resolution.py [--rows LABEL ...]

`lno reproduce resolution` in small: the models and recipes of `small_ladder.py`, trained on 43²
points of Darcy flow and tested on more. Some are trained at points that move (`Recipe.jitter`) or
with the weights of the trapezoidal rule (`Recipe.weighted`). Rows that were measured before are
kept; each takes about ten minutes. Writes results/benchmarks/small_resolution.json.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

import torch
from small_ladder import (
    LINEAR,
    LNO,
    PLUS,
    RESULTS,
    SETTINGS,
    TRANSOLVER,
    Row,
    add_rows,
    summary,
    trained,
)

from lno.experiments.resolution import FINE, at_nodes, weighted
from lno.problems import Darcy
from lno.problems.make import make

GRIDS = (43, 85, 211, 421)
TEST = 40  # samples
MOVED, SIZES = {"jitter": 0.5}, {"weighted": True}
ROWS = {
    "LNO": Row("lno", LNO),
    "LNO, jitter and weights": Row("lno", LNO, {**MOVED, **SIZES}),
    "LNO+": Row(recipe=LINEAR),
    "LNO+, jitter": Row(recipe={**LINEAR, **MOVED}),
    "LNO+, weights": Row(recipe={**LINEAR, **SIZES}),
    "LNO+, jitter and weights": Row(recipe={**LINEAR, **MOVED, **SIZES}),
    "LNO+, no Fourier features": Row(config=replace(PLUS, octaves=0), recipe=LINEAR),
    "Transolver": Row("transolver", TRANSOLVER),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", nargs="*", metavar="LABEL", choices=ROWS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    setting = SETTINGS["darcy"]
    data = make(Darcy(FINE, (FINE - 1) // (GRIDS[0] - 1)), setting.train, seed=0)
    fine = make(Darcy(FINE, 1), TEST, seed=0, first=setting.train)

    def measure(row: Row) -> dict[str, Any]:
        # The weights are ignored, unless the recipe says otherwise.
        operator = trained("darcy", setting, row, weighted(data))
        tests = {n: weighted(at_nodes(fine, n)) for n in GRIDS}
        errors = {n: operator.on_grid((n, n)).evaluate(f) for n, f in tests.items()}
        found = {str(n): error["relative_l2"] for n, error in errors.items()}
        return summary(operator, {"relative_l2": found})

    result = RESULTS / "small_resolution.json"
    add_rows(result, ROWS, options.rows, measure, {**setting.recorded, "test": TEST})


if __name__ == "__main__":
    main()
