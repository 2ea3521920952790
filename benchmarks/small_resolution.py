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
from pathlib import Path
from typing import Any

import torch
from small_ladder import LINEAR, LNO, PLUS, RESULTS, SETTINGS, TRANSOLVER, Row

from lno import Operator
from lno.experiments.ours import LNO_PLUS
from lno.experiments.resolution import FINE, at_nodes, weighted
from lno.files import read_json, write_json
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


def measured(row: Row, data: Any, fine: Any) -> dict[str, Any]:
    """Errors of a row by grid."""
    setting, preset = SETTINGS["darcy"], LNO_PLUS["fast"]["darcy"]
    recipe = replace(preset.recipe, epochs=setting.epochs, batch=setting.batch, schedule="onecycle")
    operator = Operator.fit(
        weighted(data),  # ignored, unless the recipe says otherwise
        task=preset.task,
        model=row.model,
        config=row.config,
        recipe=recipe.changed(row.recipe),
        symmetries=setting.symmetries,
        validation=0.0,
        device="cpu",
        seed=row.seed,
        progress=False,
    )
    tests = {n: weighted(at_nodes(fine, n)) for n in GRIDS}
    errors = {n: operator.on_grid((n, n)).evaluate(f)["relative_l2"] for n, f in tests.items()}
    return {
        "parameters": operator.parameters,
        "relative_l2": {str(n): error for n, error in errors.items()},
        "seconds": operator.provenance["seconds"],
        "hardware": operator.provenance["hardware"],
    }


def known(result: Path) -> dict[str, Any]:
    """The rows measured so far, by label."""
    return {row["label"]: row for row in read_json(result)["rows"]} if result.exists() else {}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", nargs="*", metavar="LABEL", choices=ROWS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    setting, result = SETTINGS["darcy"], RESULTS / "small_resolution.json"
    data = make(Darcy(FINE, (FINE - 1) // (GRIDS[0] - 1)), setting.train, seed=0)
    fine = make(Darcy(FINE, 1), TEST, seed=0, first=setting.train)
    for label in options.rows or ROWS:
        # Read anew: another process may have added rows.
        rows = known(result)
        if label in rows:
            continue
        found = {"label": label, **measured(ROWS[label], data, fine)}
        rows = known(result)
        rows[label] = found
        shown = {n: f"{100 * error:.2f} %" for n, error in found["relative_l2"].items()}
        print(f"{label:32s} {shown}", flush=True)
        ordered = [rows[name] for name in ROWS if name in rows]
        write_json(
            result,
            {"rows": ordered, "epochs": setting.epochs, "samples": setting.train, "test": TEST},
        )


if __name__ == "__main__":
    main()
