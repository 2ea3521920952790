"""Errors of a prediction, per sample; losses are their means over the batch.

All points and channels of a sample count together. Padded points are left out by `mask`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

Metric = Callable[..., Tensor]


def relative_l2(
    prediction: Float[Tensor, "b q o"],
    target: Float[Tensor, "b q o"],
    mask: Bool[Tensor, "b q"] | None = None,
) -> Float[Tensor, " b"]:
    """‖ŷ − y‖₂ / ‖y‖₂ of each sample; the absolute error where the target is zero everywhere.

    >>> y = torch.tensor([[[3.0], [4.0]], [[0.0], [0.0]]])
    >>> relative_l2(y + torch.tensor([[[0.0], [1.0]], [[0.5], [0.0]]]), y)
    tensor([0.2000, 0.5000])
    """
    error, target = _real(prediction - target, target, mask)
    # Squares of very large or small values leave the range of float32: bring them to order one.
    largest = target.detach().abs().amax(1, keepdim=True)
    scale = torch.where(largest > 0, largest, 1.0)
    norm = torch.linalg.vector_norm
    return _relative(norm(error / scale, dim=1), norm(target / scale, dim=1))


def relative_mae(
    prediction: Float[Tensor, "b q o"],
    target: Float[Tensor, "b q o"],
    mask: Bool[Tensor, "b q"] | None = None,
) -> Float[Tensor, " b"]:
    """mean|ŷ − y| / mean|y| of each sample; the absolute error where the target is zero everywhere.

    >>> relative_mae(torch.ones(1, 2, 1), torch.tensor([[[1.0], [3.0]]]))
    tensor([0.5000])
    """
    error, real = _real(prediction - target, target, mask)
    count = _count(target, mask)
    return _relative(error.abs().sum(1) / count, real.abs().sum(1) / count)


def mse(
    prediction: Float[Tensor, "b q o"],
    target: Float[Tensor, "b q o"],
    mask: Bool[Tensor, "b q"] | None = None,
) -> Float[Tensor, " b"]:
    """Mean (ŷ − y)² of each sample.

    >>> mse(torch.zeros(1, 2, 1), torch.tensor([[[1.0], [3.0]]]))
    tensor([5.])
    """
    error, _ = _real(prediction - target, target, mask)
    return error.square().sum(1) / _count(target, mask)


METRICS: dict[str, Metric] = {"relative_l2": relative_l2, "relative_mae": relative_mae, "mse": mse}


def _real(error: Tensor, target: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Both flattened per sample, padded points set to zero."""
    if mask is not None:
        # `where`, not a product: whatever stands in the padding, NaN included, must not count.
        error = torch.where(mask[..., None], error, 0.0)
        target = torch.where(mask[..., None], target, 0.0)
    return error.flatten(1), target.flatten(1)


def _count(target: Tensor, mask: Tensor | None) -> Tensor | int:
    if mask is None:
        return target.shape[1] * target.shape[2]
    return (mask.sum(1) * target.shape[2]).clamp(min=1)  # a sample may be all padding


def _relative(error: Tensor, size: Tensor) -> Tensor:
    return error / torch.where(size > 0, size, 1.0)
