"""The Galerkin Transformer (Cao, "Choose a Transformer: Fourier or Galerkin", NeurIPS 2021).

    f = Stem(x, u)                                      features of the points
    f ← f + Attention(LN f, LN′ f);  f ← f + MLP(LN f)  L blocks
    y = Linear(LN f)

    q̃ = softmax over features(q),  k̃ = softmax over features(k)         in each head
    Attention = Output(q̃ · (1/N) Σₙ k̃ₙ vₙᵀ + q̃)                         queries from LN f,
                                                                        keys and values from LN′ f

This is the form of the published library (thuml/Neural-Solver-Library), which the benchmarks of
neural operators use: keys and queries are normalised by a softmax, the queries are added to what
they read, and the decoder is linear. The attention is a mean over points: it takes time linear in
their number N and, of a padded batch, counts the real points of each sample.

On 2-D grids, distances to a regular grid of reference points can replace positions. With
`time_input` the time is embedded (`Stem`). It predicts at the observed points only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from lno.data.fields import Spec
from lno.models.layers import TransformerBlock, full_precision, initialise_linear, read_out
from lno.models.model import ModelConfig
from lno.models.same_points import SamePointsModel
from lno.models.stem import Stem


@dataclass(frozen=True)
class GalerkinConfig(ModelConfig):
    """Sizes of a Galerkin Transformer. The defaults are the library's for Darcy.

    Args:
        width: the number of features of a point.
        layers: the number of blocks.
        heads: the number of heads of a block; divides the width.
        mlp_ratio: hidden features of a block's MLP, in multiples of the width.
        reference: the number of reference points along each axis; the distances to them replace
            positions. Needs data on a 2-D grid. None: use positions.
        time_input: the last input channel is the time of the sample, which is embedded.

    >>> GalerkinConfig(width=256).reference
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


class GalerkinAttention(nn.Module):
    """Linear attention between points; queries and keys are softmaxes over their features.

    >>> GalerkinAttention(width=16, heads=4)(torch.rand(2, 30, 16)).shape
    torch.Size([2, 30, 16])
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key_value = nn.Linear(width, width), nn.Linear(width, 2 * width)
        self.output = nn.Linear(width, width)

    def forward(
        self,
        f: Float[Tensor, "b n c"],
        mask: Bool[Tensor, "b n"] | None = None,
        queries: Float[Tensor, "b n c"] | None = None,
    ) -> Float[Tensor, "b n c"]:
        """What each point reads from all points, or from those where the mask is True.

        Args:
            f: features that give keys and values.
            mask: True where a point is real.
            queries: features that give queries. None: the same.
        """
        q = self.query(f if queries is None else queries).unflatten(-1, (self.heads, -1))
        k, v = self.key_value(f).unflatten(-1, (2, self.heads, -1)).unbind(-3)
        with full_precision(f):  # sums over thousands of points
            dtype = torch.promote_types(v.dtype, torch.float32)
            q, k = (torch.softmax(w, dim=-1, dtype=dtype) for w in (q, k))
            context = mean_outer(k, v.to(dtype), mask)
            heads = torch.einsum("bnhe,bhef->bnhf", q, context) + q
        return self.output(heads.flatten(2).to(v.dtype))


def mean_outer(
    k: Float[Tensor, "b n h e"],
    v: Float[Tensor, "b n h f"],
    mask: Bool[Tensor, "b n"] | None = None,
) -> Float[Tensor, "b h e f"]:
    """The mean of kₙ vₙᵀ over the points of each sample, or over those where the mask is True.

    >>> k, v = torch.tensor([2.0, 5.0]), torch.tensor([3.0, 7.0])
    >>> mean_outer(k.view(1, 2, 1, 1), v.view(1, 2, 1, 1)).item()
    20.5
    """
    if mask is None:
        return torch.einsum("bnhe,bnhf->bhef", k, v) / k.shape[1]
    k = k.masked_fill(~mask[..., None, None], 0.0)
    return torch.einsum("bnhe,bnhf->bhef", k, v) / mask.sum(dim=1)[:, None, None, None]


class GalerkinBlock(TransformerBlock):
    """A block whose keys and values come from a second norm of the same features.

    >>> GalerkinBlock(GalerkinConfig(width=16, heads=4))(torch.rand(2, 30, 16)).shape
    torch.Size([2, 30, 16])
    """

    def __init__(self, config: GalerkinConfig) -> None:
        c = config.width
        super().__init__(c, GalerkinAttention(c, config.heads), config.mlp_ratio)
        self.norm_keys = nn.LayerNorm(c)

    def forward(
        self, f: Float[Tensor, "b n c"], mask: Bool[Tensor, "b n"] | None = None
    ) -> Float[Tensor, "b n c"]:
        f = f + self.attention(self.norm_keys(f), mask, queries=self.norm_attention(f))
        return f + self.down(F.gelu(self.up(self.norm_mlp(f))))


class Galerkin(SamePointsModel):
    """The Galerkin Transformer: values at points in, values at the same points out.

    >>> config = GalerkinConfig(width=16, layers=2, reference=None)
    >>> model = Galerkin(Spec(coordinates=2, in_channels=1, out_channels=3), config)
    >>> x, u = torch.rand(4, 50, 2), torch.rand(4, 50, 1)
    >>> model(x, u, x).shape
    torch.Size([4, 50, 3])
    """

    embeds_time = True
    config: GalerkinConfig

    def __init__(self, spec: Spec, config: GalerkinConfig | None = None) -> None:
        super().__init__(spec, config)
        c, reference = self.config.width, self.config.reference
        self.needs_grid = reference is not None
        self.stem = Stem(spec, c, reference, self.config.time_input, placeholder=True)
        self.blocks = nn.ModuleList(GalerkinBlock(self.config) for _ in range(self.config.layers))
        self.norm, self.head = nn.LayerNorm(c), nn.Linear(c, spec.out_channels)
        initialise_linear(self)

    @classmethod
    def default_config(cls, spec: Spec) -> GalerkinConfig:
        """The library's sizes; without a 2-D grid, with positions."""
        return GalerkinConfig() if spec.plane else GalerkinConfig(reference=None)

    def predict(
        self,
        x: Float[Tensor, "#b n d"],
        u: Float[Tensor, "b n i"],
        mask: Bool[Tensor, "b n"] | None = None,
    ) -> Float[Tensor, "b n o"]:
        f = self.stem(x, u)
        for block in self.blocks:
            f = block(f, mask)
        return read_out(self.norm, self.head, f)
