"""Physics-Cross-Attention with its N × M matrix written out, and without it.

    python benchmarks/attention.py [POINTS ...]

Milliseconds and peak memory of encode, decode and their gradients, compiled and captured as in
training, for a batch of 4 in tf32: the smaller number says from which size on `WRITTEN_OUT` of
lno/models/lno.py should leave the matrix out. Needs a CUDA GPU; writes
results/benchmarks/attention.json.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor

from lno.files import write_json
from lno.models import PhysicsCrossAttention
from lno.models import lno as definition
from lno.training.step import compiled

RESULT = Path(__file__).parents[1] / "results" / "benchmarks" / "attention.json"
WIDTH, LATENTS, BATCH = 128, 256, 4


def measure(points: int, positions: int, most: int) -> tuple[float, float]:
    """Milliseconds and GB of one pass forward and back over `positions` sets of points."""
    definition.WRITTEN_OUT = most
    torch._dynamo.reset()
    torch.cuda.empty_cache()
    attention = PhysicsCrossAttention(WIDTH, LATENTS, 1).cuda()
    features = torch.randn(positions, points, WIDTH, device="cuda", requires_grad=True)
    values = torch.randn(BATCH, points, WIDTH, device="cuda", requires_grad=True)

    def eager(features: Tensor, values: Tensor) -> Tensor:
        scores = attention.scores(features)
        return attention.decode(scores, attention.encode(scores, values)).square().mean()

    loss = compiled(eager)

    def step() -> None:
        features.grad = values.grad = None
        attention.zero_grad()
        loss(features, values).backward()

    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    peak = (torch.cuda.max_memory_allocated() - before) / 1e9
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    graph.replay()
    start.record()
    for _ in range(10):
        graph.replay()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / 10, peak


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("points", nargs="*", type=int, default=[7225, 58081, 262144, 1048576])
    options = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    rows = []
    for points in options.points:
        for positions in (1, BATCH):
            row: dict[str, float | int] = {"points": points, "position_sets": positions}
            for name, most in (("written", 2**60), ("streamed", 0)):
                row[f"{name}_ms"], row[f"{name}_gb"] = measure(points, positions, most)
            rows.append(row)
            print("  ".join(f"{k} {v:.3g}" for k, v in row.items()), flush=True)
            write_json(RESULT, {"rows": rows, "hardware": torch.cuda.get_device_name()})


if __name__ == "__main__":
    main()
