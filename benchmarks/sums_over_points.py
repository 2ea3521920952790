"""Products that sum over all points of a batch: as one product, and as parts that are added.

    python benchmarks/sums_over_points.py

Encoders, slices of Transolver and gradients of weights have few rows and columns and thousands of
points to sum over. As one product, each keeps a small part of a GPU busy. Milliseconds in tf32 and
bfloat16, captured as a CUDA graph. Parts are equal; points beyond them are added by a last product.
Needs a CUDA GPU; writes results/benchmarks/sums_over_points.json. `--device cpu` is a smoke test,
which writes nothing.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch
from graph_timing import captured_milliseconds
from torch import Tensor

from lno.files import write_json

RESULT = Path(__file__).parents[1] / "results" / "benchmarks" / "sums_over_points.json"
PARTS = (1, 4, 8, 16, 32)
# Batch of products, points, rows, columns.
CASES: dict[str, tuple[int, int, int, int]] = {
    "LNO+ encodes, elasticity": (4, 972, 256, 128),
    "LNO+ encodes, darcy": (1, 7225, 256, 4 * 128),
    "LNO+ encodes, airfoil": (1, 11_271, 256, 4 * 128),
    "LNO+ encodes, ns2d": (1, 4096, 256, 40 * 256),
    "gradient of a weight, elasticity": (1, 4 * 972, 128, 256),
    "gradient of a weight, darcy": (1, 4 * 7225, 128, 256),
    "gradient of a weight, ns2d": (1, 40 * 4096, 256, 512),
    "slices of Transolver, darcy": (4 * 8, 7225, 64, 16),
    "slices of Transolver, airfoil": (8 * 8, 11_271, 64, 16),
}
SMALL = {"small": (2, 103, 16, 8)}


def product(a: Tensor, b: Tensor, parts: int) -> Tensor:
    """aᵀ b for a (k, n, m) and b (k, n, c), in parts along n.

    >>> a, b = torch.rand(2, 11, 3), torch.rand(2, 11, 5)
    >>> torch.allclose(product(a, b, 4), a.mT @ b)
    True
    """
    if parts == 1:
        return a.mT @ b
    n = a.shape[1] // parts * parts
    split = (v[:, :n].unflatten(1, (parts, -1)) for v in (a, b))
    whole = torch.einsum("kpnm,kpnc->kpmc", *split).sum(1)
    return whole + a[:, n:].mT @ b[:, n:] if n < a.shape[1] else whole


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    device = torch.device(parser.parse_args().device)
    torch.set_float32_matmul_precision("high")
    rows: list[dict[str, Any]] = []
    print(f"{'product':34} {'':4} " + " ".join(f"{n:>8}" for n in PARTS) + "  parts (µs)")
    for name, (k, n, m, c) in (CASES if device.type == "cuda" else SMALL).items():
        for precision, dtype in (("tf32", torch.float32), ("bf16", torch.bfloat16)):
            a, b = (torch.randn(k, n, size, device=device, dtype=dtype) for size in (m, c))
            found = [
                captured_milliseconds(lambda a=a, b=b, parts=parts: product(a, b, parts), device)
                for parts in PARTS
            ]
            rows.append({"product": name, "precision": precision, "parts": PARTS, "ms": found})
            print(f"{name:34} {precision:4} " + " ".join(f"{1e3 * v:8.1f}" for v in found))
    if device.type == "cuda":
        write_json(RESULT, {"rows": rows, "hardware": torch.cuda.get_device_name()})


if __name__ == "__main__":
    main()
