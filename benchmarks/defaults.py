"""Which model suits data that come without a preset: LNO and LNO+ after equal time on a CPU.

The rule of `lno.training.defaults` rests on this table. Sets of our own: Darcy flow on 22 × 22
points with few and many samples, and Elasticity with few geometries. Sets of others, if their files
are given: `darcy_small.npz` of neuraloperator (16 × 16 points) and `holed_poisson.npz` of PINA (a
mesh of its own in every sample). On grids, errors on one of half the spacing are measured, too.

    python benchmarks/defaults.py --minutes 2
    python benchmarks/defaults.py --darcy-small darcy_small.npz --holed holed_poisson.npz
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lno import Fields, Operator, grid
from lno.files import write_json
from lno.problems import Darcy, Elasticity
from lno.problems.make import make
from lno.tasks import Steady
from lno.training.defaults import MEDIUM, SMALL, choose

RESULT = Path(__file__).parents[1] / "results" / "benchmarks" / "defaults.json"
Sets = tuple[Fields, Fields, Fields | None]  # to train on, to test on, and that on a finer grid
MODELS: dict[str, Any] = {"lno": SMALL, "lno_plus": MEDIUM}
DROPOUT = "lno_plus with dropout"  # on grids: what the rule chooses where points do not move


def darcy(samples: int) -> Sets:
    """Samples to train on, and 100 others, also on 43 × 43 points."""
    train, test = make(Darcy(grid=85, every=4), samples + 100, seed=5).split(samples, 100)
    return train, test, make(Darcy(grid=85, every=2), 100, seed=5, first=samples)


def elasticity(samples: int) -> Sets:
    """Geometries to train on, and 100 others."""
    train, test = make(Elasticity(), samples + 100, seed=5).split(samples, 100)
    return train, test, None


def darcy_small(path: Path) -> Sets:
    """1,000 samples on 16 × 16 points, and 50 others, also on 32 × 32 points."""

    def part(name: str, n: int) -> Fields:
        with np.load(path) as file:
            arrays = (file[f"{name}_{n}_{key}"] for key in ("coefficient", "solution"))
            a, u = (v.reshape(len(v), -1, 1).astype(np.float32) for v in arrays)
        return Fields(grid((n, n), points="no-endpoint"), a, y=u, grid=(n, n))

    return part("train", 16), part("test", 16), part("test", 32)


def holed_poisson(path: Path) -> Sets:
    """100 domains with a hole, at random, and the 21 others."""
    with np.load(path) as file:
        x, y = file["positions"], file["values"]
    order = np.random.default_rng(0).permutation(len(x))
    fields = Fields(x[order], y=y[order])
    train, test = fields.split(100, 21)
    return train, test, None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--darcy-small", type=Path)
    parser.add_argument("--holed", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    sets = {
        "Darcy, 100 samples": darcy(100),
        "Darcy, 1,000 samples": darcy(1000),
        "Elasticity, 100 geometries": elasticity(100),
    }
    if options.darcy_small:
        sets["darcy_small, 1,000 samples"] = darcy_small(options.darcy_small)
    if options.holed:
        sets["holed_poisson, 100 geometries"] = holed_poisson(options.holed)
    rows = []
    for name, (train, test, finer) in sets.items():
        for model in MODELS if finer is None else (*MODELS, DROPOUT):
            kind = model.split()[0]
            # Without its grid, these are points like any others.
            known = train.replace(grid=None) if model == DROPOUT else train
            chosen = choose(known, Steady(), model=kind)
            operator = Operator.fit(
                train,
                model=kind,
                config=chosen.config or MODELS[kind],
                recipe=chosen.recipe,
                minutes=options.minutes,
                validation=test,
                device="cpu",
                progress=False,
            )
            row = {
                "data": name,
                "model": model,
                "minutes": options.minutes,
                "parameters": operator.parameters,
                "epochs": operator.provenance["epochs"],
                "relative_l2": operator.evaluate(test)["relative_l2"],
                "finer": None if finer is None else operator.evaluate(finer)["relative_l2"],
                "hardware": operator.provenance["hardware"],
            }
            rows.append(row)
            print(f"{name:28s} {model:21s} {100 * row['relative_l2']:.2f} %", flush=True)
            write_json(RESULT, {"rows": rows})


if __name__ == "__main__":
    main()
