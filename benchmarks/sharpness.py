"""The effect of `LNOConfig.sharpness` on short training: sines reconstructed from a few points.

    python benchmarks/sharpness.py [--seeds 3]

512 sines of one to three periods and random phase on 64 points, a fifth of which is observed; 800
steps for each seed. With a factor of one, the paper's, training may not get away from the constant
function at all. Takes some minutes on one CPU core; writes results/benchmarks/sharpness.json.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from lno import Completion, Fields, Operator, RandomRatio, Recipe
from lno.files import write_json
from lno.training.device import hardware, one_thread

RESULT = Path(__file__).parents[1] / "results" / "benchmarks" / "sharpness.json"
CONFIG = {"width": 48, "latents": 64, "blocks": 2, "heads": 4, "layers": 2}
RECIPE = Recipe(epochs=25, batch=16, optimizer="adamw", learning_rate=2e-3)


def sines(samples: int) -> Fields:
    random = np.random.default_rng(0)
    x = np.arange(64)[:, None] / 64
    periods, phase = random.integers(1, 4, (samples, 1, 1)), random.uniform(size=(samples, 1, 1))
    return Fields(x, y=np.sin(2 * np.pi * (periods * x + phase)))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    train, test = sines(512 + 64).split(512, 64)
    rows = []
    with one_thread():
        for sharpness in (1.0, 3.0, 10.0, 30.0, 100.0):
            errors = []
            for seed in range(options.seeds):
                operator = Operator.fit(
                    train,
                    task=Completion(RandomRatio(0.2)),
                    config={**CONFIG, "sharpness": sharpness},
                    recipe=RECIPE,
                    validation=0.0,
                    seed=seed,
                    device="cpu",
                    progress=False,
                )
                errors.append(operator.evaluate(test)["relative_l2"])
            rows.append({"sharpness": sharpness, "relative_l2": errors})
            print(sharpness, " ".join(f"{100 * e:.1f} %" for e in errors), flush=True)
            write_json(RESULT, {"rows": rows, "hardware": hardware(operator.device)})


if __name__ == "__main__":
    main()
