"""The quickstart: learn to see a whole field from a few sensors, in minutes on a laptop.

Makes solutions of Burgers' equation, trains a small completer on random sensors, and compares it
with radial basis functions on solutions that neither saw.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure

from lno.data import Batch, Fields
from lno.data.interpolate import interpolate_rbf
from lno.data.observe import RandomRatio, Window
from lno.data.tables import write_csv
from lno.files import require_folder, write_text
from lno.ledger import Run, commit
from lno.metrics import METRICS
from lno.models import LNOConfig
from lno.operator import Operator
from lno.problems import Burgers
from lno.problems.make import make
from lno.report import html, plots
from lno.tasks import Completion, to_json
from lno.training.device import one_thread
from lno.training.progress import progress
from lno.training.recipe import Recipe

WINDOW = Window("t", 0.25, 0.75)
RATIOS = (0.05, 0.01, 0.005)
CONFIG = LNOConfig(width=64, latents=64, blocks=2, heads=4, layers=1)
RECIPE = Recipe(epochs=60, batch=8, rate=3e-3, queries=256)
TASK = Completion(RandomRatio(0.005, 0.03), WINDOW, exact=True)
TRAIN, TEST = 1024, 64


@dataclass(frozen=True)
class Comparison:
    """Both methods at one observed share of the points."""

    ratio: float
    batch: Batch  # all test samples, as observed
    learned: torch.Tensor  # (s, q, 1)
    classical: torch.Tensor  # (s, q, 1)

    def errors(self) -> tuple[dict[str, float], dict[str, float]]:
        """Mean errors over the test samples, learned and classical."""
        learned, classical = (
            {name: float(m(guess, self.batch.y).mean()) for name, m in METRICS.items()}
            for guess in (self.learned, self.classical)
        )
        return learned, classical

    def typical(self) -> int:
        """The sample with the median ratio of both errors: the one to compare them in."""
        learned, classical = (
            METRICS["relative_mae"](guess, self.batch.y) for guess in (self.learned, self.classical)
        )
        return int((learned / classical).argsort()[len(learned) // 2])


def quickstart(
    out: str | Path, seed: int = 0, results: str | Path | None = None, program: str = "lno"
) -> list[Comparison]:
    """Run the whole quickstart and write its files into the folder `out`.

    Args:
        out: where `report.html`, `model.safetensors`, `sensors.csv` and `reconstruction.png` go.
        seed: decides the data, the weights and the sensors.
        results: the ledger to record the run in; None: `results` in `out`.
        program: how the user calls `lno`, for the commands that are shown.
    """
    out = require_folder(out)
    train, test = _data(seed)
    with one_thread():
        operator = Operator.fit(
            train,
            task=TASK,
            config=CONFIG,
            recipe=RECIPE,
            validation=1 / 32,
            device="cpu",
            seed=seed,
        )
    operator.save(out / "model.safetensors")
    comparisons = _compare(operator, test)
    shown = comparisons[1]
    x, u = _sensors(shown, shown.typical())
    write_csv(out / "sensors.csv", [*operator.labels.names["x"], "u"], np.column_stack((x, u)))
    plots.save(_figure(operator, shown), out / "reconstruction.png")
    write_text(out / "report.html", _report(operator, comparisons, out, program))
    _record(operator, comparisons, results or out / "results", seed)
    return comparisons


def next_commands(out: str | Path, program: str = "lno") -> list[str]:
    """What to try after the quickstart; each works when pasted, `program` being how to call it."""
    out = Path(out)
    model, sensors = out / "model.safetensors", out / "sensors.csv"
    picture, field = out / "field.png", out / "field.csv"
    return [
        f"{program} info {model}",
        f"{program} predict {model} {sensors} --out {field} --plot {picture}",
        f"{program} predict {model} {sensors} --grid 256x512 --out {out / 'fine.npz'}",
    ]


def _data(seed: int) -> tuple[Fields, Fields]:
    with progress("making data", TRAIN + TEST) as update:
        fields = make(Burgers(), TRAIN + TEST, seed, progress=update)
    train, test = fields.split(TRAIN, TEST)
    return train, test


def _compare(operator: Operator, test: Fields) -> list[Comparison]:
    comparisons = []
    with progress("comparing with RBF", len(RATIOS) * len(test)) as update:
        for number, ratio in enumerate(RATIOS):
            task = Completion(RandomRatio(ratio), WINDOW)
            [(batch, learned)] = operator.evaluate_batches(test, task=task, size=len(test))
            guesses = []
            for k in range(len(batch)):
                x, u, q = (
                    v[k].numpy()
                    for v in (batch.x, batch.u, batch.x_query.expand(len(batch), -1, -1))
                )
                guesses.append(interpolate_rbf(x, u, q, test.period))
                update(number * len(test) + k + 1, f"{100 * ratio:g} % observed")
            classical = torch.from_numpy(np.stack(guesses)).float()
            comparisons.append(Comparison(ratio, batch, learned, classical))
    return comparisons


def _sensors(comparison: Comparison, k: int) -> tuple[np.ndarray, np.ndarray]:
    return comparison.batch.x[k].numpy(), comparison.batch.u[k, :, 0].numpy()


def _figure(operator: Operator, comparison: Comparison) -> Figure:
    k, labels = comparison.typical(), operator.labels
    grid = labels.grid
    assert grid is not None and comparison.batch.y is not None
    truth, learned, classical = (
        v[k, :, 0].numpy().reshape(grid)
        for v in (comparison.batch.y, comparison.learned, comparison.classical)
    )
    plane = plots.Plane(("t", "x"), labels.low, labels.high)  # type: ignore[arg-type]
    guesses = {"LNO": learned, "RBF": classical}
    return plots.reconstruction(plane, truth, _sensors(comparison, k), guesses)


def _report(operator: Operator, comparisons: list[Comparison], out: Path, program: str) -> str:
    rows, best = [], []
    for c in comparisons:
        learned, classical = (e["relative_mae"] for e in c.errors())
        count = c.batch.x.shape[1]
        rows.append(
            [
                f"{100 * c.ratio:g} %",
                f"{count}",
                f"{100 * learned:.2f} %",
                f"{100 * classical:.2f} %",
            ]
        )
        best.append(2 if learned < classical else 3)
    provenance = operator.provenance
    parts = [
        html.paragraph(
            "A Latent Neural Operator was trained to complete solutions of Burgers' equation from "
            f"randomly placed sensors: {provenance['seconds']:.0f} seconds on the CPU, "
            f"{operator.parameters:,} weights. One model serves every number of sensors; what it "
            "misses at them is carried to the points around and added. Beside it: cubic radial "
            "basis functions alone, which need no training."
        ),
        html.table(["observed", "sensors", "LNO", "RBF"], rows, best),
        html.paragraph(
            f"Mean absolute error relative to the mean size of the field, mean over {TEST} "
            "solutions that were not used in training. The fewer the sensors, the more it helps "
            "to know what solutions look like; with many, interpolation is hard to beat. The "
            "pictures show the solution with the median ratio of both errors.",
            note=True,
        ),
    ]
    for c in comparisons:
        parts += [
            html.heading(f"{100 * c.ratio:g} % observed"),
            html.picture(_figure(operator, c), f"reconstructions from {100 * c.ratio:g} %"),
        ]
    data = provenance["data"]
    parts += [
        html.heading("Learning curve"),
        html.picture(plots.learning_curve(provenance["curve"]), "loss and error against time"),
        html.heading("Next"),
        html.commands(next_commands(out, program)),
        html.heading("How it was made"),
        html.paragraph(
            f"u_t + u u_x = 0.01 u_xx, periodic in x, random smooth initial values; "
            f"{data['samples']} solutions for training, from seed {data['seed']}, observed and "
            f"completed for t from {WINDOW.low} to {WINDOW.high}. Model: {asdict(CONFIG)}. "
            f"Recipe: {asdict(RECIPE)}. "
            f"Data: sha256 {data['hash'][:16]}. Hardware: {provenance['hardware']}. "
            f"lno {provenance['lno']}, torch {provenance['torch']}.",
            note=True,
        ),
    ]
    return html.page("A field from a handful of sensors", parts)


def _record(
    operator: Operator, comparisons: list[Comparison], results: str | Path, seed: int
) -> None:
    """Two runs in the ledger: the learned completer and the interpolation beside it."""
    provenance = operator.provenance
    both: list[dict[str, dict[str, float]]] = [{}, {}]
    for c in comparisons:
        for metrics, errors in zip(both, c.errors(), strict=True):
            metrics[f"test:ratio={c.ratio:g}"] = errors
    learned = Run(
        problem="burgers",
        model="lno",
        recipe="quickstart",
        protocol=f"{TRAIN}/{TEST} samples, window t 0.25 to 0.75, random sensors",
        seed=seed,
        epochs=RECIPE.epochs,
        steps=provenance["curve"][-1]["step"],
        task=to_json(TASK),
        hardware=provenance["hardware"],
        seconds=provenance["seconds"],
        parameters=operator.parameters,
        data_hash=provenance["data"]["hash"],
        config={"model": asdict(CONFIG), "recipe": asdict(RECIPE)},
        metrics=both[0],
        commit=commit(),
        curve=provenance["curve"],
    )
    classical = replace(
        learned,
        model="rbf",
        recipe="none",
        epochs=0,
        steps=0,
        seconds=0.0,
        parameters=0,
        config={"kernel": "cubic", "neighbors": 64},
        metrics=both[1],
        curve=[],
    )
    for run in (learned, classical):
        run.save(results, "quickstart")
