"""Direct solution of block-tridiagonal systems, for a batch of them at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

LEAF = 64  # the largest matrix that is factorised with pivoting


class BlockRow(NamedTuple):
    """One row of blocks: lower x_{k−1} + diagonal x_k + upper x_{k+1} = rhs.

    Args:
        lower: None in the first row.
        diagonal: square; the size may differ between rows.
        upper: None in the last row.
        rhs: the right-hand side, a matrix of one column.
    """

    lower: Float[Tensor, "b m before"] | None
    diagonal: Float[Tensor, "b m m"]
    upper: Float[Tensor, "b m after"] | None
    rhs: Float[Tensor, "b m 1"]


def solve_block_tridiagonal(rows: Iterable[BlockRow]) -> list[Float[Tensor, "b _"]]:
    """The solution x_0, x_1, … by block Gaussian elimination.

    The rows are used one after the other. A generator can build each of them when it is needed, so
    that the whole matrix is never in memory. What is kept of a row is D⁻¹ times its upper block.

    Pivots are sought only inside small blocks on the diagonal, see `solve_dense`, so the leading
    parts of the matrix that end with such a block must be regular. A singular block gives
    infinities or NaN, not an error, because an error would make the host wait for the GPU at every
    row: check the residual.

    >>> one = torch.ones(1, 1, 1)
    >>> rows = [BlockRow(None, 2 * one, -one, one), BlockRow(-one, 2 * one, None, one)]
    >>> [x.item() for x in solve_block_tridiagonal(rows)]
    [1.0, 1.0]
    """
    kept: list[tuple[Tensor, Tensor]] = []  # x_k = y_k − W_k x_{k+1}
    for lower, diagonal, upper, rhs in rows:
        if lower is not None:
            w, y = kept[-1]
            diagonal = torch.baddbmm(diagonal, lower, w, alpha=-1)
            rhs = torch.baddbmm(rhs, lower, y, alpha=-1)
        right = rhs if upper is None else torch.cat((upper, rhs), dim=-1)
        solved = solve_dense(diagonal, right)
        kept.append((solved[..., :-1], solved[..., -1:]))
    solution = [kept.pop()[1]]
    while kept:
        w, y = kept.pop()
        solution.append(torch.baddbmm(y, w, solution[-1], alpha=-1))
    return [x[..., 0] for x in reversed(solution)]


def solve_dense(a: Float[Tensor, "b m m"], right: Float[Tensor, "b m k"]) -> Float[Tensor, "b m k"]:
    """A⁻¹ B by block elimination: matrices of at most `LEAF` are factorised with partial pivoting.

    Halving a matrix leaves nearly all of the work to matrix products. Batches of factorisations are
    slow on a GPU unless the matrices are small.

    >>> solve_dense(2 * torch.eye(200)[None], torch.ones(1, 200, 1)).mean().item()
    0.5
    """
    m = a.shape[-1]
    if m <= LEAF:
        factors, pivots, _ = torch.linalg.lu_factor_ex(a)
        return torch.linalg.lu_solve(factors, pivots, right)
    h = m // 2
    top = solve_dense(a[:, :h, :h], torch.cat((a[:, :h, h:], right[:, :h]), dim=-1))
    rest = torch.cat((a[:, h:, h:], right[:, h:]), dim=-1)
    rest = torch.baddbmm(rest, a[:, h:, :h], top, alpha=-1)
    low = solve_dense(rest[..., : m - h], rest[..., m - h :])
    high = torch.baddbmm(top[..., m - h :], top[..., : m - h], low, alpha=-1)
    return torch.cat((high, low), dim=1)
