"""What the ingredients of LNO+ are worth, at sizes that one CPU core trains in minutes.

    python benchmarks/small_ladder.py elasticity
    python benchmarks/small_ladder.py darcy

`lno reproduce ladder` in small: 1,000 samples of Elasticity (972 points) or Darcy flow (43 × 43),
models of width 64 with 64 latent positions, 10 epochs, one seed. Each row is LNO+ with one change,
or another model with the same recipe. Rows that were measured before are kept; each takes about
five minutes. Writes results/benchmarks/small_ladder_PROBLEM.json.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from lno import Operator
from lno.experiments.ours import LNO_PLUS
from lno.files import read_json, write_json
from lno.models import LNOConfig, LNOPlusConfig, TransolverConfig
from lno.problems import PROBLEMS, Darcy, Elasticity, Problem
from lno.problems.make import make

RESULTS = Path(__file__).parents[1] / "results" / "benchmarks"
EPOCHS, TRAIN, TEST = 10, 1000, 200
PLUS = LNOPlusConfig(width=64, latents=64)
LNO = LNOConfig(width=64, latents=64, blocks=8, heads=4)
TRANSOLVER = TransolverConfig(width=64, slices=32, mlp_ratio=2, convolution=False, reference=None)
DATA: dict[str, Problem] = {"elasticity": Elasticity(), "darcy": Darcy(grid=169, every=4)}
# By label: the model, its sizes, and what changes in the recipe.
ROWS: dict[str, tuple[str, Any, dict[str, Any]]] = {
    "LNO+": ("lno_plus", PLUS, {}),
    **{
        f"{k} octaves of Fourier features": ("lno_plus", replace(PLUS, octaves=k), {})
        for k in (0, 3, 4, 6, 8)
        if k != PLUS.octaves
    },
    "latent positions without places": ("lno_plus", replace(PLUS, located=False), {}),
    "one round of four blocks": ("lno_plus", replace(PLUS, rounds=1, blocks=4), {}),
    "eight rounds": ("lno_plus", replace(PLUS, rounds=8), {}),
    "AdamW for Muon": ("lno_plus", PLUS, {"optimizer": "adamw"}),
    "LNO": ("lno", LNO, {}),
    "Transolver": ("transolver", TRANSOLVER, {}),
    "Transolver, AdamW": ("transolver", TRANSOLVER, {"optimizer": "adamw"}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("problem", choices=DATA)
    parser.add_argument("--rows", nargs="*", default=list(ROWS), choices=ROWS, metavar="LABEL")
    options = parser.parse_args()
    torch.set_num_threads(1)
    result = RESULTS / f"small_ladder_{options.problem}.json"
    rows = {row["label"]: row for row in read_json(result)["rows"]} if result.exists() else {}
    train, test = make(DATA[options.problem], TRAIN + TEST, seed=0).split(TRAIN, TEST)
    for label in options.rows:
        if label in rows:
            continue
        model, config, changes = ROWS[label]
        recipe = replace(LNO_PLUS["fast"][options.problem].recipe, epochs=EPOCHS)
        operator = Operator.fit(
            train,
            model=model,
            config=config,
            recipe=recipe.changed(changes),
            symmetries=PROBLEMS[options.problem].symmetries,
            validation=0.0,
            device="cpu",
            progress=False,
        )
        rows[label] = {
            "label": label,
            "parameters": operator.parameters,
            "relative_l2": operator.evaluate(test)["relative_l2"],
            "seconds": operator.provenance["seconds"],
            "hardware": operator.provenance["hardware"],
        }
        print(f"{label:32s} {100 * rows[label]['relative_l2']:.2f} %", flush=True)
        ordered = [rows[known] for known in ROWS if known in rows]
        write_json(result, {"rows": ordered, "epochs": EPOCHS, "samples": TRAIN})


if __name__ == "__main__":
    main()
