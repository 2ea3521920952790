"""The models that come with `lno reconstruct`: our completers and our propagators as ensembles.

Weights are stored in half precision, and errors of both precisions are measured. Bounds and
thresholds are calibrated on samples that come after those of the data set, which cost little and
decide nothing else. Coverage and false alarms are measured on the test samples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from lno.calibration import (
    Nonconformity,
    calibrate,
    coverage,
    flags,
    guarantee,
    require_fields,
)
from lno.data import Fields
from lno.data.observe import RandomRatio
from lno.experiments.datasets import protocol_of
from lno.experiments.inverse import (
    COMPLETERS,
    PROPAGATORS,
    TRUTH,
    at_the_ends,
    mean_errors,
    observed,
    parts,
    percent,
    predicted,
)
from lno.experiments.presets import RATIOS, WINDOW
from lno.experiments.queue import train_operators
from lno.experiments.runs import RunSpec
from lno.files import read_json, write_json, write_text
from lno.operator import Operator
from lno.problems import PROBLEMS
from lno.problems import make as samples
from lno.reconstruct import BATCH, PRETRAINED, Reconstructor
from lno.report.plots import agreement
from lno.report.tables import MISSING, Table
from lno.training.device import pick_solver_device
from lno.training.progress import progress
from lno.trust import Trust

SPECS: tuple[RunSpec, ...] = tuple(
    next(spec for spec in specs if spec.recipe == recipe)
    for specs, recipe in ((COMPLETERS, "our-completer"), (PROPAGATORS, "our-propagator"))
)
SEEDS = range(3)
CALIBRATION = 512  # held-out fields: with fewer, thresholds depend on chance
MANY = 0.01  # above this ratio of sensors a field takes seconds,
FEWER, FEWER_TESTS = 100, 32  # so fewer held-out fields have to do: to calibrate, and to test
LEVEL, LEVELS = 0.9, (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
COMMAND = "lno reproduce pretrained"


def make(
    results: Path,
    folder: Path = PRETRAINED,
    device: str = "auto",
    say: Callable[[str], None] = lambda line: None,
) -> Table:
    """Train what is missing, write the models, calibrate and measure them."""
    completer, propagator = (
        joined(spec, train_operators(spec, SEEDS, device, say)) for spec in SPECS
    )
    _, test = held_out(device)
    single = Reconstructor(completer, propagator)
    single.save(folder, half=True)
    return _measure(results, folder, device, {"float32": errors(single, test)})


def recalibrate(results: Path, folder: Path = PRETRAINED, device: str = "auto") -> Table:
    """Calibrate and measure the models in a folder again, without training.

    Their weights stay as they are, and so do the errors in float32 that were measured with them.
    """
    before = _found(results).get("errors", {})
    return _measure(results, folder, device, {k: v for k, v in before.items() if k == "float32"})


def _measure(
    results: Path, folder: Path, device: str, single: dict[str, dict[str, float]]
) -> Table:
    """Calibrate and measure the models in a folder; write calibration, record and model card.

    `single` holds the errors in float32, if they are known.
    """
    calibration_set, test = held_out(device)
    require_fields(len(calibration_set), LEVEL)
    half = Reconstructor.load(folder, device)
    fitted = nonconformity(half, calibration_set, FEWER)
    tested = nonconformity(half, test, FEWER_TESTS)
    calibration = calibrate(fitted, LEVEL)
    calibration.save(folder / "calibration.json")
    possible = [level for level in LEVELS if (1 - level) * (len(calibration_set) + 1) > 1 - 1e-9]
    found = {
        "errors": {**single, "float16": errors(half, test)},
        "bytes": sum(path.stat().st_size for path in folder.glob("*.safetensors")),
        "level": LEVEL,
        "by_sensors": {str(one.sensors): coverage([one], calibration) for one in tested},
        "false_alarms": {str(one.sensors): float(flags(one, calibration).mean()) for one in tested},
        "coverage": [
            {"level": level, **coverage(tested, calibrate(fitted, level))} for level in possible
        ],
        "calibration": asdict(calibration),
        "samples": {"calibration": len(calibration_set), "test": len(test)},
    }
    write_json(results / "benchmarks" / "pretrained.json", found)
    write_text(folder / "README.md", card(found, half))
    return table(results)


def held_out(device: str) -> tuple[Fields, Fields]:
    """The samples to calibrate on and to test on, made without those that are trained on."""
    spec, where = SPECS[0], str(pick_solver_device(device))
    chosen = protocol_of(spec.problem, spec.protocol)
    problem, count = PROBLEMS[spec.problem](**chosen.parameters), chosen.test + CALIBRATION
    others = samples.make(problem, count, device=where, first=chosen.train)
    own, calibration = others.split(chosen.test, CALIBRATION)
    return calibration, parts(own)[1]


def joined(spec: RunSpec, members: Sequence[Operator]) -> Operator:
    """The operators of several seeds as one ensemble."""
    first = members[0]
    models = [model.to(first.device) for operator in members for model in operator.members]
    kept = ("lno", "torch", "hardware", "precision", "data", "recipe", "steps")
    record = {key: first.provenance[key] for key in kept if key in first.provenance}
    runs = [f"{spec.problem}/{spec.model}/{spec.name(seed)}.json" for seed in SEEDS]
    return replace(first, members=models, provenance={**record, "runs": runs}, trust=Trust())


def nonconformity(reconstructor: Reconstructor, fields: Fields, fewer: int) -> list[Nonconformity]:
    """How fields differ from their reconstructions, at every ratio; fewer with many sensors."""
    counts = {r: len(fields) if r <= MANY else min(fewer, len(fields)) for r in RATIOS}
    batches = sum(-(-count // BATCH) for count in counts.values())
    found: list[Nonconformity] = []
    with progress("reconstructing", batches) as update:
        done = iter(range(1, batches + 1))
        for ratio, count in counts.items():
            some, pattern = fields.split(count)[0], [RandomRatio(ratio)]
            found += reconstructor.nonconformity(some, pattern, report=lambda: update(next(done)))
    return found


def errors(reconstructor: Reconstructor, test: Fields) -> dict[str, float]:
    """Relative MAE of the ensembles: the completer at every ratio, both at t = 0 and t = 1."""
    completer, propagator = reconstructor.completer, reconstructor.propagator
    assert propagator is not None
    found = {}
    whole = propagator.task.prepare(test)
    ends = at_the_ends(whole)
    starts: dict[str, Fields] = {TRUTH: whole}
    for ratio in RATIOS:
        sensors = observed(test, RandomRatio(ratio))
        inside = predicted(completer, sensors)
        found[f"test:ratio={percent(ratio)}"] = mean_errors(inside, sensors)["relative_mae"]
        starts[f"test:from={percent(ratio)}"] = Fields(whole.x, inside, whole.x_query, whole.y)
    for name, fields in starts.items():
        prediction = predicted(propagator, fields)
        found[name] = mean_errors(prediction, fields, ends)["relative_mae"]
    return found


def table(results: Path) -> Table:
    """Errors and coverage of the models that come with the package."""
    title, found = "Models shipped with the package", _found(results)
    header = ["observed", "sensors", "inside the window", "at t = 0 and t = 1"]
    if not found:
        rows = [[f"{100 * ratio:g} %", *[MISSING] * 3] for ratio in RATIOS]
        return Table(title, header, rows, [f"`{COMMAND}`"])
    single, half = (found["errors"].get(kind, {}) for kind in ("float32", "float16"))
    rows = [["whole window", "–", "–", f"{100 * half[TRUTH]:.2f} %", "–"]]
    counted = sorted(found["by_sensors"].items(), key=lambda pair: -int(pair[0]))
    for ratio, (sensors, covered) in zip(RATIOS, counted, strict=True):
        errors = [half[f"test:{kind}={percent(ratio)}"] for kind in ("ratio", "from")]
        shown = [f"{100 * error:.2f} %" for error in errors]
        share = f"{100 * covered['all']:.1f} %"
        rows.append([f"{100 * ratio:g} %", f"{int(sensors):,}", *shown, share])
    note = (
        f"Relative MAE on {found['samples']['test']} held-out test samples, and the coverage of "
        f"the bounds, calibrated on {found['samples']['calibration']} others. Above "
        f"{100 * MANY:g} % observed, at most {FEWER} samples calibrate the bounds and "
        f"{FEWER_TESTS} test them. Ensembles of {len(SEEDS)}, {found['bytes'] / 1e6:.1f} MB in "
        "float16"
    )
    if single:
        change = max(abs(half[name] / error - 1) for name, error in single.items())
        note += f"; in float32, errors differ by at most {100 * change:.1g} %"
    note += f". `{COMMAND}`"
    return Table(title, [*header, f"coverage of {100 * found['level']:.0f} % bounds"], rows, [note])


def coverage_curve(results: Path) -> list[tuple[str, Figure]]:
    """Coverage against the stated level; nothing where it was not measured."""
    found = _found(results)
    if not found:
        return []
    curve = found["coverage"]
    lines = {
        name: [point[key] for point in curve]
        for name, key in (("inside the window", "inside"), ("outside", "outside"))
    }
    caption = "Bounds of reconstructions: the share of points inside, on average over test samples."
    figure = agreement([p["level"] for p in curve], lines, "stated level", "share inside")
    return [(caption, figure)]


def card(found: dict[str, Any], reconstructor: Reconstructor) -> str:
    """The model card."""
    values = found["errors"]["float16"]
    at = ", ".join(
        f"{100 * values[f'test:ratio={percent(r)}']:.2f} % at {100 * r:g} %" for r in RATIOS
    )
    ends = f"{100 * values[TRUTH]:.2f} % from the true field inside the window, " + ", ".join(
        f"{100 * values[f'test:from={percent(r)}']:.2f} % at {100 * r:g} %" for r in RATIOS
    )
    both = (reconstructor.completer, reconstructor.propagator)
    runs = "\n".join(f"- `results/{run}`" for op in both if op for run in op.provenance["runs"])
    calibration: dict[str, Any] = found["calibration"]
    coverage = [shares["all"] for shares in found["by_sensors"].values()]
    alarms = found["false_alarms"].values()
    return f"""# Burgers' equation from sensors

Two ensembles of {len(SEEDS)} Latent Neural Operators each, in float16, and their calibration.
`completer.safetensors` reconstructs u(t, x) for {WINDOW.low:g} ≤ t ≤ {WINDOW.high:g} from sensors
there. `propagator.safetensors` continues to 0 ≤ t ≤ 1. `calibration.json` makes bounds.
`lno reconstruct` uses them.

**Intended use.** u_t + u u_x = 0.01 u_xx on a circle of length 1, with smooth random initial values
of unit variance, as `lno data make burgers` draws them. For other viscosities, domains and
forcings, train your own. docs/reconstruction.md shows how many such fields are flagged as out of
distribution. False alarms: {100 * min(alarms):.1f} to {100 * max(alarms):.1f} % of the test
samples, depending on the number of sensors.

**Errors** on {found["samples"]["test"]} held-out test samples, relative MAE. Completer, by share of
points observed: {at}. At t = 0 and t = 1: {ends}.

**Bounds** of {100 * found["level"]:.0f} %, for exact sensors at random places:
{guarantee(found["level"])}.
A single field may have more or less. Calibrated by conformal risk control on
{calibration["fields"]} held-out fields, for {", ".join(map(str, calibration["sensors"]))}
sensors. On the test samples {100 * min(coverage):.1f} to {100 * max(coverage):.1f} % lie inside,
depending on the number of sensors.

Trained in the runs

{runs}

Made by `{COMMAND}`.
"""


def _found(results: Path) -> dict[str, Any]:
    path = results / "benchmarks" / "pretrained.json"
    return read_json(path) if path.exists() else {}
