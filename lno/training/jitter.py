"""Training at points between those of a grid.

A model that is trained at the points of one grid alone may predict anything between them, and
does: most of all next to the boundary, within the first spacing. So in each step every point of the
grid moves by a random part of a spacing, and positions, inputs and outputs there are interpolated
from its neighbours by a parabola along each axis. The error of the interpolation is one of the
data, not of the model: it is small where the grid resolves the fields.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from lno.data import Batch, Spec

AT_ONCE = 2**27  # numbers that are gathered from neighbours, half a gigabyte
INTERPOLATED = ("x", "u", "y", "background", "observed_background")


def jittered(
    batch: Batch,
    spec: Spec,
    reach: float,
    generator: torch.Generator,
) -> Batch:
    """The batch at points near those of its grid, the same in every sample.

    A point moves by up to `reach` spacings along each axis, times an amplitude from 0 to 1 that is
    drawn for the step: some steps are nearly on the grid. No point leaves the domain.

    Args:
        batch: samples on a grid, whose query points are the observed points.
        spec: of the data, which says what the grid is. Periodic axes go round: beyond the last
            point comes the first.
        reach: the largest move of a point along an axis, in spacings.
        generator: on the CPU.

    >>> x = torch.linspace(0, 1, 11).view(1, 11, 1)
    >>> moved = jittered(Batch(x, 3 * x, x, x**2), Spec(1, 1, 1, (11,)), 0.5, torch.Generator())
    >>> moved.x_query is moved.x, bool((moved.x != x).any())
    (True, True)
    >>> torch.allclose(moved.u, 3 * moved.x), torch.allclose(moved.y, moved.x**2)
    (True, True)
    """
    grid = spec.grid or ()
    periodic = spec.periodic or (False,) * len(grid)
    amplitude, points = torch.rand((), generator=generator), batch.x.shape[1]
    moves = reach * amplitude * (2 * torch.rand(points, len(grid), generator=generator) - 1)
    sources, shares = stencils(moves.to(batch.x.device, non_blocking=True), grid, periodic)

    def interpolated(values: Tensor) -> Tensor:
        each = max(1, AT_ONCE // (values[:, :1].numel() * sources.shape[1] or 1))
        pairs = zip(sources.split(each), shares.to(values.dtype).split(each), strict=True)
        return torch.cat([torch.einsum("bnkc,nk->bnc", values[:, s], w) for s, w in pairs], dim=1)

    moved = batch.each(interpolated, INTERPOLATED)
    return replace(moved, x_query=moved.x)


def stencils(
    moves: Float[Tensor, "n d"], grid: Sequence[int], periodic: Sequence[bool]
) -> tuple[Int[Tensor, "n k"], Float[Tensor, "n k"]]:
    """The points that values at moved points of a grid are interpolated from, and their shares.

    Along each axis these are a point and its two neighbours, or the last three of the axis.

    >>> sources, shares = stencils(torch.tensor([[0.5], [0.0], [-0.5]]), (3,), (False,))
    >>> sources.tolist(), shares.tolist()[:2]
    ([[0, 1, 2], [0, 1, 2], [0, 1, 2]], [[0.375, 0.75, -0.125], [-0.0, 1.0, 0.0]])
    """
    axes = [torch.arange(size, device=moves.device) for size in grid]
    start = torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1).view(len(moves), -1)
    sources, shares = start.new_zeros(len(moves), 1), moves.new_ones(len(moves), 1)
    for axis, (size, wraps) in enumerate(zip(grid, periodic, strict=True)):
        place, middle = start[:, axis] + moves[:, axis], start[:, axis]
        if not wraps:
            place, middle = place.clamp(0, size - 1), middle.clamp(1, max(1, size - 2))
        t = (place - middle)[:, None]
        if size > 2:
            neighbours = torch.arange(-1, 2, device=moves.device)
            parts = torch.cat((t * (t - 1) / 2, 1 - t * t, t * (t + 1) / 2), dim=-1)
        else:  # a line, or a single point
            neighbours = torch.arange(-1, 1, device=moves.device)
            parts = torch.cat((-t, 1 + t), dim=-1)
        along = (middle[:, None] + neighbours).remainder(size)
        sources = (size * sources[:, :, None] + along[:, None]).flatten(1)
        shares = (shares[:, :, None] * parts[:, None]).flatten(1)
    return sources, shares
