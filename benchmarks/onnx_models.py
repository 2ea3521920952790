"""Which models become ONNX files, and how far these are from PyTorch.

    python benchmarks/onnx_models.py [MODEL ...] [--out FILE]

Each model has its default sizes for data on a grid of 32 × 32 points, and is untrained. A number is
the largest difference in standard deviations of a channel; a text says why there is no file. About
a minute for each model on a CPU. Needs the extra "export". Writes
results/benchmarks/onnx_models.json.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from lno import Fields, Operator, Steady
from lno.data.labels import Labels
from lno.files import write_json
from lno.models import MODELS, build_model
from lno.training.inputs import model_spec

RESULT = Path(__file__).parents[1] / "results" / "benchmarks" / "onnx_models.json"
GRID = (32, 32)


def untrained(kind: str) -> Operator:
    """An operator with the default sizes of a model."""
    random = np.random.default_rng(0)
    sides = np.meshgrid(*(np.linspace(0, 1, n) for n in GRID), indexing="ij")
    u, y = random.normal(size=(2, 2, GRID[0] * GRID[1], 1))
    data = Fields(np.stack(sides, -1).reshape(-1, 2), u, y=y, grid=GRID)
    task = Steady()
    scale = task.normalizers(data)
    model = build_model(kind, None, model_spec(data, scale, task))
    return Operator([model], kind, task, scale, Labels.of(data))


def measure(kind: str) -> dict[str, Any]:
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        try:
            difference = untrained(kind).export(path)
        except ValueError as error:
            return {"model": kind, "reason": str(error)}
        size = path.stat().st_size / 1e6
    seconds = time.perf_counter() - start
    return {"model": kind, "difference": difference, "mb": size, "seconds": seconds}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("models", nargs="*", metavar="MODEL", help=", ".join(MODELS))
    options.add_argument("--out", type=Path, default=RESULT)
    given = options.parse_args()
    before = json.loads(given.out.read_text())["rows"] if given.out.exists() else []
    rows = {row["model"]: row for row in before}  # those of other models stay
    for kind in given.models or MODELS:
        rows[kind] = measure(kind)
        print(rows[kind], flush=True)
    write_json(given.out, {"rows": [rows[k] for k in MODELS if k in rows], "grid": GRID})


if __name__ == "__main__":
    main()
