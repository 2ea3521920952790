"""Gaussian processes of zero mean, conditioned on observations.

The covariance is Matérn with ν = 5/2: k(r) = (1 + s + s²/3) exp(−s), s = √5 r. Distances r are
measured in units of a length scale along each coordinate. The length scales maximise the marginal
likelihood over a grid of candidates; where observations are noisy, so does the nugget (variance of
the noise over that of the function).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

LENGTH_SCALES = tuple(0.05 * 2**k for k in range(9))  # candidates; features vary by about one
FACTORS = (0.5, 2.0, 0.5, 2.0, 0.5**0.5, 2.0**0.5)  # then tried on one coordinate at a time
NUGGETS = tuple(10.0**k for k in (-8, -7, -6, -5, -4, -3, -2.5, -2, -1.5, -1, -0.5, 0, 0.5, 1, 2))
JITTER = 1e-8  # the nugget of exact observations: coinciding ones stay solvable;
TOLERANCE = 1e-4  # it may move the prediction by this share of the observed values
FIT_POINTS, FIT_POINTS_NOISY = 512, 192  # observations that decide length scales and nugget
DEVIATION_POINTS = 512  # observations that decide the deviation: it costs their number squared
SCRATCH = {"cpu": 2**19, "cuda": 2**24}  # matrix entries at once: what fits into the caches


@dataclass(frozen=True)
class Kernels:
    """The distinct covariance functions among those of g functions in each of b samples.

    Functions of a sample are observed at the same points. Where they have the same length scales
    and nugget as well, they share a covariance matrix, which is computed and factored once.

    Args:
        sample: the sample of each kernel.
        scales: its length scales.
        nuggets: its nugget, or several to be tried.
        index: the kernel of each function.
    """

    sample: Int[Tensor, " k"]
    scales: Float[Tensor, "k d"]
    nuggets: Float[Tensor, "k v"]
    index: Int[Tensor, "g b"]

    @classmethod
    def of(cls, scales: Float[Tensor, "g b d"], nuggets: Float[Tensor, "g b v"]) -> Kernels:
        """The kernels of functions with these length scales and nuggets."""
        g, b, d = scales.shape
        sample = torch.arange(b).to(scales).expand(g, b)[..., None]
        rows = torch.cat((sample, scales, nuggets), -1).flatten(0, 1)
        found, index = rows.unique(dim=0, return_inverse=True)
        return cls(found[:, 0].long(), found[:, 1 : d + 1], found[:, d + 1 :], index.view(g, b))

    def parts(self, size: int) -> Iterator[Kernels]:
        """Consecutive kernels, as many at a time as SCRATCH has room for matrices of this size."""
        count = max(1, _scratch(self.scales) // size)
        for part in torch.arange(len(self.sample), device=self.sample.device).split(count):
            yield Kernels(self.sample[part], self.scales[part], self.nuggets[part], self.index)

    def own(self, values: Shaped[Tensor, "k g *rest"]) -> Shaped[Tensor, "g b *rest"]:
        """Of values for every kernel and every function, those of each function and its kernel."""
        function = torch.arange(len(self.index), device=values.device)
        return values[self.index, function[:, None]]


class GaussianProcess:
    """Gaussian processes of zero mean, conditioned on observations: g functions of each sample.

    Args:
        x: positions of the observations.
        values: of the functions there.
        real: 1 for every real observation, 0 for padding.
        noise: standard deviation of the noise in the values.
        axes: the coordinate of each feature; None: one length scale for all.
    """

    def __init__(
        self,
        x: Float[Tensor, "b n f"],
        values: Float[Tensor, "g b n i"],
        real: Float[Tensor, "b n"],
        noise: float,
        axes: Sequence[int] | None,
    ) -> None:
        self.x, self.real, self.functions = x, real, len(values)
        self.columns = (values * real[..., None]).permute(1, 2, 0, 3).flatten(2)  # (b, n, g·i)
        self.axis = torch.tensor(axes or [0] * x.shape[-1], device=x.device)
        scales, nugget = self._maximize_likelihood(noise)
        self.kernels, self.weights = self._condition(scales, nugget)
        while noise == 0:  # more observations may need shorter scales than FIT_POINTS of them did
            columns = self.columns[self.kernels.sample]
            loose = _loose(self.by_function(self.weights), self.by_function(columns))
            loose = self.kernels.own(loose) & (scales > LENGTH_SCALES[0]).any(-1)
            if not loose.any():
                break
            scales = torch.where(loose[..., None], scales / 2, scales)
            self.kernels, self.weights = self._condition(scales, nugget)

    def __call__(self, queries: Float[Tensor, "b q f"]) -> Float[Tensor, "g b q i"]:
        """The conditional mean at the queries."""
        sample, scales = self.kernels.sample, self.by_feature(self.kernels.scales)
        x, queries = self.x[sample] / scales, queries[sample] / scales
        size = max(1, _scratch(x) // x[..., 0].numel())
        parts = [matern(torch.cdist(q, x)) @ self.weights for q in queries.split(size, dim=1)]
        return self.kernels.own(self.by_function(torch.cat(parts, dim=1)))

    def deviation(self, queries: Float[Tensor, "b q f"]) -> Float[Tensor, "g b q i"]:
        """The conditional standard deviation at the queries, with the most likely variance.

        Of more than DEVIATION_POINTS observations a random subset decides: an upper bound.
        """
        kernels, found = self.kernels, []
        at, _, real = self.subset(DEVIATION_POINTS)
        for k in range(len(kernels.sample)):
            sample, scales = kernels.sample[k], self.by_feature(kernels.scales[k])
            x, counted = at[sample] / scales, real[sample]
            covariance = add_nugget(matern(torch.cdist(x, x)), counted, kernels.nuggets[k, 0])
            factor, _ = torch.linalg.cholesky_ex(covariance)
            parts = []
            for part in (queries[sample] / scales).split(max(1, _scratch(x) // len(x))):
                known = (matern(torch.cdist(part, x)) * counted).mT
                whitened = torch.linalg.solve_triangular(factor, known, upper=False)
                parts.append(1 - whitened.square().sum(0))
            found.append(torch.cat(parts).clamp(min=0))
        columns = self.by_function(self.columns[kernels.sample])
        count = self.real[kernels.sample].sum(1)[:, None, None]
        variance = (columns * self.by_function(self.weights)).sum(2).clamp(min=0) / count
        share = torch.stack(found)[:, None, :, None]
        return kernels.own((share * variance[:, :, None]).sqrt())

    def _condition(
        self, scales: Float[Tensor, "g b d"], nugget: Float[Tensor, "g b"]
    ) -> tuple[Kernels, Float[Tensor, "k n c"]]:
        """The kernels, and the inverse covariance times the values of all functions."""
        kernels, found = Kernels.of(scales, nugget[..., None]), []
        for part in kernels.parts(self.x.shape[1] ** 2):
            x = self.x[part.sample] / self.by_feature(part.scales)
            correlation, real = matern(torch.cdist(x, x)), self.real[part.sample]
            covariance = add_nugget(correlation, real, part.nuggets[:, 0])
            factor, _ = torch.linalg.cholesky_ex(covariance)
            found.append(torch.cholesky_solve(self.columns[part.sample], factor))
        return kernels, torch.cat(found)

    def _maximize_likelihood(
        self, noise: float
    ) -> tuple[Float[Tensor, "g b d"], Float[Tensor, "g b"]]:
        """Length scales and nugget: first one scale for all coordinates, then for each in turn."""
        x, columns, real = self.subset(FIT_POINTS_NOISY if noise else FIT_POINTS)
        parts = [x[..., self.axis == k] for k in range(int(self.axis.max()) + 1)]
        squares = torch.stack([torch.cdist(part, part).square() for part in parts], dim=-1)
        one = x.new_ones(self.functions, len(x))
        best = (one[..., None].expand(-1, -1, len(parts)), one, one * -math.inf)

        def attempt(scales: Tensor, nuggets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            kernels, found = Kernels.of(scales, nuggets), []
            for part in kernels.parts(x.shape[1] ** 2):
                k, weights = part.sample, part.scales.pow(-2)[:, None, :, None]
                correlation = matern((squares[k] @ weights).squeeze(-1).sqrt_())
                shortest = (part.scales <= LENGTH_SCALES[0]).all(1, keepdim=True)
                each = []
                for nugget in part.nuggets.T:
                    covariance = add_nugget(correlation.clone(), real[k], nugget)
                    likelihood, loose = self._likelihood(
                        covariance, columns[k], real[k], noise**2 / nugget[:, None]
                    )
                    ruled_out = loose & ~shortest & (noise == 0)
                    each.append(likelihood.masked_fill_(ruled_out, -math.inf))
                found.append(torch.stack(each, dim=-1))
            likelihood, most = kernels.own(torch.cat(found)).max(-1)
            nugget = nuggets.gather(-1, most[..., None])[..., 0]
            better = likelihood > best[2]
            return (
                torch.where(better[..., None], scales, best[0]),
                torch.where(better, nugget, best[1]),
                torch.where(better, likelihood, best[2]),
            )

        candidates = x.new_tensor(NUGGETS if noise else (JITTER,)).expand(*one.shape, -1)
        for scale in LENGTH_SCALES:
            best = attempt(torch.full_like(best[0], scale), candidates)
        for factor in FACTORS if len(parts) > 1 else ():
            for k in range(len(parts)):
                along = torch.arange(len(parts), device=x.device) == k
                best = attempt(best[0] * torch.where(along, factor, 1.0), best[1][..., None])
        return best[:2]

    def _likelihood(
        self, covariance: Tensor, columns: Tensor, real: Tensor, variance: Tensor
    ) -> tuple[Float[Tensor, "k g"], Bool[Tensor, "k g"]]:
        """Twice the log marginal likelihood of all functions, up to a constant, and what is loose.

        The variance (k, 1) is that of the functions; 0: the most likely one.
        """
        factor, failed = torch.linalg.cholesky_ex(covariance)
        weights = self.by_function(torch.cholesky_solve(columns, factor))
        values = self.by_function(columns)
        count = real.sum(1, keepdim=True) * values.shape[-1]
        squares = (values * weights).sum((2, 3))
        most_likely = (squares / count).clamp(min=torch.finfo(values.dtype).tiny)
        variance = torch.where(variance > 0, variance, most_likely)
        logdet = 2 * values.shape[-1] * factor.diagonal(dim1=1, dim2=2).log().sum(1, keepdim=True)
        likelihood = -(count * torch.log(variance) + logdet + squares / variance)
        impossible = (failed[:, None] != 0) | likelihood.isnan()
        return likelihood.masked_fill_(impossible, -math.inf), _loose(weights, values)

    def subset(self, most: int) -> tuple[Tensor, Tensor, Tensor]:
        """Positions, values and which are real, of so many observations at most."""
        if self.x.shape[1] <= most:
            return self.x, self.columns, self.real
        some = random_subset(self.real, most)
        return take(self.x, some), take(self.columns, some), self.real.gather(1, some)

    def by_feature(self, scales: Float[Tensor, "*k d"]) -> Float[Tensor, "*k 1 f"]:
        """The length scale of each feature."""
        return scales[..., None, self.axis]

    def by_function(self, columns: Float[Tensor, "k r c"]) -> Float[Tensor, "k g r i"]:
        """Columns of all functions side by side, taken apart."""
        return columns.unflatten(-1, (self.functions, -1)).movedim(2, 1)


def _scratch(on: Tensor) -> int:
    return SCRATCH.get(on.device.type, SCRATCH["cpu"])


def random_subset(real: Float[Tensor, "b n"], count: int) -> Int[Tensor, "b count"]:
    """So many observations of each sample at random, real ones first; always the same."""
    keys = torch.rand(real.shape[1], generator=torch.Generator().manual_seed(0)).to(real)
    return (keys + real).topk(count, dim=1).indices


def take(values: Float[Tensor, "b n c"], index: Int[Tensor, "b k"]) -> Float[Tensor, "b k c"]:
    """The points at `index` of each sample."""
    return values.gather(1, index[..., None].expand(-1, -1, values.shape[-1]))


def matern(r: Tensor) -> Tensor:
    """The covariance at distances r, which are overwritten."""
    s = r.mul_(math.sqrt(5))
    decay = torch.exp(-s)
    return decay.mul_(s.square().div_(3).add_(s).add_(1))


def add_nugget(
    correlation: Float[Tensor, "*k n n"], real: Float[Tensor, "*k n"], nugget: Float[Tensor, "*k"]
) -> Float[Tensor, "*k n n"]:
    """The covariance of observations over the variance of the function, in place.

    Padded observations are independent of all others.
    """
    if not real.all():
        correlation.mul_(real[..., None] * real[..., None, :])
    diagonal = correlation.diagonal(dim1=-2, dim2=-1)
    diagonal.add_(torch.where(real > 0, nugget[..., None], 1.0))
    return correlation


def _loose(
    weights: Float[Tensor, "k g n i"], values: Float[Tensor, "k g n i"]
) -> Bool[Tensor, "k g"]:
    """Where the prediction, because of JITTER, does not interpolate the values within TOLERANCE."""
    missed, size = (v.square().sum((2, 3)) for v in (JITTER * weights, values))
    return ~(missed <= TOLERANCE**2 * size)
