"""A batch: what a model reads and is measured against, as tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

Change = Callable[[Tensor], Tensor]
OF_OBSERVED = ("x", "u", "mask", "weights", "observed_background")
OF_QUERIES = ("x_query", "y", "query_mask", "query_weights", "background")


@dataclass(frozen=True)
class Batch:
    """Tensors of b samples.

    What all samples share (positions and weights) has a batch axis of one: a model computes what
    depends on positions alone once for the whole batch. `x_query is x` where the query points
    are the observed points. Masks are None where nothing is padded; True marks a real point.
    Observations of a field that has a background come with the background there.
    """

    x: Float[Tensor, "#b n d"]
    u: Float[Tensor, "b n i"]
    x_query: Float[Tensor, "#b q d"]
    y: Float[Tensor, "b q o"] | None = None
    mask: Bool[Tensor, "b n"] | None = None
    query_mask: Bool[Tensor, "b q"] | None = None
    parameters: Float[Tensor, "b p"] | None = None
    weights: Float[Tensor, "#b n"] | None = None
    query_weights: Float[Tensor, "#b q"] | None = None
    background: Float[Tensor, "b q o"] | None = None
    observed_background: Float[Tensor, "b n i"] | None = None

    def __len__(self) -> int:
        return self.u.shape[0]

    @property
    def inputs(self) -> Float[Tensor, "b n k"]:
        """What a model reads at the observed points: u, then the parameters of the sample."""
        if self.parameters is None:
            return self.u
        everywhere = self.parameters[:, None].expand(-1, self.u.shape[1], -1)
        return torch.cat((self.u, everywhere.to(self.u.dtype)), dim=-1)

    def to(self, device: torch.device) -> Batch:
        """The same batch on another device."""
        return self.each(lambda values: values.to(device, non_blocking=True))

    def each(self, change: Change, names: tuple[str, ...] | None = None) -> Batch:
        """Apply a function to every tensor, or to some by name; `x_query is x` stays true."""
        names = tuple(f.name for f in fields(self)) if names is None else names
        present = {n: v for n in names if (v := getattr(self, n)) is not None}
        changed = {name: change(values) for name, values in present.items() if name != "x_query"}
        if "x_query" in present:
            same = self.x_query is self.x and "x" in changed
            changed["x_query"] = changed["x"] if same else change(self.x_query)
        return replace(self, **changed)

    def at_samples(self, index: Tensor) -> Batch:
        """The samples at `index` (b,); what all samples share stays as it is."""
        return self._pick(lambda values: values[index])

    def split(self, count: int) -> list[Batch]:
        """Batches of consecutive samples, `count` of the same size."""
        size = len(self) // count

        def part(k: int) -> Batch:
            return self._pick(lambda values: values[k * size : (k + 1) * size])

        return [part(k) for k in range(count)]

    def at_points(self, index: Tensor | slice) -> Batch:
        """The same batch with only the observed points at `index`, the same in every sample."""
        chosen = self.each(lambda values: values[:, index], OF_OBSERVED)
        return replace(chosen, x_query=self.x_query)

    def at_queries(self, index: Tensor | slice) -> Batch:
        """The same batch with only the query points at `index`, the same in every sample."""
        return self.each(lambda values: values[:, index], OF_QUERIES)

    def at_observed(self) -> Batch:
        """The same batch with the observed points as query points."""
        return replace(
            self,
            x_query=self.x,
            y=None,
            query_mask=self.mask,
            query_weights=self.weights,
            background=self.observed_background,
        )

    def _pick(self, change: Change) -> Batch:
        """Apply a choice of samples to all but what all samples share."""

        def pick(values: Tensor) -> Tensor:
            return values if len(values) == 1 < len(self) else change(values)

        return self.each(pick)
