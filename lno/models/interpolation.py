"""Values at other points, interpolated by inverse distances (Shepard, 1968).

    u(x_query) = Σₙ wₙ uₙ / Σₙ wₙ,    wₙ = |x_query − xₙ|^−p

A large power p makes it local, and it stays continuous. At an observed point the result is the
value observed there. As the weights are a softmax of −p log |x_query − xₙ|, observing every point
twice changes nothing, and padding can be masked as in any attention.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy.spatial import cKDTree
from torch import Tensor

from lno.models.streamed import slices

POWER = 8.0
SAME = 1e-12  # added to squared distances: points nearer than its root are one
NEIGHBOURS = 8  # others have weights below those of rounding where points are spread evenly
PAIRS = 2**24  # of a query and an observation at once


def interpolate(
    x: Float[Tensor, "#b n d"],
    u: Float[Tensor, "b n i"],
    x_query: Float[Tensor, "#b q d"],
    mask: Bool[Tensor, "b n"] | None = None,
) -> Float[Tensor, "b q i"]:
    """Values u observed at x, interpolated at x_query, in time proportional to n · q.

    >>> x = torch.tensor([[[0.0], [1.0]]])
    >>> u = torch.tensor([[[3.0], [5.0]]])
    >>> interpolate(x, u, torch.tensor([[[0.0], [0.5], [1.0]]])).flatten()
    tensor([3., 4., 5.])
    """
    if u.shape[-1] == 0:
        return u.new_zeros(len(u), x_query.shape[1], 0)
    size = max(1, PAIRS // (x.shape[1] * max(len(x), len(x_query))))
    parts = [_part(x, u, x_query[:, part], mask) for part in slices(x_query.shape[1], size)]
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def _part(x: Tensor, u: Tensor, x_query: Tensor, mask: Tensor | None) -> Tensor:
    square = SAME + sum(
        (a[:, :, None] - b[:, None]).square()
        for a, b in zip(x_query.unbind(-1), x.unbind(-1), strict=True)
    )
    scores = -0.5 * POWER * torch.log(square)
    if mask is not None:
        scores = scores.masked_fill(~mask[:, None], torch.finfo(scores.dtype).min)
    weights = torch.softmax(scores, dim=-1).to(u.dtype)
    return torch.matmul(weights, u)


class Interpolant:
    """`interpolate` for one sample with any number of observations, from the nearest of them.

    >>> at = Interpolant(np.array([[0.0], [1.0]]), np.array([[3.0], [5.0]]))
    >>> at(np.array([[0.0], [0.5], [1.0]])).ravel()
    array([3., 4., 5.])
    """

    def __init__(self, x: Float[np.ndarray, "n d"], u: Float[np.ndarray, "n i"]) -> None:
        self.tree, self.u = cKDTree(x), u
        self.neighbours = min(NEIGHBOURS, len(x))

    def __call__(self, x_query: Float[np.ndarray, "q d"]) -> Float[np.ndarray, "q i"]:
        distances, index = self.tree.query(x_query, [*range(1, self.neighbours + 1)], workers=-1)
        # Relative to the nearest: the powers of small distances would overflow.
        square = distances**2 + SAME
        weights = (square[:, :1] / square) ** (0.5 * POWER)
        weights /= weights.sum(axis=1, keepdims=True)
        return np.einsum("qk,qki->qi", weights, self.u[index]).astype(self.u.dtype)
