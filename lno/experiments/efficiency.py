"""What training costs, LNO beside Transolver: the paper's Table 4."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lno.data import Fields
from lno.experiments.datasets import protocol_of
from lno.experiments.paper import EFFICIENCY
from lno.experiments.presets import preset
from lno.files import read_json, write_json
from lno.models import build_model
from lno.report.runs import model_name
from lno.report.tables import MISSING, Table
from lno.tasks import Rollout, Task
from lno.training.device import hardware, pick_device
from lno.training.inputs import model_spec
from lno.training.loop import next_batches
from lno.training.precision import pick_precision
from lno.training.samples import Samples
from lno.training.state import Training
from lno.training.step import Step


@dataclass(frozen=True)
class Case:
    """The sizes of a problem's data under the standard protocol.

    Args:
        grid: of the points; of a cloud, their number.
        inputs: channels of u; without any, positions differ in every sample.
        outputs: channels of y.
    """

    grid: tuple[int, ...]
    inputs: int
    outputs: int

    def points_read(self, task: Task) -> int:
        """Points of a sample in one training step."""
        if task.gives_time:
            return prod(self.grid[:-1])
        return prod(self.grid) * (task.frames if isinstance(task, Rollout) else 1)

    def data(self, samples: int) -> Fields:
        """Random numbers in place of the data."""
        random, n = np.random.default_rng(0), prod(self.grid)
        y = random.normal(size=(samples, n, self.outputs)).astype(np.float32)
        if self.inputs == 0:
            return Fields(random.uniform(size=(samples, n, 2)).astype(np.float32), y=y)
        axes = np.meshgrid(*(np.linspace(0, 1, side) for side in self.grid), indexing="ij")
        x = np.stack(axes, -1).reshape(n, -1)
        u = random.normal(size=(samples, n, self.inputs)).astype(np.float32)
        return Fields(x, u, y=y, grid=self.grid)


MODELS = ("lno", "transolver")
CASES: dict[str, Case] = {
    "darcy": Case((85, 85), 1, 1),
    "ns2d": Case((64, 64), 10, 10),
    "airfoil": Case((221, 51), 2, 1),
    "elasticity": Case((972,), 0, 1),
    "plasticity": Case((101, 31, 20), 1, 4),
    "pipe": Case((129, 129), 2, 1),
}
SAMPLES = 40  # random ones: neither their number nor their values change the time of a step
BATCH = 4  # the same for every model, although Transolver's own recipes have others


@dataclass(frozen=True)
class Cost:
    """Of one training step."""

    milliseconds: float
    peak_memory_gb: float | None


def measure(step: Callable[[], Any], device: torch.device, data: int, repeats: int = 7) -> Cost:
    """The median time of a step, and its peak memory beyond the `data` bytes of samples."""
    on_gpu = device.type == "cuda"
    if on_gpu:  # before the first: a graph takes its memory when it is captured
        torch.cuda.reset_peak_memory_stats(device)
    for _ in range(3):
        step()
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


def cost(problem: str, model: str, precision: str = "auto", device: str = "auto") -> dict[str, Any]:
    """Parameters, seconds an epoch and peak memory of a model with the paper's sizes."""
    chosen, where = preset(problem, "paper", model), pick_device(device)
    data = CASES[problem].data(SAMPLES)
    scale = chosen.task.normalizers(data)
    spec = model_spec(data, scale, chosen.task)
    net = build_model(model, chosen.config, spec).to(where)
    recipe = replace(chosen.recipe, batch=BATCH, epochs=10**6)  # long enough to be compiled
    used = pick_precision(precision, where)
    training = Training([net], chosen.task, scale, recipe, data, None, where, 0, used)
    samples, step = Samples(data, scale, where), Step(training)

    def next_step() -> None:
        step(*next_batches(training, samples))
        training.step += 1

    found = measure(next_step, where, samples.resident_bytes)
    steps = -(-protocol_of(problem).train * chosen.task.visits // recipe.batch)
    return {
        "problem": problem,
        "model": model,
        "precision": used,
        "batch": recipe.batch,
        "parameters": sum(p.numel() for p in net.parameters()),
        "milliseconds_per_step": found.milliseconds,
        "seconds_per_epoch": found.milliseconds * steps / 1e3,
        "peak_memory_gb": found.peak_memory_gb,
        "hardware": hardware(where),
    }


def measured(results: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """What the ledger has, by problem and model."""
    path = results / "benchmarks" / "efficiency.json"
    rows = read_json(path)["rows"] if path.exists() else []
    return {(r["problem"], r["model"]): r for r in rows}


def missing(
    results: Path, problems: Sequence[str] = tuple(CASES), models: Sequence[str] = MODELS
) -> list[tuple[str, str]]:
    """Problems and models whose cost the ledger lacks."""
    known = measured(results)
    return [(p, m) for p in problems for m in models if (p, m) not in known]


def measure_all(
    results: Path, wanted: Sequence[tuple[str, str]], precision: str = "auto", device: str = "auto"
) -> None:
    """Measure models on problems, and write each into the ledger as soon as it is known."""
    for problem, model in wanted:
        gc.collect()
        torch._dynamo.reset()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        found = {**measured(results), (problem, model): cost(problem, model, precision, device)}
        rows = [found[p, m] for p in CASES for m in MODELS if (p, m) in found]
        write_json(results / "benchmarks" / "efficiency.json", {"rows": rows})


def table(results: Path) -> Table:
    """Costs beside the paper's."""
    by = measured(results)
    rows = list(by.values())
    shown, notes = [], []
    for problem in CASES:
        for model in MODELS:
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
        a, b = (by.get((problem, model)) for model in MODELS)
        if a and b and a["peak_memory_gb"]:
            times, memories = (a[key] / b[key] for key in ("seconds_per_epoch", "peak_memory_gb"))
            old = [x / y for x, y in zip(*(EFFICIENCY[m][problem] for m in MODELS), strict=True)]
            notes.append(
                f"{problem}: LNO takes {times:.2f} of Transolver's time and {memories:.2f} of its "
                f"memory (paper: {old[2]:.2f} and {old[1]:.2f})."
            )
    notes.append(
        "Plasticity: LNO reads all times of a sample at once, Transolver one; an epoch has every "
        "sample at every time for both."
    )
    header = ["problem", "model", "million weights", "GB", "s / epoch", "precision"]
    header.append("paper's three")
    where = ", ".join(sorted({r["hardware"] for r in rows}))
    ours = f"Measured on {where}" if rows else "Nothing was measured yet"
    ours += f", in batches of {', '.join(sorted({str(r['batch']) for r in rows}))}" if rows else ""
    notes.append(f"{ours}; the paper measured on an RTX 3090. `lno reproduce efficiency`")
    return Table("Cost of training", header, shown, notes)
