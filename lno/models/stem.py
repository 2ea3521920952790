"""The first layers of the models of Neural-Solver-Library: positions and values to features.

    f = MLP([p, u]) + placeholder + Linear(SiLU(Linear([cos s, sin s])))
    sₖ = T · 10000^(−k / ⌊D/2⌋),   k < ⌊D/2⌋

p are positions or, on 2-D grids, distances to a regular grid of reference points. The placeholder
is a learnt vector, the same at all points. The last term embeds the time T of the sample, in D
features. Each model says which of these it has. (Wu et al., thuml/Neural-Solver-Library, 2024)
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from lno.data.fields import Spec
from lno.models.layers import MLP, full_precision, joined


def reference_distances(
    grid: Sequence[int], count: int, like: Tensor | None = None
) -> Float[Tensor, "n r"]:
    """Distances from the points of a 2-D grid on the unit square to count × count points on it.

    Both grids are regular, include the boundary and are in C order.

    Args:
        grid: the numbers of points along the two axes.
        count: the number of reference points along each axis.
        like: a tensor with the dtype and device of the result.

    >>> reference_distances((3, 2), 2)[0]  # from the corner (0, 0) to the four corners
    tensor([0.0000, 1.0000, 1.0000, 1.4142])
    """
    like = torch.zeros(()) if like is None else like

    def ticks(number: int) -> Tensor:
        return torch.linspace(0, 1, number, dtype=like.dtype, device=like.device)

    squares = [(ticks(number)[:, None] - ticks(count)).square() for number in grid]
    return (squares[0][:, None, :, None] + squares[1][:, None, :]).sqrt().reshape(-1, count**2)


def time_features(times: Float[Tensor, " b"], width: int) -> Float[Tensor, "b c"]:
    """Cosines, then sines, of times at frequencies from 1 down to nearly 1/10000.

    >>> time_features(torch.tensor([0.0, 1.0]), 5).round(decimals=2)
    tensor([[1.0000, 1.0000, 0.0000, 0.0000, 0.0000],
            [0.5400, 1.0000, 0.8400, 0.0100, 0.0000]])
    """
    half = width // 2
    steps = torch.arange(half, dtype=times.dtype, device=times.device)
    angles = times[:, None] * torch.exp(-log(10000) * steps / half)
    return F.pad(torch.cat((angles.cos(), angles.sin()), dim=-1), (0, width % 2))


class Stem(nn.Module):
    """Features of points from their positions and values.

    Args:
        spec: the sizes of the data.
        width: the number of features.
        reference: the number of reference points along each axis; the distances to them replace
            positions. Needs data on a 2-D grid. None: use positions.
        time_input: the last input channel is the time of the sample, which is embedded. It is
            read at the first point.
        placeholder: add a learnt vector to all points.

    >>> stem = Stem(Spec(coordinates=2, in_channels=1, out_channels=1), width=16)
    >>> stem(torch.rand(1, 50, 2), torch.rand(4, 50, 1)).shape
    torch.Size([4, 50, 16])
    """

    def __init__(
        self,
        spec: Spec,
        width: int,
        reference: int | None = None,
        time_input: bool = False,
        placeholder: bool = False,
    ) -> None:
        super().__init__()
        if reference is not None and spec.plane is None:
            raise ValueError(
                f"reference points need data on a 2-D grid, got grid {spec.grid}: pass "
                "Fields(..., grid=(rows, columns)), or reference=None to use positions"
            )
        if time_input and spec.in_channels == 0:
            raise ValueError(
                "time_input: expected the time of the sample as the last input channel, got no "
                "input channels: pass task=Snapshots(times)"
            )
        self.grid, self.width, self.reference = spec.grid, width, reference
        self.values = spec.in_channels - time_input
        positions = spec.coordinates if reference is None else reference**2
        self.mlp = MLP(positions + self.values, 2 * width, width, layers=0)
        self.placeholder = nn.Parameter(torch.rand(width) / width) if placeholder else None
        self.time = (
            nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
            if time_input
            else None
        )

    def forward(
        self, x: Float[Tensor, "#b n d"], u: Float[Tensor, "b n i"]
    ) -> Float[Tensor, "b n c"]:
        """Features in full precision, even under autocast."""
        if self.reference is not None and self.grid is not None:
            x = reference_distances(self.grid, self.reference, like=u)[None]
        f = self.mlp(joined(x, u[..., : self.values]))
        if self.placeholder is not None:
            f = f + self.placeholder
        if self.time is not None:
            with full_precision(u):
                features = time_features(u[:, 0, -1], self.width)
                f = f + self.time(features.to(f.dtype))[:, None]
        return f
