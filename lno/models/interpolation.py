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

from lno.models.streamed import adjusted_scores, slices

POWER = 8.0
SAME = 1e-12  # added to squared distances: points closer than its square root are the same
NEIGHBOURS = 8  # of a query; where points are spread evenly, the rest is below rounding errors
PAIRS = 2**24  # of a query and an observation, computed at once


def interpolate(
    x: Float[Tensor, "#b n d"],
    u: Float[Tensor, "b n i"],
    x_query: Float[Tensor, "#b q d"],
    mask: Bool[Tensor, "b n"] | None = None,
    weights: Float[Tensor, "#b n"] | None = None,
) -> Float[Tensor, "b q i"]:
    """Values u observed at x, interpolated at x_query, in time proportional to n · q.

    Args:
        x: positions of the observations.
        u: values there.
        x_query: where to interpolate.
        mask: True where an observation is real.
        weights: the size that each observation stands for, a factor of its weight.

    >>> x = torch.tensor([[[0.0], [1.0]]])
    >>> u = torch.tensor([[[3.0], [5.0]]])
    >>> interpolate(x, u, torch.tensor([[[0.0], [0.5], [1.0]]])).flatten()
    tensor([3., 4., 5.])
    """

    def at(some: Float[Tensor, "#b p d"]) -> Float[Tensor, "b p i"]:
        square = squared_distances(x, some)
        scores = adjusted_scores(-0.5 * POWER * torch.log(square + SAME), mask, weights)
        return torch.matmul(torch.softmax(scores, dim=1).mT, u.to(scores.dtype))

    if torch.compiler.is_exporting():  # a graph for any number of points has no loop over parts
        return at(x_query)
    size = max(1, PAIRS // (x.shape[1] * max(len(x), len(x_query))))
    return torch.cat([at(x_query[:, part]) for part in slices(x_query.shape[1], size)], dim=1)


def squared_distances(
    x: Float[Tensor, "#b n d"], y: Float[Tensor, "*#b m d"]
) -> Float[Tensor, "#b n m"]:
    """|x − y|² from differences: the products of |x|² − 2 x·y + |y|² would cancel.

    >>> squared_distances(torch.tensor([[[0.0], [3.0]]]), torch.tensor([[1.0]]))
    tensor([[[1.],
             [4.]]])
    """
    pairs = zip(x.unbind(-1), y.unbind(-1), strict=True)
    return torch.stack([(a[..., None] - b[..., None, :]).square() for a, b in pairs]).sum(dim=0)


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
        self.tree, self.u, self.weights = cKDTree(x), u, weights
        self.neighbours = [*range(1, 1 + min(NEIGHBOURS, len(x)))]

    def __call__(self, x_query: Float[np.ndarray, "q d"]) -> Float[np.ndarray, "q i"]:
        found = self.tree.query(x_query, self.neighbours, workers=-1)
        distances, index = np.asarray(found[0]), found[1]
        # Relative to the nearest: powers of small distances would overflow.
        square = distances**2 + SAME
        weights = (square[:, :1] / square) ** (0.5 * POWER)
        if self.weights is not None:
            weights *= self.weights[index]
        weights /= weights.sum(axis=1, keepdims=True)
        return np.einsum("qk,qki->qi", weights, self.u[index]).astype(self.u.dtype)
