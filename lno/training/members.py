"""Several models of one kind as one: their weights stacked, all computed in one batched step.

Small models leave a GPU idle. K of them, each with a seed of its own, cost less together than K
runs, and each equals, to rounding, the model that its seed gives alone.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

from lno.data import Batch

PART = 2048  # rows of a product whose sum over them is not worth splitting


class Members(nn.Module):
    """Models whose parameters have a leading axis, one entry a model.

    It reads batches with the same leading axis, or with one of size one where all models read the
    same, and its predictions have it too.

    >>> members = Members([nn.Linear(2, 3), nn.Linear(2, 3)])
    >>> [tuple(p.shape) for p in members.parameters()], len(members.unstack())
    ([(2, 3, 2), (2, 3)], 2)
    """

    def __init__(self, models: Sequence[nn.Module]) -> None:
        super().__init__()
        self.size = len(models)
        self.stacked = copy.deepcopy(models[0])
        every = [dict(model.named_parameters()) for model in models]
        with torch.no_grad():
            for name, parameter in self.stacked.named_parameters():
                parameter.data = torch.stack([weights[name] for weights in every])
        # What the weights of one model are put into; in a list, it is no part of this module.
        self._skeleton = [copy.deepcopy(models[0]).to("meta")]
        self._batched = [copy.deepcopy(self._skeleton[0])]
        for layer in self._batched[0].modules():
            if type(layer) is nn.Linear:
                layer.__class__ = LinearInParts

    @property
    def config(self) -> Any:
        """The config that all of them have."""
        return self.stacked.config

    def forward(self, x: Tensor, u: Tensor, x_query: Tensor, mask: Tensor | None = None) -> Tensor:
        """Predictions (k, b, q, o) of k models."""
        skeleton, buffers = self._batched[0], dict(self.stacked.named_buffers())
        same = x_query is x  # a model computes less then, so it has to see it

        def one(weights: Any, x: Any, u: Any, q: Any, mask: Any) -> Tensor:
            given = (x, u, x if same else q, mask)
            return functional_call(skeleton, {**weights, **buffers}, given)

        inputs = [None if v is None else v[0] if len(v) == 1 else v for v in (x, u, x_query, mask)]
        axes = [None if v is None or len(v) == 1 else 0 for v in (x, u, x_query, mask)]
        weights = dict(self.stacked.named_parameters())
        with sdpa_kernel(SDPBackend.MATH):  # torch cannot batch fused attention kernels
            return vmap(one, in_dims=(0, *axes))(weights, *inputs)

    def unstack(self) -> list[nn.Module]:
        """The models, each on its own."""
        models = []
        for k in range(self.size):
            model = copy.deepcopy(self._skeleton[0])
            weights = {n: p.detach()[k].clone() for n, p in self.stacked.named_parameters()}
            model.load_state_dict({**weights, **dict(self.stacked.named_buffers())}, assign=True)
            models.append(model.requires_grad_(True).train(self.training))
        return models


class LinearInParts(nn.Linear):
    """A linear layer that takes its rows in several parts.

    The gradient of its weights is a sum over all rows. GPUs split such a sum in a single product,
    but not in a batch of them, which several members make of it: a few of their cores would do it
    all. In parts the batch is larger and the sums are shorter.

    >>> layer = LinearInParts(3, 2)
    >>> v = torch.rand(2, 4096, 3)
    >>> torch.allclose(layer(v), nn.functional.linear(v, layer.weight, layer.bias), atol=1e-6)
    True
    """

    def forward(self, v: Tensor) -> Tensor:
        """V (..., i) to (..., o)."""
        rows = v.shape[:-1].numel()
        # The fewest equal parts of at most PART rows, if there are not too many of them.
        least = -(-rows // PART)
        parts = next((k for k in range(least, 8 * least) if rows % k == 0), 1)
        if parts == 1:
            return super().forward(v)
        weight = self.weight.mT.expand(parts, -1, -1)
        y = torch.bmm(v.reshape(parts, rows // parts, -1), weight).view(*v.shape[:-1], -1)
        return y if self.bias is None else y + self.bias.to(y.dtype)


def count(model: nn.Module) -> int:
    """How many models a module is."""
    return model.size if isinstance(model, Members) else 1


def leading_axes(model: nn.Module) -> int:
    """How many axes its weights have before those of one model."""
    return 1 if isinstance(model, Members) else 0


def stack(batches: Sequence[Batch]) -> Batch:
    """One batch for each of several models; positions that they all share get an axis of one."""

    def joined(values: list[Tensor]) -> Tensor:
        same = all(v is values[0] for v in values)
        return values[0][None] if same else torch.stack(values)

    def masks(values: list[Tensor | None], like: list[Tensor]) -> Tensor | None:
        if all(v is None for v in values):
            return None
        full = (torch.ones_like(w[..., 0], dtype=torch.bool) for w in like)
        return torch.stack([v if v is not None else f for v, f in zip(values, full, strict=True)])

    first = batches[0]
    x = joined([b.x for b in batches])
    same = all(b.x_query is b.x for b in batches)
    targets = [b.y for b in batches if b.y is not None]
    return replace(
        first,
        x=x,
        u=torch.stack([b.u for b in batches]),
        x_query=x if same else joined([b.x_query for b in batches]),
        y=torch.stack(targets) if targets else None,
        mask=masks([b.mask for b in batches], [b.u for b in batches]),
        query_mask=masks([b.query_mask for b in batches], targets),
        carry=None
        if first.carry is None
        else torch.stack([b.carry for b in batches if b.carry is not None]),
    )


def models_of(model: nn.Module) -> list[nn.Module]:
    """The models that a module is, each on its own and with weights of its own."""
    return model.unstack() if isinstance(model, Members) else Members([model]).unstack()


def together(models: Iterable[nn.Module]) -> nn.Module:
    """One module to train: the model itself where there is only one."""
    every = list(models)
    return every[0] if len(every) == 1 else Members(every)
