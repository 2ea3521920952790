"""Training on samples of different sizes against samples of one size.

    python benchmarks/ragged.py [--samples 256] [--epochs 2] [--repeats 3]

Clouds of 100 to 1,000 points, evenly spread, against as many clouds that all have the mean size, so
that an epoch has as many points. The ratio of the times of training is what padding costs. "plain"
is the order without batches of similar size. The least of some repeats, taken in turn, on one CPU
core; writes results/benchmarks/ragged.json.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch

from lno import Fields, Operator, Recipe
from lno.files import write_json
from lno.training import state
from lno.training.device import hardware, one_thread
from lno.training.order import epoch_order

RESULT = Path(__file__).parents[1] / "results" / "benchmarks" / "ragged.json"
CONFIG = {"width": 64, "latents": 64, "blocks": 2, "heads": 4, "layers": 1}
LEAST, MOST = 100, 1000


def clouds(sizes: np.ndarray) -> Fields:
    random = np.random.default_rng(0)
    x = [random.uniform(size=(n, 2)) for n in sizes]
    u = [np.sin(3 * points[:, :1]) for points in x]
    return Fields(x, u, y=[values**2 for values in u])


def seconds(data: Fields, epochs: int, similar: bool) -> float:
    """The time of training, with or without batches of similar size."""
    state.epoch_order = epoch_order if similar else _plain
    try:
        operator = Operator.fit(
            data,
            model="lno",
            config=CONFIG,
            recipe=Recipe(epochs=epochs, batch=8),
            validation=0.0,
            device="cpu",
            progress=False,
        )
    finally:
        state.epoch_order = epoch_order
    return operator.provenance["seconds"]


def _plain(
    random: np.random.Generator, count: int, batch: int, sizes: np.ndarray | None = None
) -> np.ndarray:
    return random.permutation(count)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=256)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    spread = np.random.default_rng(1).permutation(
        np.linspace(LEAST, MOST, options.samples).round().astype(int)
    )
    ragged, uniform = clouds(spread), clouds(np.full(options.samples, round(spread.mean())))
    times: dict[str, list[float]] = {"uniform": [], "similar": [], "plain": []}
    with one_thread():
        for _ in range(options.repeats):
            times["uniform"].append(seconds(uniform, options.epochs, similar=True))
            times["similar"].append(seconds(ragged, options.epochs, similar=True))
            times["plain"].append(seconds(ragged, options.epochs, similar=False))
    least = {name: min(each) for name, each in times.items()}
    ratios = {name: least["uniform"] / least[name] for name in ("similar", "plain")}
    for name, ratio in ratios.items():
        print(f"{name}: {100 * ratio:.0f} % of the throughput of samples of one size")
    found = {"points": [LEAST, MOST], "samples": options.samples, "seconds": least}
    write_json(RESULT, {**found, "throughput": ratios, "hardware": hardware(torch.device("cpu"))})


if __name__ == "__main__":
    main()
