"""Muon's direction: matrices with their singular values near one, of several shapes at once."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

# Newton–Schulz iteration with the coefficients of Muon's authors.
NEWTON_SCHULZ, ITERATIONS = (3.4445, -4.7750, 2.0315), 5


def stacks(shapes: Sequence[torch.Size], most: float) -> list[list[int]]:
    """Which matrices (k, rows, columns) are padded to one size and orthogonalised together.

    On a GPU each operation on small matrices takes about as long as one on many: fewer is faster.

    Args:
        shapes: of the matrices.
        most: how many times longer either side of a matrix may become. 1: no padding.

    >>> stacks([torch.Size(s) for s in ((2, 128, 18), (9, 128, 128), (8, 128, 384))], 4.0)
    [[0], [1, 2]]
    """
    found: list[list[int]] = []
    sides = [sorted(shape[1:]) for shape in shapes]
    for k in sorted(range(len(shapes)), key=lambda k: sides[k]):
        joined = [*found[-1], k] if found else [k]
        pairs = zip(*(sides[j] for j in joined), strict=True)
        if most > 1 and found and all(max(side) <= most * min(side) for side in pairs):
            found[-1] = joined
        else:
            found.append([k])
    return found


def orthogonal_together(matrices: Sequence[Tensor]) -> list[Tensor]:
    """`orthogonal` of matrices (k, rows, columns) of several shapes, padded to one.

    Rows and columns of zeros stay zero in the iteration and change nothing else.

    >>> pair = torch.rand(2, 30, 20), torch.rand(1, 20, 40)
    >>> [m.shape for m in orthogonal_together(pair)]
    [torch.Size([2, 30, 20]), torch.Size([1, 20, 40])]
    """
    if len(matrices) == 1:
        return [orthogonal(matrices[0])]
    wide = [m.mT if m.shape[-2] > m.shape[-1] else m for m in matrices]
    counts = [len(m) for m in wide]
    rows, columns = (max(m.shape[axis] for m in wide) for axis in (-2, -1))
    size, like = (sum(counts), rows, columns), matrices[0]
    stack = torch.zeros(size, dtype=_iterated(like.dtype), device=like.device)
    for part, m in zip(stack.split(counts), wide, strict=True):
        part[:, : m.shape[-2], : m.shape[-1]] = m
    found = orthogonal(stack).to(like.dtype).split(counts)
    cut = [f[:, : m.shape[-2], : m.shape[-1]] for f, m in zip(found, wide, strict=True)]
    return [c if c.shape == m.shape else c.mT for c, m in zip(cut, matrices, strict=True)]


def orthogonal(matrices: Tensor) -> Tensor:
    """Approximately U Vᵀ of each matrix U Σ Vᵀ (..., rows, columns), by Newton–Schulz.

    Float32 matrices are iterated in bfloat16: the iteration corrects its own rounding errors.
    """
    a, b, c = NEWTON_SCHULZ
    x = matrices.to(_iterated(matrices.dtype))
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    shape = x.shape
    x = x.reshape(-1, *shape[-2:])
    x = x / x.norm(dim=(-2, -1), keepdim=True).clamp(min=1e-7)
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    x = x.view(shape)
    return (x.mT if tall else x).to(matrices.dtype)


def _iterated(dtype: torch.dtype) -> torch.dtype:
    return torch.bfloat16 if dtype == torch.float32 else dtype
