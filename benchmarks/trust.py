"""How well samples of another kind are recognised, and whether bounds contain what they promise.

    python benchmarks/trust.py [--holed holed_poisson.npz] [--sst sea_surface_temperature.npz]

Three problems, each with samples of the trained kind and of another:

- Darcy flow with coefficients 12 and 3, and with 16 and 3;
- Poisson's equation on a square with a hole that moves, published data (`--holed`, a file with
  positions and values): the fifth of the domains farthest from the mean of all is not trained on;
- monthly sea-surface temperature, published data (`--sst`), completed from sensors with the
  climatology of the month as background: months that are labelled three months off.

Operators are trained from several seeds, each on another random split; years of the sea stay in
order. Of each problem, over all of them: the area under the ROC curve (AUROC) of all scores
together and of the latent tokens alone, false alarms, the share of samples of the other kind that
is flagged, the share of points inside bounds of 90 % for either kind, and the errors. Takes about
an hour on one CPU core. Writes results/benchmarks/trust.json; problems that are not asked for keep
their rows there.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lno import Completion, Fields, Operator, RandomRatio, Recipe
from lno.files import read_json, write_json
from lno.models import LNOConfig
from lno.problems import Darcy
from lno.problems.make import make
from lno.training.device import hardware, pick_device
from lno.trust import check
from lno.trust.trust import LATENT, measure

RESULT = Path(__file__).parents[1] / "results" / "benchmarks" / "trust.json"
CONFIG = LNOConfig(width=64, latents=64, blocks=2, heads=4, layers=1)
LEVEL = 0.9
SEED = 7919  # of the samples of Darcy flow
LEFT_OUT = 5  # one of so many domains is of another kind
MONTHS = (349, 60, 85)  # to 2010, to 2015, and later


class Case(NamedTuple):
    """Samples to train on, to calibrate on and to test on, and those of another kind."""

    train: Fields
    held_out: Fields
    test: Fields
    others: Fields


def darcy(samples: int, grid: int, seeds: range) -> Iterator[Case]:
    """So many samples to train on, a fifth as many for each other purpose."""
    part = max(20, samples // 5)
    problem = {"grid": grid, "every": 2}
    data = make(Darcy(**problem), samples + 2 * part, SEED)
    others = make(Darcy(**problem, high=16.0), part, SEED + 1)
    for seed in seeds:
        yield Case(*data.shuffle(seed).split(samples, part, part), others)


def holed_poisson(path: Path, seeds: range) -> Iterator[Case]:
    """Domains alone are given: positions of their nodes. A fifth of the near ones are test samples.

    As many calibrate as train: bounds from few samples are wide, by the rule that they follow.
    """
    with np.load(path, allow_pickle=False) as file:
        positions, values = file["positions"], file["values"]
    data = Fields(positions, y=values, names={"y": ["u"]})
    flat = positions.reshape(len(positions), -1)
    order = np.argsort(np.linalg.norm(flat - flat.mean(0), axis=1))
    count = len(data) - len(data) // LEFT_OUT
    near, far = data.subset(order[:count]), data.subset(order[count:])
    part = 2 * count // 5
    for seed in seeds:
        yield Case(*near.shuffle(seed).split(part, part, count - 2 * part), far)


def sea_surface(path: Path, seeds: range) -> Iterator[Case]:
    """Months to 2010 to train on, to 2015 to calibrate on, then to test on; and labelled wrong."""
    with np.load(path, allow_pickle=False) as file:
        axes = np.meshgrid(file["lat"], file["lon"], indexing="ij")
        values, month = file["sst"].reshape(len(file["sst"]), -1), file["month"] % 12
    sea = np.isfinite(values).all(0)
    data = Fields(
        np.stack(axes, -1).reshape(-1, 2)[sea],
        y=values[:, sea, None],
        parameters=month[:, None],
        sphere=("lat", "lon"),
        names={"x": ["lat", "lon"], "y": ["sst"], "parameters": ["month"]},
    )
    train, held_out, test = data.split(*MONTHS)
    assert test.parameters is not None
    for _ in seeds:
        yield Case(train, held_out, test, test.replace(parameters=(test.parameters + 3) % 12))


def auroc(usual: np.ndarray, others: np.ndarray) -> float:
    """The probability that a sample of another kind has the larger score."""
    above, same = others[:, None] > usual, others[:, None] == usual
    return float((above + 0.5 * same).mean())


def measured(case: Case, seed: int, epochs: int, device: str) -> dict[str, float]:
    """Train, calibrate and measure one operator."""
    given: dict[str, Any] = {}
    recipe = Recipe(epochs=epochs, batch=8, queries=1024, weighted=case.train.weights is not None)
    if case.train.sphere is not None:
        given = {"task": Completion(RandomRatio(0.005, 0.05)), "conditional": True}
        given["background"] = "climatology:month"
        recipe = replace(recipe, loss="relative_mae", weighted=True)
    operator = Operator.fit(
        case.train,
        config=CONFIG,
        recipe=recipe,
        validation=0.0,
        seed=seed,
        device=device,
        **given,
    ).calibrated(case.held_out, LEVEL)
    usual, others = check(operator, case.test), check(operator, case.others)
    latent = [measure(operator, samples)[0][LATENT] for samples in (case.test, case.others)]
    return {
        "auroc": auroc(usual.worst, others.worst),
        "auroc_latent": auroc(*latent),
        "false_alarms": float(usual.flagged.mean()),
        "flagged": float(others.flagged.mean()),
        "contained": float(min(usual.contained)),
        "contained_others": float(min(others.contained)),
        "relative_l2": operator.evaluate(case.test)["relative_l2"],
        "relative_l2_others": operator.evaluate(case.others)["relative_l2"],
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--holed", type=Path, help="holed_poisson.npz; without it, Darcy alone")
    parser.add_argument("--sst", type=Path, help="sea_surface_temperature.npz")
    parser.add_argument("--no-darcy", action="store_true", help="the other problems alone")
    parser.add_argument("--samples", type=int, default=400, help="of Darcy flow to train on")
    parser.add_argument("--grid", type=int, default=57, help="of the solver of Darcy flow")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    seeds = range(options.seeds)
    cases = {}
    if not options.no_darcy:
        cases["darcy"] = darcy(options.samples, options.grid, seeds)
    if options.holed is not None:
        cases["holed_poisson"] = holed_poisson(options.holed, seeds)
    if options.sst is not None:
        cases["sea surface temperature"] = sea_surface(options.sst, seeds)
    rows: list[dict[str, Any]] = read_json(options.out)["rows"] if options.out.exists() else []
    for name, each in cases.items():
        found = []
        for seed, case in zip(seeds, each, strict=True):
            found.append(measured(case, seed, options.epochs, options.device))
            print(name, seed, found[-1], flush=True)
        counts = {key: len(samples) for key, samples in case._asdict().items()}
        means = {key: float(np.mean([one[key] for one in found])) for key in found[0]}
        rows = [row for row in rows if row["problem"] != name]
        row = {"problem": name, **means, "epochs": options.epochs, "samples": counts}
        rows.append({**row, "seeds": found})
        result = {"rows": rows, "level": LEVEL}
        write_json(options.out, {**result, "hardware": hardware(pick_device(options.device))})


if __name__ == "__main__":
    main()
