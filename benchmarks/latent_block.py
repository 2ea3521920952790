"""The transformer blocks on latent tokens, with keys centred in two ways and not at all.

    python benchmarks/latent_block.py [--seconds 120]

Milliseconds of a stack of blocks forward and back, compiled and captured as a CUDA graph as in
training, in tf32 and under bfloat16 autocast:

- one: `SelfAttention`, one product of the query, key and value weights with centred tokens, to
  which the product with their mean is added for queries and values.
- two: the product of the key weights with centred tokens, that of the others with the tokens.
- uncentred: plain attention with biased keys, which drift in long bfloat16 runs. A lower limit.

All three compute the same function. Needs a CUDA GPU; writes results/benchmarks/latent_block.json.
`--device cpu` is a smoke test at small sizes, which writes nothing.
"""

from __future__ import annotations

import argparse
import gc
import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from graph_timing import captured_milliseconds
from torch import Tensor, nn

from lno.files import write_json
from lno.models import SelfAttention, TransformerBlock
from lno.models.layers import mean_token
from lno.training.step import compiled

RESULT = Path(__file__).parents[1] / "results" / "benchmarks" / "latent_block.json"
Projected = tuple[Tensor, Tensor, Tensor]


class TwoProducts(SelfAttention):
    """Keys of centred tokens; queries and values of the tokens as they are."""

    def project(self, z: Tensor, mask: Tensor | None = None) -> Projected:
        query, key, value = self.query_key_value.weight.chunk(3)
        query_bias, _, value_bias = self.query_key_value.bias.chunk(3)
        centred = z - mean_token(z, mask)[:, None]
        return (
            F.linear(z, query, query_bias),
            F.linear(centred, key),
            F.linear(z, value, value_bias),
        )


class Uncentred(SelfAttention):
    """Keys of the tokens as they are, with a bias."""

    def project(self, z: Tensor, mask: Tensor | None = None) -> Projected:
        query, key, value = self.query_key_value(z).chunk(3, dim=-1)
        return query, key, value


FORMS = {"one": SelfAttention, "two": TwoProducts, "uncentred": Uncentred}


@dataclass(frozen=True)
class Case:
    """Sizes of a stack: samples, tokens, width, heads and blocks."""

    b: int
    m: int
    c: int
    h: int
    blocks: int


CASES = {"darcy": Case(4, 256, 128, 8, 4), "ns2d": Case(40, 256, 256, 8, 8)}
SMALL = {"small": Case(2, 16, 32, 4, 2)}


def build(case: Case, form: type[SelfAttention], device: torch.device) -> nn.Sequential:
    torch.manual_seed(0)
    blocks = (TransformerBlock(case.c, form(case.c, case.h)) for _ in range(case.blocks))
    return nn.Sequential(*blocks).to(device)


def measure(case: Case, form: type[SelfAttention], half: bool, device: torch.device) -> float:
    """Milliseconds of one pass forward and back."""
    gc.collect()
    model = build(case, form, device)
    z = torch.randn(case.b, case.m, case.c, device=device, requires_grad=True)
    tensors = [z, *model.parameters()]

    def eager(z: Tensor) -> Tensor:
        with torch.autocast(device.type, torch.bfloat16, enabled=half):
            return model(z).float().square().mean()

    torch._dynamo.reset()
    torch.cuda.empty_cache()
    loss = eager if device.type == "cpu" else compiled(eager)
    return captured_milliseconds(lambda: torch.autograd.grad(loss(z), tensors), device)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=120, help="start nothing after these")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    options = parser.parse_args()
    device, begin = torch.device(options.device), time.monotonic()
    torch.set_float32_matmul_precision("high")
    rows: list[dict[str, str | float | None]] = []
    print(f"{'case':6} {'precision':9} " + " ".join(f"{form:>12}" for form in FORMS) + "  (ms)")
    for name, case in (CASES if device.type == "cuda" else SMALL).items():
        for precision in ("tf32", "bf16"):
            row: dict[str, str | float | None] = {"case": name, "precision": precision}
            for form, attention in FORMS.items():
                in_time = time.monotonic() - begin < options.seconds
                found = measure(case, attention, precision == "bf16", device) if in_time else None
                row[f"{form}_ms"] = found
            rows.append(row)
            found = (row[f"{form}_ms"] for form in FORMS)
            cells = ("missing" if ms is None else f"{ms:.4f}" for ms in found)
            print(f"{name:6} {precision:9} " + " ".join(f"{v:>12}" for v in cells), flush=True)
            if device.type == "cuda":
                write_json(RESULT, {"rows": rows, "hardware": torch.cuda.get_device_name()})
    print(f"{time.monotonic() - begin:.0f} s")


if __name__ == "__main__":
    main()
