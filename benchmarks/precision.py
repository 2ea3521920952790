"""Error and time of training in each precision: Darcy with the paper's model and recipe.

    python benchmarks/precision.py [--precisions fp32 tf32 mixed] [--epochs 500] [--seeds 3]

The standard protocol: 1,000 samples of 85² for training, 200 held-out test samples for the error.
All seeds of a precision train at once, as members; `seconds` is the time of all of them together.
tf32 and mixed differ from fp32 only on a CUDA GPU. Writes results/benchmarks/precision.json, one
row for each precision and number of epochs.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from lno import Operator
from lno.experiments.datasets import dataset
from lno.experiments.presets import PAPER_CONFIGS, PAPER_RECIPE
from lno.files import write_json
from lno.training.precision import PRECISIONS

RESULT = Path(__file__).parents[1] / "results" / "benchmarks" / "precision.json"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--precisions", nargs="*", default=list(PRECISIONS))
    parser.add_argument("--epochs", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--protocol", default="standard")
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    train, test = dataset("darcy", options.protocol)
    rows = json.loads(options.out.read_text())["rows"] if options.out.exists() else []
    for precision in options.precisions:
        operator = Operator.fit(
            train,
            config=PAPER_CONFIGS["darcy"],
            recipe=replace(PAPER_RECIPE, epochs=options.epochs),
            validation=test,
            members=options.seeds,
            precision=precision,
        )
        record = operator.provenance
        errors = [operator.member(k).evaluate(test)["relative_l2"] for k in range(options.seeds)]
        row = {
            "precision": precision,
            "epochs": options.epochs,
            "seeds": options.seeds,
            "seconds": record["seconds"],
            "compile_seconds": record["compile_seconds"],
            "relative_l2": errors,
            "mean": float(np.mean(errors)),
            "std": float(np.std(errors, ddof=1)) if len(errors) > 1 else None,
            "hardware": record["hardware"],
            "data_hash": record["data"]["digest"],
            "curve": record["curve"],
        }
        key = (precision, options.epochs)
        rows = [r for r in rows if (r["precision"], r["epochs"]) != key] + [row]
        write_json(options.out, {"rows": rows})
        listed = ", ".join(f"{100 * e:.3f}" for e in errors)
        print(
            f"{precision:5s} {options.epochs} epochs: {100 * row['mean']:.3f} % ({listed}) "
            f"in {row['seconds']:.0f} s",
            flush=True,
        )


if __name__ == "__main__":
    main()
