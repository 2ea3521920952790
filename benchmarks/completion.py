"""What makes a completer better than interpolation, one part at a time.

    python benchmarks/completion.py [--samples 1024] [--epochs 40]

Trains the quickstart's LNO on Burgers' equation: with AdamW and squared errors, with Muon and
absolute errors, and the latter on images of its samples under the problem's symmetries. Each is
tested alone and conditioned on its sensors (`Operator.fit(..., conditional=True)`). One of them is
also tested with its residuals at the sensors interpolated by radial basis functions or kriging.
Both are tested without a model, too, kriging with one length scale for both coordinates and with
one for each. All have the same sensors, at random places and on two grids, of samples that no table
is tested on; constants of the blend were chosen on some of them. Writes
results/benchmarks/completion.json.
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

PATTERNS: dict[str, Pattern] = {
    **{f"{100 * ratio:g} %": RandomRatio(ratio) for ratio in RATIOS},
    **{f"{t} × {x}": Intervals((t, x)) for t, x in ((2, 16), (16, 2))},
}
RESULT = Path(__file__).parents[1] / "results" / "benchmarks" / "completion.json"


def residuals(operator: Operator, sensors: Fields) -> Fields:
    """The residuals of a model at the sensors, in place of their values."""
    values = np.asarray(sensors.u) - operator.predict(sensors.x, sensors.u)
    return Fields(sensors.x, values, sensors.x_query, sensors.y, period=sensors.period)


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
    sets = [observed(test, pattern) for pattern in PATTERNS.values()]
    rows: list[dict[str, Any]] = []

    def record(name: str, predictions: list[Tensor]) -> None:
        pairs = zip(predictions, sets, strict=True)
        errors = [mean_errors(each, sensors)["relative_mae"] for each, sensors in pairs]
        print(f"{name:40s}", *(f"{100 * e:7.3f} %" for e in errors), flush=True)
        rows.append({"name": name, "relative_mae": errors})

    record("RBF", by_rbf(sets))
    record("kriging, one scale", by_kriging(sets, one_scale=True))
    record("kriging", by_kriging(sets))
    ours = replace(quickstart.RECIPE, epochs=options.epochs)
    adamw = replace(ours, optimizer="adamw", learning_rate=3e-3, loss="relative_l2")
    for name, recipe, symmetries in (
        ("LNO, AdamW", adamw, ()),
        ("LNO", ours, ()),
        ("LNO on symmetries", ours, Burgers.symmetries),
    ):
        operator = Operator.fit(
            train,
            task=quickstart.TASK,
            config=quickstart.CONFIG,
            recipe=recipe,
            symmetries=symmetries,
            device=options.device,
        )
        alone = [predicted(operator, sensors) for sensors in sets]
        record(f"{name}, alone", alone)
        if name == "LNO":
            for kind, interpolate in (("RBF", by_rbf), ("kriging", by_kriging)):
                added = interpolate([residuals(operator, sensors) for sensors in sets])
                both = [a + b for a, b in zip(alone, added, strict=True)]
                record(f"{name}, and {kind} of its residuals", both)
        conditional = replace(operator, conditional=True)
        predictions = [predicted(conditional, sensors) for sensors in sets]
        record(f"{name}, conditioned on the sensors", predictions)
    metadata = {"samples": options.samples, "epochs": options.epochs, "test": len(test)}
    metadata["hardware"] = hardware(pick_device(options.device))
    write_json(options.out, {**metadata, "seen": list(PATTERNS), "rows": rows})


if __name__ == "__main__":
    main()
