"""An ablation of LNO: Transolver's Physics-Attention in place of Physics-Cross-Attention.

    f = MLP([x, u])                              features of the points
    w = softmax over latent positions(Slice(f))  how much of a point is in each soft slice
    z = Σₙ w f / Σₙ w                            encode: one token per slice
    z ← z + Attention(LN z);  z ← z + MLP(LN z)  L transformer blocks on tokens
    y = MLP(w · z)                               decode with the same weights

The weights depend on the values as well as on the positions. So there are none where nothing was
observed: it predicts at the observed points only. The LNO paper compares both in its Table 6; its
code has this form, with one linear layer as Slice.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from lno.data.fields import Spec
from lno.models.attention import SelfAttention
from lno.models.layers import MLP, TransformerBlock, full_precision, joined
from lno.models.model import ModelConfig
from lno.models.same_points import SamePointsModel
from lno.models.transolver import EPSILON


@dataclass(frozen=True)
class SlicedLNOConfig(ModelConfig):
    """Sizes of a SlicedLNO, with the names and defaults that LNO has.

    Args:
        width: the number of features of points and tokens.
        latents: the number of slices.
        blocks: the number of transformer blocks.
        heads: the number of attention heads of a block; divides the width.
        layers: the number of hidden layers of both MLPs on points.

    >>> SlicedLNOConfig(width=64).latents
    256
    """

    width: int = 128
    latents: int = 256
    blocks: int = 4
    heads: int = 8
    layers: int = 2


class SlicedLNO(SamePointsModel):
    """LNO with slices that depend on values: values at points in, values at the same points out.

    >>> config = SlicedLNOConfig(width=16, latents=8)
    >>> model = SlicedLNO(Spec(coordinates=2, in_channels=1, out_channels=3), config)
    >>> x, u = torch.rand(4, 50, 2), torch.rand(4, 50, 1)
    >>> model(x, u, x).shape
    torch.Size([4, 50, 3])
    """

    has_latents = True
    config: SlicedLNOConfig

    def __init__(self, spec: Spec, config: SlicedLNOConfig | None = None) -> None:
        super().__init__(spec, config)
        c, layers = self.config.width, self.config.layers
        self.branch = MLP(spec.coordinates + spec.in_channels, c, c, layers)
        self.slice = nn.Linear(c, self.config.latents, bias=False)
        self.blocks = nn.ModuleList(
            TransformerBlock(c, SelfAttention(c, self.config.heads))
            for _ in range(self.config.blocks)
        )
        self.head = MLP(c, c, spec.out_channels, layers)

    @classmethod
    def default_config(cls, spec: Spec) -> SlicedLNOConfig:
        return SlicedLNOConfig()

    def predict(
        self,
        x: Float[Tensor, "#b n d"],
        u: Float[Tensor, "b n i"],
        mask: Bool[Tensor, "b n"] | None = None,
    ) -> Float[Tensor, "b n o"]:
        f, weights = self._slices(x, u, mask)
        z = torch.einsum("bnm,bnc->bmc", weights, f.to(weights.dtype))
        z = z / (weights.sum(dim=1) + EPSILON)[..., None]
        for block in self.blocks:
            z = block(z)
        return self.head(torch.einsum("bnm,bmc->bnc", weights, z.to(weights.dtype)))

    def latent_weights(
        self,
        x: Float[Tensor, "#b n d"],
        u: Float[Tensor, "b n i"],
        x_query: Float[Tensor, "#b q d"],
        mask: Bool[Tensor, "b n"] | None = None,
    ) -> tuple[Float[Tensor, "b n m"], Float[Tensor, "b n m"]]:
        """What each latent position reads, and what each point reads of them; see `Model`."""
        self.check_points(x, u, x_query, mask)
        _, weights = self._slices(x, u, mask)
        return weights / weights.sum(dim=1, keepdim=True).clamp_min(EPSILON), weights

    def _slices(
        self, x: Tensor, u: Tensor, mask: Tensor | None
    ) -> tuple[Float[Tensor, "b n c"], Float[Tensor, "b n m"]]:
        """Features of the points, and how much of each is in each slice; nothing of padding."""
        f = self.branch(joined(x, u))
        with full_precision(f):
            weights = torch.softmax(self.slice(f.to(self.slice.weight.dtype)), dim=-1)
        return f, weights if mask is None else weights.masked_fill(~mask[..., None], 0.0)
