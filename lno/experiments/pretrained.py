"""The models that come with `lno reconstruct`: our completers as one ensemble, our propagators too.

Weights are kept in half precision; errors of both are measured side by side. Bounds are calibrated
on the samples that were watched, and how much they contain is measured on the test samples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from lno.calibration import Misses, calibrate, covered
from lno.data import Fields
from lno.data.observe import RandomRatio
from lno.experiments.cells import Cell, train_operators
from lno.experiments.inverse import (
    COMPLETERS,
    PROPAGATORS,
    TRUTH,
    at_the_ends,
    mean_errors,
    observed,
    percent,
    predicted,
)
from lno.experiments.presets import RATIOS, WINDOW
from lno.files import read_json, write_json, write_text
from lno.operator import Operator
from lno.reconstruct import PRETRAINED, Reconstructor
from lno.report.plots import agreement
from lno.report.tables import MISSING, Table
from lno.tasks import Completion
from lno.training.progress import progress

CELLS: tuple[Cell, ...] = tuple(
    next(c for c in cells if c.recipe == recipe)
    for cells, recipe in ((COMPLETERS, "our-completer"), (PROPAGATORS, "our-propagator"))
)
SEEDS = range(3)
LEVEL, LEVELS = 0.9, (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
COMMAND = "lno reproduce pretrained"


def make(
    results: Path,
    folder: Path = PRETRAINED,
    device: str = "auto",
    say: Callable[[str], None] = lambda line: None,
) -> Table:
    """Train what is missing, write the models and their cards, and measure them."""
    completer, propagator = (
        joined(cell, train_operators(cell, SEEDS, device, say)) for cell in CELLS
    )
    _, watched, test = CELLS[0].samples(device)
    single = Reconstructor(completer, propagator)
    single.save(folder, half=True)
    half = Reconstructor.load(folder, device)
    fitted, tested = (misses(half, samples) for samples in (watched, test))
    bounds = calibrate(fitted, LEVEL)
    replace(single, calibration=bounds).save(folder, half=True)
    found = {
        "errors": {"float32": errors(single, test), "float16": errors(half, test)},
        "bytes": sum(path.stat().st_size for path in folder.glob("*.safetensors")),
        "level": LEVEL,
        "by_sensors": {str(one.sensors): covered([one], bounds) for one in tested},
        "coverage": [{"level": v, **covered(tested, calibrate(fitted, v))} for v in LEVELS],
        "calibration": asdict(bounds),
        "samples": {"watched": len(watched), "test": len(test)},
    }
    write_json(results / "benchmarks" / "pretrained.json", found)
    write_text(folder / "README.md", card(found, single))
    return table(results)


def joined(cell: Cell, members: Sequence[Operator]) -> Operator:
    """The operators of several seeds as one ensemble."""
    first = members[0]
    models = [model.to(first.device) for operator in members for model in operator.members]
    kept = ("lno", "torch", "hardware", "precision", "data", "recipe", "steps")
    told = {key: first.provenance[key] for key in kept if key in first.provenance}
    runs = [f"{cell.problem}/{cell.model}/{cell.name(seed)}.json" for seed in SEEDS]
    return replace(first, members=models, provenance={**told, "runs": runs})


def misses(whole: Reconstructor, samples: Fields) -> list[Misses]:
    """How far the truth is from what the members see, at every ratio."""
    tasks = [Completion(RandomRatio(ratio), WINDOW, exact=True) for ratio in RATIOS]
    parts = len(tasks) * -(-len(samples) // 16)
    with progress("reconstructing", parts) as update:
        done = iter(range(1, parts + 1))
        return whole.misses(samples, tasks, report=lambda: update(next(done)))


def errors(whole: Reconstructor, test: Fields) -> dict[str, float]:
    """Relative MAE of the ensembles: of the completer at every ratio, of both at the ends."""
    found = {}
    whole_fields = whole.propagator.task.prepare(test)
    ends = at_the_ends(whole_fields)
    seen: dict[str, Any] = {TRUTH: whole_fields}
    for ratio in RATIOS:
        sensors = observed(test, RandomRatio(ratio))
        inside = predicted(whole.completer, sensors)
        found[f"test:ratio={percent(ratio)}"] = mean_errors(inside, sensors)["relative_mae"]
        there = (whole_fields.x_query, whole_fields.y)
        seen[f"test:from={percent(ratio)}"] = Fields(whole_fields.x, inside, *there)
    for name, fields in seen.items():
        prediction = predicted(whole.propagator, fields)
        found[name] = mean_errors(prediction, fields, ends)["relative_mae"]
    return found


def table(results: Path) -> Table:
    """What the models that come with the package make of sensors."""
    title, found = "Models that come with the package", _found(results)
    header = ["observed", "sensors", "inside the window", "at t = 0 and t = 1"]
    if not found:
        rows = [[f"{100 * ratio:g} %", *[MISSING] * 3] for ratio in RATIOS]
        return Table(title, header, rows, [f"`{COMMAND}`"])
    single, half = (found["errors"][kind] for kind in ("float32", "float16"))
    rows = [["all inside", "–", "–", f"{100 * half[TRUTH]:.2f} %", "–"]]
    counted = sorted(found["by_sensors"].items(), key=lambda pair: -int(pair[0]))
    for ratio, (sensors, inside) in zip(RATIOS, counted, strict=True):
        errors = [half[f"test:{kind}={percent(ratio)}"] for kind in ("ratio", "from")]
        shown = [f"{100 * error:.2f} %" for error in errors]
        share = f"{100 * inside['all']:.1f} %"
        rows.append([f"{100 * ratio:g} %", f"{int(sensors):,}", *shown, share])
    change = max(abs(half[name] / single[name] - 1) for name in single)
    note = (
        f"Relative MAE on {found['samples']['test']} solutions that were neither trained on nor "
        f"used for the bounds, and the share of all true values between the bounds. Ensembles of "
        f"{len(SEEDS)}, {found['bytes'] / 1e6:.1f} MB in float16; in float32 no error differs by "
        f"more than {100 * change:.1g} % of it. `{COMMAND}`"
    )
    return Table(title, [*header, f"in {100 * found['level']:.0f} % bounds"], rows, [note])


def coverage_curve(results: Path) -> list[tuple[str, Figure]]:
    """Stated levels against what bounds contain; nothing where it was not measured."""
    found = _found(results)
    if not found:
        return []
    curve = found["coverage"]
    lines = {
        name: [point[key] for point in curve]
        for name, key in (("inside the window", "inside"), ("outside", "outside"))
    }
    caption = "Bounds of reconstructions: the share of true values in them on the test samples."
    figure = agreement([p["level"] for p in curve], lines, "stated level", "share inside")
    return [(caption, figure)]


def card(found: dict[str, Any], whole: Reconstructor) -> str:
    """What a user of the models should know."""
    values = found["errors"]["float16"]
    at = ", ".join(
        f"{100 * values[f'test:ratio={percent(r)}']:.2f} % at {100 * r:g} %" for r in RATIOS
    )
    ends = f"{100 * values[TRUTH]:.2f} % from the truth inside the window, " + ", ".join(
        f"{100 * values[name]:.2f} % at {100 * r:g} %"
        for name, r in zip(_after(), RATIOS, strict=True)
    )
    both = (whole.completer, whole.propagator)
    runs = "\n".join(f"- `results/{run}`" for w in both for run in w.provenance["runs"])
    return f"""# Burgers' equation from sensors

Two ensembles of {len(SEEDS)} Latent Neural Operators each, in float16. `completer.safetensors`
sees u(t, x) for {WINDOW.low:g} ≤ t ≤ {WINDOW.high:g} from sensors there,
`propagator.safetensors` goes on to 0 ≤ t ≤ 1. `lno reconstruct` uses them.

**For** u_t + u u_x = 0.01 u_xx on a circle of length 1, with smooth random initial values of unit
variance, as `lno data make burgers` draws them. For other viscosities, domains and forcings, train
your own.

**Errors** on {found["samples"]["test"]} unseen samples, relative MAE. Completer, by share of
points observed: {at}. At t = 0 and t = 1: {ends}.

**Bounds** contain {100 * found["level"]:.0f} % of the true values of unseen samples, pooled over
points and samples, for sensors without errors at random places; a single field may have more or
less.

Trained in the runs

{runs}

Made by `{COMMAND}`.
"""


def _after() -> list[str]:
    return [f"test:from={percent(ratio)}" for ratio in RATIOS]


def _found(results: Path) -> dict[str, Any]:
    path = results / "benchmarks" / "pretrained.json"
    return read_json(path) if path.exists() else {}
