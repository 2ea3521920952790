"""What a training step of each model costs; LNO beside Transolver: the paper's Table 4."""

from __future__ import annotations

import gc
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lno.config import require_type
from lno.experiments.cases import CASES, obstacle
from lno.experiments.datasets import protocol_of
from lno.experiments.paper import EFFICIENCY
from lno.experiments.presets import PRESETS, preset, usual_preset
from lno.files import read_json, write_json
from lno.ledger import commit
from lno.models import MODELS, build_model
from lno.report.runs import model_name
from lno.report.tables import MISSING, Table
from lno.training.device import SHARED, hardware, pick_device
from lno.training.inputs import model_config, model_spec
from lno.training.loop import next_batches
from lno.training.precision import pick_precision
from lno.training.samples import Samples
from lno.training.state import Training
from lno.training.step import Step, first_line

PRINTED = tuple(EFFICIENCY)  # the models that the paper measured
SAMPLES = 40  # random ones: neither their number nor their values change the time of a step
BATCH = 4  # the same for every model, although some of their own recipes have others
WARM_SECONDS = 0.5  # of steps before the clock starts: a GPU that was idle has slowed down
CHEAPEST = ("elasticity", "darcy", "pipe", "airfoil", "ns2d", "plasticity")
Key = tuple[str, str, int, str]  # problem, model, batch, preset
ROW: dict[str, Any] = {
    "problem": str,
    "model": str,
    "precision": str,
    "batch": int,
    "parameters": int,
    "milliseconds_per_step": float,
    "seconds_per_epoch": float,
    "peak_memory_gb": float | None,
    "hardware": str,
}


@dataclass(frozen=True)
class Cost:
    """Of one training step."""

    milliseconds: float
    peak_memory_gb: float | None


def measure(
    step: Callable[[], Any],
    device: torch.device,
    data: int,
    repeats: int = 7,
    ready: Callable[[], None] = lambda: None,
) -> Cost:
    """The median time of a step, and its peak memory beyond the `data` bytes of samples.

    `ready` is called when the step is compiled, before the clock starts.
    """
    on_gpu = device.type == "cuda"
    if on_gpu:  # before the first: a graph takes its memory when it is captured
        torch.cuda.reset_peak_memory_stats(device)
    for _ in range(3):
        step()
    if on_gpu:
        torch.cuda.synchronize(device)
    ready()
    start = time.perf_counter()
    while on_gpu and time.perf_counter() - start < WARM_SECONDS:
        step()
        torch.cuda.synchronize(device)
    times = []
    for _ in range(repeats):
        if on_gpu:
            torch.cuda.synchronize(device)
        start = time.perf_counter()
        for _ in range(5):
            step()
        if on_gpu:
            torch.cuda.synchronize(device)
        times.append((time.perf_counter() - start) / 5)
    peak = (torch.cuda.max_memory_allocated(device) - data) / 1e9 if on_gpu else None
    return Cost(1e3 * float(np.median(times)), peak)


@dataclass(frozen=True)
class Prepared:
    """A training step of a model on random samples.

    Args:
        step: takes the next step.
        training: what it changes.
        resident_bytes: of the samples on the device.
        steps: in an epoch of the problem's data set.
    """

    step: Callable[[], Any]
    training: Training
    resident_bytes: int
    steps: int


def prepare(
    problem: str,
    model: str,
    batch: int = BATCH,
    recipe: str = "paper",
    precision: str = "auto",
    device: str = "auto",
) -> Prepared:
    """A training step with the sizes of a preset, on a problem's shapes."""
    chosen, where = preset(problem, recipe, model), pick_device(device)
    data = CASES[problem].data(SAMPLES)
    scale = chosen.task.normalizers(data)
    spec = model_spec(data, scale, chosen.task)
    net = build_model(model, model_config(model, chosen.config, spec, chosen.task), spec).to(where)
    long = replace(chosen.recipe, batch=batch, epochs=10**6)  # long enough to be compiled
    used = pick_precision(precision, where)
    training = Training([net], chosen.task, scale, long, data, None, where, 0, used)
    samples, step = Samples(data, scale, where), Step(training)

    def next_step() -> None:
        step(*next_batches(training, samples))
        training.step += 1

    steps = -(-protocol_of(problem).train * chosen.task.visits // batch)
    return Prepared(next_step, training, samples.resident_bytes, steps)


def cost(
    problem: str,
    model: str,
    batch: int = BATCH,
    recipe: str = "paper",
    precision: str = "auto",
    device: str = "auto",
    ready: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Parameters, seconds an epoch and peak memory of a model with the sizes of a preset.

    `ready` is called before the clock starts.
    """
    prepared = prepare(problem, model, batch, recipe, precision, device)
    training = prepared.training
    found = measure(prepared.step, training.device, prepared.resident_bytes, ready=ready)
    return {
        "problem": problem,
        "model": model,
        "recipe": recipe,
        "precision": training.precision,
        "batch": batch,
        "parameters": sum(p.numel() for p in training.models[0].parameters()),
        "milliseconds_per_step": found.milliseconds,
        "seconds_per_epoch": found.milliseconds * prepared.steps / 1e3,
        "peak_memory_gb": found.peak_memory_gb,
        "hardware": hardware(training.device),
        "commit": commit(),
    }


def measured(results: Path) -> dict[Key, dict[str, Any]]:
    """What the ledger has, by problem, model, batch and preset."""
    path = results / "benchmarks" / "efficiency.json"
    found = read_json(path) if path.exists() else {"rows": []}
    try:
        require_type("rows", found.get("rows"), list[dict[str, Any]])
        for row in found["rows"]:
            for key, kind in ROW.items():
                require_type(key, row.get(key), kind)
    except (ValueError, AttributeError) as error:
        raise ValueError(f"{path}: expected the rows of a benchmark: {error}") from error
    rows = [{"recipe": "paper", **row} for row in found["rows"]]
    return {(r["problem"], r["model"], r["batch"], r["recipe"]): r for r in rows}


def as_printed(results: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """What the ledger has of the paper's table, by problem and model."""
    rows = measured(results).items()
    return {
        (problem, model): row
        for (problem, model, batch, recipe), row in rows
        if model in PRINTED and (batch, recipe) == (BATCH, "paper")
    }


def step_cost(results: Path, key: Key, precision: str) -> float | None:
    """Milliseconds of a step that has the GPU for itself; None: not measured."""
    row = measured(results).get(key)
    if row is None or row["precision"] != precision or SHARED in row["hardware"]:
        return None
    return row["milliseconds_per_step"]


def cases(problems: Sequence[str] = (), models: Sequence[str] = ()) -> list[Key]:
    """What is worth measuring, the cheapest problems first.

    Every model with the batches of its own recipes, for runs of a given time (`RunSpec.seconds`);
    every model on Darcy, and the paper's two on every problem, with batches of the same size.
    """
    found: list[Key] = []
    for problem in problems or sorted(CASES, key=CHEAPEST.index):
        for model in models or MODELS:
            if obstacle(problem, model) is not None:
                continue
            # Also where a problem has no such preset of its own: runs then have the general one.
            names = [name for name in ("paper", "fast", "best") if name in PRESETS.get(model, {})]
            own = {name: preset(problem, name, model).recipe.batch for name in names}
            keys: set[Key] = {(problem, model, batch, name) for name, batch in own.items()}
            if problem == "darcy" or model in PRINTED:
                keys.add((problem, model, BATCH, usual_preset(model)))
            found += sorted(keys, key=lambda key: (key[3] != "paper", key[3] == "best", key))
    return found


def missing(results: Path, wanted: Sequence[Key] | None = None) -> list[Key]:
    """Those of `cases` that the ledger lacks, or was given while others used the GPU."""
    known = [key for key, row in measured(results).items() if SHARED not in row["hardware"]]
    return [key for key in (cases() if wanted is None else wanted) if key not in known]


def measure_all(
    results: Path,
    wanted: Sequence[Key],
    precision: str = "auto",
    device: str = "auto",
    say: Callable[[str], None] = lambda line: None,
) -> bool:
    """Measure models on problems, and write each into the ledger as soon as it is known.

    Returns:
        whether all could be measured; `say` is told the others and why.
    """
    failed = False
    for key in wanted:
        gc.collect()
        torch._dynamo.reset()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        try:
            row = cost(*key, precision, device)
        except Exception as error:  # out of memory, say: the others can be measured
            say(f"{named(key)} could not be measured: {first_line(error)}")
            failed = True
            continue
        keep(results, key, row)
    return not failed


def keep(results: Path, key: Key, row: dict[str, Any]) -> None:
    """Write a cost into the ledger, beside those that others have measured meanwhile."""
    order = {pair: k for k, pair in enumerate(itertools.product(CASES, MODELS))}
    found = {**measured(results), key: row}
    rows = [found[k] for k in sorted(found, key=lambda k: (order.get(k[:2], len(order)), k))]
    write_json(results / "benchmarks" / "efficiency.json", {"rows": rows})


def named(key: Key) -> str:
    """A case in words.

    >>> named(("darcy", "lno", 4, "paper"))
    'lno (paper) on darcy in batches of 4'
    """
    problem, model, batch, recipe = key
    return f"{model} ({recipe}) on {problem} in batches of {batch}"


def table(results: Path) -> Table:
    """Costs beside the paper's."""
    by = as_printed(results)
    rows = list(by.values())
    shown, notes = [], []
    for problem in CASES:
        for model in PRINTED:
            r, printed = by.get((problem, model)), EFFICIENCY[model][problem]
            cells = [MISSING] * 4
            if r is not None:
                memory = r["peak_memory_gb"]
                cells = [
                    f"{r['parameters'] / 1e6:.2f}",
                    "not measured" if memory is None else f"{memory:.2f}",
                    f"{r['seconds_per_epoch']:.2f}",
                    r["precision"],
                ]
            beside = ", ".join(f"{v:g}" for v in printed)
            shown.append([problem, model_name(model), *cells, beside])
        a, b = (by.get((problem, model)) for model in PRINTED)
        if a and b and a["peak_memory_gb"]:
            times, memories = (a[key] / b[key] for key in ("seconds_per_epoch", "peak_memory_gb"))
            old = [x / y for x, y in zip(*(EFFICIENCY[m][problem] for m in PRINTED), strict=True)]
            notes.append(
                f"{problem}: LNO takes {times:.2f} times the time and {memories:.2f} times the "
                f"memory of Transolver (paper: {old[2]:.2f} and {old[1]:.2f})."
            )
    notes.append(
        "Plasticity: LNO processes all times of a sample at once, Transolver one time per step. An "
        "epoch is every sample at every time for both."
    )
    header = ["problem", "model", "million parameters", "GB", "s / epoch", "precision"]
    header.append("paper: parameters, GB, s")
    where = ", ".join(sorted({r["hardware"] for r in rows}))
    ours = f"Measured on {where}" if rows else "Nothing was measured yet"
    ours += f", in batches of {BATCH}" if rows else ""
    notes.append(f"{ours}; the paper measured on an RTX 3090. `lno reproduce efficiency`")
    return Table(
        "Cost of training", header, shown, notes, keys=2, aside=("paper: parameters, GB, s",)
    )
