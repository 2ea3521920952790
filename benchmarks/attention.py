"""Physics-Cross-Attention with its N × M matrix written out, and without it.

    python benchmarks/attention.py [--points 58081 262144 1048576] [--seconds 150]

Milliseconds, peak memory and error of encode and decode with their gradients, from the factors of
the scores (keys of the points, rows and bias of the projector's last layer) to the gradients of all
inputs, for four samples. Compiled and captured as a CUDA graph, as in training, in tf32.

- written: the matrix of the scores is written out.
- sdpa …: scaled_dot_product_attention between rows and keys, with the decoder's bias as one more
  feature, by backend and by the type of its inputs.

Errors are relative to float64 at a few thousand points of the same kind: the output, and the
gradient of the rows. What does not fit into memory or has no kernel is missing, with the reason.
Writes results/benchmarks/attention.json. `--device cpu` is a smoke test, which writes nothing.
"""

from __future__ import annotations

import argparse
import gc
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from graph_timing import captured_milliseconds
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from lno.files import write_json
from lno.models import PhysicsCrossAttention
from lno.training.step import compiled

RESULT = Path(__file__).parents[1] / "results" / "benchmarks" / "attention.json"
WIDTH, LATENTS, BATCH = 128, 256, 4
POINTS, OF_FOUR = (58_081, 262_144, 1_048_576), 58_081  # the latter also with four position sets
FEW = 4096  # points to measure errors at
OUT_OF_MEMORY = "out of memory"
Method = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]  # keys, rows, bias, values -> (b, n, c)


ATTENTION = PhysicsCrossAttention(1, 1, 1)  # for its methods that read no weights


def written(keys: Tensor, rows: Tensor, bias: Tensor, values: Tensor) -> Tensor:
    scores = F.linear(keys, rows, bias)
    return ATTENTION.decode(scores, ATTENTION.encode(scores, values))


def sdpa(
    backend: SDPBackend,
    dtype: torch.dtype,
    keys: Tensor,
    rows: Tensor,
    bias: Tensor,
    values: Tensor,
) -> Tensor:
    b = len(values)
    keys, rows, bias, values = (v.to(dtype) for v in (keys, rows, bias, values))
    with sdpa_kernel(backend):
        latents, points = rows.expand(b, 1, -1, -1), keys.expand(b, -1, -1)[:, None]
        z = F.scaled_dot_product_attention(latents, points, values[:, None], scale=1.0)
        # The bias is one more feature; kernels want multiples of 8, of all three factors.
        queries = F.pad(F.pad(points, (0, 1), value=1.0), (0, 7))
        latents = F.pad(torch.cat((rows, bias[:, None]), dim=-1), (0, 7)).expand(b, 1, -1, -1)
        y = F.scaled_dot_product_attention(queries, latents, F.pad(z, (0, 8)), scale=1.0)
    return y[:, 0, :, : values.shape[-1]].to(torch.promote_types(dtype, torch.float32))


METHODS: dict[str, Method] = {
    "written": written,
    "sdpa efficient fp32": partial(sdpa, SDPBackend.EFFICIENT_ATTENTION, torch.float32),
    "sdpa flash bf16": partial(sdpa, SDPBackend.FLASH_ATTENTION, torch.bfloat16),
    "sdpa cudnn bf16": partial(sdpa, SDPBackend.CUDNN_ATTENTION, torch.bfloat16),
    "sdpa efficient bf16": partial(sdpa, SDPBackend.EFFICIENT_ATTENTION, torch.bfloat16),
    "sdpa flash fp32": partial(sdpa, SDPBackend.FLASH_ATTENTION, torch.float32),
    "sdpa cudnn fp32": partial(sdpa, SDPBackend.CUDNN_ATTENTION, torch.float32),
}
ON_CPU: dict[str, Method] = {
    "written": written,
    "sdpa math fp32": partial(sdpa, SDPBackend.MATH, torch.float32),
    "sdpa flash bf16": partial(sdpa, SDPBackend.FLASH_ATTENTION, torch.bfloat16),
    "sdpa cudnn bf16": partial(sdpa, SDPBackend.CUDNN_ATTENTION, torch.bfloat16),
}


def inputs(points: int, positions: int, device: torch.device) -> list[Tensor]:
    """Keys, rows, bias and values of about the sizes they have in a trained model."""
    generator = torch.Generator(device).manual_seed(0)
    shapes = ((positions, points, WIDTH), (LATENTS, WIDTH), (LATENTS,), (BATCH, points, WIDTH))
    scales = (1.0, 3 * WIDTH**-0.5, 1.0, 1.0)
    return [
        (scale * torch.randn(shape, generator=generator, device=device)).requires_grad_()
        for shape, scale in zip(shapes, scales, strict=True)
    ]


def clear(device: torch.device) -> None:
    gc.collect()
    if device.type == "cuda":
        torch._dynamo.reset()
        torch.cuda.empty_cache()


def error(method: Method, positions: int, device: torch.device) -> dict[str, float]:
    """Relative errors of the output and of the gradient of the rows, at few points."""
    tensors = inputs(FEW, positions, device)
    exact = [v.detach().double().requires_grad_() for v in tensors]

    def both(method: Method, tensors: list[Tensor]) -> tuple[Tensor, Tensor]:
        y = method(*tensors)
        return y.detach(), torch.autograd.grad(y.square().mean(), tensors[1])[0]

    pairs = zip(both(method, tensors), both(written, exact), strict=True)
    of_output, of_gradient = (float((a - b).norm() / b.norm()) for a, b in pairs)
    return {"output_error": of_output, "gradient_error": of_gradient}


def measure(
    method: Method, points: int, positions: int, device: torch.device, fast: bool
) -> dict[str, float | bool | None]:
    """Milliseconds and GB, beyond the inputs, of one pass forward and back."""
    tensors = inputs(points, positions, device)

    def eager(*tensors: Tensor) -> Tensor:
        return method(*tensors).square().mean()

    function = compiled(eager) if fast else eager

    def step() -> tuple[Tensor, ...]:
        return torch.autograd.grad(function(*tensors), tensors)

    if device.type == "cpu":
        return {"ms": captured_milliseconds(step, device), "gb": None, "compiled": fast}
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    ms = captured_milliseconds(step, device)
    peak = (torch.cuda.max_memory_allocated() - before) / 1e9
    return {"ms": ms, "gb": peak, "compiled": fast}


def attempt(method: Method, points: int, positions: int, device: torch.device) -> dict[str, Any]:
    """What was measured, or why nothing was; uncompiled where the compiler fails."""
    reason = ""
    for fast in (True, False) if device.type == "cuda" else (False,):
        clear(device)
        try:
            found = measure(method, points, positions, device, fast)
            return {**found, **error(method, positions, device)}
        except torch.cuda.OutOfMemoryError:
            return {"missing": OUT_OF_MEMORY}
        except Exception as problem:  # no such kernel, or the compiler fails
            reason = (str(problem).strip().splitlines() or [type(problem).__name__])[0]
    return {"missing": reason[:200]}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--points", nargs="*", type=int, default=POINTS)
    parser.add_argument("--seconds", type=float, default=150, help="start nothing after these")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    options = parser.parse_args()
    device, begin = torch.device(options.device), time.monotonic()
    torch.set_float32_matmul_precision("high")
    warnings.simplefilter("ignore")  # of kernels that are not available, a page each
    rows: list[dict[str, Any]] = []
    failed: dict[str, dict[str, Any]] = {}  # at one size, and so at all
    cases = [(points, 1) for points in options.points]
    cases += [(points, BATCH) for points in options.points if points <= OF_FOUR][:1]
    print(f"{'points':>9} {'sets':>4} {'method':20} {'ms':>9} {'GB':>7}  error of output, gradient")
    for points, positions in sorted(cases):
        for name, method in (METHODS if device.type == "cuda" else ON_CPU).items():
            if time.monotonic() - begin > options.seconds:
                found: dict[str, Any] = {"missing": "no time left"}
            else:
                found = failed.get(name) or attempt(method, points, positions, device)
            if found.get("missing", OUT_OF_MEMORY) != OUT_OF_MEMORY:
                failed[name] = found
            rows.append({"points": points, "position_sets": positions, "method": name, **found})
            line = f"{points:9} {positions:4} {name:20} "
            if "missing" in found:
                line += found["missing"][:70]
            else:
                memory = "" if found["gb"] is None else f"{found['gb']:.3f}"
                errors = f"{found['output_error']:.1e} {found['gradient_error']:.1e}"
                line += f"{found['ms']:9.3f} {memory:>7}  {errors}"
                line += " (uncompiled)" if not found["compiled"] else ""
            print(line, flush=True)
            if device.type == "cuda":
                sizes = {"width": WIDTH, "latents": LATENTS, "batch": BATCH}
                hardware = torch.cuda.get_device_name()
                write_json(RESULT, {"rows": rows, **sizes, "hardware": hardware})
    print(f"{time.monotonic() - begin:.0f} s")


if __name__ == "__main__":
    main()
