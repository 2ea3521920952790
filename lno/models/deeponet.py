"""DeepONet (Lu et al., "Learning nonlinear operators via DeepONet", 2021), on scattered points.

    z = Embed([x, u])                                          one token per observed point
    z ← z + Attention(LN z);  z ← z + MLP(LN z)                L transformer blocks
    a = Linear(mean over points of z)                          coefficients (the branch)
    φ(x_query) = MLP(x_query)                                  basis functions (the trunk)
    y(x_query) = Σₖ aₖ φₖ(x_query) + bias                      for each output channel

The published branch reads values at fixed sensors. Here the number and place of observations differ
between samples, so the branch is a transformer, as in the LNO paper's comparison (4 blocks of width
128, a trunk of 3 fully connected layers). That paper says neither how tokens become coefficients
(here: by their mean, which works for any number of them) nor how many basis functions there are.
The trunk's inner layers are residual, as in every `MLP` of this package.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from lno.data.fields import Spec
from lno.models.attention import SelfAttention
from lno.models.layers import MLP, TransformerBlock, full_precision, joined, mean_token
from lno.models.model import Model, ModelConfig


@dataclass(frozen=True)
class DeepONetConfig(ModelConfig):
    """Sizes of a DeepONet. The defaults are the LNO paper's for inverse problems, where given.

    Args:
        width: the number of features of tokens and of the trunk.
        blocks: the number of transformer blocks of the branch.
        heads: the number of attention heads of a block; divides the width.
        layers: the number of fully connected layers of the trunk, including the first and last.
        basis: the number of basis functions of each output channel.

    >>> DeepONetConfig(width=64).basis
    128
    """

    width: int = 128
    blocks: int = 4
    heads: int = 8
    layers: int = 3
    basis: int = 128

    limits: ClassVar[Mapping[str, tuple[int, int]]] = {"layers": (2, 64)}


class DeepONet(Model):
    """DeepONet: values at any points in, values at any points out.

    >>> model = DeepONet(Spec(coordinates=2, in_channels=1, out_channels=3))
    >>> x, u, x_query = torch.rand(4, 50, 2), torch.rand(4, 50, 1), torch.rand(4, 7, 2)
    >>> model(x, u, x_query).shape
    torch.Size([4, 7, 3])
    """

    config: DeepONetConfig

    def __init__(self, spec: Spec, config: DeepONetConfig | None = None) -> None:
        super().__init__(spec, config)
        c, functions = self.config.width, spec.out_channels * self.config.basis
        self.embed = nn.Linear(spec.coordinates + spec.in_channels, c)
        self.blocks = nn.ModuleList(
            TransformerBlock(c, SelfAttention(c, self.config.heads))
            for _ in range(self.config.blocks)
        )
        self.coefficients = nn.Linear(c, functions)
        self.trunk = MLP(spec.coordinates, c, functions, self.config.layers - 2)
        self.bias = nn.Parameter(torch.zeros(spec.out_channels))

    @classmethod
    def default_config(cls, spec: Spec) -> DeepONetConfig:
        return DeepONetConfig()

    def forward(
        self,
        x: Float[Tensor, "#b n d"],
        u: Float[Tensor, "b n i"],
        x_query: Float[Tensor, "#b q d"],
        mask: Bool[Tensor, "b n"] | None = None,
    ) -> Float[Tensor, "b q o"]:
        """Predict at x_query from the values u observed at x; see `Model.forward`."""
        a, phi = self.branch(x, u, mask), self.basis(x_query)
        with full_precision(a):
            if phi.shape[0] == 1:  # all samples share their queries
                return torch.einsum("qok,bok->bqo", phi[0], a) + self.bias
            return torch.einsum("bqok,bok->bqo", phi, a) + self.bias

    def branch(
        self,
        x: Float[Tensor, "#b n d"],
        u: Float[Tensor, "b n i"],
        mask: Bool[Tensor, "b n"] | None = None,
    ) -> Float[Tensor, "b o k"]:
        """Coefficients of the basis functions, in full precision even under autocast."""
        points = joined(x, u)
        with full_precision(points):
            z = self.embed(points.to(self.embed.weight.dtype))
        for block in self.blocks:
            z = block(z, mask)
        with full_precision(z):
            z = z.to(self.coefficients.weight.dtype)
            a = self.coefficients(mean_token(z, mask))
        return a.unflatten(-1, (self.spec.out_channels, -1))

    def basis(self, x_query: Float[Tensor, "b q d"]) -> Float[Tensor, "b q o k"]:
        """Values of the basis functions, in full precision even under autocast."""
        return self.trunk(x_query).unflatten(-1, (self.spec.out_channels, -1))
