"""Kriging: what is known at some points, carried to others as far as it is likely to reach.

A function whose values at two points a distance r apart are correlated by a Matérn covariance with
ν = 5/2, k(r) = (1 + s + s²/3) exp(−s), s = √5 r, is most likely, given its values at some points, a
sum of k around these. Far from all of them it is zero. Distances are in units of a scale along each
coordinate. The scales are those under which the given values are most likely, so that values reach
further where a function is smooth, and further along a coordinate on which it depends less. A guess
of the function is built upon, as its mean, unless the values say clearly that zero is a better one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from scipy.spatial import cKDTree
from torch import Tensor

SCALES = tuple(0.05 * 2**k for k in range(9))  # of features, whose spread is about one
FACTORS = (0.5, 2.0, 0.5, 2.0, 0.5**0.5, 2.0**0.5)  # tried on the scale of one coordinate
NUGGETS = tuple(10.0**k for k in (-6, -5, -4, -3, -2.5, -2, -1.5, -1, -0.5, 0, 0.5, 1, 2))
CLEARLY = 10.0  # twice the logarithm of a likelihood ratio of about 150,
ENOUGH = 64  # and observations without which no ratio is worth much
LEAST = 1e-8  # of the variance, on the diagonal: keeps coinciding observations solvable,
EXACT = 1e-4  # which may cost an exact answer so much of the values at most
SOME = 512  # observations that decide the scale
DENSE = 4096  # observations up to which all of them decide every value; beyond, the nearest
NEAREST = 64
SCRATCH = {"cuda": 2**24}  # distances at once, by device
FEW = 2**19  # on others, whose caches hold no more


class Covariance(NamedTuple):
    """Of the functions that samples are.

    Args:
        scales: along each coordinate.
        nugget: the variance of errors of observations over that of the function.
        likely: twice the logarithm of the likelihood, up to a constant.
    """

    scales: Float[Tensor, "b d"]
    nugget: Float[Tensor, " b"]
    likely: Float[Tensor, " b"]

    def where(self, chosen: Bool[Tensor, " b"], other: Covariance) -> Covariance:
        """This one for the chosen samples, the other for the rest."""
        scales = torch.where(chosen[:, None], self.scales, other.scales)
        pairs = zip(self[1:], other[1:], strict=True)
        return Covariance(scales, *(torch.where(chosen, a, b) for a, b in pairs))


def krige(
    x: Float[Tensor, "b n f"],
    u: Float[Tensor, "b n i"],
    x_query: Float[Tensor, "#b q f"],
    mask: Bool[Tensor, "b n"] | None = None,
    noise: float = 0.0,
    axes: Sequence[int] | None = None,
    guess: tuple[Float[Tensor, "b n i"], Float[Tensor, "b q i"]] | None = None,
) -> Float[Tensor, "b q i"]:
    """The most likely values at x_query, for all samples at once, in double precision.

    Args:
        x: positions of the observations, as features in which distances mean something: cos and
            sin of a periodic coordinate, say.
        u: values there, of functions that are zero where nothing is known.
        x_query: positions where values are wanted.
        mask: which observations are real; None: all.
        noise: the standard deviation of errors of u; 0: the answer passes through u.
        axes: the coordinate, counted from 0, that each feature belongs to; each coordinate has a
            scale of its own. None: all features share one.
        guess: of the function, by a model, say: at x and at x_query. None: it is zero.

    >>> x = torch.linspace(0, 1, 12)[None, :, None]
    >>> q = torch.tensor([[[0.52], [9.0]]])
    >>> [round(v, 3) for v in krige(x, torch.sin(4 * x), q).flatten().tolist()]  # sin 2.08 = 0.873
    [0.873, -0.001]
    """
    at, queries, values, real = _double(x, x_query.expand(len(x), -1, -1), u, mask)
    axis = torch.tensor(axes or [0] * at.shape[-1], device=at.device)
    find = partial(_most_likely, at, real, noise, axis)
    found, mean = find(values), values.new_zeros(())
    if guess is not None:
        here, there = (v.to(values) for v in guess)
        around = find(values - here)
        alone = (found.likely > around.likely + CLEARLY) & (real.sum(1) >= ENOUGH)
        values = torch.where(alone[:, None, None], values, values - here)
        found, mean = found.where(alone, around), there.masked_fill(alone[:, None, None], 0.0)
    scales = found.scales[:, None, axis]
    answer = _carried(at / scales, values, queries / scales, real, found, noise)
    return (mean + answer).to(u)


def _carried(
    at: Tensor, values: Tensor, queries: Tensor, real: Tensor, found: Covariance, noise: float
) -> Float[Tensor, "b q i"]:
    """Values at the queries of functions of zero mean, positions being in units of their scales."""
    b, n, _ = at.shape
    if n > DENSE:
        every = zip(at, queries, values, real.bool(), found.nugget, strict=True)
        return torch.stack([_from_nearest(*one) for one in every])
    values = values * real[..., None]
    distances, nearer = torch.cdist(at, at), torch.ones_like(found.nugget)
    weights = _weights(distances, values, real, found.nugget)
    while noise == 0:  # more observations may need smaller scales than those that decided them
        loose = _loose(weights, values) & (found.scales / nearer[:, None] > SCALES[0]).any(1)
        if not loose.any():
            break
        nearer = torch.where(loose, 2 * nearer, nearer)
        weights = _weights(distances * nearer[:, None, None], values, real, found.nugget)
    size = max(1, SCRATCH.get(at.device.type, FEW) // (b * n))
    parts = [
        _matern(torch.cdist(part, at).mul_(nearer[:, None, None])) @ weights
        for part in queries.split(size, dim=1)
    ]
    return torch.cat(parts, dim=1)


def _matern(r: Tensor) -> Tensor:
    """The covariance at distances r, which are overwritten."""
    s = r.mul_(math.sqrt(5))
    fading = torch.exp(-s)
    return fading.mul_(s.square().div_(3).add_(s).add_(1))


def _covariance(
    distances: Float[Tensor, "b n n"], real: Float[Tensor, "b n"], nugget: Float[Tensor, " b"]
) -> Float[Tensor, "b n n"]:
    """Of the observations, in units of the function's variance; padded ones are on their own."""
    among = _matern(distances.clone())
    if not real.all():
        among *= real[..., :, None] * real[..., None, :]
    among.diagonal(dim1=-2, dim2=-1).add_(torch.where(real > 0, nugget[..., None], 1.0))
    return among


def _weights(distances: Tensor, values: Tensor, real: Tensor, nugget: Tensor) -> Tensor:
    factor, _ = torch.linalg.cholesky_ex(_covariance(distances, real, nugget))
    return torch.cholesky_solve(values, factor)


def _loose(weights: Tensor, values: Tensor) -> Tensor:
    """Which samples an answer misses that is to pass through their values."""
    missed, size = ((v.square().sum((1, 2))) for v in (LEAST * weights, values))
    return ~(missed <= EXACT**2 * size)


def _most_likely(
    at: Tensor, real: Tensor, noise: float, axis: Tensor, values: Tensor
) -> Covariance:
    """Found by trial: first one scale for all coordinates, then more or less along each."""
    some = slice(None, None, -(-at.shape[1] // SOME))
    at, values, real = at[:, some], (values * real[..., None])[:, some], real[:, some]
    parts = [at[..., axis == k] for k in range(int(axis.max()) + 1)]
    squares = torch.stack([torch.cdist(part, part).square() for part in parts], dim=-1)

    def better(found: Covariance, scales: Tensor, nugget: Tensor) -> Covariance:
        distances = (squares @ scales.pow(-2)[:, None, :, None]).squeeze(-1).sqrt()
        likely, loose = _likelihood(distances, values, real, nugget, noise)
        allowed = ~loose | (scales <= SCALES[0]).all(1) | bool(noise)
        tried = Covariance(scales, nugget, likely)
        return tried.where(allowed & (likely > found.likely), found)

    one = at.new_ones(len(at))
    found = Covariance(at.new_ones(len(at), len(parts)), one, one * -math.inf)
    for scale in SCALES:
        for nugget in NUGGETS if noise else (LEAST,):
            found = better(found, torch.full_like(found.scales, scale), one * nugget)
    for factor in FACTORS if len(parts) > 1 else ():
        for k in range(len(parts)):
            scales = found.scales.clone()
            scales[:, k] *= factor
            found = better(found, scales, found.nugget)
    return found


def _likelihood(
    distances: Tensor, values: Tensor, real: Tensor, nugget: Tensor, noise: float
) -> tuple[Float[Tensor, " b"], Bool[Tensor, " b"]]:
    """Twice the logarithm of the likelihood, up to a constant, and which answers are loose."""
    factor, failed = torch.linalg.cholesky_ex(_covariance(distances, real, nugget))
    weights = torch.cholesky_solve(values, factor)
    count, squares = real.sum(1) * values.shape[-1], (values * weights).sum((1, 2))
    least = torch.finfo(values.dtype).tiny
    variance = noise**2 / nugget if noise else (squares / count).clamp(min=least)
    spread = 2 * values.shape[-1] * factor.diagonal(dim1=1, dim2=2).log().sum(1)
    likely = -(count * torch.log(variance) + spread + squares / variance)
    return torch.where(failed == 0, likely, -math.inf), _loose(weights, values)


def _from_nearest(
    at: Tensor, queries: Tensor, values: Tensor, real: Tensor, nugget: Tensor
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
        factor = torch.linalg.cholesky(_covariance(among, ones, nugget[None]))
        weights = torch.cholesky_solve(values[index[part]], factor)
        reach = _matern(torch.cdist(queries[part, None], around))
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
