"""The optimiser: all weights of a run lie in one flat buffer, updated by a few operations on it.

The numbers that change from step to step come as a tensor, so a CUDA graph can hold the update even
where beta1 is cycled, as in the paper's recipe. The weights of several models share the buffer, and
Muon treats all matrices of one shape at once, and on a GPU those of similar shapes (`muon.py`).
`benchmarks/optimizer.py` compares it with torch's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor, nn
from torch.nn.utils import get_total_norm

from lno.models.layers import without_decay
from lno.training.muon import orthogonal_together, stacks
from lno.training.schedules import Pace

ALIGNMENT = 64  # numbers: every weight starts at a multiple of it, where fast kernels can read it
EPSILON = 1e-8
BETA1 = 0.9  # where the schedule does not cycle it
MUON_FACTOR = 10.0  # of the learning rate: Muon's updates have unit size, AdamW's are smaller
MUON_MOMENTUM = 0.95
MUON_MIN_SIZE = 16  # matrices with no more rows or columns than this are left to AdamW
MOST_PADDING = 4.0  # of either side of a matrix, in its own length, on a GPU


@dataclass(frozen=True)
class Rule:
    """A variant of the update.

    Args:
        coupled: weight decay is added to the gradient (Adam), not to the update (AdamW).
        muon: large matrices follow Muon, everything else AdamW.
    """

    coupled: bool = False
    muon: bool = False


OPTIMIZERS = {"adamw": Rule(), "adam": Rule(coupled=True), "muon": Rule(muon=True)}


class Optimizer:
    """Adam, AdamW or Muon for all weights of some models, with their moving average.

    The models' parameters become views of the buffer `values`. One step is

        optimizer.gather(k, ...)                  the gradients of the k-th model, for each k
        optimizer.update(optimizer.numbers(...))  with the numbers on the models' device

    >>> model = nn.Linear(3, 2)
    >>> optimizer = Optimizer([model], OPTIMIZERS["adamw"])
    >>> loss = model(torch.ones(1, 3)).sum()
    >>> optimizer.gather(0, torch.autograd.grad(loss, optimizer.parameters[0]))
    >>> before = model.bias.detach().clone()
    >>> optimizer.update(optimizer.numbers(0, 1e-3, Pace(1.0)))
    >>> (model.bias - before).detach().round(decimals=6).tolist()
    [-0.0010000000474974513, -0.0010000000474974513]
    """

    def __init__(
        self,
        models: Sequence[nn.Module],
        rule: Rule,
        weight_decay: float = 0.0,
        decay_all: bool = True,
        beta2: float = 0.99,
        ema: float | None = None,
    ) -> None:
        self.rule, self.weight_decay, self.beta2, self.ema = rule, weight_decay, beta2, ema
        self.parameters = [list(model.parameters()) for model in models]
        fixed = {p for model in models for p in without_decay(model)}
        decayed, undecayed, matrices = self._groups(decay_all, fixed)
        ordered = [*decayed, *undecayed, *(p for same in matrices for p in same)]
        ends = list(accumulate((_room(p) for p in ordered), initial=0))
        self.decayed = slice(0, ends[len(decayed)])
        self.by_adam = slice(0, ends[len(decayed) + len(undecayed)])
        like = ordered[0]
        self.values, self.gradient, self.first, self.second = (
            torch.zeros(ends[-1], dtype=like.dtype, device=like.device) for _ in range(4)
        )
        starts = dict(zip(ordered, ends, strict=False))
        for p, start in starts.items():
            p.data = self.values[start : start + p.numel()].view_as(p).copy_(p.data)
        self.gradients = [
            [self.gradient[starts[p] : starts[p] + p.numel()].view_as(p) for p in own]
            for own in self.parameters
        ]
        self.segments = [_segments(own, starts) for own in self.parameters]
        self.padding = self.gradient.new_zeros(ALIGNMENT)
        self.by_muon = slice(ends[len(decayed) + len(undecayed)], ends[-1])
        self.matrices, self.matrix_gradients = (  # Muon's, one tensor for all of one shape
            _by_shape(buffer[self.by_muon], matrices) for buffer in (self.values, self.gradient)
        )
        on_gpu = like.device.type == "cuda"
        self.stacks = stacks([m.shape for m in self.matrices], MOST_PADDING if on_gpu else 1.0)
        self.average = None if ema is None else self.values.clone()

    def numbers(self, step: int, learning_rate: float, pace: Pace) -> Tensor:
        """Everything in the update that depends on the step (counted from 0), on the CPU."""
        beta1, beta2 = pace.beta1 or BETA1, self.beta2
        rate = learning_rate * pace.factor
        blend = 1.0 if step == 0 else 1 - (self.ema or 0.0)  # of new weights into their average
        correction = math.sqrt(1 - beta2 ** (step + 1))
        numbers = (rate, 1 - beta1, rate / (1 - beta1 ** (step + 1)), 1 / correction, blend)
        return torch.tensor(numbers, dtype=self.values.dtype)

    def gather(self, k: int, gradients: Sequence[Tensor | None]) -> None:
        """Copy the gradients of the k-th model into the buffer; a missing one is zero.

        One `torch.cat` for each segment of the buffer: a few kernels, not one for each weight.
        """
        for segment in self.segments[k]:
            parts = []
            for i in segment.members:
                parameter, gradient = self.parameters[k][i], gradients[i]
                parts.append(torch.zeros_like(parameter) if gradient is None else gradient)
                parts.append(self.padding[: _room(parameter) - parameter.numel()])
            flat = [part.reshape(-1) for part in parts if part.numel()]
            torch.cat(flat, out=self.gradient[segment.part])

    def clip(self, limit: float) -> None:
        """Scale the gradient of each model down to the norm `limit`, where it is larger."""
        for own, segments in zip(self.gradients, self.segments, strict=True):
            factor = (limit / (get_total_norm(own) + 1e-6)).clamp(max=1.0)
            for segment in segments:
                self.gradient[segment.part].mul_(factor)

    @torch.no_grad()
    def update(self, numbers: Tensor) -> None:
        """Change the weights by the gathered gradient."""
        rate, new, size, correction, blend = numbers.unbind()
        decay, part = self.weight_decay, self.by_adam
        p, g, m, v = (b[part] for b in (self.values, self.gradient, self.first, self.second))
        if decay and self.rule.coupled:
            g[self.decayed].add_(p[self.decayed], alpha=decay)
        elif decay:
            p[self.decayed].mul_(1 - rate * decay)
        m.lerp_(g, new)
        v.mul_(self.beta2).addcmul_(g, g, value=1 - self.beta2)
        p.sub_((m * size).div_(v.sqrt().mul_(correction).add_(EPSILON)))
        if self.matrices:
            self._update_matrices(rate)
        if self.average is not None:
            self.average.lerp_(self.values, blend)

    def _update_matrices(self, rate: Tensor) -> None:
        p, g, m = (b[self.by_muon] for b in (self.values, self.gradient, self.first))
        m.lerp_(g, 1 - MUON_MOMENTUM)
        g.lerp_(m, MUON_MOMENTUM)  # Nesterov's, in the place of the gradient
        if self.weight_decay:
            p.mul_(1 - rate * (MUON_FACTOR * self.weight_decay))
        for stack in self.stacks:
            found = orthogonal_together([self.matrix_gradients[k] for k in stack])
            for k, direction in zip(stack, found, strict=True):
                rows, columns = direction.shape[-2:]
                factor = MUON_FACTOR * math.sqrt(max(1, rows / columns))
                self.matrices[k].sub_(direction * (rate * factor))

    def state(self) -> Iterator[tuple[str, Tensor]]:
        """The tensors that a resumed run needs, besides the weights."""
        yield "first", self.first
        yield "second", self.second
        if self.average is not None:
            yield "average", self.average

    def _groups(
        self, decay_all: bool, fixed: set[nn.Parameter]
    ) -> tuple[list[nn.Parameter], list[nn.Parameter], list[list[nn.Parameter]]]:
        """Parameters with weight decay, those without it, and Muon's matrices by shape.

        Those that are `fixed` are no weights of a linear map: no decay, no Muon.
        """
        matrices: dict[tuple[int, ...], list[nn.Parameter]] = {}
        decayed, undecayed = [], []
        for p in (p for own in self.parameters for p in own):
            if p in fixed:
                undecayed.append(p)
            elif self.rule.muon and p.ndim == 2 and min(p.shape) > MUON_MIN_SIZE:
                matrices.setdefault(tuple(p.shape), []).append(p)
            elif decay_all or p.ndim >= 2:
                decayed.append(p)
            else:
                undecayed.append(p)
        return decayed, undecayed, list(matrices.values())


@dataclass(frozen=True)
class Segment:
    """Parameters of one model that are neighbours in the buffer, and the part that they fill."""

    members: list[int]  # their numbers among the model's parameters
    part: slice


def _segments(parameters: Sequence[nn.Parameter], starts: dict[nn.Parameter, int]) -> list[Segment]:
    segments: list[Segment] = []
    for i in sorted(range(len(parameters)), key=lambda i: starts[parameters[i]]):
        start = starts[parameters[i]]
        stop = start + _room(parameters[i])
        if segments and segments[-1].part.stop == start:
            last = segments.pop()
            segments.append(Segment([*last.members, i], slice(last.part.start, stop)))
        else:
            segments.append(Segment([i], slice(start, stop)))
    return segments


def _room(parameter: Tensor) -> int:
    """Numbers that a parameter takes up in the buffer, padding included."""
    return -(-parameter.numel() // ALIGNMENT) * ALIGNMENT


def _by_shape(buffer: Tensor, matrices: Sequence[Sequence[nn.Parameter]]) -> list[Tensor]:
    """The part of a buffer that belongs to matrices, as one view (k, rows, columns) for a shape."""
    views, start = [], 0
    for same in matrices:
        p, stop = same[0], start + len(same) * _room(same[0])
        views.append(buffer[start:stop].view(len(same), -1)[:, : p.numel()].unflatten(1, p.shape))
        start = stop
    return views
