"""Predictions at 10,000,000 points, a mesh file of 1,000,000 nodes, training on 1,000,000 points.

    python benchmarks/large_predictions.py [--device cpu] [--model lno_plus] [--tiny] [--out FILE]

- predict: 10,000,000 queries in three dimensions from 100,000 observations, by an untrained model
  of the paper's Darcy size; then the predictions are written as a .vtu file of points. A subset of
  the queries is compared with one pass of the model over all observations.
- mesh: a .vtu file of a mesh of 1,000,000 nodes.
- train: steps on one sample of 1,000,000 points in three dimensions; a small model on a CPU, the
  paper's on a GPU.

Each part runs in its own process. Memory on the CPU is the process's largest use during the part
minus its use before, so the arrays themselves (observations and queries) do not count; what is
predicted does. Memory on a GPU is what PyTorch reserved there. The limits are 2 GB and 4 GB for
predictions. --model lno_plus predicts with LNO+ of its default sizes. --tiny is for tests. Writes
results/benchmarks/large_predictions_<device>.json, or large_predictions_lno_plus_<device>.json.
"""

from __future__ import annotations

import argparse
import json
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import lno
from lno import Fields, Operator, Recipe, Spec, Steady
from lno.data.labels import Labels
from lno.experiments.presets import PAPER_CONFIGS
from lno.files import write_json
from lno.models import MODELS, LNOConfig, apply_model
from lno.training.device import hardware, pick_device

RESULTS = Path(__file__).parents[1] / "results" / "benchmarks"
LIMITS = {"cpu": 2.0, "cuda": 4.0}  # GB, for predictions
CONFIGS = {"lno": PAPER_CONFIGS["darcy"], "lno_plus": None}  # the default sizes
SMALL = LNOConfig(width=32, latents=64, blocks=2, heads=4)  # to train on a CPU
SEED = 1


@dataclass(frozen=True)
class Sizes:
    """How large everything is.

    Args:
        observed: points that a prediction reads.
        queries: points that it predicts at.
        compared: queries that are compared with one pass.
        side: nodes along the side of the square mesh.
        trained: points of the sample that is trained on.
        steps: of training.
    """

    observed: int = 100_000
    queries: int = 10_000_000
    compared: int = 10_000
    side: int = 1000
    trained: int = 1_000_000
    steps: int = 3


TINY = Sizes(1000, 18_000, 200, 60, 1000, 2)


def predict(sizes: Sizes, device: torch.device, kind: str = "lno") -> dict[str, Any]:
    """Time and memory of a prediction at many points, and its difference to one pass."""
    random = np.random.default_rng(SEED)
    operator = untrained(random, kind).to(device)
    x = random.uniform(size=(sizes.observed, 3)).astype(np.float32)
    u = np.sin(6 * x[:, :1]) * np.cos(4 * x[:, 1:2])
    x_query = random.uniform(size=(sizes.queries, 3)).astype(np.float32)
    operator.predict(x[:100], u[:100], x_query[:100])  # libraries allocate on first use
    reset(device)
    arrays, before = (x.nbytes + u.nbytes + x_query.nbytes) / 1e9, peak_gb()
    start = time.perf_counter()
    y = operator.predict(x, u, x_query)
    seconds = time.perf_counter() - start
    gpu = gpu_gb(device)
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        lno.write(Path(folder) / "field.vtu", x_query, {"y": y[:, 0]})
        written = time.perf_counter() - start
        size = (Path(folder) / "field.vtu").stat().st_size / 1e9
    extra = peak_gb() - before
    some = random.choice(sizes.queries, sizes.compared, replace=False)
    difference = np.abs(y[some] - one_pass(operator, x, u, x_query[some]))
    limit = LIMITS[device.type]
    return {
        "observed": sizes.observed,
        "queries": sizes.queries,
        "arrays_gb": arrays,
        "extra_gb": extra,
        "gpu_gb": gpu,
        "limit_gb": limit,
        "within_limit": (extra if gpu is None else gpu) <= limit,
        "seconds": seconds,
        "write_seconds": written,
        "file_gb": size,
        "difference": float(difference.max() / np.abs(y[some]).max()),
    }


def one_pass(operator: Operator, x: Any, u: Any, x_query: Any) -> np.ndarray:
    """The model applied to all points at once, without chunks."""
    scale = operator.normalizers
    batch = scale.encode(Fields(x, u[None], x_query).batch([0])).to(operator.device)
    with torch.inference_mode():
        out = apply_model(operator.model.eval(), batch, weighted=False)
    return scale.decode(out)[0].cpu().numpy()


def mesh(sizes: Sizes, device: torch.device) -> dict[str, Any]:
    """Time and memory of writing a mesh file."""
    side = np.linspace(0, 1, sizes.side, dtype=np.float32)
    nodes = np.stack(np.meshgrid(side, side, indexing="ij"), -1).reshape(-1, 2)
    values = {"p": np.sin(9 * nodes[:, 0]), "T": np.cos(5 * nodes[:, 1])}
    with tempfile.TemporaryDirectory() as folder:
        path, grid = Path(folder) / "mesh.vtu", (sizes.side, sizes.side)
        lno.write(path, nodes[:4], {"p": nodes[:4, 0]})
        reset(device)
        before, start = peak_gb(), time.perf_counter()
        lno.write(path, nodes, values, grid=grid)
        seconds, size = time.perf_counter() - start, path.stat().st_size / 1e9
    extra = peak_gb() - before
    return {"nodes": len(nodes), "extra_gb": extra, "seconds": seconds, "file_gb": size}


def train(sizes: Sizes, device: torch.device) -> dict[str, Any]:
    """Time and memory of training steps on one large sample in three dimensions."""
    random = np.random.default_rng(SEED)
    x = random.uniform(size=(1, sizes.trained, 3)).astype(np.float32)
    u = np.sin(6 * x[..., :1])
    data = Fields(x, u, y=np.cos(4 * x[..., 1:2]) * u)
    config = PAPER_CONFIGS["darcy"] if device.type == "cuda" else SMALL
    reset(device)
    before = peak_gb()
    operator = Operator.fit(
        data,
        recipe=Recipe(epochs=sizes.steps, batch=1),
        config=config,
        validation=0.0,
        device=device.type,
        progress=False,
    )
    origin = operator.provenance
    return {
        "points": sizes.trained,
        "width": config.width,
        "latents": config.latents,
        "steps": origin["steps"],
        "seconds_per_step": origin["seconds"] / origin["steps"],
        "compile_seconds": origin["compile_seconds"],
        "extra_gb": peak_gb() - before,
        "gpu_gb": gpu_gb(device),
    }


def untrained(random: np.random.Generator, kind: str) -> Operator:
    """An untrained operator: time and memory do not depend on the weights."""
    torch.manual_seed(SEED)
    cube = np.concatenate((random.uniform(size=(64, 3)), np.zeros((1, 3)), np.ones((1, 3))))
    data = Fields(cube, random.normal(size=(2, 66, 1)), y=random.normal(size=(2, 66, 1)))
    task, model = Steady(), MODELS[kind][0](Spec(3, 1, 1), CONFIGS[kind])
    return Operator([model], kind, task, task.normalizers(data), Labels.of(data))


def peak_gb() -> float:
    """The largest memory use of this process since the last `reset`."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text())
    return int(found[1]) * 1024 / 1e9 if found else 0.0


def reset(device: torch.device) -> None:
    """Forget earlier peaks of memory, as far as the system can."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def gpu_gb(device: torch.device) -> float | None:
    """The most GPU memory that PyTorch reserved; None on a CPU."""
    return torch.cuda.max_memory_reserved() / 1e9 if device.type == "cuda" else None


PARTS: dict[str, Callable[..., dict[str, Any]]] = {
    "predict": predict,
    "mesh": mesh,
    "train": train,
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--device", default="auto")
    options.add_argument("--model", choices=CONFIGS, default="lno")
    options.add_argument("--tiny", action="store_true")
    options.add_argument("--out", type=Path)
    options.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    given = options.parse_args()
    device = pick_device(given.device)
    if given.part:
        sizes = TINY if given.tiny else Sizes()
        model = [given.model] if given.part == "predict" else []
        print(json.dumps(PARTS[given.part](sizes, device, *model)))
        return
    found: dict[str, Any] = {"device": device.type, "hardware": hardware(device)}
    name = "" if given.model == "lno" else f"{given.model}_"
    path = given.out or RESULTS / f"large_predictions_{name}{device.type}.json"
    for part in PARTS if given.model == "lno" else ("predict",):
        command = [sys.executable, __file__, "--part", part, "--device", device.type]
        command += ["--model", given.model]
        done = subprocess.run(
            [*command, *["--tiny"] * given.tiny], stdout=subprocess.PIPE, text=True, check=True
        )
        found[part] = json.loads(done.stdout.splitlines()[-1])
        shown = (
            f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in found[part].items()
        )
        print(f"{part}: {', '.join(shown)}", flush=True)
        if not given.tiny or given.out:
            write_json(path, found)


if __name__ == "__main__":
    main()
