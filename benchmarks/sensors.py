"""LNO and LNO+ on fields that are observed at some points, after equal time on a CPU.

    python benchmarks/sensors.py --minutes 4

The data, task and recipe of the quickstart: a solution of Burgers' equation, reconstructed from few
of its points. The query points of LNO+ start from their positions alone (`values=False`), as far
from the sensors values would be interpolated badly. Each model has the learning-rate schedule that
suits it. The rule of `lno.training.defaults` rests on this table. Rows that were measured before
are kept. Writes results/benchmarks/sensors.json.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from lno import Operator
from lno.data.observe import RandomRatio
from lno.experiments.inverse import errors_of, observed, predicted
from lno.experiments.quickstart import CONFIG, RATIOS, RECIPE, TASK, TEST, TRAIN
from lno.files import read_json, write_json
from lno.models import LNOPlusConfig
from lno.problems import Burgers
from lno.problems.make import make

RESULT = Path(__file__).parents[1] / "results" / "benchmarks" / "sensors.json"
PLUS = LNOPlusConfig(width=64, latents=64, rounds=2, values=False)
LINEAR = replace(RECIPE, schedule="linear")
ROWS: dict[str, tuple[str, Any, Any]] = {
    "LNO, four blocks": ("lno", CONFIG, RECIPE),
    "LNO, four blocks, linear schedule": ("lno", CONFIG, LINEAR),
    "LNO+, two rounds": ("lno_plus", PLUS, LINEAR),
    "LNO+, three rounds": ("lno_plus", replace(PLUS, rounds=3), LINEAR),
    "LNO+, one round of four blocks": ("lno_plus", replace(PLUS, rounds=1, blocks=4), LINEAR),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=4.0)
    parser.add_argument("--rows", nargs="*", choices=ROWS, metavar="LABEL")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = read_json(RESULT) if RESULT.exists() else {}
    kept = found.get("rows", []) if found.get("minutes") == options.minutes else []
    rows = {row["label"]: row for row in kept}
    train, test = make(Burgers(), TRAIN + TEST, seed=0).split(TRAIN, TEST)
    for label in options.rows or ROWS:
        if label in rows:
            continue
        model, config, recipe = ROWS[label]
        operator = Operator.fit(
            train,
            task=TASK,
            model=model,
            config=config,
            recipe=recipe,
            conditional=True,
            minutes=options.minutes,
            validation=0.0,
            device="cpu",
            progress=False,
        )
        errors = {}
        for ratio in RATIOS:
            seen = observed(test, RandomRatio(ratio))
            errors[f"{ratio:g}"] = errors_of(predicted(operator, seen), seen).means()
        rows[label] = {
            "label": label,
            "parameters": operator.parameters,
            "epochs": operator.provenance["epochs"],
            "relative_mae": {ratio: each["relative_mae"] for ratio, each in errors.items()},
            "hardware": operator.provenance["hardware"],
        }
        shown = ", ".join(f"{100 * e:.2f} %" for e in rows[label]["relative_mae"].values())
        print(f"{label:40s} {shown}", flush=True)
        ordered = [rows[name] for name in ROWS if name in rows]
        write_json(RESULT, {"rows": ordered, "minutes": options.minutes})


if __name__ == "__main__":
    main()
