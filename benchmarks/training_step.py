"""Milliseconds and peak memory of one training step: plain PyTorch against this package.

    python benchmarks/training_step.py [CASE ...] [--seconds 500] [--members] [--before FILE]

- plain: LNO as published: eager, float32, positions of every sample, attention written out,
  Navier–Stokes stepped window by window
- tf32, mixed: this package's `Step`
- members (with --members): five models at once in tf32, for some of the cases

Data are random: time does not depend on them. Peak memory does not include the data. Needs a CUDA
GPU. Writes results/benchmarks/training_step.json after every case and starts no case after
--seconds. --before compares with an earlier file: speeds as ratios to plain, which a different day
or machine hardly changes, and whether the new one is at least 0.95 of the old one.
benchmarks/two_versions.py measures two versions of the code in turn, on one machine.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lno.data import Fields, Spec
from lno.experiments.presets import PAPER_CONFIGS
from lno.files import write_json
from lno.models import LNO, LNOConfig
from lno.models.lno import MLP
from lno.tasks import Steady
from lno.training.loop import next_batches
from lno.training.recipe import Recipe
from lno.training.samples import Samples
from lno.training.state import Training
from lno.training.step import Step

RESULT = Path(__file__).parents[1] / "results" / "benchmarks" / "training_step.json"


@dataclass(frozen=True)
class Case:
    """A problem of the paper: points, coordinates and channels; windows of Navier–Stokes."""

    problem: str
    points: int
    d: int
    i: int
    o: int
    shared: bool = True
    windows: int = 1
    batch: int = 4


CASES = {
    "darcy 85²": Case("darcy", 85**2, 2, 1, 1),
    "elasticity": Case("elasticity", 972, 2, 0, 1, shared=False),
    "ns2d": Case("ns2d", 64**2, 2, 10, 1, windows=10),
    "darcy 241²": Case("darcy", 241**2, 2, 1, 1),
    "pipe": Case("pipe", 129**2, 2, 2, 1),
    "airfoil": Case("airfoil", 221 * 51, 2, 2, 1),
    "plasticity": Case("plasticity", 101 * 31 * 20, 3, 1, 4),
}
MEMBERS, MEMBER_CASES = 5, ("darcy 85²", "elasticity")
TOLERATED = 0.95  # new speed / old speed


class PlainBlock(nn.Module):
    """A transformer block with its attention written out."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v, self.proj = (nn.Linear(width, width) for _ in range(4))
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, z: Tensor) -> Tensor:
        b, m, c = z.shape
        h = self.norm1(z)
        q, k, v = (
            f(h).view(b, m, self.heads, c // self.heads).permute(0, 2, 1, 3)
            for f in (self.q, self.k, self.v)
        )
        score = torch.softmax(
            torch.einsum("bhic,bhjc->bhij", q, k) / math.sqrt(c // self.heads), -1
        )
        r = torch.einsum("bhij,bhjc->bhic", score, v).permute(0, 2, 1, 3).reshape(b, m, c)
        z = z + self.proj(r)
        return z + self.mlp(self.norm2(z))


class PlainLNO(nn.Module):
    """LNO as in the paper: the N × M matrix is written out, and samples share nothing."""

    def __init__(self, case: Case, config: LNOConfig) -> None:
        super().__init__()
        c, n = config.width, config.layers
        self.trunk = MLP(case.d, c, c, n)
        self.branch = MLP(case.d + case.i, c, c, n)
        self.projector = MLP(c, c, config.latents, n)
        self.head = MLP(c, c, case.o, n)
        self.blocks = nn.ModuleList(PlainBlock(c, config.heads) for _ in range(config.blocks))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        score = self.projector(self.trunk(x))
        z = torch.einsum("bnm,bnc->bmc", torch.softmax(score, 1), self.branch(y))
        for block in self.blocks:
            z = block(z)
        return self.head(torch.einsum("bnm,bmc->bnc", torch.softmax(score, -1), z))


def relative_l2(a: Tensor, b: Tensor) -> Tensor:
    a, b = a.flatten(1), b.flatten(1)
    return ((a - b).norm(dim=1) / b.norm(dim=1)).mean()


def measure(step: Callable[[], Any], resident: int) -> tuple[float, float]:
    """Median milliseconds of a step, and its peak memory in GB beyond the resident data."""
    torch.cuda.reset_peak_memory_stats()  # before the first step, which captures the graph
    for _ in range(5):
        step()
    torch.cuda.synchronize()
    times = []
    for _ in range(7):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(10):
            step()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) / 10)
    return float(np.median(times)), (torch.cuda.max_memory_allocated() - resident) / 1e9


def plain(case: Case) -> tuple[float, float]:
    torch.set_float32_matmul_precision("highest")
    model = PlainLNO(case, PAPER_CONFIGS[case.problem]).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.99), weight_decay=5e-5)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-3, total_steps=10**6)
    x = torch.rand(case.batch, case.points, case.d, device="cuda")
    u = torch.randn(case.batch, case.points, case.i, device="cuda")
    y = torch.randn(case.batch, case.points, case.o * case.windows, device="cuda")

    def step() -> None:
        optimizer.zero_grad()
        if case.windows == 1:
            loss = relative_l2(model(x, torch.cat((x, u), -1)), y)
        else:
            loss, frames = torch.zeros((), device="cuda"), u
            for k in range(case.windows):
                loss = loss + relative_l2(model(x, torch.cat((x, frames), -1)), y[..., k : k + 1])
                frames = torch.cat((frames[..., 1:], y[..., k : k + 1]), -1)
        loss.backward()
        optimizer.step()
        schedule.step()
        loss.item()

    return measure(step, sum(v.numel() * 4 for v in (x, u, y)))


def ours(case: Case, precision: str, members: int = 1) -> tuple[float, float]:
    """A step on resident data; the windows of Navier–Stokes are samples of one batch."""
    random = np.random.default_rng(0)
    samples = case.batch * case.windows
    shape = (case.points, case.d) if case.shared else (samples, case.points, case.d)
    data = Fields(
        random.uniform(size=shape).astype(np.float32),
        random.normal(size=(samples, case.points, case.i)).astype(np.float32),
        y=random.normal(size=(samples, case.points, case.o)).astype(np.float32),
    )
    device, task = torch.device("cuda"), Steady()
    spec, config = Spec(case.d, case.i, case.o), PAPER_CONFIGS[case.problem]
    models = [LNO(spec, config).to(device) for _ in range(members)]
    recipe = Recipe(epochs=10**6, batch=samples, optimizer="adamw")
    scale = task.normalizers(data)
    training = Training(models, task, scale, recipe, data, None, device, 0, precision)
    batches, step = Samples(data, scale, device), Step(training)
    resident = torch.cuda.memory_allocated() - sum(
        p.numel() * 4 for model in models for p in model.parameters()
    )

    def next_step() -> None:
        step(*next_batches(training, batches))
        training.step += 1

    return measure(next_step, resident)


def cleared(run: Callable[[], tuple[float, float]]) -> tuple[float, float]:
    gc.collect()
    torch.compiler.reset()
    torch.cuda.empty_cache()
    return run()


def measure_case(name: str, members: bool) -> dict[str, Any]:
    """A row of the result: milliseconds and peak memory of each kind of step."""
    case = CASES[name]
    runs = {"plain": partial(plain, case)}
    runs |= {kind: partial(ours, case, kind) for kind in ("tf32", "mixed")}
    if members and name in MEMBER_CASES:
        runs["members"] = partial(ours, case, "tf32", MEMBERS)
    row: dict[str, Any] = {"case": name, "points": case.points}
    for kind, run in runs.items():
        row[f"{kind}_ms"], row[f"{kind}_gb"] = cleared(run)
    return row


def describe(row: dict[str, Any]) -> str:
    parts = [f"{row['case']:11s} plain {row['plain_ms']:7.2f} ms {row['plain_gb']:5.2f} GB"]
    for kind in ("tf32", "mixed"):
        ms, gb = row[f"{kind}_ms"], row[f"{kind}_gb"]
        parts.append(f"{kind} {ms:6.2f} ms {gb:5.2f} GB {row['plain_ms'] / ms:5.1f}×")
    if "members_ms" in row:
        parts.append(f"{MEMBERS} members {row['members_ms'] / row['tf32_ms']:.2f}×")
    return " | ".join(parts)


def compare(rows: list[dict[str, Any]], before: list[dict[str, Any]]) -> None:
    """Print the speed of each row as a ratio to plain, now and before."""
    old_rows = {row["case"]: row for row in before}
    print("case         kind    before     now   now/before")
    for row in rows:
        old = old_rows.get(row["case"])
        for kind in ("tf32", "mixed") if old is not None else ():
            then, now = (r["plain_ms"] / r[f"{kind}_ms"] for r in (old, row))
            verdict = "ok" if now >= TOLERATED * then else f"below {TOLERATED}"
            speeds = f"{then:6.2f}× {now:6.2f}×   {now / then:6.3f}"
            print(f"{row['case']:12s} {kind:6s} {speeds}  {verdict}")


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write rows into a file, with the geometric means of their speeds."""
    ratios = {
        kind: math.exp(np.mean([math.log(r["plain_ms"] / r[f"{kind}_ms"]) for r in rows]))
        for kind in ("tf32", "mixed")
    }
    record = {"hardware": torch.cuda.get_device_name(), "members": MEMBERS, "geomean": ratios}
    write_json(path, {"rows": rows, **record})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("cases", nargs="*", default=list(CASES))
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--members", action="store_true")
    parser.add_argument("--before", type=Path)
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    start = time.monotonic()
    before = json.loads(options.before.read_text())["rows"] if options.before else []
    rows = json.loads(options.out.read_text())["rows"] if options.out.exists() else []
    measured = []
    for name in options.cases:
        if time.monotonic() - start > options.seconds:
            print(f"no time left for {name}")
            continue
        row = measure_case(name, options.members)
        measured.append(row)
        print(describe(row), f"[{time.monotonic() - start:.0f} s]", flush=True)
        rows = [r for r in rows if r["case"] != name] + [row]
        write(options.out, rows)
    if before:
        compare(measured, before)


if __name__ == "__main__":
    main()
