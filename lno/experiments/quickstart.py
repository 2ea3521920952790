"""The quickstart: learn to reconstruct a whole field from a few sensors, in minutes on a laptop.

Makes solutions of Burgers' equation, trains a small completer on random sensors, and compares it
with kriging and radial basis functions, which need no training, on held-out solutions.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from lno.data import Fields
from lno.data.observe import RandomRatio
from lno.data.tables import write_csv
from lno.evaluation import Errors
from lno.experiments.execution import execute
from lno.experiments.inverse import errors_of, observed, predicted
from lno.experiments.presets import FEW_SENSORS, WINDOW, Preset
from lno.experiments.runs import RunSpec
from lno.files import require_folder, write_text
from lno.kernel_methods.krige import krige
from lno.kernel_methods.rbf import interpolate_rbf
from lno.ledger import Run
from lno.metrics import METRICS
from lno.models import LNOConfig
from lno.operator import Operator
from lno.problems import Burgers
from lno.problems.make import make
from lno.report import html, plots
from lno.report.runs import model_name
from lno.report.tables import Table
from lno.tasks import Completion
from lno.training.progress import progress
from lno.training.recipe import Recipe

RATIOS = (0.05, 0.01, 0.005)
CONFIG = LNOConfig(width=64, latents=64, blocks=4, heads=4, layers=1)
RECIPE = Recipe(epochs=40, batch=8, loss="relative_mae", queries=256)
TASK = Completion(FEW_SENSORS, WINDOW)
TRAIN, TEST = 1024, 64
METHODS = ("lno", "kriging", "rbf")


@dataclass(frozen=True)
class Comparison:
    """All methods with sensors at one share of the points.

    Args:
        ratio: the share.
        seen: the observations of all test samples, with the truth.
        predictions: of each method, (s, q, 1): LNO first.
    """

    ratio: float
    seen: Fields
    predictions: dict[str, Float[Tensor, "s q 1"]]

    def sample_errors(self) -> dict[str, Errors]:
        """The errors of each method on the test samples."""
        return {method: errors_of(p, self.seen) for method, p in self.predictions.items()}

    def errors(self) -> dict[str, dict[str, float]]:
        """Mean errors of each method over the test samples."""
        return {method: errors.means() for method, errors in self.sample_errors().items()}

    def typical(self) -> int:
        """The sample with the median gain of LNO over the best of the others: the one to show."""
        error, truth = METRICS["relative_mae"], torch.from_numpy(np.asarray(self.seen.y))
        learned, *others = (error(p, truth) for p in self.predictions.values())
        gain = learned / torch.stack(others).amin(0)
        return int(gain.argsort()[len(gain) // 2])


@dataclass(frozen=True)
class Quickstart(RunSpec):
    """The run of the quickstart: data, sizes and recipe of its own, on one CPU core."""

    seed: int = 0
    comparisons: list[Comparison] = field(default_factory=list, compare=False)

    one_thread: ClassVar[bool] = True

    def name(self, seed: int | str) -> str:
        """The same for every seed."""
        return "quickstart"

    @property
    def preset(self) -> Preset:
        """Sizes, recipe and task."""
        return Preset("quickstart", CONFIG, RECIPE, TASK, conditional=True)

    def samples(self, device: str) -> tuple[Fields, float, Fields]:
        """Training samples, the share of them for validation, and test samples."""
        with progress("making data", TRAIN + TEST) as update:
            fields = make(Burgers(), TRAIN + TEST, self.seed, progress=update)
        train, test = fields.split(TRAIN, TEST)
        return train, 1 / 32, test

    def errors(self, operator: Operator, test: Fields, seed: int) -> dict[str, Errors]:
        """Errors at every ratio; the comparisons are kept for figures and for other methods."""
        self.comparisons.extend(_compare(operator, test))
        return {f"test:ratio={c.ratio:g}": c.sample_errors()["lno"] for c in self.comparisons}


def quickstart(
    out: str | Path, seed: int = 0, results: str | Path | None = None, program: str = "lno"
) -> list[Comparison]:
    """Run the whole quickstart and write its files into the folder `out`.

    Args:
        out: where `report.html`, `sensors.csv`, `reconstruction.png` and the run go.
        seed: decides the data, the weights and the sensors.
        results: the ledger to file the runs in; None: `results` in `out`.
        program: how the user calls `lno`, for the commands that are shown.
    """
    out = require_folder(out)
    protocol = f"{TRAIN}/{TEST} samples, window t 0.25 to 0.75, random sensors"
    spec = Quickstart("burgers", "lno", "quickstart", protocol=protocol, seed=seed)
    # No checkpoints: it takes minutes, and starting it again is what a user expects.
    done = execute(spec, [seed], out, "cpu", folder=None)
    comparisons, operator = spec.comparisons, done.operator
    shown = comparisons[1]
    x, u = _sensors(shown, shown.typical())
    write_csv(out / "sensors.csv", [*operator.labels.names["x"], "u"], np.column_stack((x, u)))
    plots.save(_figure(operator, shown), out / "reconstruction.png")
    write_text(out / "report.html", _report(operator, comparisons, out, program))
    for run in _runs(done.runs[0], comparisons):
        run.save(results or out / "results", "quickstart")
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


def table(comparisons: list[Comparison]) -> Table:
    """Errors of the methods, a row for each number of sensors."""
    rows = []
    for c in comparisons:
        shown = (f"{100 * e['relative_mae']:.2f} %" for e in c.errors().values())
        rows.append([f"{100 * c.ratio:g} %", str(len(c.seen[0].x)), *shown])
    header = ["observed", "sensors", *map(model_name, METHODS)]
    return Table("relative MAE, held-out samples", header, rows)


def _compare(operator: Operator, test: Fields) -> list[Comparison]:
    """All methods on the same sensors of the test samples."""
    comparisons, coordinates = [], operator.normalizers.x
    with progress("comparing", len(RATIOS) * len(test)) as update:
        for number, ratio in enumerate(RATIOS):
            seen = observed(test, RandomRatio(ratio))
            kriged, splines = [], []
            for k, sample in enumerate(seen):
                batch = seen.batch([k])
                x, x_query = (coordinates.encode(v) for v in (batch.x, batch.x_query))
                kriged.append(krige(x, batch.u, x_query, axes=coordinates.axes)[0])
                spline = interpolate_rbf(sample.x, sample.u, sample.x_query, test.period)
                splines.append(torch.from_numpy(spline).float())
                update(number * len(test) + k + 1, f"{100 * ratio:g} % observed")
            every = (predicted(operator, seen), torch.stack(kriged), torch.stack(splines))
            comparisons.append(Comparison(ratio, seen, dict(zip(METHODS, every, strict=True))))
    return comparisons


def _sensors(comparison: Comparison, k: int) -> tuple[np.ndarray, np.ndarray]:
    sample = comparison.seen[k]
    return sample.x, sample.u[:, 0]


def _figure(operator: Operator, comparison: Comparison) -> Figure:
    k, labels = comparison.typical(), operator.labels
    grid, truth = labels.grid, comparison.seen[k].y
    assert grid is not None and truth is not None
    fields = {
        model_name(method): p[k, :, 0].numpy().reshape(grid)
        for method, p in comparison.predictions.items()
    }
    plane = plots.Plane(("t", "x"), labels.low, labels.high)  # type: ignore[arg-type]
    sensors = _sensors(comparison, k)
    return plots.reconstruction(plane, truth[:, 0].reshape(grid), sensors, fields)


def _report(operator: Operator, comparisons: list[Comparison], out: Path, program: str) -> str:
    shown, best = table(comparisons), []
    for c in comparisons:
        errors = [e["relative_mae"] for e in c.errors().values()]
        best.append(2 + errors.index(min(errors)))
    provenance = operator.provenance
    parts = [
        html.paragraph(
            "A Latent Neural Operator was trained to reconstruct solutions of Burgers' equation "
            f"from randomly placed sensors: {provenance['seconds']:.0f} seconds on the CPU, "
            f"{operator.parameters:,} weights. One model serves every number of sensors; its "
            "predictions are conditioned on them (kriging with the model as the prior mean). "
            "Beside it are methods that need no training: kriging alone, and cubic radial basis "
            "functions (RBF)."
        ),
        html.table(shown.header, shown.rows, best),
        html.paragraph(
            f"Mean absolute error relative to the mean size of the field, mean over {TEST} "
            "held-out solutions. The fewer the sensors, the more it helps to know what solutions "
            "look like; with many, interpolation is hard to beat. The pictures show the solution "
            "with the median gain of LNO over the better of the others.",
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
            f"reconstructed for t from {WINDOW.low} to {WINDOW.high}. Model: {asdict(CONFIG)}. "
            f"Recipe: {asdict(RECIPE)}. "
            f"Data: sha256 {data['digest'][:16]}. Hardware: {provenance['hardware']}. "
            f"lno {provenance['lno']}, torch {provenance['torch']}.",
            note=True,
        ),
    ]
    return html.page("A field from a handful of sensors", parts)


def _runs(learned: Run, comparisons: list[Comparison]) -> list[Run]:
    """A run of each method, in the form of the ledger."""
    plain = replace(
        learned,
        recipe="none",
        epochs=0,
        steps=0,
        seconds=0.0,
        parameters=0,
        config={},
        curve=[],
        samples={},
    )
    others = [
        replace(
            plain,
            model=method,
            metrics={f"test:ratio={c.ratio:g}": c.errors()[method] for c in comparisons},
        )
        for method in METHODS
        if method != learned.model
    ]
    return [learned, *others]
