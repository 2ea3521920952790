"""A batch: what a model reads and is measured against, as tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

Change = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Batch:
    """Tensors of b samples.

    Positions that all samples share have a batch axis of one: a model computes what depends on
    positions alone once for the whole batch. `x_query is x` where the answer is wanted at the
    observed points. Masks are None where nothing is padded; True marks a real point.
    """

    x: Float[Tensor, "#b n d"]
    u: Float[Tensor, "b n i"]
    x_query: Float[Tensor, "#b q d"]
    y: Float[Tensor, "b q o"] | None = None
    mask: Bool[Tensor, "b n"] | None = None
    query_mask: Bool[Tensor, "b q"] | None = None

    def __len__(self) -> int:
        return self.u.shape[0]

    def map(self, x: Change, u: Change, y: Change) -> Batch:
        """Apply functions to positions, observed values and targets."""
        positions = x(self.x)
        return replace(
            self,
            x=positions,
            u=u(self.u),
            x_query=positions if self.x_query is self.x else x(self.x_query),
            y=None if self.y is None else y(self.y),
        )

    def to(self, device: torch.device) -> Batch:
        """The same batch on another device."""
        return self.each(lambda values: values.to(device, non_blocking=True))

    def each(self, change: Change) -> Batch:
        """Apply a function to every tensor."""
        return replace(self.map(change, change, change), **self._others(change))

    def at_samples(self, index: Tensor) -> Batch:
        """The samples at `index` (b,); positions that all share stay as they are."""
        return self._pick(lambda values: values[index])

    def split(self, count: int) -> list[Batch]:
        """Batches of consecutive samples, `count` of the same size."""
        size = len(self) // count

        def part(k: int) -> Batch:
            return self._pick(lambda values: values[k * size : (k + 1) * size])

        return [part(k) for k in range(count)]

    def at_queries(self, index: Tensor) -> Batch:
        """The same batch with only the query points at `index` (k,), the same in every sample."""

        def pick(values: Tensor | None) -> Tensor | None:
            return None if values is None else values[:, index]

        return replace(
            self,
            x_query=self.x_query[:, index],
            y=pick(self.y),
            query_mask=pick(self.query_mask),
        )

    def _pick(self, change: Change) -> Batch:
        """Apply a choice of samples to all but the positions that all samples share."""

        def positions(values: Tensor) -> Tensor:
            return values if len(values) == 1 < len(self) else change(values)

        return replace(self.map(positions, change, change), **self._others(change))

    def _others(self, change: Change) -> dict[str, Any]:
        """What is neither a position nor a value, changed."""
        others = {name: getattr(self, name) for name in ("mask", "query_mask")}
        return {name: None if v is None else change(v) for name, v in others.items()}
