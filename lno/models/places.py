"""Places of latent positions: where they are in the domain, how wide, and where they start."""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float
from scipy.cluster.vq import kmeans2
from scipy.spatial import cKDTree
from torch import Tensor, nn

from lno.models.interpolation import squared_distances
from lno.models.layers import full_precision

WIDTH = 0.7  # of a latent position at first, in distances between neighbours
EXTENT = 3**0.5  # standardised coordinates of an evenly filled box reach from −√3 to √3


class Places(nn.Module):
    """Places and widths of latent positions: scores that fall off with the distance.

    >>> places = Places(latents=9, coordinates=2)
    >>> x = places.centres.detach()[None, :3]  # there, the nearest latent positions are these
    >>> places(x).argmax(dim=-1)
    tensor([[0, 1, 2]])
    """

    undecayed = ("centres", "log_widths")  # decay would draw the places to the middle of the domain

    def __init__(self, latents: int, coordinates: int) -> None:
        super().__init__()
        self.centres = nn.Parameter(torch.empty(latents, coordinates))
        self.log_widths = nn.Parameter(torch.empty(latents))
        self.move(evenly_spread(latents, coordinates))

    def move(self, centres: Float[np.ndarray, "m d"]) -> None:
        """Put the latent positions there, as wide as the distances between neighbours."""
        with torch.no_grad():
            self.centres.copy_(torch.from_numpy(centres))
            self.log_widths.fill_(math.log(WIDTH * spacing(centres)))

    def forward(self, x: Float[Tensor, "#b n d"]) -> Float[Tensor, "#b n m"]:
        """−|x − ξ|² / 2σ², in float32 or better even under autocast."""
        with full_precision(x):
            x = x.to(self.centres)  # float64 scores would not fit the other features
            return -0.5 * squared_distances(x, self.centres) * torch.exp(-2 * self.log_widths)


def evenly_spread(count: int, coordinates: int) -> Float[np.ndarray, "m d"]:
    """Points of low discrepancy in a box: multiples of powers of a root, modulo one.

    The root φ of φ^(d+1) = φ + 1 generalises the golden ratio (Roberts, 2018).

    >>> evenly_spread(3, 1).round(2).ravel()
    array([-1.32,  0.82, -0.51])
    """
    root = 2.0
    for _ in range(32):
        root = (1 + root) ** (1 / (coordinates + 1))
    powers = root ** -np.arange(1.0, coordinates + 1)
    return EXTENT * (2 * ((0.5 + np.arange(1, count + 1)[:, None] * powers) % 1.0) - 1)


def cluster_centres(
    positions: Float[np.ndarray, "n d"], count: int, seed: int
) -> Float[np.ndarray, "m d"]:
    """Centres of clusters of points (k-means), which cover them evenly.

    >>> np.sort(cluster_centres(np.array([[0.0], [0.1], [5.0]]), 2, seed=0).ravel())
    array([0.05, 5.  ])
    """
    points, rng = np.unique(positions.astype(np.float64), axis=0), np.random.default_rng(seed)
    if len(points) > count:
        start = points[rng.choice(len(points), count, replace=False)]
        return kmeans2(points, start, iter=20, minit="matrix")[0]
    more = points[np.arange(count - len(points)) % len(points)]  # beside those at every point
    return np.concatenate((points, more + 1e-3 * rng.standard_normal(more.shape)))


def spacing(places: Float[np.ndarray, "m d"]) -> float:
    """The median distance of a place to the nearest other one.

    >>> spacing(np.array([[0.0], [1.0], [3.0], [5.0]]))
    1.5
    """
    if len(places) == 1:
        return EXTENT
    distances = np.asarray(cKDTree(places).query(places, k=[2])[0])
    return max(float(np.median(distances)), 1e-6)
