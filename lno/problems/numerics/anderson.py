"""Anderson acceleration of fixed-point iterations, for a batch of independent problems."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float
from torch import Tensor

REGULARISATION = 1e-8  # relative to the largest difference of residuals


class Anderson:
    """Finds x = g(x) from pairs (x, g(x)): a combination of the last values of g.

    The combination is the one whose residual g(x) − x, taken as linear, has the least norm. Where
    slow modes are few, as in flows near their steady state, this removes them.

    Args:
        depth: how many earlier pairs to combine.

    >>> mix, x = Anderson(depth=2), torch.ones(1, 2, dtype=torch.float64)
    >>> g = lambda x: x * torch.tensor([0.9, 0.99]) + 1  # linear, with fixed point (10, 100)
    >>> for _ in range(4):
    ...     x = mix(x, g(x))
    >>> x.round(decimals=2).tolist()  # 1000 plain iterations would leave 100.0 at 99.996
    [[10.0, 100.0]]
    """

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._values: list[Tensor] = []
        self._residuals: list[Tensor] = []
        self._usable: list[Tensor] = []  # by which samples

    def __call__(
        self, x: Float[Tensor, "b n"], value: Float[Tensor, "b n"]
    ) -> Float[Tensor, "b n"]:
        """The next point to evaluate g at, from a point and its value."""
        value = value.clone()  # the caller may go on in place
        last = value - x
        if not self._values:
            self._append(value, last)
            return value
        values = torch.stack([value - earlier for earlier in self._values], 1)
        residuals = torch.stack([last - earlier for earlier in self._residuals], 1)
        gram = torch.einsum("bkn,bln->bkl", residuals, residuals)
        right = torch.einsum("bkn,bn->bk", residuals, last)
        # Pairs that are not used have rows of zeros, and with them a part of zero.
        usable = torch.stack(self._usable, 1)
        gram = torch.where(usable[:, :, None] & usable[:, None, :], gram, 0.0)
        right = torch.where(usable, right, 0.0)[:, :, None]
        scale = gram.diagonal(dim1=1, dim2=2).amax(1)[:, None, None]
        # A sample that does not change any more has a matrix of zeros, and needs no correction.
        safe = torch.where(scale > 0, scale, 1.0)
        ridge = REGULARISATION * torch.eye(len(self._values), dtype=x.dtype, device=x.device)
        part = torch.linalg.solve_ex(gram / safe + ridge, right / safe)[0][:, :, 0]
        self._append(value, last)
        return value - torch.einsum("bk,bkn->bn", part, values)

    def restart(self, samples: Bool[Tensor, " b"]) -> None:
        """Forget all pairs of some samples but the last one."""
        self._usable = [usable & ~samples for usable in self._usable[:-1]] + self._usable[-1:]

    def _append(self, value: Tensor, last: Tensor) -> None:
        usable = torch.ones_like(value[:, 0], dtype=torch.bool)
        self._values = [*self._values, value][-self._depth :]
        self._residuals = [*self._residuals, last][-self._depth :]
        self._usable = [*self._usable, usable][-self._depth :]
