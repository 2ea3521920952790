"""Which kernels a training step spends its time in.

    python benchmarks/step_profile.py darcy lno_plus fast [--precision tf32] [--rows 20]
    python benchmarks/step_profile.py darcy lno_plus fast --compiler combo_kernels=true

A step with the sizes of a preset, compiled and captured as in training, on random samples. Prints
the kernels that take longest: microseconds a step, how often they run, and their share. Options of
the compiler (`torch._inductor.config`) can be changed, to see what they do. Needs a CUDA GPU, which
nothing else should use; writes nothing.
"""

from __future__ import annotations

import argparse
import json

import torch
from torch.profiler import ProfilerActivity, profile

from lno.experiments.efficiency import BATCH, prepare
from lno.training.step import COMPILER

STEPS = 20
NAME = 90  # characters of a kernel's name


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("problem")
    parser.add_argument("model")
    parser.add_argument("recipe", nargs="?", default="paper")
    parser.add_argument("--batch", type=int, default=BATCH)
    parser.add_argument("--precision", default="tf32")
    parser.add_argument("--rows", type=int, default=20)
    parser.add_argument("--compiler", nargs="*", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    for option in options.compiler:
        key, value = option.split("=")
        COMPILER[key] = json.loads(value)
    step = prepare(
        options.problem,
        options.model,
        options.batch,
        options.recipe,
        options.precision,
        "cuda",
    ).step
    for _ in range(10):
        step()
    torch.cuda.synchronize()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(STEPS):
        step()
    end.record()
    torch.cuda.synchronize()
    milliseconds = begin.elapsed_time(end) / STEPS
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        for _ in range(STEPS):
            step()
        torch.cuda.synchronize()
    kernels = sorted(found.key_averages(), key=lambda k: -k.self_device_time_total)
    total = sum(k.self_device_time_total for k in kernels) / STEPS
    count = sum(k.count for k in kernels) / STEPS
    print(f"{milliseconds:.3f} ms a step, {total / 1e3:.3f} ms of it in {count:.0f} kernels")
    for kernel in kernels[: options.rows]:
        microseconds = kernel.self_device_time_total / STEPS
        share, often = microseconds / total, kernel.count / STEPS
        print(f"{microseconds:8.1f} µs {often:5.1f} × {share:6.1%}  {kernel.key[:NAME]}")


if __name__ == "__main__":
    main()
