"""What it costs a model whose queries interact to be asked for more of them than in training.

    python benchmarks/query_sets.py [--epochs 30] [--device auto]

Trains GNOT as the completer of Burgers' equation (2,048 random queries in a step) and tests it in
random sets of 2,048 queries, as it was trained, and with all 8,192 at once. Writes
results/benchmarks/query_sets.json.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from lno.data.observe import RandomRatio
from lno.experiments.datasets import dataset
from lno.experiments.inverse import observed
from lno.experiments.presets import RATIOS
from lno.experiments.queue import train_operators
from lno.experiments.runs import RunSpec
from lno.files import write_json
from lno.tasks import Steady

RESULT = Path(__file__).parents[1] / "results" / "benchmarks" / "query_sets.json"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--samples", type=int, default=128)
    parser.add_argument("--protocol", default="standard")
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    spec = RunSpec("burgers", "gnot", "completer", options.epochs, "mixed", options.protocol)
    [operator] = train_operators(spec, [0], options.device, print)
    operator = replace(operator, members=[m.to(operator.device) for m in operator.members])
    _, others = dataset("burgers", options.protocol, options.device)
    test = others.split(len(others) - options.samples, options.samples)[1]
    rows = []
    for ratio in RATIOS:
        seen = observed(test, RandomRatio(ratio))
        row: dict[str, float] = {"ratio": ratio}
        for name, size in (("sets", operator.query_set), ("all", None)):
            asked = replace(operator, query_set=size)
            row[name] = asked.errors(seen, task=Steady()).means()["relative_mae"]
        rows.append(row)
        print("  ".join(f"{key} {value:.5f}" for key, value in row.items()), flush=True)
    content = {"epochs": options.epochs, "query_set": operator.query_set, "samples": len(test)}
    write_json(RESULT, {"rows": rows, **content, "hardware": operator.provenance["hardware"]})


if __name__ == "__main__":
    main()
