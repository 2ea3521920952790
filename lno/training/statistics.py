"""Statistics that models keep (`Model.keeps_statistics`), like means of batch normalisation.

A step changes them without a gradient, so they belong to the state of a run but not to the
optimiser. Models change them in place: compiled steps and CUDA graphs hold on to these tensors.
Where predictions are made with a moving average of the weights, they are made with the same moving
average of the statistics, which belong to the weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from lno.models.model import Model


class Statistics:
    """The statistics of the models of a run, with their moving average.

    Args:
        models: those that keep none add nothing.
        ema: the decay of the moving average; None: there is none.
    """

    def __init__(self, models: Sequence[Model], ema: float | None) -> None:
        self.buffers = [b for model in models if model.keeps_statistics for b in model.buffers()]
        self.values = [b for b in self.buffers if b.is_floating_point()]  # the others are counters
        self.average = [] if ema is None else [v.clone() for v in self.values]

    @torch.no_grad()
    def update_average(self, blend: Tensor) -> None:
        """Move the average to the new values by a fraction of the way, as that of the weights."""
        if self.average:
            change = torch._foreach_sub(self.values, self.average)
            torch._foreach_mul_(change, blend)
            torch._foreach_add_(self.average, change)

    @torch.no_grad()
    def use_average(self) -> None:
        """Replace the statistics by their average, if there is one."""
        for value, average in zip(self.values if self.average else [], self.average, strict=True):
            value.copy_(average)

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Undo all changes that are made inside, in place."""
        kept = [buffer.clone() for buffer in self.buffers]
        try:
            yield
        finally:
            for buffer, value in zip(self.buffers, kept, strict=True):
                buffer.copy_(value)
