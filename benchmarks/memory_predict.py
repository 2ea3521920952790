"""Peak memory of `Operator.predict` against the number of points.

    python benchmarks/memory_predict.py [--model lno_plus]

Each number of points runs in its own process. The peak is the process's largest memory use during
the call minus its use before; the arrays themselves (positions, values, prediction) are listed
separately. Beyond one chunk of points the curve is flat. Writes
results/benchmarks/memory_predict.json, or memory_predict_lno_plus.json.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

from lno.data import Fields, Spec
from lno.data.labels import Labels
from lno.experiments.presets import PAPER_CONFIGS
from lno.files import write_json
from lno.models import MODELS
from lno.operator import Operator
from lno.prediction import CHUNK
from lno.tasks import Steady

POINTS = (1_000, 4_000, 16_000, 64_000, 250_000, 1_000_000)
CONFIGS = {"lno": PAPER_CONFIGS["darcy"], "lno_plus": None}  # the default sizes
RESULTS = Path(__file__).parents[1] / "results" / "benchmarks"


def untrained(kind: str) -> Operator:
    """An untrained operator: memory does not depend on the weights."""
    torch.manual_seed(0)
    random = np.random.default_rng(0)
    data = Fields(
        random.uniform(size=(64, 2)), random.normal(size=(2, 64, 1)), y=np.ones((2, 64, 1))
    )
    task = Steady()
    model = MODELS[kind][0](Spec(2, 1, 1), CONFIGS[kind])
    return Operator([model], kind, task, task.normalizers(data), Labels.of(data))


def peak_gb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


def measure(kind: str, points: int) -> dict[str, float]:
    operator = untrained(kind)
    random = np.random.default_rng(1)
    x, x_query = random.uniform(size=(2, points, 2)).astype(np.float32)
    u = random.normal(size=(points, 1)).astype(np.float32)
    operator.predict(x[:100], u[:100], x_query[:100])  # libraries allocate on first use
    arrays = (x.nbytes + x_query.nbytes + u.nbytes + 4 * points) / 1e9
    before = peak_gb()
    y = operator.predict(x, u, x_query)
    assert y.shape == (points, 1)
    return {"points": points, "arrays_gb": arrays, "extra_gb": max(0.0, peak_gb() - before)}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--model", choices=CONFIGS, default="lno")
    options.add_argument("--points", type=int, help=argparse.SUPPRESS)
    given = options.parse_args()
    if given.points:
        print(json.dumps(measure(given.model, given.points)))
        return
    rows = []
    print("points observed and queried | arrays GB | peak GB above the start")
    for points in POINTS:
        command = [sys.executable, __file__, "--model", given.model, "--points", str(points)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        rows.append(json.loads(done.stdout))
        print(
            f"{points:>27,} | {rows[-1]['arrays_gb']:9.4f} | {rows[-1]['extra_gb']:.3f}", flush=True
        )
    hardware = f"CPU {platform.machine()}, {torch.get_num_threads()} threads"
    name = "memory_predict" if given.model == "lno" else f"memory_predict_{given.model}"
    write_json(RESULTS / f"{name}.json", {"rows": rows, "chunk": CHUNK, "hardware": hardware})


if __name__ == "__main__":
    main()
