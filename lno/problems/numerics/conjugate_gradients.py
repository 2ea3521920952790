"""Preconditioned conjugate gradients for a batch of systems, each with its own stopping test."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor

CHECK = 4  # iterations between stopping tests on the host, which wait for the GPU


def conjugate_gradients(
    apply: Callable[[Tensor], Tensor],
    precondition: Callable[[Tensor], Tensor],
    b: Float[Tensor, "s n n"],
    tolerance: float,
    most: int = 400,
) -> tuple[Float[Tensor, "s n n"], Int[Tensor, " s"]]:
    """Solve A x = b for a batch of fields b, with A and P ≈ A⁻¹ symmetric positive definite.

    A sample has converged when (r·Pr)½ ≤ tolerance · (b·Pb)½ for its residual r. If the eigenvalues
    of PA lie in [low, high], its relative error in the energy norm is then at most
    (high/low)½ · tolerance. A converged sample no longer changes while the others go on.

    Args:
        apply: x ↦ A x.
        precondition: r ↦ P r.
        b: the right-hand sides.
        tolerance: of the residual, see above.
        most: iterations after which to give up.

    Returns:
        The solutions, and the number of iterations of each sample.

    >>> x, iterations = conjugate_gradients(lambda x: 3 * x, lambda r: r, torch.ones(2, 4, 4), 1e-6)
    >>> x[0, 0, 0].item(), iterations.tolist()
    (0.3333333432674408, [1, 1])
    """
    x, r = torch.zeros_like(b), b
    p = precondition(r)
    rz = _dot(r, p)
    enough = tolerance**2 * rz
    active = ~(rz <= enough)  # written so that NaN counts as not converged
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


def _dot(a: Float[Tensor, "s n n"], b: Float[Tensor, "s n n"]) -> Float[Tensor, "s 1 1"]:
    """Inner products; rows are summed first, so the order does not depend on the batch."""
    return (a * b).sum(-1, keepdim=True).sum(-2, keepdim=True)
