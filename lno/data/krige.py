"""Kriging: what is known at some points, carried to others as far as it is likely to reach.

A function whose values at two points a distance r apart are correlated by a Matérn covariance with
ν = 5/2, k(r) = (1 + s + s²/3) exp(−s), s = √5 r, is most likely, given its values at some points, a
sum of k around these. Far from all of them it is zero. Distances are in units of a scale along each
coordinate. The scales are those under which the given values are most likely, so that values reach
further where a function is smooth, and further along a coordinate on which it depends less.

A guess of the function, by a model say, is worth what it helps: with values at few points much,
with many nothing. So the function is found twice, as what the guess misses and without the guess,
and both are mixed by how well they predict values from others: each counts by the inverse square
of what it misses, or, where values have errors, as much as makes the mixture miss least.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

SCALES = tuple(0.05 * 2**k for k in range(9))  # of features, whose spread is about one
FACTORS = (0.5, 2.0, 0.5, 2.0, 0.5**0.5, 2.0**0.5)  # tried on the scale of one coordinate
NUGGETS = tuple(10.0**k for k in (-8, -7, -6, -5, -4, -3, -2.5, -2, -1.5, -1, -0.5, 0, 0.5, 1, 2))
LEAST = 1e-8  # of the variance, on the diagonal: keeps coinciding observations solvable,
EXACT = 1e-4  # which may cost an exact answer so much of the values at most
SOME = 512  # observations that decide the scales;
SOME_NOISY = 192  # of noisy ones, for which each of NUGGETS is tried, fewer
JUDGES = 2048  # observations that decide what a guess is worth
TRIALS, HIDDEN = 256, 128  # how many of them are predicted, each without so many others at most
FAVOUR = 8  # observations that a guess has on its side from the beginning
GOLDEN = (math.sqrt(5) - 1) / 2
DENSE = 4096  # observations that count at most; of more, so many are chosen at random
SCRATCH = {"cuda": 2**24}  # distances at once, by device
FEW = 2**19  # on others, whose caches hold no more


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
        u: values there, of functions that are zero where nothing is known; with a guess, they are
            the mean of the guess there.
        x_query: positions where values are wanted.
        mask: which observations are real; None: all.
        noise: the standard deviation of errors of u; 0: the answer passes through u, where there
            are no more than DENSE of them.
        axes: the coordinate, counted from 0, that each feature belongs to; each coordinate has a
            scale of its own. None: all features share one.
        guess: of the function, at x and at x_query.

    >>> x = torch.linspace(0, 1, 12)[None, :, None]
    >>> q = torch.tensor([[[0.52], [9.0]]])
    >>> [round(v, 3) for v in krige(x, torch.sin(4 * x), q).flatten().tolist()]  # sin 2.08 = 0.873
    [0.873, -0.001]
    """
    where = torch.device("cpu") if x.device.type == "mps" else x.device  # Apple's have no doubles
    real = (torch.ones(x.shape[:2]) if mask is None else mask).to(where).double()
    at, values, queries = (v.to(where).double() for v in (x, u, x_query.expand(len(x), -1, -1)))
    here = None if guess is None else guess[0].to(values)
    if x.shape[1] > DENSE:
        some = _some(real, DENSE)
        at, values, real = _take(at, some), _take(values, some), real.gather(1, some)
        here = None if here is None else _take(here, some)
    process = partial(Process, at, real=real, noise=noise, axes=axes)
    if guess is None or here is None:
        return process(values)(queries).to(u)
    there = guess[1].to(values)
    level = there.mean(1, keepdim=True)  # far from zero in many units: 300 K, say
    alone, helped = process(values - level), process(values - here)
    misses = [one.misses(queries, alone.scales) for one in (alone, helped)]
    share = _share(misses[0], misses[1], real.sum(1), noisy=noise > 0)
    mixed = torch.lerp(level + alone(queries), there + helped(queries), share[:, None, None])
    return mixed.to(u)


class Process:
    """Functions of zero mean of which some values are known, one for each sample.

    Args:
        at: positions of the values.
        values: of the functions there.
        real: 1 for every value that is real, 0 for padding.
        noise: the standard deviation of the values' errors.
        axes: the coordinate of each feature; None: all have one scale.
    """

    def __init__(
        self,
        at: Float[Tensor, "b n f"],
        values: Float[Tensor, "b n i"],
        real: Float[Tensor, "b n"],
        noise: float,
        axes: Sequence[int] | None,
    ) -> None:
        self.at, self.values, self.real = at, values * real[..., None], real
        axis = torch.tensor(axes or [0] * at.shape[-1], device=at.device)
        scales, self.nugget = self._most_likely(noise, axis)
        self.scales = scales[:, None, axis]
        self.weights = self._weights()
        while noise == 0:  # more observations may need smaller scales than those that decided them
            loose = _loose(self.weights, self.values) & (self.scales > SCALES[0]).any(2)[:, 0]
            if not loose.any():
                break
            self.scales = torch.where(loose[:, None, None], self.scales / 2, self.scales)
            self.weights = self._weights()

    def __call__(self, queries: Float[Tensor, "b q f"]) -> Float[Tensor, "b q i"]:
        """The most likely values there."""
        at, queries = self.at / self.scales, queries / self.scales
        b, n, _ = at.shape
        size = max(1, SCRATCH.get(at.device.type, FEW) // (b * n))
        parts = queries.split(size, dim=1)
        return torch.cat([_matern(torch.cdist(part, at)) @ self.weights for part in parts], dim=1)

    def misses(
        self, queries: Float[Tensor, "b q f"], scales: Float[Tensor, "#b 1 f"]
    ) -> Float[Tensor, "b j i"]:
        """How far some values are from what others make of them; 0 where a value is padding.

        To predict a value at an observation from its neighbours is easier than at a query between
        the rows of a grid, say. So all observations around it are hidden, too, as far as a query is
        from the nearest one.

        Args:
            queries: positions where values are wanted.
            scales: in which the distances are measured.
        """
        at, values, real = self._at_some(JUDGES)
        near, hidden = _hidden(at / scales, queries / scales, real > 0)
        distances = torch.cdist(at / self.scales, at / self.scales)
        factor, _ = torch.linalg.cholesky_ex(_covariance(distances, real, self.nugget))
        inverse = torch.cholesky_inverse(factor)
        each = zip(inverse, inverse @ values, near, hidden, strict=True)
        misses = torch.stack([_without(*sample) for sample in each])
        return misses * real.gather(1, near[..., 0])[..., None]

    def _at_some(self, most: int) -> tuple[Tensor, Tensor, Tensor]:
        """Positions, values and what is real, of so many observations at most."""
        if self.at.shape[1] <= most:
            return self.at, self.values, self.real
        some = _some(self.real, most)
        return _take(self.at, some), _take(self.values, some), self.real.gather(1, some)

    def _weights(self) -> Float[Tensor, "b n i"]:
        at = self.at / self.scales
        covariance = _covariance(torch.cdist(at, at), self.real, self.nugget)
        return torch.cholesky_solve(self.values, torch.linalg.cholesky_ex(covariance)[0])

    def _most_likely(
        self, noise: float, axis: Tensor
    ) -> tuple[Float[Tensor, "b d"], Float[Tensor, " b"]]:
        """Scales, and the variance of errors over that of the function.

        Found by trial: first one scale for all coordinates, then more or less along each.
        """
        at, values, real = self._at_some(SOME_NOISY if noise else SOME)
        parts = [at[..., axis == k] for k in range(int(axis.max()) + 1)]
        squares = torch.stack([torch.cdist(part, part).square() for part in parts], dim=-1)
        one = at.new_ones(len(at))
        best = (at.new_ones(len(at), len(parts)), one, one * -math.inf)

        def attempt(scales: Tensor, nuggets: Iterable[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
            distances = (squares @ scales.pow(-2)[:, None, :, None]).squeeze(-1).sqrt()
            among, found = _among(distances, real), best
            for nugget in nuggets:
                covariance = _with_errors(among.clone(), real, nugget)
                likely, loose = _likelihood(covariance, values, real, nugget, noise)
                allowed = ~loose | (scales <= SCALES[0]).all(1) | bool(noise)
                better = allowed & (likely > found[2])
                found = (
                    torch.where(better[:, None], scales, found[0]),
                    torch.where(better, nugget, found[1]),
                    torch.where(better, likely, found[2]),
                )
            return found

        nuggets = [one * nugget for nugget in (NUGGETS if noise else (LEAST,))]
        for scale in SCALES:
            best = attempt(torch.full_like(best[0], scale), nuggets)
        for factor in FACTORS if len(parts) > 1 else ():
            for k in range(len(parts)):
                along = torch.arange(len(parts), device=at.device) == k
                best = attempt(best[0] * torch.where(along, factor, 1.0), best[1:2])
        return best[:2]


def _hidden(
    at: Float[Tensor, "b n f"], queries: Float[Tensor, "b q f"], real: Bool[Tensor, "b n"]
) -> tuple[Int[Tensor, "b j m"], Bool[Tensor, "b j m"]]:
    """For some observations themselves and the nearest others, and which of these are hidden."""
    chosen = min(TRIALS, at.shape[1])
    first = real.int().argsort(dim=1, descending=True, stable=True)  # real ones, then padding
    each = [_spread(max(int(count), chosen), chosen) for count in real.sum(1)]
    judges = first.gather(1, torch.stack(each).to(first))
    asked = queries[:, _spread(queries.shape[1], chosen).to(at.device)]
    padding = ~real[:, None]
    radius = torch.cdist(asked, at).masked_fill(padding, math.inf).amin(2, keepdim=True)
    distances = torch.cdist(_take(at, judges), at).masked_fill(padding, math.inf)
    distances.scatter_(2, judges[..., None], -1.0)
    near = distances.topk(min(HIDDEN, at.shape[1]), dim=2, largest=False)
    hidden = near.values < radius
    most = int(hidden.sum(2).max())  # those that are hidden come first
    return near.indices[..., :most], hidden[..., :most]


def _without(
    inverse: Float[Tensor, "n n"],
    weights: Float[Tensor, "n i"],
    near: Int[Tensor, "j m"],
    hidden: Bool[Tensor, "j m"],
) -> Float[Tensor, "j i"]:
    """How far the first value of each row is from what all that are not hidden make of it.

    A block of the inverse covariance tells: leave-one-out in closed form, for several at once.
    """
    blocks = inverse[near[:, :, None], near[:, None, :]]
    apart = torch.eye(near.shape[1], dtype=inverse.dtype, device=inverse.device)
    blocks = torch.where(hidden[:, :, None] & hidden[:, None, :], blocks, apart)
    return torch.linalg.solve(blocks, weights[near] * hidden[..., None])[:, 0]


def _spread(count: int, chosen: int) -> Int[Tensor, " chosen"]:
    """Numbers below `count`, all of them or evenly spread, out of step with the rows of any grid.

    >>> _spread(100, 4)
    tensor([ 0, 61, 23, 85])
    """
    if chosen == count:
        return torch.arange(count)
    return (torch.arange(chosen, dtype=torch.float64) * GOLDEN % 1 * count).long()


def _some(real: Float[Tensor, "b n"], count: int) -> Int[Tensor, "b count"]:
    """So many observations of each sample at random, real ones first; always the same."""
    keys = torch.rand(real.shape[1], generator=torch.Generator().manual_seed(0)).to(real)
    return (keys + real).topk(count, dim=1).indices


def _take(values: Float[Tensor, "b n c"], index: Int[Tensor, "b k"]) -> Float[Tensor, "b k c"]:
    return values.gather(1, index[..., None].expand(-1, -1, values.shape[-1]))


def _share(
    alone: Float[Tensor, "b j i"],
    helped: Float[Tensor, "b j i"],
    count: Float[Tensor, " b"],
    noisy: bool = False,
) -> Float[Tensor, " b"]:
    """What a prediction with a guess counts beside one without, if they miss values by so much.

    Errors of noisy values are missed by both alike and say nothing: there it is the share with
    which a mixture of both misses least. The fewer observations say so, the less they can say
    against the guess.

    >>> misses = torch.tensor([2.0, 0.0, 1.0]), torch.tensor([1.0, 1.0, 0.0])
    >>> alone, helped = (v[:, None, None] for v in misses)
    >>> [round(share, 2) for share in _share(alone, helped, count=torch.tensor(100)).tolist()]
    [0.8, 0.01, 1.0]
    """
    if noisy:
        apart = alone - helped
        square = apart.square().sum((1, 2))
        share = torch.where(square == 0, 1.0, (alone * apart).sum((1, 2)) / square).clamp(0, 1)
    else:
        a, h = (v.abs().sum((1, 2)) for v in (alone, helped))
        share = torch.where(a + h == 0, 1.0, 1 / (1 + (h / a).square()))
    return torch.lerp(torch.ones_like(share), share, count**2 / (count**2 + FAVOUR**2))


def _matern(r: Tensor) -> Tensor:
    """The covariance at distances r, which are overwritten."""
    s = r.mul_(math.sqrt(5))
    fading = torch.exp(-s)
    return fading.mul_(s.square().div_(3).add_(s).add_(1))


def _covariance(
    distances: Float[Tensor, "b n n"], real: Float[Tensor, "b n"], nugget: Float[Tensor, " b"]
) -> Float[Tensor, "b n n"]:
    """Of the observations, in units of the function's variance; padded ones are on their own.

    The distances are overwritten.
    """
    return _with_errors(_among(distances, real), real, nugget)


def _among(distances: Float[Tensor, "b n n"], real: Float[Tensor, "b n"]) -> Float[Tensor, "b n n"]:
    """The covariance of the function among real observations; the distances are overwritten."""
    among = _matern(distances)
    return among if real.all() else among.mul_(real[..., :, None] * real[..., None, :])


def _with_errors(
    among: Float[Tensor, "b n n"], real: Float[Tensor, "b n"], nugget: Float[Tensor, " b"]
) -> Float[Tensor, "b n n"]:
    """The covariance of observations, in place of that of the function there."""
    among.diagonal(dim1=-2, dim2=-1).add_(torch.where(real > 0, nugget[..., None], 1.0))
    return among


def _likelihood(
    covariance: Tensor, values: Tensor, real: Tensor, nugget: Tensor, noise: float
) -> tuple[Float[Tensor, " b"], Bool[Tensor, " b"]]:
    """Twice the logarithm of the likelihood, up to a constant, and which answers are loose."""
    factor, failed = torch.linalg.cholesky_ex(covariance)
    weights = torch.cholesky_solve(values, factor)
    count, squares = real.sum(1) * values.shape[-1], (values * weights).sum((1, 2))
    least = torch.finfo(values.dtype).tiny
    variance = noise**2 / nugget if noise else (squares / count).clamp(min=least)
    spread = 2 * values.shape[-1] * factor.diagonal(dim1=1, dim2=2).log().sum(1)
    likely = -(count * torch.log(variance) + spread + squares / variance)
    return torch.where(failed == 0, likely, -math.inf), _loose(weights, values)


def _loose(weights: Tensor, values: Tensor) -> Bool[Tensor, " b"]:
    """Which samples an answer misses that is to pass through their values."""
    missed, size = ((v.square().sum((1, 2))) for v in (LEAST * weights, values))
    return ~(missed <= EXACT**2 * size)
