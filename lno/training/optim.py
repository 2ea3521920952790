"""The optimiser: all weights of a run in one buffer, updated by a few operations on all of it.

What changes from step to step comes as a tensor of numbers, so that a CUDA graph can hold the
update, which torch's optimisers do not allow where the first beta moves, as in the paper's recipe.
The weights of several models lie in the same buffer, and Muon takes all matrices of one shape at
once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor, nn

from lno.training.schedules import Pace

ALIGNED = 64  # every weight begins at a multiple of so many numbers, where fast kernels can read it
EPSILON = 1e-8
MUON_RATE = 10.0  # Muon's updates have unit size, so its rate is larger than AdamW's
MUON_MOMENTUM = 0.95
# Muon's quintic, which pulls singular values to one in five applications; its authors' numbers.
QUINTIC, APPLICATIONS = (3.4445, -4.7750, 2.0315), 5


@dataclass(frozen=True)
class Rule:
    """An optimiser by its numbers.

    Args:
        coupled: weight decay is a part of the gradient (Adam), not of the update (AdamW).
        muon: matrices with more than 16 rows and columns follow Muon, all else AdamW.
    """

    coupled: bool = False
    muon: bool = False


OPTIMIZERS = {"adamw": Rule(), "adam": Rule(coupled=True), "muon": Rule(muon=True)}
BETA = 0.9  # of the running mean of the gradient, where a schedule does not move it


class Optimizer:
    """Adam, AdamW or Muon for all weights of some models, and their running mean.

    The parameters become parts of one buffer. A step is

        optimizer.gather(k, ...)                  the gradients of the k-th model, for each k
        optimizer.update(optimizer.numbers(...))  with numbers on the device

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
        square_beta: float = 0.99,
        ema: float | None = None,
    ) -> None:
        self.rule, self.weight_decay, self.ema = rule, weight_decay, ema
        self.square_beta = square_beta
        self.parameters = [list(model.parameters()) for model in models]
        decayed, plain, matrices = self._groups(decay_all)
        ordered = [*decayed, *plain, *(p for same in matrices for p in same)]
        ends = list(accumulate((_room(p) for p in ordered), initial=0))
        self.decayed = slice(0, ends[len(decayed)])
        self.by_adam = slice(0, ends[len(decayed) + len(plain)])
        like = ordered[0]
        self.values, self.gradient, self.first, self.second = (
            torch.zeros(ends[-1], dtype=like.dtype, device=like.device) for _ in range(4)
        )
        gradient = {}  # the part of the buffer that belongs to each parameter
        for p, start in zip(ordered, ends, strict=False):
            part = slice(start, start + p.numel())
            gradient[p] = self.gradient[part].view_as(p)
            p.data = self.values[part].view_as(p).copy_(p.data)
        self.gradients = [[gradient[p] for p in own] for own in self.parameters]
        self.matrices = []  # values, gradients and momenta of all matrices of one shape
        start = self.by_adam.stop
        for same in matrices:
            p, stop = same[0], start + len(same) * _room(same[0])
            self.matrices.append(
                [
                    buffer[start:stop].view(len(same), -1)[:, : p.numel()].unflatten(1, p.shape)
                    for buffer in (self.values, self.gradient, self.first)
                ]
            )
            start = stop
        self.mean = None if ema is None else self.values.clone()

    def numbers(self, step: int, rate: float, pace: Pace) -> Tensor:
        """What decides the update of a step (counted from 0), on the CPU."""
        beta, square_beta = pace.beta or BETA, self.square_beta
        rate = rate * pace.rate
        forget = 1.0 if step == 0 else 1 - (self.ema or 0.0)
        correction = math.sqrt(1 - square_beta ** (step + 1))
        numbers = (rate, 1 - beta, rate / (1 - beta ** (step + 1)), 1 / correction, forget)
        return torch.tensor(numbers, dtype=self.values.dtype)

    def gather(self, k: int, gradients: Sequence[Tensor | None]) -> None:
        """Bring the gradients of the k-th model into the buffer; a missing one is zero."""
        targets, sources = [], []
        for target, source in zip(self.gradients[k], gradients, strict=True):
            if source is None:
                target.zero_()
            else:
                targets.append(target)
                sources.append(source)
        if targets:
            torch._foreach_copy_(targets, sources)

    def clip(self, limit: float) -> None:
        """Scale the gradient of each model down to the norm `limit`, where it is larger."""
        for own in self.gradients:
            norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(own)))
            torch._foreach_mul_(own, (limit / (norm + 1e-6)).clamp(max=1.0))

    @torch.no_grad()
    def update(self, numbers: Tensor) -> None:
        """Change the weights by the gathered gradient."""
        rate, new, size, correction, forget = numbers.unbind()
        decay, part = self.weight_decay, self.by_adam
        p, g, m, v = (b[part] for b in (self.values, self.gradient, self.first, self.second))
        if decay and self.rule.coupled:
            g[self.decayed].add_(p[self.decayed], alpha=decay)
        elif decay:
            p[self.decayed].mul_(1 - rate * decay)
        m.lerp_(g, new)
        v.mul_(self.square_beta).addcmul_(g, g, value=1 - self.square_beta)
        p.sub_((m * size).div_(v.sqrt().mul_(correction).add_(EPSILON)))
        for p, g, m in self.matrices:
            m.lerp_(g, 1 - MUON_MOMENTUM)
            rows, columns = p.shape[-2:]
            larger = MUON_RATE * math.sqrt(max(1, rows / columns))
            if decay:
                p.mul_(1 - rate * (MUON_RATE * decay))
            p.sub_(orthogonal(g.lerp(m, MUON_MOMENTUM)).mul_(rate * larger))
        if self.mean is not None:
            self.mean.lerp_(self.values, forget)

    def state(self) -> Iterator[tuple[str, Tensor]]:
        """The tensors that a run needs to go on, besides the weights."""
        yield "first", self.first
        yield "second", self.second
        if self.mean is not None:
            yield "mean", self.mean

    def _groups(
        self, decay_all: bool
    ) -> tuple[list[nn.Parameter], list[nn.Parameter], list[list[nn.Parameter]]]:
        """Parameters that decay, that do not (norms and biases), and Muon's matrices by shape."""
        matrices: dict[tuple[int, ...], list[nn.Parameter]] = {}
        decayed, plain = [], []
        for p in (p for own in self.parameters for p in own):
            if self.rule.muon and p.ndim == 2 and min(p.shape) > 16:
                matrices.setdefault(tuple(p.shape), []).append(p)
            elif decay_all or p.ndim >= 2:
                decayed.append(p)
            else:
                plain.append(p)
        return decayed, plain, list(matrices.values())


def _room(parameter: Tensor) -> int:
    """Numbers that a parameter takes up in the buffer."""
    return -(-parameter.numel() // ALIGNED) * ALIGNED


def orthogonal(matrices: Tensor) -> Tensor:
    """Approximately U Vᵀ of each matrix U Σ Vᵀ (..., rows, columns), by Newton–Schulz.

    In bfloat16 where the matrices are in single precision: the iteration forgives rounding.
    """
    a, b, c = QUINTIC
    x = matrices.to(torch.bfloat16) if matrices.dtype == torch.float32 else matrices
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    shape = x.shape
    x = x.reshape(-1, *shape[-2:])
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    for _ in range(APPLICATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    x = x.view(shape)
    return (x.mT if tall else x).to(matrices.dtype)
