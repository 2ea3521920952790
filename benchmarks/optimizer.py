"""One AdamW update: `lno.training.optim.Optimizer` against torch's capturable AdamW.

    python benchmarks/optimizer.py [--device cpu]

The weights are those of the paper's LNO for Darcy and NS2d, 1 and 5 members. Learning rate and
beta1 change at every step, as in the paper's one-cycle schedule, and are tensors on the device.
Every update is captured as a CUDA graph; ours includes the copy of the gradients into its buffer.

- ms: milliseconds of an update, the mean over 200 replays of the graph
- from float64: largest difference of a weight after 50 steps from AdamW in float64
- from ours: largest difference from our weights

A variant that cannot be captured has the reason instead. Takes under a minute on an H200; with
`--device cpu`, a smoke test without graphs. Writes results/benchmarks/optimizer.json.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lno.data import Spec
from lno.experiments.presets import PAPER_CONFIGS
from lno.files import write_json
from lno.models import LNO
from lno.training.device import hardware
from lno.training.optim import OPTIMIZERS, Optimizer
from lno.training.schedules import Pace, onecycle

RESULT = Path(__file__).parents[1] / "results" / "benchmarks" / "optimizer.json"
CASES = {"darcy": Spec(2, 1, 1), "ns2d": Spec(2, 10, 1)}
STEPS, REPLAYS = 50, 200
LEARNING_RATE, BETA2, WEIGHT_DECAY = 1e-3, 0.99, 5e-5
TORCH = {
    "foreach": {"foreach": True},
    "fused": {"fused": True},
    "for-loop": {"foreach": False, "fused": False},
}


@dataclass(frozen=True)
class Variant:
    """An optimiser: its update, what sets the numbers of a step, and its state besides weights."""

    update: Callable[[], Any]
    set_numbers: Callable[[int, Pace], None]
    state: Callable[[], list[Tensor]]


class Gradients:
    """The same random gradients for every variant: a new set for each step, in fixed tensors."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self.tensors = [torch.zeros_like(p) for p in parameters]

    def draw(self, step: int) -> None:
        device = self.tensors[0].device
        generator = torch.Generator(device).manual_seed(step)
        for tensor in self.tensors:
            new = torch.randn(tensor.shape, generator=generator, device=device)
            tensor.copy_(0.01 * new)


def models_of(problem: str, members: int, device: torch.device) -> list[nn.Module]:
    torch.manual_seed(0)
    built = [LNO(CASES[problem], PAPER_CONFIGS[problem]) for _ in range(members)]
    return [model.to(device) for model in built]


def ours(models: list[nn.Module], gradients: Gradients) -> Variant:
    optimizer = Optimizer(models, OPTIMIZERS["adamw"], WEIGHT_DECAY, True, BETA2)
    numbers = optimizer.numbers(0, LEARNING_RATE, Pace(1.0)).to(optimizer.values.device)
    own, count = [], 0
    for parameters in optimizer.parameters:
        own.append(gradients.tensors[count : count + len(parameters)])
        count += len(parameters)

    def update() -> None:
        for k, tensors in enumerate(own):
            optimizer.gather(k, tensors)
        optimizer.update(numbers)

    def set_numbers(step: int, pace: Pace) -> None:
        numbers.copy_(optimizer.numbers(step, LEARNING_RATE, pace))

    return Variant(update, set_numbers, lambda: [tensor for _, tensor in optimizer.state()])


def torchs(
    models: list[nn.Module], gradients: Gradients, captured: bool, **variant: bool
) -> Variant:
    parameters = [p for model in models for p in model.parameters()]
    for parameter, gradient in zip(parameters, gradients.tensors, strict=True):
        parameter.grad = gradient
    keys: dict[str, Any] = {"weight_decay": WEIGHT_DECAY, **variant}
    if captured:
        rate, beta1, beta2 = (
            torch.tensor(v, device=parameters[0].device) for v in (LEARNING_RATE, 0.95, BETA2)
        )
        keys |= {"lr": rate, "betas": (beta1, beta2), "capturable": True}
    optimizer = torch.optim.AdamW(parameters, **keys)

    def set_numbers(step: int, pace: Pace) -> None:
        if captured:
            rate.fill_(LEARNING_RATE * pace.factor)
            beta1.fill_(pace.beta1 or 0.0)
        else:
            for group in optimizer.param_groups:
                group.update(lr=LEARNING_RATE * pace.factor, betas=(pace.beta1, BETA2))

    def state() -> list[Tensor]:
        return [v for own in optimizer.state.values() for v in own.values()]

    return Variant(optimizer.step, set_numbers, state)


def weights(models: list[nn.Module]) -> Tensor:
    return torch.cat([p.detach().double().flatten() for m in models for p in m.parameters()])


def reference(problem: str, members: int, device: torch.device) -> Tensor:
    """The weights after all steps of torch's AdamW in double precision."""
    models = models_of(problem, members, device)
    gradients = Gradients([p for model in models for p in model.parameters()])
    exact = [model.double() for model in models]
    doubled = Gradients([p for model in exact for p in model.parameters()])
    optimizer = torchs(exact, doubled, captured=False)
    for step in range(STEPS):
        gradients.draw(step)
        for source, target in zip(gradients.tensors, doubled.tensors, strict=True):
            target.copy_(source)
        optimizer.set_numbers(step, onecycle(step, STEPS))
        optimizer.update()
    return weights(exact)


def capture(update: Callable[[], Any]) -> Callable[[], Any]:
    """The update as a CUDA graph; raises if it waits for the device, which no graph can hold."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        update()  # allocates the optimiser's state
        torch.cuda.set_sync_debug_mode("error")
        try:
            update()
        finally:
            torch.cuda.set_sync_debug_mode("default")
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        update()
    return graph.replay


def measure(problem: str, members: int, variant: str, device: torch.device) -> tuple[float, Tensor]:
    """Milliseconds of an update, and the weights after all steps."""
    on_gpu = device.type == "cuda"
    models = models_of(problem, members, device)
    parameters = [p for model in models for p in model.parameters()]
    gradients = Gradients(parameters)
    if variant == "ours":
        optimizer = ours(models, gradients)
    else:
        optimizer = torchs(models, gradients, on_gpu, **TORCH[variant])
    update = optimizer.update
    if on_gpu:
        start = [p.detach().clone() for p in parameters]
        optimizer.set_numbers(0, onecycle(0, STEPS))
        update = capture(update)
        for p, value in zip(parameters, start, strict=True):  # undo the warm-up
            p.data.copy_(value)
        for tensor in optimizer.state():
            tensor.zero_()
    for step in range(STEPS):
        gradients.draw(step)
        optimizer.set_numbers(step, onecycle(step, STEPS))
        update()
    trained = weights(models)
    replays = REPLAYS if on_gpu else 3
    synchronize = torch.cuda.synchronize if on_gpu else lambda: None
    synchronize()
    begin = time.perf_counter()
    for _ in range(replays):
        update()
    synchronize()
    return 1e3 * (time.perf_counter() - begin) / replays, trained


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, default=RESULT)
    options = parser.parse_args()
    device = torch.device(options.device)
    rows = []
    print("problem  members    weights  variant   ms/update  from float64  from ours")
    for problem in CASES:
        for members in (1, 5) if device.type == "cuda" else (1,):
            expected = reference(problem, members, device)
            row: dict[str, Any] = {"problem": problem, "members": members}
            row["weights"], our_weights = len(expected), expected
            for variant in ("ours", *TORCH):
                try:
                    ms, trained = measure(problem, members, variant, device)
                    our_weights = trained if variant == "ours" else our_weights
                    error, apart = (
                        float((trained - other).abs().max()) for other in (expected, our_weights)
                    )
                    row[f"{variant}_ms"] = ms
                    row[f"{variant}_from_float64"], row[f"{variant}_from_ours"] = error, apart
                    text = f"{ms:9.4f}  {error:12.1e}  {apart:9.1e}"
                except RuntimeError as failure:
                    row[f"{variant}_error"] = str(failure).strip().splitlines()[0]
                    text = f"cannot be captured: {row[f'{variant}_error'][:60]}"
                case = f"{problem:8s} {members:7d} {len(expected):10,}"
                print(f"{case}  {variant:9s} {text}", flush=True)
                gc.collect()
            rows.append(row)
    record = {"rows": rows, "hardware": hardware(device), "torch": torch.__version__}
    write_json(options.out, record)


if __name__ == "__main__":
    main()
