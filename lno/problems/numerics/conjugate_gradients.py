"""Preconditioned conjugate gradients for a batch of systems, each stopped by itself."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

CHECK = 4  # iterations between looks at the device, each of which waits for it


def conjugate_gradients(
    apply: Callable[[Tensor], Tensor],
    precondition: Callable[[Tensor], Tensor],
    b: Tensor,
    tolerance: float,
    most: int = 400,
) -> tuple[Tensor, Tensor]:
    """Solve A x = b for fields b (s, n, n), with P ≈ A⁻¹; A and P are symmetric and positive.

    A sample stops where (r·Pr)½ ≤ tolerance · (b·Pb)½ for its residual r. If the eigenvalues of PA
    lie in [low, high], its relative error is then at most (high/low)½ · tolerance in the energy
    norm. A sample that has stopped does not change any more, whatever the others need.

    Returns:
        The solutions (s, n, n) and the number of iterations of each sample (s,).

    >>> x, iterations = conjugate_gradients(lambda x: 3 * x, lambda r: r, torch.ones(2, 4, 4), 1e-6)
    >>> x[0, 0, 0].item(), iterations.tolist()
    (0.3333333432674408, [1, 1])
    """
    x, r = torch.zeros_like(b), b
    p = precondition(r)
    rz = _dot(r, p)
    enough = tolerance**2 * rz
    active = ~(rz <= enough)  # what is not a number has not converged
    iterations = torch.zeros_like(active, dtype=torch.int64)
    for k in range(most):
        q = apply(p)
        step = torch.where(active, rz / _dot(p, q), 0)
        x = x + step * p
        r = r - step * q
        z = precondition(r)
        rz, before = _dot(r, z), rz
        p = z + torch.where(active, rz / before, 0) * p
        iterations += active
        active = active & ~(rz <= enough)
        if k % CHECK == CHECK - 1 and not active.any():
            return x, iterations[:, 0, 0]
    raise RuntimeError(
        f"{int(active.sum())} of {len(b)} systems have not converged to {tolerance:g} after {most} "
        "iterations: expected a positive definite system and finite values"
    )


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """Inner products (s, 1, 1) of fields; by rows first, which fixes the order of the sum."""
    return (a * b).sum(-1, keepdim=True).sum(-2, keepdim=True)
