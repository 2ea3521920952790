"""Softmax sums over any number of points, some of the points at a time.

`SoftmaxSums` is what the encoder of Physics-Cross-Attention adds up over points. Sums over chunks
of points, or over parts of a mesh on several processes, merge into those over all points.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor


def slices(count: int, size: int) -> Iterator[slice]:
    """Consecutive slices of at most `size` that cover 0..count.

    >>> list(slices(5, 3))
    [slice(0, 3, None), slice(3, 5, None)]
    """
    if size < 1:
        raise ValueError(f"expected a chunk of at least one point, got {size}")
    return (slice(start, min(start + size, count)) for start in range(0, count, size))


def adjusted_scores(
    scores: Float[Tensor, "#b n m"],
    mask: Bool[Tensor, "b n"] | None,
    weights: Float[Tensor, "#b n"] | None,
) -> Float[Tensor, "#b n m"]:
    """Scores plus log-weights; those of padding and of points of size zero are the least number.

    Next to any real point that gives a softmax weight of exactly zero. It is not −∞, because a
    chunk of points may be padding only, and −∞ − (−∞) is NaN.
    """
    if weights is not None:
        positive = weights > 0
        scores = scores + torch.where(positive, weights, 1.0).log()[..., None].to(scores.dtype)
        mask = positive if mask is None else mask & positive
    if mask is not None:
        scores = scores.masked_fill(~mask[..., None], torch.finfo(scores.dtype).min)
    return scores


class SoftmaxSums(NamedTuple):
    """A softmax-weighted sum over some of the points, which merges with that over others.

    With scores s and values v it holds top = max s, total = Σ exp(s − top) and
    weighted = Σ exp(s − top) v, for each latent position. Sums over disjoint sets of points merge
    exactly (the online softmax of Milakov & Gimelshein, 2018).
    """

    top: Float[Tensor, "b m"]
    total: Float[Tensor, "b m"]
    weighted: Float[Tensor, "b m c"]

    def merge(self, other: SoftmaxSums) -> SoftmaxSums:
        """The sums over the points of both."""
        top = torch.maximum(self.top, other.top)
        a, b = torch.exp(self.top - top), torch.exp(other.top - top)
        return SoftmaxSums(
            top,
            a * self.total + b * other.total,
            a[..., None] * self.weighted + b[..., None] * other.weighted,
        )

    def mean(self) -> Float[Tensor, "b m c"]:
        """The softmax-weighted mean of the values."""
        return self.weighted / self.total[..., None]
