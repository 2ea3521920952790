"""What makes a completer better than interpolation: one thing after the other.

    python benchmarks/completion.py [--protocol small] [--epochs 120]

Trains the small LNO on Burgers' equation as it is, and on images of its samples under the problem's
symmetries. Each is tested as it predicts alone; through its sensors with radial basis functions or
kriging, which add what it misses there; and mixed with kriging that does without it, as predicts
the sensors best (`Completion(exact=True)`). Beside them radial basis functions and kriging without
any model, the latter with one scale for both coordinates and with one for each; all see the same
sensors. Writes results/benchmarks/completion.json.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from lno import Completion, Fields, Operator
from lno.data.observe import RandomRatio
from lno.experiments.datasets import dataset
from lno.experiments.inverse import (
    interpolated,
    kriged,
    mean_errors,
    observed,
    parts,
    predicted,
)
from lno.experiments.presets import ANY_RATIO, RATIOS, WINDOW, preset
from lno.files import write_json
from lno.problems import Burgers
from lno.training.device import hardware, pick_device

RESULT = Path(__file__).parents[1] / "results" / "benchmarks" / "completion.json"


def with_values(seen: Fields, values: Tensor) -> Fields:
    """The same sensors with other values."""
    return Fields(seen.x, values, seen.x_query, seen.y, period=seen.period)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--protocol", default="small")
    parser.add_argument("--epochs", type=int, default=120)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    chosen, task = preset("burgers", "small"), Completion(ANY_RATIO, WINDOW)
    train, others = dataset("burgers", options.protocol, options.device)
    _, test = parts(others)
    sets = [observed(test, RandomRatio(ratio)) for ratio in RATIOS]
    rows: list[dict[str, Any]] = []

    def record(name: str, answers: list[Tensor]) -> None:
        pairs = zip(answers, sets, strict=True)
        errors = [mean_errors(answer, seen)["relative_mae"] for answer, seen in pairs]
        print(f"{name:40s}", *(f"{100 * e:7.3f} %" for e in errors), flush=True)
        rows.append({"name": name, "relative_mae": errors})

    record("RBF", interpolated(sets))
    record("kriging, one scale", kriged(sets, one_scale=True))
    record("kriging", kriged(sets))
    for trained, symmetries in (("LNO", ()), ("LNO on symmetries", Burgers.symmetries)):
        operator = Operator.fit(
            train,
            task=task,
            config=chosen.config,
            recipe=replace(chosen.recipe, epochs=options.epochs),
            symmetries=symmetries,
            device=options.device,
        )
        alone = [predicted(operator, seen) for seen in sets]
        record(f"{trained}, alone", alone)
        missed = [
            with_values(seen, np.asarray(seen.u) - operator.predict(seen.x, seen.u))
            for seen in sets
        ]
        for name, added in (("RBF", interpolated(missed)), ("kriging", kriged(missed))):
            record(f"{trained}, and {name}", [a + b for a, b in zip(alone, added, strict=True)])
        exact = replace(operator, task=replace(task, exact=True))
        record(f"{trained}, and kriging, mixed", [predicted(exact, seen) for seen in sets])
    told = {"protocol": options.protocol, "epochs": options.epochs, "samples": len(test)}
    told["hardware"] = hardware(pick_device(options.device))
    write_json(options.out, {**told, "ratios": list(RATIOS), "rows": rows})


if __name__ == "__main__":
    main()
