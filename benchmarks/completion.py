"""What makes a completer better than radial basis functions: one thing after the other.

    python benchmarks/completion.py [--protocol small] [--epochs 60]

Trains the small LNO on Burgers' equation as it is, then on images of its samples under the
problem's symmetries, then also for predictions that pass through the sensors (`Recipe.through`);
each is tested as it predicts alone and through its sensors (`Completion(exact=True)`), with the
same sensors as the radial basis functions. Writes results/benchmarks/completion.json.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from lno import Completion, Operator
from lno.data.observe import RandomRatio
from lno.experiments.datasets import dataset
from lno.experiments.inverse import interpolated, mean_errors, observed, parts, predicted
from lno.experiments.presets import ANY_RATIO, RATIOS, WINDOW, preset
from lno.files import write_json
from lno.problems import Burgers
from lno.training.device import hardware, pick_device

RESULT = Path(__file__).parents[1] / "results" / "benchmarks" / "completion.json"
VARIANTS: dict[str, dict[str, Any]] = {
    "LNO": {},
    "on symmetries": {"symmetries": Burgers.symmetries},
    "on symmetries, through sensors": {"symmetries": Burgers.symmetries, "through": 0.5},
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--protocol", default="small")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    chosen = preset("burgers", "small")
    train, others = dataset("burgers", options.protocol, options.device)
    _, test = parts(others)
    seen = {ratio: observed(test, RandomRatio(ratio)) for ratio in RATIOS}
    classical = zip(interpolated(list(seen.values())), seen.values(), strict=True)
    rows = [row("RBF", None, [mean_errors(answer, fields) for answer, fields in classical])]
    task = Completion(ANY_RATIO, WINDOW)
    for name, keys in VARIANTS.items():
        through = keys.get("through", 0.0)
        operator = Operator.fit(
            train,
            task=replace(task, exact=through > 0),
            config=chosen.config,
            recipe=replace(chosen.recipe, epochs=options.epochs, through=through),
            symmetries=keys.get("symmetries", ()),
            device=options.device,
        )
        for exact in (False, True):
            tested = replace(operator, task=replace(task, exact=exact))
            errors = [mean_errors(predicted(tested, fields), fields) for fields in seen.values()]
            rows.append(row(name, exact, errors, operator))
    told = {"protocol": options.protocol, "epochs": options.epochs, "samples": len(test)}
    told["hardware"] = hardware(pick_device(options.device))
    write_json(options.out, {**told, "ratios": list(RATIOS), "rows": rows})


def row(
    name: str, exact: bool | None, errors: list[dict[str, float]], operator: Operator | None = None
) -> dict[str, Any]:
    found = [e["relative_mae"] for e in errors]
    print(f"{name:32s} exact {exact!s:5s}", *(f"{100 * e:7.3f} %" for e in found), flush=True)
    seconds = operator.provenance["seconds"] if operator else 0.0
    return {"name": name, "exact": exact, "relative_mae": found, "seconds": seconds}


if __name__ == "__main__":
    main()
