"""Values at other points, interpolated linearly from the observations around them.

At each query point, a linear function with the slope g is fitted to the observed values. What it
leaves is interpolated by inverse distances (Shepard, 1968):

    u(x_query) = Σₙ wₙ [uₙ + g · (x_query − xₙ)] / Σₙ wₙ,    wₙ = rₙ^−p,    rₙ = |x_query − xₙ|

The fit is by least squares with weights (rₙ² + ρ²)^−p/2, where ρ is the distance to the nearest
observations behind the very nearest. The large power p makes all of this local. At an observed
point the result is the value observed there, and linear functions are reproduced. Results are
limited to the range of the observed values, so nothing grows far from all observations.

All weights are a softmax of scores, so observing every point twice changes nothing, and padding can
be masked as in any attention. Where no observation counts, all do; where there is none, the result
is zero.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy.spatial import cKDTree
from torch import Tensor

from lno.models.streamed import adjusted_scores, slices

POWER = 10.0
SAME = 1e-12  # added to squared distances: points closer than its square root are the same
RIDGE = 1e-3  # of the slope, relative to the variance of positions: they may lie on a line or plane
ROUNDING = 16.0  # of positions seen from a query, in units in the last place
TINY = 1e-30  # added to what may be zero over zero
NEIGHBOURS = 48  # of a query, of many observations; all others together hardly count
PAIRS = 2**23  # of a query and an observation, computed at once


def interpolate(
    x: Float[Tensor, "#b n d"],
    u: Float[Tensor, "b n i"],
    x_query: Float[Tensor, "#b q d"],
    mask: Bool[Tensor, "b n"] | None = None,
    weights: Float[Tensor, "#b n"] | None = None,
    limits: tuple[Tensor, Tensor] | None = None,
) -> Float[Tensor, "b q i"]:
    """Values u observed at x, interpolated at x_query, in time proportional to n · q.

    Args:
        x: positions of the observations.
        u: values there.
        x_query: where to interpolate.
        mask: True where an observation is real.
        weights: the size that each observation stands for, a factor of its weight.
        limits: the smallest and largest value (#b, 1, i). None: those of the observations.

    >>> x = torch.tensor([[[0.0], [1.0]]])
    >>> u = torch.tensor([[[3.0], [5.0]]])
    >>> interpolate(x, u, torch.tensor([[[0.0], [0.5], [1.0]]])).flatten()
    tensor([3., 4., 5.])
    """
    if torch.compiler.is_exporting():  # a graph for any number of points has no loop over parts
        return _interpolated(x, u, x_query, mask, weights, limits)
    if x.shape[1] == 0 or x_query.shape[1] == 0:
        return u.new_zeros(len(u), x_query.shape[1], u.shape[2])
    size = max(1, PAIRS // (x.shape[1] * max(len(x), len(x_query))))
    parts = slices(x_query.shape[1], size)
    made = [_interpolated(x, u, x_query[:, p], mask, weights, limits) for p in parts]
    return torch.cat(made, dim=1)


def _interpolated(
    x: Float[Tensor, "#b n d"],
    u: Float[Tensor, "b n i"],
    x_query: Float[Tensor, "#b q d"],
    mask: Bool[Tensor, "b n"] | None,
    weights: Float[Tensor, "#b n"] | None,
    limits: tuple[Tensor, Tensor] | None,
) -> Float[Tensor, "b q i"]:
    """`interpolate` for all queries at once."""
    away = _differences(x, x_query)
    square = torch.stack([a.square() for a in away]).sum(dim=0) + SAME
    least = torch.finfo(square.dtype).min
    real = mask if weights is None else (weights > 0) & (True if mask is None else mask)
    low, high, nearest = u, u, square
    if real is not None:
        real = real | ~real.any(dim=1, keepdim=True)
        low, high = (u.masked_fill(~real[..., None], v) for v in (torch.inf, -torch.inf))
        nearest = square.masked_fill(~real[..., None], torch.inf)
    low, high = limits or (low.amin(1, keepdim=True), high.amax(1, keepdim=True))

    def softmax(scores: Float[Tensor, "#b n q"]) -> Float[Tensor, "#b n q"]:
        return torch.softmax(adjusted_scores(scores, mask, weights), dim=1)

    def by_distance(square: Float[Tensor, "#b n q"]) -> Float[Tensor, "#b n q"]:
        return -0.5 * POWER * torch.log(square)

    # ρ², a harmonic mean to which the nearest observation does not contribute.
    behind = square - nearest.amin(dim=1, keepdim=True)
    without = torch.where(behind > 0, behind.clamp(min=TINY).log(), least)
    radius = 1 / (softmax(by_distance(square) + without) / square).sum(dim=1, keepdim=True)
    # From −1 to 1: products of other values would cancel, or overflow.
    shift, size = (low + high) / 2, ((high - low) / 2).clamp(min=TINY)
    u = ((u - shift) / size).to(square.dtype)
    slope = _slope(away, u, softmax(by_distance(square + radius)))
    w = softmax(by_distance(square))
    offset = torch.stack([(w * a).sum(dim=1) for a in away], dim=-1)[..., None, :]
    values = torch.matmul(w.mT, u) - torch.matmul(offset, slope).squeeze(-2)
    return (size * values + shift).clamp(low, high)


def _slope(
    away: list[Float[Tensor, "#b n q"]], u: Float[Tensor, "b n i"], w: Float[Tensor, "#b n q"]
) -> Float[Tensor, "b q d i"]:
    """The slopes of linear functions, fitted by least squares.

    Args:
        away: each coordinate of the observations relative to the queries.
        u: the observed values.
        w: their weights, normalised.
    """
    x = torch.stack([(w * a).sum(dim=1) for a in away], dim=-1)
    # Centred before they are multiplied: far from all observations, products would cancel.
    centred = [a - m[:, None] for a, m in zip(away, x.unbind(-1), strict=True)]
    weighted = [w * a for a in centred]
    rows = [torch.stack([(a * b).sum(dim=1) for b in centred], dim=-1) for a in weighted]
    spread = torch.stack(rows, dim=-2)
    mixed = torch.stack([torch.matmul(a.mT, u) for a in weighted], dim=-2)
    # Observations no further apart than rounding errors have no slope.
    left = torch.stack([a.sum(dim=1) for a in weighted], dim=-1)[..., None]
    mixed = mixed - left * torch.matmul(w.mT, u)[..., None, :]
    noise = (ROUNDING * torch.finfo(w.dtype).eps * x).square().sum(-1)[..., None, None]
    total = spread.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None] + noise + TINY
    ridge = torch.eye(len(away), dtype=w.dtype, device=w.device) * (RIDGE + noise / total)
    return _solve(spread / total + ridge, mixed / total)


def _solve(a: Float[Tensor, "#b q d d"], b: Float[Tensor, "b q d i"]) -> Float[Tensor, "b q d i"]:
    """a⁻¹ b of small positive definite matrices, by d steps of conjugate gradients.

    In exact arithmetic d steps suffice. Unlike factorisations, they can be exported to ONNX.
    """
    y, r, p = torch.zeros_like(b), b, b
    norm = r.square().sum(-2, keepdim=True)
    for _ in range(a.shape[-1]):
        ap = torch.matmul(a, p)
        step = norm / ((p * ap).sum(-2, keepdim=True) + TINY)
        y, r = y + step * p, r - step * ap
        norm, before = r.square().sum(-2, keepdim=True), norm
        p = r + norm / (before + TINY) * p
    return y


def squared_distances(
    x: Float[Tensor, "#b n d"], y: Float[Tensor, "*#b m d"]
) -> Float[Tensor, "#b n m"]:
    """|x − y|² from differences: the products of |x|² − 2 x·y + |y|² would cancel.

    >>> squared_distances(torch.tensor([[[0.0], [3.0]]]), torch.tensor([[1.0]]))
    tensor([[[1.],
             [4.]]])
    """
    return torch.stack([a.square() for a in _differences(x, y)]).sum(dim=0)


def _differences(
    x: Float[Tensor, "#b n d"], y: Float[Tensor, "*#b m d"]
) -> list[Float[Tensor, "#b n m"]]:
    """Each coordinate of x − y."""
    pairs = zip(x.unbind(-1), y.unbind(-1), strict=True)
    return [a[..., None] - b[..., None, :] for a, b in pairs]


class Interpolant:
    """`interpolate` for one sample with any number of observations, from the nearest of them.

    >>> at = Interpolant(np.array([[0.0], [1.0]]), np.array([[3.0], [5.0]]))
    >>> at(np.array([[0.0], [0.5], [1.0]])).ravel()
    array([3., 4., 5.])
    """

    def __init__(
        self,
        x: Float[np.ndarray, "n d"],
        u: Float[np.ndarray, "n i"],
        weights: Float[np.ndarray, " n"] | None = None,
    ) -> None:
        self.tree, self.known = cKDTree(x), (x, u, weights)
        counts = slice(None) if weights is None or not weights.any() else weights > 0
        counted = torch.from_numpy(u[counts])
        self.limits = counted.amin(0).expand(1, 1, -1), counted.amax(0).expand(1, 1, -1)
        self.neighbours = [*range(1, 1 + min(NEIGHBOURS, len(x)))]

    def __call__(self, x_query: Float[np.ndarray, "q d"]) -> Float[np.ndarray, "q i"]:
        index = self.tree.query(x_query, self.neighbours, workers=-1)[1]
        x, u, weights = (None if v is None else torch.from_numpy(v[index]) for v in self.known)
        assert x is not None and u is not None
        # Every query as a sample of its own, whose observations are its neighbours.
        at = torch.from_numpy(x_query)[:, None]
        values = interpolate(x, u, at, weights=weights, limits=self.limits)
        return values[:, 0].numpy()
