"""The quickstart: learn to see a whole field from a few sensors, in minutes on a laptop.

Makes solutions of Burgers' equation, trains a small completer on random sensors, and compares it
with kriging and radial basis functions, which need no training, on solutions that it did not see.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure

from lno.data import Batch, Fields
from lno.data.interpolate import interpolate_rbf
from lno.data.krige import krige
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
from lno.report.runs import NAMES
from lno.report.tables import Table
from lno.tasks import Completion, to_json
from lno.training.device import one_thread
from lno.training.progress import progress
from lno.training.recipe import Recipe

WINDOW = Window("t", 0.25, 0.75)
RATIOS = (0.05, 0.01, 0.005)
CONFIG = LNOConfig(width=64, latents=64, blocks=4, heads=4, layers=1)
RECIPE = Recipe(epochs=40, batch=8, loss="relative_mae", queries=256)
TASK = Completion(RandomRatio(0.0025, 0.05), WINDOW, exact=True)
TRAIN, TEST = 1024, 64
METHODS = ("lno", "kriging", "rbf")


@dataclass(frozen=True)
class Comparison:
    """All methods at one observed share of the points.

    Args:
        ratio: the share.
        batch: all test samples, as observed.
        guesses: what each method sees in them, (s, q, 1): LNO first.
    """

    ratio: float
    batch: Batch
    guesses: dict[str, torch.Tensor]

    def errors(self) -> dict[str, dict[str, float]]:
        """Mean errors of each method over the test samples."""
        return {
            method: {name: float(m(guess, self.batch.y).mean()) for name, m in METRICS.items()}
            for method, guess in self.guesses.items()
        }

    def typical(self) -> int:
        """The sample with the median gain of LNO over the best of the others: the one to show."""
        error = METRICS["relative_mae"]
        learned, *others = (error(guess, self.batch.y) for guess in self.guesses.values())
        gain = learned / torch.stack(others).amin(0)
        return int(gain.argsort()[len(gain) // 2])


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
    comparisons, coordinates = [], operator.normalizers.x
    with progress("comparing", len(RATIOS) * len(test)) as update:
        for number, ratio in enumerate(RATIOS):
            task = Completion(RandomRatio(ratio), WINDOW)
            [(batch, learned)] = operator.evaluate_batches(test, task=task, size=len(test))
            kriged, splines = [], []
            for k in range(len(batch)):
                x, u, q = batch.x[k], batch.u[k], batch.x_query[0]
                there, wanted = coordinates.encode(x)[None], coordinates.encode(q)[None]
                kriged.append(krige(there, u[None], wanted, axes=coordinates.axes)[0])
                spline = interpolate_rbf(x.numpy(), u.numpy(), q.numpy(), test.period)
                splines.append(torch.from_numpy(spline).float())
                update(number * len(test) + k + 1, f"{100 * ratio:g} % observed")
            guesses = (learned, torch.stack(kriged), torch.stack(splines))
            comparisons.append(Comparison(ratio, batch, dict(zip(METHODS, guesses, strict=True))))
    return comparisons


def _sensors(comparison: Comparison, k: int) -> tuple[np.ndarray, np.ndarray]:
    return comparison.batch.x[k].numpy(), comparison.batch.u[k, :, 0].numpy()


def _figure(operator: Operator, comparison: Comparison) -> Figure:
    k, labels = comparison.typical(), operator.labels
    grid = labels.grid
    assert grid is not None and comparison.batch.y is not None
    truth, *guesses = (
        v[k, :, 0].numpy().reshape(grid) for v in (comparison.batch.y, *comparison.guesses.values())
    )
    plane = plots.Plane(("t", "x"), labels.low, labels.high)  # type: ignore[arg-type]
    named = dict(zip(map(NAMES.__getitem__, comparison.guesses), guesses, strict=True))
    return plots.reconstruction(plane, truth, _sensors(comparison, k), named)


def table(comparisons: list[Comparison]) -> Table:
    """Errors of the methods, a row for each number of sensors."""
    rows = []
    for c in comparisons:
        shown = (f"{100 * e['relative_mae']:.2f} %" for e in c.errors().values())
        rows.append([f"{100 * c.ratio:g} %", str(c.batch.x.shape[1]), *shown])
    header = ["observed", "sensors", *map(NAMES.__getitem__, METHODS)]
    return Table("relative MAE, unseen samples", header, rows)


def _report(operator: Operator, comparisons: list[Comparison], out: Path, program: str) -> str:
    shown, best = table(comparisons), []
    for c in comparisons:
        errors = [e["relative_mae"] for e in c.errors().values()]
        best.append(2 + errors.index(min(errors)))
    provenance = operator.provenance
    parts = [
        html.paragraph(
            "A Latent Neural Operator was trained to complete solutions of Burgers' equation from "
            f"randomly placed sensors: {provenance['seconds']:.0f} seconds on the CPU, "
            f"{operator.parameters:,} weights. One model serves every number of sensors; what it "
            "misses at them is carried to the points around by kriging and added. Beside it what "
            "needs no training: kriging alone, and cubic radial basis functions (RBF)."
        ),
        html.table(shown.header, shown.rows, best),
        html.paragraph(
            f"Mean absolute error relative to the mean size of the field, mean over {TEST} "
            "solutions that were not used in training. The fewer the sensors, the more it helps "
            "to know what solutions look like; with many, interpolation is hard to beat. The "
            "pictures show the solution with the median gain of LNO over the better of the others.",
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
    """A run in the ledger of each method."""
    provenance = operator.provenance
    metrics: dict[str, dict[str, dict[str, float]]] = {method: {} for method in METHODS}
    for c in comparisons:
        for method, errors in c.errors().items():
            metrics[method][f"test:ratio={c.ratio:g}"] = errors
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
        metrics=metrics["lno"],
        commit=commit(),
        curve=provenance["curve"],
    )
    untrained = replace(
        learned, recipe="none", epochs=0, steps=0, seconds=0.0, parameters=0, config={}, curve=[]
    )
    others = [replace(untrained, model=m, metrics=metrics[m]) for m in METHODS if m != "lno"]
    for run in (learned, *others):
        run.save(results, "quickstart")
