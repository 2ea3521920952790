"""DeepONet (Lu et al., "Learning nonlinear operators via DeepONet", 2021), on scattered points.

    z = Embed([x, u])                                          a token for each observed point
    z ← z + Attention(LN z);  z ← z + MLP(LN z)                L blocks, attention between tokens
    a = Linear(mean over points of z)                          coefficients: the branch
    φ(x_query) = MLP(x_query)                                  basis functions: the trunk
    y(x_query) = Σₖ aₖ φₖ(x_query) + bias                      for each output channel

The published branch reads values at fixed sensors. Here observations differ in number and place
from sample to sample, so it is the transformer on tokens that the LNO paper compares with (4 blocks
of width 128, a trunk of 3 fully connected layers). That paper does not say how tokens become
coefficients (here: their mean, whose size does not depend on how many there are), nor the number of
basis functions. The trunk's inner layers are residual, as in every `MLP` of this package.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from lno.config import require_count, require_heads
from lno.data.fields import Spec
from lno.models.lno import MLP, LatentBlock, full_precision, mean_token


@dataclass(frozen=True)
class DeepONetConfig:
    """Sizes of a DeepONet; the defaults are the LNO paper's for inverse problems, where it says.

    Args:
        width: the number of features of tokens and of the trunk.
        blocks: the number of transformer blocks of the branch.
        heads: the heads of their attention; divides the width.
        layers: fully connected layers of the trunk, the first and the last among them.
        basis: basis functions of each output channel.

    >>> DeepONetConfig(width=64).basis
    128
    """

    width: int = 128
    blocks: int = 4
    heads: int = 8
    layers: int = 3
    basis: int = 128

    def __post_init__(self) -> None:
        for name, most in (("width", 8192), ("blocks", 512), ("basis", 65536)):
            require_count(f"DeepONetConfig.{name}", getattr(self, name), most)
        require_count("DeepONetConfig.layers", self.layers, 64, least=2)
        require_heads("DeepONetConfig", self.heads, self.width)


class DeepONet(nn.Module):
    """DeepONet: values at any points in, values at any points out, one by one.

    Positions may have a batch axis of one when all samples share them.

    >>> model = DeepONet(Spec(coordinates=2, in_channels=1, out_channels=3))
    >>> x, u, x_query = torch.rand(4, 50, 2), torch.rand(4, 50, 1), torch.rand(4, 7, 2)
    >>> model(x, u, x_query).shape
    torch.Size([4, 7, 3])
    """

    def __init__(self, spec: Spec, config: DeepONetConfig | None = None) -> None:
        super().__init__()
        self.spec, self.config = spec, config or DeepONetConfig()
        c, functions = self.config.width, spec.out_channels * self.config.basis
        self.embed = nn.Linear(spec.coordinates + spec.in_channels, c)
        self.blocks = nn.ModuleList(
            LatentBlock(c, self.config.heads) for _ in range(self.config.blocks)
        )
        self.coefficients = nn.Linear(c, functions)
        self.trunk = MLP(spec.coordinates, c, functions, self.config.layers - 2)
        self.bias = nn.Parameter(torch.zeros(spec.out_channels))

    def forward(
        self,
        x: Float[Tensor, "#b n d"],
        u: Float[Tensor, "b n i"],
        x_query: Float[Tensor, "#b q d"],
        mask: Bool[Tensor, "b n"] | None = None,
    ) -> Float[Tensor, "b q o"]:
        """Predict at x_query what u at x implies.

        Args:
            x: positions of the observations.
            u: values there; i may be 0.
            x_query: positions where the answer is wanted.
            mask: which observations are real; None: all.
        """
        a, phi = self.branch(x, u, mask), self.basis(x_query)
        with full_precision(a):
            if len(phi) == 1:  # all samples share their query points
                return torch.einsum("qok,bok->bqo", phi[0], a) + self.bias
            return torch.einsum("bqok,bok->bqo", phi, a) + self.bias

    def branch(
        self,
        x: Float[Tensor, "#b n d"],
        u: Float[Tensor, "b n i"],
        mask: Bool[Tensor, "b n"] | None = None,
    ) -> Float[Tensor, "b o k"]:
        """Coefficients of the basis functions, in full precision whatever the surrounding one."""
        points = torch.cat((x.expand(u.shape[0], -1, -1), u), dim=-1)
        with full_precision(points):
            z = self.embed(points.to(self.embed.weight.dtype))
        for block in self.blocks:
            z = block(z, mask)
        with full_precision(z):
            z = z.to(self.coefficients.weight.dtype)
            a = self.coefficients(mean_token(z, mask))
        return a.unflatten(-1, (self.spec.out_channels, -1))

    def basis(self, x_query: Float[Tensor, "b q d"]) -> Float[Tensor, "b q o k"]:
        """Values of the basis functions, in full precision whatever the surrounding one."""
        return self.trunk(x_query).unflatten(-1, (self.spec.out_channels, -1))
