"""Functions made orthogonal by the Cholesky factor of their covariance, as in ONO."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

JITTERS = 6  # powers of ten to try as additions to the diagonal


def orthogonalise(
    s: Float[Tensor, "b n k"], covariance: Float[Tensor, "k k"]
) -> Float[Tensor, "b n k"]:
    """Functions s L⁻ᵀ, where L Lᵀ = covariance: if it is theirs, it becomes the identity.

    If the covariance has no Cholesky factor, in its own precision or in that of s, the least power
    of ten from 1e-6 on (1e-8 if s is in double precision) that gives it one is added to its
    diagonal. Factor and functions are computed in the precision of the covariance.

    >>> s = torch.tensor([[[1.0, 0.0], [1.0, 1.0]]])
    >>> s = orthogonalise(s, s[0].T @ s[0] / 2)
    >>> (s[0].T @ s[0] / 2).round(decimals=3)
    tensor([[1., 0.],
            [0., 1.]])
    """
    identity = torch.eye(len(covariance), dtype=s.dtype, device=s.device)
    with torch.no_grad():  # all at once: to look at the first result would make a GPU wait
        least = 1e-8 if s.dtype == torch.float64 else 1e-6
        powers = least * 10.0 ** torch.arange(JITTERS, dtype=s.dtype, device=s.device)
        jitters = F.pad(powers, (1, 0))
        tried = [covariance + jitters[:, None, None] * identity]
        if covariance.dtype != s.dtype:
            tried.append(tried[0].to(s.dtype))
        failed = sum(torch.linalg.cholesky_ex(each).info for each in tried) != 0
        jitter = jitters.masked_fill(failed, torch.inf).min()
    # `where`, not a product: the jitter is infinite if none of them is enough.
    factor = torch.linalg.cholesky_ex(covariance + torch.where(identity > 0, jitter, 0.0)).L
    flat = s.to(covariance.dtype).flatten(0, 1)
    flat = torch.linalg.solve_triangular(factor.mT, flat, upper=True, left=False)
    return flat.view_as(s).to(s.dtype)


def precise(s: Tensor) -> Tensor:
    """In double precision; Apple's GPUs have none.

    Products of float32 matrices on a GPU may keep ten bits (TF32). L⁻ᵀ would enlarge that so much
    that gradients point elsewhere, and these matrices are small.
    """
    return s if s.device.type == "mps" else s.double()
