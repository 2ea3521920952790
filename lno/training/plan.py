"""What a run would cost: measured over a few steps, which are undone."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from lno.training.budget import MEASURING_SECONDS, measure, steps_within
from lno.training.loop import CURVE_POINTS, next_batches
from lno.training.samples import Samples
from lno.training.setup import Setup
from lno.training.step import Step


@dataclass(frozen=True)
class Plan:
    """What a run would cost.

    Args:
        model: the name of the model.
        weights: of one member.
        members: models that are trained at once.
        samples: training samples.
        validated: validation samples.
        steps: of the run.
        epochs: passes over the samples.
        seconds: of the run, with validation, without reading the data.
        memory: bytes on the device, about: weights, optimiser, activations and resident samples.
    """

    model: str
    weights: int
    members: int
    samples: int
    validated: int
    steps: int
    epochs: float
    seconds: float
    memory: int

    def lines(self) -> dict[str, str]:
        """In words, for the command line."""
        each = f"{self.members} × " if self.members > 1 else ""
        minutes = self.seconds / 60
        time = f"{minutes:.1f} minutes" if minutes >= 1 else f"{self.seconds:.0f} seconds"
        return {
            "model": f"{each}{self.model} with {self.weights:,} weights",
            "samples": f"{self.samples:,} to train on, {self.validated:,} to validate on",
            "steps": f"{self.steps:,}, {self.epochs:.4g} epochs",
            "time": f"about {time} here",
            "memory": f"about {self.memory / 1e9:.2g} GB",
        }


def plan(setup: Setup, minutes: float | None = None) -> Plan:
    """What a run would cost, without taking any of its steps.

    Args:
        setup: the run.
        minutes: its time budget; None: it has as many steps as it says.
    """
    training = setup.training
    samples, take_step = (
        Samples(training.data, training.normalizers, training.device),
        Step(training),
    )
    memory = _memory(setup, samples, take_step)
    costs = measure(training, take_step, samples, MEASURING_SECONDS)
    if training.device.type == "cuda":
        memory = torch.cuda.max_memory_allocated(training.device)
    steps = training.total_steps if minutes is None else steps_within(60 * minutes, costs)
    points = min(steps, CURVE_POINTS)
    validation = training.validation
    return Plan(
        setup.kind,
        sum(p.numel() for p in training.models[0].parameters()),
        len(training.models),
        len(setup.used),
        0 if validation is None else len(validation),
        steps,
        steps / training.steps_per_epoch,
        steps * costs.step + points * costs.validation,
        memory,
    )


def _memory(setup: Setup, samples: Samples, take_step: Step) -> int:
    """Bytes of weights, gradients, optimiser, resident samples and saved activations of a step."""
    training = setup.training
    known = {v.untyped_storage().data_ptr() for m in training.models for v in m.parameters()}
    seen: dict[int, int] = {}

    def count(value: torch.Tensor) -> torch.Tensor:
        storage = value.untyped_storage()
        if storage.data_ptr() not in known:
            seen[storage.data_ptr()] = storage.nbytes()
        return value

    with training.restored():
        batches, _ = next_batches(training, samples)
        kept = []  # until all are counted: a freed tensor's place would be taken by another
        with torch.autograd.graph.saved_tensors_hooks(count, lambda value: value):
            for loss, batch in zip(take_step.losses, batches, strict=True):
                kept.append(loss(batch))
    state = {id(v): v.numel() * v.element_size() for _, v in training.optimizer.state()}
    weights = [p for model in training.models for p in model.parameters()]
    gradients = sum(p.numel() * p.element_size() for p in weights)
    return 2 * gradients + sum(state.values()) + sum(seen.values()) + samples.resident_bytes
