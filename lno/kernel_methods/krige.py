"""Gaussian process regression (kriging), alone or with a model as its prior mean.

`krige` has zero prior mean (simple kriging). `ConditionedModels` has a model as its prior mean: the
model's prediction plus the kriged residuals at the observations. A model helps much where
observations are few, and not at all where they are dense. So the result is blended with kriging
alone, by leave-out cross-validation residuals of the two.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from lno.kernel_methods.gaussian_process import (
    GaussianProcess,
    add_nugget,
    matern,
    random_subset,
    take,
)

MAX_POINTS = 4096  # observations used at most, a random subset of more
CV_POINTS = 2048  # observations used in cross-validation
FOLDS, FOLD_SIZE = 256, 128  # how many of them are predicted, leaving out so many at most
PRIOR_WEIGHT = 8  # the weight of the model before any observation, in observations
GOLDEN = (math.sqrt(5) - 1) / 2


def krige(
    x: Float[Tensor, "#b n f"],
    u: Float[Tensor, "b n i"],
    x_query: Float[Tensor, "#b q f"],
    mask: Bool[Tensor, "b n"] | None = None,
    noise: float = 0.0,
    axes: Sequence[int] | None = None,
) -> Float[Tensor, "b q i"]:
    """Simple kriging: the conditional mean of a Gaussian process of zero mean, in float64.

    Args:
        x: positions of the observations, as features whose distances are meaningful: cos and sin of
            a periodic coordinate, for example.
        u: values there.
        x_query: positions of the prediction.
        mask: which observations are real; None: all.
        noise: standard deviation of the noise in u; 0: the prediction interpolates u (a random
            MAX_POINTS of them if there are more).
        axes: the coordinate, counted from 0, that each feature belongs to. Each coordinate has a
            length scale; None: one for all features.

    >>> x = torch.linspace(0, 1, 12)[None, :, None]
    >>> q = torch.tensor([[[0.52], [9.0]]])
    >>> [round(v, 3) for v in krige(x, torch.sin(4 * x), q).flatten().tolist()]  # sin 2.08 = 0.873
    [0.873, -0.001]
    """
    at, queries, real, [values] = _prepare(x, x_query, mask, u)
    return GaussianProcess(at, values[None], real, noise, axes)(queries)[0].to(u)


class ConditionedModels:
    """Kriging with each of k models as the prior mean, blended with kriging alone.

    Here kriging alone has the mean of a model's prediction as its prior mean: values may be far
    from zero, like temperatures in kelvin. Covariances that models share are factored once.

    Args:
        x: positions of the observations, as in `krige`.
        u: values there.
        x_query: positions of the prediction.
        at_x: predictions of the models at the observations.
        at_query: predictions of the models at x_query.
        mask: which observations are real; None: all.
        noise: standard deviation of the noise in u.
        axes: the coordinate that each feature belongs to.

    Attributes:
        mean: the prediction (k, b, q, i).

    >>> x, q = torch.linspace(0, 1, 5)[None, :, None], torch.tensor([[[0.4], [0.6]]])
    >>> model = torch.sin(9 * x)[None], torch.sin(9 * q)[None]  # right up to a constant
    >>> ConditionedModels(x, torch.sin(9 * x) + 1, q, *model).mean - torch.sin(9 * q)
    tensor([[[[1.0000],
              [1.0000]]]])
    """

    def __init__(
        self,
        x: Float[Tensor, "#b n f"],
        u: Float[Tensor, "b n i"],
        x_query: Float[Tensor, "#b q f"],
        at_x: Float[Tensor, "k b n i"],
        at_query: Float[Tensor, "k b q i"],
        mask: Bool[Tensor, "b n"] | None = None,
        noise: float = 0.0,
        axes: Sequence[int] | None = None,
    ) -> None:
        at, self.queries, real, [values, *priors] = _prepare(x, x_query, mask, u, *at_x)
        there = at_query.to(values)
        level = there.mean(2, keepdim=True)
        residuals = torch.cat((values - level, values - torch.stack(priors)))
        self.process = GaussianProcess(at, residuals, real, noise, axes)
        alone, with_model = self.process(self.queries).chunk(2)
        # Both are judged on the same folds, whose distances are in length scales of kriging alone.
        folds = self.process.kernels.index.chunk(2)[0].repeat(2, 1)
        errors, model_errors = cross_validate(self.process, self.queries, folds).chunk(2)
        self.share = _share(errors, model_errors, real.sum(1), noisy=noise > 0)[..., None, None]
        self.mean = torch.lerp(level + alone, there + with_model, self.share).to(u)

    def deviation(self) -> Float[Tensor, "k b q i"]:
        """The standard deviation of the kriging error, which takes longer than the mean.

        It is blended like the mean, as if the errors of the two were perfectly correlated: it is
        none too small.

        >>> x, q = torch.linspace(0, 1, 5)[None, :, None], torch.tensor([[[0.5], [0.625], [1.4]]])
        >>> prior = torch.zeros(1, 1, 5, 1), torch.zeros(1, 1, 3, 1)
        >>> deviation = ConditionedModels(x, torch.sin(5 * x), q, *prior).deviation()
        >>> (deviation.diff(dim=2) > 0).flatten().tolist()  # at, near and far from an observation
        [True, True]
        """
        alone, with_model = self.process.deviation(self.queries).chunk(2)
        return torch.lerp(alone, with_model, self.share).to(self.mean)


def _prepare(
    x: Tensor, x_query: Tensor, mask: Tensor | None, *values: Tensor
) -> tuple[Tensor, Tensor, Tensor, list[Tensor]]:
    """Positions, queries, which observations are real, and values there: MAX_POINTS in float64."""
    b, n, _ = values[0].shape
    device = torch.device("cpu") if x.device.type == "mps" else x.device  # which has no float64
    real = (torch.ones(b, n) if mask is None else mask).to(device).double()
    at, queries = (v.to(device).double().expand(b, -1, -1) for v in (x, x_query))
    each = [v.to(device).double() for v in values]
    if n > MAX_POINTS:
        some = random_subset(real, MAX_POINTS)
        at, real, each = take(at, some), real.gather(1, some), [take(v, some) for v in each]
    return at, queries, real, each


def cross_validate(
    process: GaussianProcess, queries: Float[Tensor, "b q f"], measured_by: Int[Tensor, "g b"]
) -> Float[Tensor, "g b j i"]:
    """Leave-out cross-validation residuals at some observations; 0 where one is padding.

    Leaving out one observation alone would flatter kriging: on a grid of distant rows, each is
    predicted well from its neighbours in the row, but a query between the rows is not. So all
    observations around it are left out as well, up to the distance of a query from its nearest
    observation.

    Args:
        process: conditioned on the observations.
        queries: positions of the prediction.
        measured_by: for each function, the kernel in whose length scales distances are taken.
    """
    x, columns, real = process.subset(CV_POINTS)
    kernels = process.kernels
    pairs = torch.stack((kernels.index, measured_by), -1).flatten(0, 1)
    pairs, index = pairs.unique(dim=0, return_inverse=True)
    judges, fold = pairs[:, 1].unique(return_inverse=True)
    samples, scales = kernels.sample[judges], process.by_feature(kernels.scales[judges])
    near, left_out = _folds(x[samples] / scales, queries[samples] / scales, real[samples] > 0)
    found = []
    for k, j in zip(pairs[:, 0].tolist(), fold.tolist(), strict=True):
        sample = kernels.sample[k]
        at = x[sample] / process.by_feature(kernels.scales[k])
        covariance = add_nugget(matern(torch.cdist(at, at)), real[sample], kernels.nuggets[k, 0])
        inverse = torch.cholesky_inverse(torch.linalg.cholesky_ex(covariance)[0])
        errors = _leave_out(inverse, inverse @ columns[sample], near[j], left_out[j])
        found.append(errors * real[sample, near[j, :, 0], None])
    each = process.by_function(torch.stack(found))
    return replace(kernels, index=index.view_as(measured_by)).own(each)


def _folds(
    x: Float[Tensor, "b n f"], queries: Float[Tensor, "b q f"], real: Bool[Tensor, "b n"]
) -> tuple[Int[Tensor, "b j m"], Bool[Tensor, "b j m"]]:
    """The index of some observations, those of the nearest others, and which to leave out."""
    count = min(FOLDS, x.shape[1])
    first = real.int().argsort(dim=1, descending=True, stable=True)  # real ones, then padding
    each = [_spread(max(int(total), count), count) for total in real.sum(1)]
    chosen = first.gather(1, torch.stack(each).to(first))
    asked = queries[:, _spread(queries.shape[1], count).to(x.device)]
    padding = ~real[:, None]
    radius = torch.cdist(asked, x).masked_fill(padding, math.inf).amin(2, keepdim=True)
    distances = torch.cdist(take(x, chosen), x).masked_fill(padding, math.inf)
    distances.scatter_(2, chosen[..., None], -1.0)
    near = distances.topk(min(FOLD_SIZE, x.shape[1]), dim=2, largest=False)
    left_out = near.values < radius
    most = int(left_out.sum(2).max())  # those that are left out come first
    return near.indices[..., :most], left_out[..., :most]


def _leave_out(
    inverse: Float[Tensor, "n n"],
    weights: Float[Tensor, "n c"],
    near: Int[Tensor, "j m"],
    left_out: Bool[Tensor, "j m"],
) -> Float[Tensor, "j c"]:
    """Residuals of the first observation of each row, predicted from all that are not left out.

    A block of the inverse covariance gives them: leave-one-out in closed form, for several at once.
    """
    blocks = inverse[near[:, :, None], near[:, None, :]]
    identity = torch.eye(near.shape[1], dtype=inverse.dtype, device=inverse.device)
    blocks = torch.where(left_out[:, :, None] & left_out[:, None, :], blocks, identity)
    return torch.linalg.solve(blocks, weights[near] * left_out[..., None])[:, 0]


def _spread(count: int, chosen: int) -> Int[Tensor, " chosen"]:
    """Numbers below `count`, all of them or evenly spread, out of step with the rows of any grid.

    >>> _spread(100, 4)
    tensor([ 0, 61, 23, 85])
    """
    if chosen == count:
        return torch.arange(count)
    return (torch.arange(chosen, dtype=torch.float64) * GOLDEN % 1 * count).long()


def _share(
    alone: Float[Tensor, "*k j i"],
    with_model: Float[Tensor, "*k j i"],
    count: Float[Tensor, "*#k"],
    noisy: bool = False,
) -> Float[Tensor, "*k"]:
    """The share of the model in the blend, from cross-validation residuals.

    The two are weighted by inverse squares of their mean absolute residuals. Noise is in the
    residuals of both, and says nothing: there it is the share whose blend has the least squared
    residual. The fewer observations there are, the less they can say against the model.

    >>> residuals = torch.tensor([2.0, 0.0, 1.0]), torch.tensor([1.0, 1.0, 0.0])
    >>> alone, with_model = (v[:, None, None] for v in residuals)
    >>> [round(v, 2) for v in _share(alone, with_model, count=torch.tensor(100.0)).tolist()]
    [0.8, 0.01, 1.0]
    """
    if noisy:
        apart = alone - with_model
        square = apart.square().sum((-2, -1))
        best = (alone * apart).sum((-2, -1)) / square
        share = torch.where(square == 0, 1.0, best).clamp(0, 1)
    else:
        a, m = (v.abs().sum((-2, -1)) for v in (alone, with_model))
        share = torch.where(a + m == 0, 1.0, 1 / (1 + (m / a).square()))
    return torch.lerp(torch.ones_like(share), share, count**2 / (count**2 + PRIOR_WEIGHT**2))
