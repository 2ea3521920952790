"""Reconstruction without learning: radial basis functions.

`interpolate_rbf` is the classical opponent, one sample at a time, by SciPy. `interpolate` does many
samples at once and serves learned reconstructions: it passes what they miss at the sensors on to
the points between them.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy.interpolate import RBFInterpolator
from scipy.linalg import eigh, null_space
from scipy.optimize import minimize_scalar
from scipy.spatial.distance import cdist
from torch import Tensor

DENSE = 4096  # observations up to which all of them decide every value
SCRATCH = 2**24  # distances at once
LEAST = 1e-12  # keeps coinciding observations, and too few of them, solvable
MOST = 1e6  # times the largest eigenvalue: nothing but the trend is left of an interpolant


def interpolate_rbf(
    x: np.ndarray,
    u: np.ndarray,
    x_query: np.ndarray,
    period: Sequence[float | None] | None = None,
    neighbors: int = 64,
    smoothing: float = 0.0,
) -> np.ndarray:
    """Values (q, i) at x_query (q, d) of the cubic RBF interpolant of u (n, i) at x (n, d).

    A periodic coordinate is continued by an image of the points on either side; of points that
    coincide, the first counts.

    Args:
        x: positions of the observations.
        u: values there.
        x_query: positions where values are wanted.
        period: the period of each coordinate, None for those that have none.
        neighbors: how many nearest observations decide the value at a point.
        smoothing: SciPy's; above zero it misses the observations, for a smoother function.

    >>> x = np.linspace(0, 1, 20, endpoint=False)[:, None]
    >>> v = interpolate_rbf(x, np.sin(2 * np.pi * x), np.array([[0.975]]), period=[1.0])
    >>> float(abs(v[0, 0] - np.sin(2 * np.pi * 0.975))) < 1e-3
    True
    """
    points, queries = (np.array(v, dtype=np.float64) for v in (x, x_query))
    values = np.asarray(u, dtype=np.float64)
    periodic = [(axis, length) for axis, length in enumerate(period or ()) if length is not None]
    for axis, length in periodic:
        points[:, axis] %= length
        queries[:, axis] %= length
    _, first = np.unique(points.round(12), axis=0, return_index=True)
    points, values = points[first], values[first]
    for axis, length in periodic:
        shift = np.eye(points.shape[1])[axis] * length
        points = np.concatenate((points, points - shift, points + shift))
        values = np.concatenate((values, values, values))
    near = min(neighbors, len(points))
    # Cubic functions come with a linear trend; points on a line, or too few, cannot determine it.
    for degree in (1, 0):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # SciPy prefers degree 1, and so do we
            try:
                spline = RBFInterpolator(
                    points,
                    values,
                    kernel="cubic",
                    degree=degree,
                    neighbors=near,
                    smoothing=smoothing,
                )
                return spline(queries)
            except (np.linalg.LinAlgError, ValueError):
                if degree == 0:
                    raise
    raise AssertionError("unreachable")


def interpolate(
    x: Float[Tensor, "b n f"],
    u: Float[Tensor, "b n i"],
    x_query: Float[Tensor, "#b q f"],
    mask: Bool[Tensor, "b n"] | None = None,
    noise: float = 0.0,
) -> Float[Tensor, "b q i"]:
    """Values at x_query of cubic RBF interpolants with linear trends, for all samples at once.

    s(x) = Σₖ wₖ |x − xₖ|³ + c·[1, x], so that s(xₖ) = uₖ and Σₖ wₖ [1, xₖ] = 0, in double
    precision. Beyond 4,096 observations the 64 nearest decide a value.

    Observations with errors are smoothed instead: s(xₖ) + λ wₖ = uₖ. Kriging calls it a nugget: λ
    is the variance of the errors over that of the function, and the latter the most likely one.

    Args:
        x: positions of the observations, as features in which distances mean something: cos and
            sin of a periodic coordinate, say.
        u: values there.
        x_query: positions where values are wanted.
        mask: which observations are real; None: all.
        noise: the standard deviation of their errors.

    >>> x = torch.rand(3, 20, 2, generator=torch.Generator().manual_seed(0))
    >>> u = 2 * x[..., :1] - x[..., 1:]  # linear, hence exact everywhere
    >>> q = torch.rand(3, 7, 2)
    >>> torch.allclose(interpolate(x, u, q), 2 * q[..., :1] - q[..., 1:], atol=1e-5)
    True
    """
    b, n, f = x.shape
    x_query = x_query.expand(b, -1, -1)
    if n > DENSE or noise:
        return _one_by_one(x, u, x_query, mask, noise)
    at, queries, values, real = _double(x, x_query, u, mask)
    known = torch.cat((values * real[..., None], values.new_zeros(b, f + 1, u.shape[-1])), dim=1)
    weights, slopes = torch.linalg.solve(_system(at, real), known).split((n, f + 1), dim=1)
    parts = [
        torch.cdist(part, at) ** 3 @ weights + _with_one(part) @ slopes
        for part in queries.split(max(1, SCRATCH // (b * n)), dim=1)
    ]
    return torch.cat(parts, dim=1).to(u)


def interpolation_matrix(
    x: Float[Tensor, "b n f"],
    x_query: Float[Tensor, "#b q f"],
    mask: Bool[Tensor, "b n"] | None = None,
) -> Float[Tensor, "b q n"]:
    """The matrix that `interpolate` multiplies values u with; of a padded observation it is zero.

    >>> x, u, q = torch.rand(2, 9, 2), torch.rand(2, 9, 1), torch.rand(2, 5, 2)
    >>> torch.allclose(interpolation_matrix(x, q) @ u, interpolate(x, u, q), atol=1e-4)
    True
    """
    b, n, _ = x.shape
    if n > DENSE:
        raise ValueError(f"expected at most {DENSE} observations to interpolate between, got {n}")
    at, queries, _, real = _double(x, x_query.expand(b, -1, -1), x, mask)
    kernel = torch.cdist(at, queries) ** 3 * real[..., None]
    # The system is symmetric, so rows of its inverse are columns.
    columns = torch.linalg.solve(_system(at, real), torch.cat((kernel, _with_one(queries).mT), 1))
    return (columns[:, :n] * real[..., None]).mT.to(x)


def _double(
    x: Tensor, x_query: Tensor, u: Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Positions, queries, values and 1 for each real observation, in double precision."""
    where = torch.device("cpu") if x.device.type == "mps" else x.device  # Apple's GPUs have none
    real = torch.ones(x.shape[:2], device=where) if mask is None else mask.to(where)
    at, queries, values = (v.to(where).double() for v in (x, x_query, u))
    return at, queries, values, real.double()


def _system(at: Tensor, real: Tensor) -> Tensor:
    """The matrix of the equations for weights and trend, (b, n + f + 1, n + f + 1)."""
    b, _, f = at.shape
    # A row and column of the identity for each padded point leaves its weight at zero.
    kernel = torch.cdist(at, at) ** 3 * (real[:, :, None] * real[:, None, :])
    kernel = kernel + torch.diag_embed(1 - real + LEAST)
    trend = _with_one(at) * real[..., None]
    corner = torch.eye(f + 1, dtype=at.dtype, device=at.device).expand(b, -1, -1) * -LEAST
    return torch.cat(
        (torch.cat((kernel, trend), dim=2), torch.cat((trend.mT, corner), dim=2)), dim=1
    )


def _with_one(x: Tensor) -> Tensor:
    return torch.cat((torch.ones_like(x[..., :1]), x), dim=-1)


def _one_by_one(x: Tensor, u: Tensor, x_query: Tensor, mask: Tensor | None, noise: float) -> Tensor:
    answers = []
    for k in range(len(x)):
        real = slice(None) if mask is None else mask[k].cpu()
        at, values, queries = (v.cpu().numpy() for v in (x[k][real], u[k][real], x_query[k]))
        smoothing = _nugget(at[:DENSE], values[:DENSE], noise) if noise else 0.0
        near = len(at) if len(at) <= DENSE else 64
        found = interpolate_rbf(at, values, queries, neighbors=near, smoothing=smoothing)
        answers.append(torch.from_numpy(found))
    return torch.stack(answers).to(u)


def _nugget(x: np.ndarray, u: np.ndarray, noise: float) -> float:
    """The λ that goes with errors of a standard deviation `noise` of u (n, i) at x (n, f).

    What a trend leaves over is, in a basis in which the kernel is diagonal, made of independent
    numbers with the variances θ Λ + noise². The θ under which they are most likely (restricted
    maximum likelihood) gives λ = noise² / θ.
    """
    trend = np.column_stack((np.ones(len(x)), x)).astype(np.float64)
    rest = null_space(trend.T)
    kernel, basis = eigh(rest.T @ cdist(x, x) ** 3 @ rest)
    squares = np.square(basis.T @ rest.T @ u).mean(1)

    def unlikely(power: float) -> float:
        variance = noise**2 * (1 + kernel.clip(0) * np.exp(-power))
        return float((np.log(variance) + squares / variance).sum())

    largest = max(1.0, *kernel)
    low, high = np.log(LEAST * largest), np.log(MOST * largest)
    return float(np.exp(minimize_scalar(unlikely, bounds=(low, high), method="bounded").x))
