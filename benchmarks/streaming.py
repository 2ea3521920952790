"""What it costs to predict in chunks of points instead of all at once, for the models that stream.

    python benchmarks/streaming.py

LNO passes over its observations once; LNO+ once for each round, and repeats the earlier rounds of
each chunk. With values at the queries, LNO+ passes over so many points in this way in any case. CPU
seconds of one thread, so that other work on the machine does not count. Takes some minutes; writes
results/benchmarks/streaming.json.
"""

from __future__ import annotations

import platform
import time
from pathlib import Path

import numpy as np
import torch

from lno import prediction
from lno.data import Fields, Spec
from lno.data.labels import Labels
from lno.files import write_json
from lno.models import MODELS, LNOConfig, LNOPlusConfig, Model
from lno.operator import Operator
from lno.tasks import Steady
from lno.training.device import one_thread

POINTS, CHUNK = 32_768, 4_096
CONFIGS = {
    "lno": LNOConfig(width=64, latents=64, blocks=4, heads=4),
    "LNO+, values=False": LNOPlusConfig(width=64, latents=64, rounds=4, values=False),
    "LNO+, values=True": LNOPlusConfig(width=64, latents=64, rounds=4),
}
RESULT = Path(__file__).parents[1] / "results" / "benchmarks" / "streaming.json"


def seconds(operator: Operator, chunk: int, x: np.ndarray, u: np.ndarray, q: np.ndarray) -> float:
    """The shortest of three predictions."""
    times, prediction.CHUNK = [], chunk
    for _ in range(3):
        start = time.process_time()
        operator.predict(x, u, q)
        times.append(time.process_time() - start)
    return min(times)


def main() -> None:
    random = np.random.default_rng(0)
    x, q = random.uniform(size=(2, POINTS, 2)).astype(np.float32)
    u = random.normal(size=(POINTS, 1)).astype(np.float32)
    data = Fields(x, u[None], y=u[None])
    task, rows = Steady(), []
    with one_thread():
        for name, config in CONFIGS.items():
            torch.manual_seed(0)
            kind = next(k for k, (_, of) in MODELS.items() if type(config) is of)
            model: Model = MODELS[kind][0](Spec(2, 1, 1), config)
            operator = Operator([model], kind, task, task.normalizers(data), Labels.of(data))
            whole = seconds(operator, 4 * POINTS, x, u, q)
            chunked = seconds(operator, CHUNK, x, u, q)
            rows.append({"model": name, "whole_s": whole, "chunked_s": chunked})
            print(f"{name:18s} at once {whole:.2f} s, in chunks {chunked:.2f} s", flush=True)
    content = {"rows": rows, "points": POINTS, "chunk": CHUNK}
    write_json(RESULT, {**content, "hardware": f"CPU {platform.machine()}, 1 thread"})


if __name__ == "__main__":
    main()
