"""Errors of a prediction, one number for each sample; a loss is their mean over the batch.

All points and channels of a sample count together. `mask` leaves padded points out. `weights` says
what size (length, area, volume) each point stands for, so that sums over points become integrals;
only their ratios within a sample matter.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

Metric = Callable[..., Tensor]


class Reduction:
    """Combines what is computed from some points of each sample into the result of all points.

    Here all points are in this process and there is nothing to combine. A reduction over several
    processes overrides all three methods, see `lno.training.distributed`.
    """

    def sum(self, sums: Float[Tensor, "k b"]) -> Float[Tensor, "k b"]:
        """Sums over all points."""
        return sums

    def norm(self, norms: Float[Tensor, "k b"]) -> Float[Tensor, "k b"]:
        """Euclidean norms over all points."""
        return norms

    def max(self, maxima: Float[Tensor, "b 1"]) -> Float[Tensor, "b 1"]:
        """Maxima over all points."""
        return maxima


LOCAL = Reduction()


def relative_l2(
    prediction: Float[Tensor, "b q o"],
    target: Float[Tensor, "b q o"],
    mask: Bool[Tensor, "b q"] | None = None,
    weights: Float[Tensor, "#b q"] | None = None,
    reduction: Reduction = LOCAL,
) -> Float[Tensor, " b"]:
    """‖ŷ − y‖₂ / ‖y‖₂ of each sample; the absolute error where the target is zero everywhere.

    >>> y = torch.tensor([[[3.0], [4.0]], [[0.0], [0.0]]])
    >>> relative_l2(y + torch.tensor([[[0.0], [1.0]], [[0.5], [0.0]]]), y)
    tensor([0.2000, 0.5000])
    """
    error, target, count = _without_padding(prediction, target, mask, reduction)
    # Squares of very large or small values overflow float32: scale them to order one.
    largest = reduction.max(target.detach().abs().flatten(1).amax(1, keepdim=True))
    scale = torch.where(largest > 0, largest, 1.0)[..., None]
    values = [error / scale, target / scale]
    if weights is not None:
        root = _mean_one(weights, mask, count, reduction).sqrt()
        values = [v * root for v in values]
    norms = [torch.linalg.vector_norm(v.flatten(1), dim=1) for v in values]
    return _relative(*reduction.norm(torch.stack(norms)))


def relative_mae(
    prediction: Float[Tensor, "b q o"],
    target: Float[Tensor, "b q o"],
    mask: Bool[Tensor, "b q"] | None = None,
    weights: Float[Tensor, "#b q"] | None = None,
    reduction: Reduction = LOCAL,
) -> Float[Tensor, " b"]:
    """mean|ŷ − y| / mean|y| of each sample; the absolute error where the target is zero everywhere.

    >>> relative_mae(torch.ones(1, 2, 1), torch.tensor([[[1.0], [3.0]]]))
    tensor([0.5000])
    """
    error, target, count = _without_padding(prediction, target, mask, reduction)
    return _relative(*_means([error.abs(), target.abs()], mask, weights, count, reduction))


def mse(
    prediction: Float[Tensor, "b q o"],
    target: Float[Tensor, "b q o"],
    mask: Bool[Tensor, "b q"] | None = None,
    weights: Float[Tensor, "#b q"] | None = None,
    reduction: Reduction = LOCAL,
) -> Float[Tensor, " b"]:
    """Mean (ŷ − y)² of each sample.

    >>> mse(torch.zeros(1, 2, 1), torch.tensor([[[1.0], [3.0]]]))
    tensor([5.])
    """
    error, _, count = _without_padding(prediction, target, mask, reduction)
    return _means([error.square()], mask, weights, count, reduction)[0]


METRICS: dict[str, Metric] = {"relative_l2": relative_l2, "relative_mae": relative_mae, "mse": mse}


def _without_padding(
    prediction: Tensor, target: Tensor, mask: Tensor | None, reduction: Reduction
) -> tuple[Tensor, Tensor, Tensor]:
    """Error and target (b, q, o), zero at padded points, and the number of real points (b,)."""
    error = prediction - target
    if mask is None:
        count = target.new_full((len(target),), target.shape[1])
    else:
        # `where`, not a product: NaN in the padding must not count.
        error = torch.where(mask[..., None], error, 0.0)
        target = torch.where(mask[..., None], target, 0.0)
        count = mask.sum(1).to(target.dtype)
    count = reduction.sum(count[None])[0].clamp(min=1)  # a sample may be all padding
    return error, target, count


def _means(
    values: list[Tensor],
    mask: Tensor | None,
    weights: Tensor | None,
    count: Tensor,
    reduction: Reduction,
) -> Tensor:
    """Means (k, b) of k values (b, q, o) over the points and channels of each sample."""
    channels = values[0].shape[-1]
    if weights is not None:
        factor = _mean_one(weights, mask, count, reduction)
        values = [v * factor for v in values]
    return reduction.sum(torch.stack([v.flatten(1).sum(1) for v in values])) / (count * channels)


def _mean_one(weights: Tensor, mask: Tensor | None, count: Tensor, reduction: Reduction) -> Tensor:
    """Weights (b, q, 1) scaled to a mean of one over the real points of each sample."""
    weights = weights.to(count.dtype).expand(len(count), -1)
    if mask is not None:
        weights = torch.where(mask, weights, 0.0)
    total = reduction.sum(weights.sum(1)[None])[0]
    return (weights * (count / torch.where(total > 0, total, 1.0))[:, None])[..., None]


def _relative(error: Tensor, size: Tensor) -> Tensor:
    return error / torch.where(size > 0, size, 1.0)
