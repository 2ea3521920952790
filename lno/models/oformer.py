"""OFormer (Li, Meidani & Barati Farimani, "Transformer for PDEs' Operator Learning", TMLR 2023).

    z = Linear([u, x])                                          features of the observations
    z ← LN z;  z ← z + Attention(z);  z ← LN z;  z ← z + FFN(z) L blocks; without `norm`, no LN
    z ← Linear(z)
    y = MLP([sin 2πBx, cos 2πBx])                               features of the queries, x = x_query
    y ← y + Cross-Attention(y, z);  y ← y + FFN(y)
    y = MLP([y, x])

    q̃ = R(x) q,  k̃ = R(x) normalised(k),  ṽ = normalised(v)     in each head, which has full width
    Attention = Output(q̃ · (1/N) Σₙ k̃ₙ ṽₙᵀ)                     Galerkin type; without Output if
                                                                there is one head
    FFN(z) = Linear(GELU(a) · b),  [a, b] = Linear(z)

R(x) is a rotary embedding: it rotates pairs of features by s · resolution · xⱼ / 10000^(k/e).
Each coordinate xⱼ has its own e pairs, k < e. The factor s is the resolution in the first block, a
quarter of it in the second, 1 in the others, and 16 in the cross-attention. `normalised` scales the
features of each point to mean 0 and variance 1, without affine map. (The published code means to
normalise over points, but does this.) B is random and not trained.

This is the authors' form for Darcy. The only sums over points are the means (1/N) Σₙ, with N the
number of observations; of a padded batch, the real ones of each sample. So the number of points
does not scale the predictions, and queries do not influence each other.

Departures: any number of coordinates (features that are left over are not rotated); no dropout in
training. The time of a sample is read as an ordinary input channel: the published code embeds none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import log, pi
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from lno.data.fields import Spec
from lno.models.galerkin import mean_outer
from lno.models.layers import full_precision
from lno.models.model import Model, ModelConfig

CROSS_HEADS, CROSS_SCALE = 4, 16  # of the cross-attention
SPREAD = 0.5  # of the random frequencies of query positions


@dataclass(frozen=True)
class OFormerConfig(ModelConfig):
    """Sizes of an OFormer. The defaults are the authors' for Darcy.

    Args:
        width: the number of features of an observation, also within each head.
        latent: the number of features of a query.
        layers: the number of blocks of the encoder.
        heads: the number of heads of its blocks; divides the width.
        resolution: the number of points along an axis of the domain, for the angles of rotations.
        norm: the blocks normalise their features.

    >>> OFormerConfig(resolution=64).latent
    256
    """

    width: int = 96
    latent: int = 256
    layers: int = 6
    heads: int = 4
    resolution: int = 141
    norm: bool = True

    limits: ClassVar[Mapping[str, tuple[int, int]]] = {"latent": (2, 8192), "layers": (1, 512)}


def rotate(
    v: Float[Tensor, "b n h e"], x: Float[Tensor, "#b n d"], scale: float
) -> Float[Tensor, "b n h e"]:
    """Rotate pairs of features by angles that depend on the position; each coordinate has its own.

    >>> v, x = torch.tensor([1.0, 0, 1, 0]).view(1, 1, 1, 4), torch.tensor([[[0.0, 1.0]]])
    >>> rotate(v, x, scale=torch.pi / 2).flatten().round(decimals=3).abs()
    tensor([1., 0., 0., 1.])
    """
    d = x.shape[-1]
    half = v.shape[-1] // (2 * d)  # pairs of a coordinate
    steps = torch.arange(half, dtype=x.dtype, device=x.device)
    frequencies = scale * torch.exp(-log(10000) * steps / max(half, 1))
    angles = (x[..., None] * frequencies)[:, :, None]  # (b, n, 1, d, half)
    turned, rest = v.split((2 * d * half, v.shape[-1] - 2 * d * half), dim=-1)
    a, b = turned.unflatten(-1, (d, 2, half)).unbind(-2)
    cos, sin = angles.cos(), angles.sin()
    turned = torch.stack((a * cos - b * sin, b * cos + a * sin), dim=-2)
    return torch.cat((turned.flatten(-3), rest), dim=-1)


class RotaryAttention(nn.Module):
    """Galerkin attention of the points y to the points z, whose heads all have the full width.

    >>> y, z = torch.rand(2, 7, 8), torch.rand(2, 30, 8)
    >>> attention = RotaryAttention(width=8, heads=2, scale=4.0)
    >>> attention(y, z, torch.rand(1, 7, 2), torch.rand(1, 30, 2)).shape
    torch.Size([2, 7, 8])
    """

    def __init__(self, width: int, heads: int, scale: float) -> None:
        super().__init__()
        self.heads, self.scale = heads, scale
        self.query = nn.Linear(width, heads * width, bias=False)
        self.key_value = nn.Linear(width, 2 * heads * width, bias=False)
        self.output = nn.Linear(heads * width, width) if heads > 1 else nn.Identity()

    def forward(
        self,
        y: Float[Tensor, "b q c"],
        z: Float[Tensor, "b n c"],
        x_query: Float[Tensor, "#b q d"],
        x: Float[Tensor, "#b n d"],
        mask: Bool[Tensor, "b n"] | None = None,
    ) -> Float[Tensor, "b q c"]:
        q = self.query(y).unflatten(-1, (self.heads, -1))
        k, v = self.key_value(z).unflatten(-1, (2, self.heads, -1)).unbind(-3)
        dtype = v.dtype
        with full_precision(z):  # angles, and sums over thousands of points
            q, k, v = (w.to(torch.promote_types(dtype, torch.float32)) for w in (q, k, v))
            k, v = (F.layer_norm(w, w.shape[-1:]) for w in (k, v))
            context = mean_outer(rotate(k, x, self.scale), v, mask)
            heads = torch.einsum("bqhe,bhef->bqhf", rotate(q, x_query, self.scale), context)
        return self.output(heads.flatten(2).to(dtype))


@torch.no_grad()
def _initialise(layer: nn.Linear) -> None:
    """As published: each head starts as (random rotation + identity) / width."""
    width = layer.in_features
    for head in layer.weight.split(width):
        nn.init.orthogonal_(head, gain=1 / width)
        head.add_(torch.eye(width, device=head.device), alpha=1 / width)


class GatedMLP(nn.Module):
    """Linear(GELU(a) · b) with [a, b] = Linear(z).

    >>> GatedMLP(16)(torch.rand(2, 30, 16)).shape
    torch.Size([2, 30, 16])
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(width, width)

    def forward(self, z: Float[Tensor, "b n c"]) -> Float[Tensor, "b n c"]:
        a, b = self.up(z).chunk(2, dim=-1)
        return self.down(F.gelu(a) * b)


class RotaryBlock(nn.Module):
    """A block of the encoder: attention, then an MLP, each after a norm of the features themselves.

    >>> block = RotaryBlock(OFormerConfig(width=16), scale=4.0)
    >>> block(torch.rand(2, 30, 16), torch.rand(1, 30, 2)).shape
    torch.Size([2, 30, 16])
    """

    def __init__(self, config: OFormerConfig, scale: float) -> None:
        super().__init__()
        c = config.width
        self.norm_attention, self.norm_mlp = (
            nn.LayerNorm(c) if config.norm else nn.Identity() for _ in range(2)
        )
        self.attention, self.mlp = RotaryAttention(c, config.heads, scale), GatedMLP(c)

    def forward(
        self,
        z: Float[Tensor, "b n c"],
        x: Float[Tensor, "#b n d"],
        mask: Bool[Tensor, "b n"] | None = None,
    ) -> Float[Tensor, "b n c"]:
        z = self.norm_attention(z)
        z = self.norm_mlp(z + self.attention(z, z, x, x, mask))
        return z + self.mlp(z)


class OFormer(Model):
    """OFormer: values at any points in, values at any points out.

    >>> config = OFormerConfig(width=16, latent=16, layers=2)
    >>> model = OFormer(Spec(coordinates=2, in_channels=1, out_channels=3), config)
    >>> x, u, x_query = torch.rand(4, 50, 2), torch.rand(4, 50, 1), torch.rand(4, 7, 2)
    >>> model(x, u, x_query).shape
    torch.Size([4, 7, 3])
    """

    embeds_time = True
    config: OFormerConfig
    frequencies: Tensor

    def __init__(self, spec: Spec, config: OFormerConfig | None = None) -> None:
        super().__init__(spec, config)
        c, latent, n = self.config.width, self.config.latent, self.config.resolution
        scales = [n, n // 4, *(1 for _ in range(2, self.config.layers))][: self.config.layers]
        self.embed = nn.Linear(spec.in_channels + spec.coordinates, c, bias=False)
        self.blocks = nn.ModuleList(RotaryBlock(self.config, scale * n) for scale in scales)
        self.to_latent = nn.Linear(c, latent, bias=False)
        self.register_buffer("frequencies", SPREAD * torch.randn(spec.coordinates, latent // 2))
        self.query_input = nn.Linear(latent // 2 * 2, latent, bias=False)
        self.query_output = nn.Linear(latent, latent, bias=False)
        self.cross_attention = RotaryAttention(latent, CROSS_HEADS, CROSS_SCALE * n)
        self.mlp = GatedMLP(latent)
        self.head = nn.Sequential(
            nn.Linear(latent + spec.coordinates, latent, bias=False),
            nn.GELU(),
            nn.Linear(latent, latent // 2, bias=False),
            nn.GELU(),
            nn.Linear(latent // 2, spec.out_channels),
        )
        for module in self.modules():
            if isinstance(module, RotaryAttention):
                _initialise(module.query)
        _initialise(self.cross_attention.key_value)

    @classmethod
    def default_config(cls, spec: Spec) -> OFormerConfig:
        """The authors' sizes; on a grid, with its own resolution."""
        return OFormerConfig() if spec.grid is None else OFormerConfig(resolution=max(spec.grid))

    def forward(
        self,
        x: Float[Tensor, "#b n d"],
        u: Float[Tensor, "b n i"],
        x_query: Float[Tensor, "#b q d"],
        mask: Bool[Tensor, "b n"] | None = None,
    ) -> Float[Tensor, "b q o"]:
        """Predict at x_query from the values u observed at x; see `Model.forward`."""
        b, dtype = u.shape[0], self.embed.weight.dtype
        x, x_query = x.to(dtype), x_query.to(dtype)
        with full_precision(u):
            z = self.embed(torch.cat((u.to(dtype), x.expand(b, -1, -1)), dim=-1))
            angles = 2 * pi * x_query @ self.frequencies
            y = F.gelu(self.query_input(torch.cat((angles.sin(), angles.cos()), dim=-1)))
        for block in self.blocks:
            z = block(z, x, mask)
        z, y = self.to_latent(z), self.query_output(y).expand(b, -1, -1)
        y = y + self.cross_attention(y, z, x_query, x, mask)
        y = y + self.mlp(y)
        with full_precision(y):
            return self.head(torch.cat((y.to(dtype), x_query.expand(b, -1, -1)), dim=-1))
