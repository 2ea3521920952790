"""What makes a completer better than interpolation: one thing after the other.

    python benchmarks/completion.py [--samples 1024] [--epochs 40]

Trains the quickstart's LNO on Burgers' equation: with AdamW and squared errors, with Muon and
absolute ones, and so on images of its samples under the problem's symmetries. Each is tested as it
predicts alone, and mixed with kriging as predicts the sensors best (`Completion(exact=True)`); one
of them also with radial basis functions or kriging that add what it misses at its sensors. Beside
them both without any model, kriging with one scale for both coordinates and with one for each. All
see the same sensors, at random places and on two grids, of samples that no table is tested on; what
decides the mixture was chosen on some of them. Writes results/benchmarks/completion.json.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from lno import Fields, Operator
from lno.data.observe import Intervals, Pattern, RandomRatio
from lno.experiments import quickstart
from lno.experiments.datasets import dataset
from lno.experiments.interpolants import by_kriging, by_rbf
from lno.experiments.inverse import (
    mean_errors,
    observed,
    parts,
    predicted,
)
from lno.experiments.presets import RATIOS
from lno.files import write_json
from lno.problems import Burgers
from lno.training.device import hardware, pick_device

SEEN: dict[str, Pattern] = {
    **{f"{100 * ratio:g} %": RandomRatio(ratio) for ratio in RATIOS},
    **{f"{t} × {x}": Intervals((t, x)) for t, x in ((2, 16), (16, 2))},
}
RESULT = Path(__file__).parents[1] / "results" / "benchmarks" / "completion.json"


def missed(operator: Operator, seen: Fields) -> Fields:
    """What a model misses at the sensors, as if they had observed that."""
    values = np.asarray(seen.u) - operator.predict(seen.x, seen.u)
    return Fields(seen.x, values, seen.x_query, seen.y, period=seen.period)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=1024)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    train, others = dataset("burgers", "standard", options.device)
    train = train.subset(range(options.samples))
    test = parts(others)[0].subset(range(32))
    sets = [observed(test, pattern) for pattern in SEEN.values()]
    rows: list[dict[str, Any]] = []

    def record(name: str, answers: list[Tensor]) -> None:
        pairs = zip(answers, sets, strict=True)
        errors = [mean_errors(answer, seen)["relative_mae"] for answer, seen in pairs]
        print(f"{name:40s}", *(f"{100 * e:7.3f} %" for e in errors), flush=True)
        rows.append({"name": name, "relative_mae": errors})

    record("RBF", by_rbf(sets))
    record("kriging, one scale", by_kriging(sets, one_scale=True))
    record("kriging", by_kriging(sets))
    ours = replace(quickstart.RECIPE, epochs=options.epochs)
    usual = replace(ours, optimizer="adamw", rate=3e-3, loss="relative_l2")
    task = replace(quickstart.TASK, exact=False)
    for name, recipe, symmetries in (
        ("LNO, AdamW", usual, ()),
        ("LNO", ours, ()),
        ("LNO on symmetries", ours, Burgers.symmetries),
    ):
        operator = Operator.fit(
            train,
            task=task,
            config=quickstart.CONFIG,
            recipe=recipe,
            symmetries=symmetries,
            device=options.device,
        )
        alone = [predicted(operator, seen) for seen in sets]
        record(f"{name}, alone", alone)
        if name == "LNO":
            for kind, interpolate in (("RBF", by_rbf), ("kriging", by_kriging)):
                added = interpolate([missed(operator, seen) for seen in sets])
                both = [a + b for a, b in zip(alone, added, strict=True)]
                record(f"{name}, and {kind} of what it misses", both)
        exact = replace(operator, task=quickstart.TASK)
        record(f"{name}, mixed with kriging", [predicted(exact, seen) for seen in sets])
    told = {"samples": options.samples, "epochs": options.epochs, "test": len(test)}
    told["hardware"] = hardware(pick_device(options.device))
    write_json(options.out, {**told, "seen": list(SEEN), "rows": rows})


if __name__ == "__main__":
    main()
