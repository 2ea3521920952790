"""FactFormer (Li, Shu & Barati Farimani, "Scalable Transformer for PDE Surrogate Modeling", 2023).

    f = Stem(x, u)                                      features of the points of an H × W grid
    f ← f + Attention(LN f);  f ← f + MLP(LN f)         L blocks
    y = Linear(LN f)

    rᵢ = MLP(LN(Linear(meanⱼ fᵢⱼ))),  cⱼ = MLP(LN(Linear(meanᵢ fᵢⱼ)))   of rows and columns
    A = softmax(r Qr (r Kr)ᵀ / √e),   B = softmax(c Qc (c Kc)ᵀ / √e)    in each head, e wide
    Attention = Output(Σᵢ′ⱼ′ Aᵢᵢ′ Bⱼⱼ′ V fᵢ′ⱼ′)

One attention matrix for each axis, from means over the other axis, replaces that between all pairs
of points: it takes time N (H + W), not N². The matrices Q, K and V are shared by all heads.

This is the form of the published library (thuml/Neural-Solver-Library). Compared with the authors'
code, it has a softmax and no rotary embedding, no gated activation and no enlarged kernel.

Distances to a regular grid of reference points can replace positions. With `time_input` the time is
embedded (`Stem`). It needs a 2-D grid and predicts at its points only; its weights do not depend on
the grid.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from lno.data.fields import Spec
from lno.models.layers import MLP, TransformerBlock, full_precision, initialise_linear, read_out
from lno.models.model import ModelConfig
from lno.models.same_points import SamePointsModel
from lno.models.stem import Stem


@dataclass(frozen=True)
class FactFormerConfig(ModelConfig):
    """Sizes of a FactFormer. The defaults are the library's for Darcy.

    Args:
        width: the number of features of a point.
        layers: the number of blocks.
        heads: the number of heads of a block; divides the width.
        mlp_ratio: hidden features of a block's MLP, in multiples of the width.
        reference: the number of reference points along each axis; the distances to them replace
            positions. None: use positions.
        time_input: the last input channel is the time of the sample, which is embedded.

    >>> FactFormerConfig(width=32, mlp_ratio=1).reference
    8
    """

    width: int = 128
    layers: int = 8
    heads: int = 8
    mlp_ratio: int = 2
    reference: int | None = 8
    time_input: bool = False

    limits: ClassVar[Mapping[str, tuple[int, int]]] = {
        "layers": (1, 512),
        "mlp_ratio": (1, 64),
        "reference": (1, 256),
    }


class AxisKernel(nn.Module):
    """Attention between the rows (or columns) of a grid, from the mean of each over its points.

    >>> kernel = AxisKernel(width=16, heads=4)
    >>> weights = kernel(torch.rand(2, 5, 16))
    >>> weights.shape, bool(torch.allclose(weights.sum(-1), torch.ones(2, 4, 5)))
    (torch.Size([2, 4, 5, 5]), True)
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.input, self.norm = nn.Linear(width, width, bias=False), nn.LayerNorm(width)
        self.mlp = MLP(width, width, width, layers=1)
        self.query_key = nn.Linear(width // heads, 2 * width // heads, bias=False)

    def forward(self, means: Float[Tensor, "b l c"]) -> Float[Tensor, "b h l l"]:
        """Weights that sum to one, in full precision even under autocast: there are few."""
        with full_precision(means):
            summary = self.mlp(self.norm(self.input(means))).unflatten(-1, (self.heads, -1))
            q, k = self.query_key(summary).chunk(2, dim=-1)
            scores = torch.einsum("blhe,bkhe->bhlk", q, k) * q.shape[-1] ** -0.5
            return torch.softmax(scores, dim=-1)


class FactorizedAttention(nn.Module):
    """Attention between the points of a 2-D grid, along one axis and then along the other.

    >>> FactorizedAttention(width=16, heads=4, grid=(5, 6))(torch.rand(2, 30, 16)).shape
    torch.Size([2, 30, 16])
    """

    def __init__(self, width: int, heads: int, grid: tuple[int, ...]) -> None:
        super().__init__()
        self.heads, self.grid = heads, grid
        self.rows, self.columns = AxisKernel(width, heads), AxisKernel(width, heads)
        self.value = nn.Linear(width // heads, width // heads, bias=False)
        self.output = nn.Linear(width, width)

    def forward(
        self, f: Float[Tensor, "b n c"], mask: Bool[Tensor, "b n"] | None = None
    ) -> Float[Tensor, "b n c"]:
        image = f.unflatten(1, self.grid)
        # A linear layer without bias commutes with the mean, and is cheaper after it.
        whole = image.to(self.output.weight.dtype)
        rows, columns = self.rows(whole.mean(dim=2)), self.columns(whole.mean(dim=1))
        v = self.value(image.unflatten(-1, (self.heads, -1)))
        v = torch.einsum("bhik,bkjhe->bijhe", rows.to(v.dtype), v)
        v = torch.einsum("bhjk,bikhe->bijhe", columns.to(v.dtype), v)
        return self.output(v.flatten(3).flatten(1, 2))


class FactFormer(SamePointsModel):
    """FactFormer: values on a 2-D grid in, values on the same grid out.

    >>> config = FactFormerConfig(width=16, layers=2)
    >>> model = FactFormer(Spec(coordinates=2, in_channels=1, out_channels=3, grid=(5, 6)), config)
    >>> x, u = torch.rand(4, 30, 2), torch.rand(4, 30, 1)
    >>> model(x, u, x).shape
    torch.Size([4, 30, 3])
    """

    needs_grid = True
    embeds_time = True
    config: FactFormerConfig

    def __init__(self, spec: Spec, config: FactFormerConfig | None = None) -> None:
        super().__init__(spec, config)
        grid = self.require_plane()
        c, heads, ratio = self.config.width, self.config.heads, self.config.mlp_ratio
        self.stem = Stem(spec, c, self.config.reference, self.config.time_input, placeholder=True)
        self.blocks = nn.ModuleList(
            TransformerBlock(c, FactorizedAttention(c, heads, grid), ratio)
            for _ in range(self.config.layers)
        )
        self.norm, self.head = nn.LayerNorm(c), nn.Linear(c, spec.out_channels)
        initialise_linear(self)

    @classmethod
    def default_config(cls, spec: Spec) -> FactFormerConfig:
        return FactFormerConfig()

    def predict(
        self,
        x: Float[Tensor, "#b n d"],
        u: Float[Tensor, "b n i"],
        mask: Bool[Tensor, "b n"] | None = None,
    ) -> Float[Tensor, "b n o"]:
        f = self.stem(x, u)
        for block in self.blocks:
            f = block(f)
        return read_out(self.norm, self.head, f)
