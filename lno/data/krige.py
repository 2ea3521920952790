"""Kriging: what is known at some points, carried to others as far as it is likely to reach.

A function whose values at two points a distance r apart are correlated by a Matérn covariance with
ν = 5/2, k(r) = (1 + s + s²/3) exp(−s), s = √5 r / scale, is most likely, given its values at some
points, a sum of k around these. Far from all of them it is zero. The scale is the one under which
the given values are most likely, so that smooth functions reach further than rough ones.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float
from scipy.spatial import cKDTree
from torch import Tensor

SCALES = tuple(0.05 * 2**k for k in range(9))  # of features, whose spread is about one
NUGGETS = tuple(10.0**k for k in (-6, -5, -4, -3, -2.5, -2, -1.5, -1, -0.5, 0, 0.5, 1, 2))
LEAST = 1e-8  # of the variance, on the diagonal: keeps coinciding observations solvable,
EXACT = 1e-4  # which may cost an exact answer so much of the values at most
SOME = 512  # observations that decide the scale
DENSE = 4096  # observations up to which all of them decide every value; beyond, the nearest
NEAREST = 64
SCRATCH = {"cuda": 2**24}  # distances at once, by device
FEW = 2**19  # on others, whose caches hold no more


def krige(
    x: Float[Tensor, "b n f"],
    u: Float[Tensor, "b n i"],
    x_query: Float[Tensor, "#b q f"],
    mask: Bool[Tensor, "b n"] | None = None,
    noise: float = 0.0,
) -> Float[Tensor, "b q i"]:
    """The most likely values at x_query, for all samples at once, in double precision.

    Args:
        x: positions of the observations, as features in which distances mean something: cos and
            sin of a periodic coordinate, say.
        u: values there, of functions that are zero where nothing is known.
        x_query: positions where values are wanted.
        mask: which observations are real; None: all.
        noise: the standard deviation of errors of u; 0: the answer passes through u.

    >>> x = torch.linspace(0, 1, 12)[None, :, None]
    >>> q = torch.tensor([[[0.52], [9.0]]])
    >>> [round(v, 3) for v in krige(x, torch.sin(4 * x), q).flatten().tolist()]  # sin 2.08 = 0.873
    [0.873, -0.001]
    """
    b, n, _ = x.shape
    at, queries, values, real = _double(x, x_query.expand(b, -1, -1), u, mask)
    scale, nugget = _most_likely(at, values, real, noise)
    if n > DENSE:
        every = zip(at, queries, values, real.bool(), scale, nugget, strict=True)
        return torch.stack([_from_nearest(*one) for one in every]).to(u)
    values = values * real[..., None]
    distances = torch.cdist(at, at)
    weights = _weights(distances, values, real, scale, nugget)
    while noise == 0:  # more observations may need a smaller scale than those that decided it
        loose = _loose(weights, values)[:, None, None] & (scale > SCALES[0])
        if not loose.any():
            break
        scale = torch.where(loose, scale / 2, scale)
        weights = _weights(distances, values, real, scale, nugget)
    size = max(1, SCRATCH.get(at.device.type, FEW) // (b * n))
    parts = [
        _matern(torch.cdist(part, at).div_(scale)) @ weights for part in queries.split(size, dim=1)
    ]
    return torch.cat(parts, dim=1).to(u)


def _matern(r: Tensor) -> Tensor:
    """The covariance at distances r, which are overwritten."""
    s = r.mul_(math.sqrt(5))
    fading = torch.exp(-s)
    return fading.mul_(s.square().div_(3).add_(s).add_(1))


def _covariance(distances: Tensor, real: Tensor, scale: Tensor, nugget: Tensor) -> Tensor:
    """Of the observations, in units of the function's variance; padded ones are on their own."""
    among = _matern(distances / scale)
    if not real.all():
        among *= real[..., :, None] * real[..., None, :]
    among.diagonal(dim1=-2, dim2=-1).add_(torch.where(real > 0, nugget[..., 0], 1.0))
    return among


def _weights(
    distances: Tensor, values: Tensor, real: Tensor, scale: Tensor, nugget: Tensor
) -> Tensor:
    factor, _ = torch.linalg.cholesky_ex(_covariance(distances, real, scale, nugget))
    return torch.cholesky_solve(values, factor)


def _loose(weights: Tensor, values: Tensor) -> Tensor:
    """Which samples an answer misses that is to pass through their values."""
    missed, size = ((v.square().sum((1, 2))) for v in (LEAST * weights, values))
    return ~(missed <= EXACT**2 * size)


def _most_likely(
    at: Tensor, values: Tensor, real: Tensor, noise: float
) -> tuple[Float[Tensor, "b 1 1"], Float[Tensor, "b 1 1"]]:
    """The scale of each sample's function, and the variance of its errors over that of itself."""
    some = slice(None, None, -(-at.shape[1] // SOME))
    at, values, real = at[:, some], (values * real[..., None])[:, some], real[:, some]
    count = real.sum(1) * values.shape[-1]
    distances, best = torch.cdist(at, at), torch.full_like(count, -math.inf)
    chosen = torch.ones(len(at), 2, 1, 1, dtype=at.dtype, device=at.device)
    for scale in SCALES:
        for nugget in NUGGETS if noise else (LEAST,):
            guess = chosen.new_tensor([scale, nugget]).view(2, 1, 1).expand_as(chosen)
            covariance = _covariance(distances, real, guess[:, 0], guess[:, 1])
            factor, failed = torch.linalg.cholesky_ex(covariance)
            weights = torch.cholesky_solve(values, factor)
            squares = (values * weights).sum((1, 2))
            least = torch.finfo(at.dtype).tiny
            variance = noise**2 / guess[:, 1, 0, 0] if noise else (squares / count).clamp(min=least)
            spread = 2 * values.shape[-1] * factor.diagonal(dim1=1, dim2=2).log().sum(1)
            likely = -(count * torch.log(variance) + spread + squares / variance)
            better = (failed == 0) & (likely > best)
            if not noise and scale > SCALES[0]:
                better &= ~_loose(weights, values)
            best = torch.where(better, likely, best)
            chosen = torch.where(better[:, None, None, None], guess, chosen)
    return chosen[:, 0], chosen[:, 1]


def _from_nearest(
    at: Tensor, queries: Tensor, values: Tensor, real: Tensor, scale: Tensor, nugget: Tensor
) -> Tensor:
    """Values (q, i) of one sample, each from the observations nearest to it."""
    at, values = at[real], values[real]
    _, near = cKDTree(at.cpu()).query(queries.cpu(), min(NEAREST, len(at)))
    index = torch.as_tensor(near, device=at.device).view(len(queries), -1)
    parts = []
    size = SCRATCH.get(at.device.type, FEW) // NEAREST**2
    for part in torch.arange(len(queries), device=at.device).split(size):
        around = at[index[part]]
        ones = around.new_ones(around.shape[:2])
        among = torch.cdist(around, around)
        factor = torch.linalg.cholesky(_covariance(among, ones, scale, nugget[None]))
        weights = torch.cholesky_solve(values[index[part]], factor)
        reach = _matern(torch.cdist(queries[part, None], around).div_(scale))
        parts.append((reach @ weights)[:, 0])
    return torch.cat(parts)


def _double(
    x: Tensor, x_query: Tensor, u: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Positions, queries, values and 1 for each real observation, in double precision."""
    where = torch.device("cpu") if x.device.type == "mps" else x.device  # Apple's GPUs have none
    real = torch.ones(x.shape[:2], device=where) if mask is None else mask.to(where)
    at, queries, values = (v.to(where).double() for v in (x, x_query, u))
    return at, queries, values, real.double()
