"""GNOT (Hao et al., "GNOT: A General Neural Operator Transformer for Operator Learning", 2023).

    f = MLP(x_query),  g = MLP([x, u])                  features of queries and of observations
    f ← f + Cross(LN f, LN g);  f ← f + LN Experts(f)   L blocks: queries read the observations,
    f ← f + Self(LN f);         f ← f + LN Experts(f)   then each other
    y = MLP(f)

    q̃ = softmax over features(q),  k̃ = softmax over features(k)              in each head
    Attention(q, k, v) = Output(q̃ + q̃ · Σₙ k̃ₙ vₙᵀ / (q̃ · Σₙ k̃ₙ))              normalised, linear
    Experts(f) = Σₑ gateₑ(x_query) MLPₑ(f),  gate = softmax over experts(MLP(x_query))

The weights of Attention are positive and add up to one, in time linear in the number of points.
The term q̃ and the norms after, not before, the experts are as in the published code.

Queries attend to each other, so a prediction depends on where else one is asked for: pass sets of
queries like those of training, whole and not in chunks. The mask is for observations only: where
samples differ in their number of queries, those that pad a batch are read like the others.

Departures: observations are one input function ("heterogeneous" is for several); a single expert
has no gate, which would always be 1; the gate's inner layer is residual, as every `MLP` here.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from lno.config import require_count, require_heads
from lno.data.fields import Spec
from lno.models.lno import MLP, full_precision

EXPANSION = 4  # hidden features of experts and gates, in widths
LEAST = 1e-20  # of the total weight: features of all keys may miss those of a query


@dataclass(frozen=True)
class GNOTConfig:
    """Sizes of a GNOT; the defaults are the LNO paper's for inverse problems, where it says.

    Args:
        width: the number of features of a point.
        blocks: the number of blocks; each has two attentions and two feed-forward layers.
        heads: the heads of the attention; divides the width.
        layers: the hidden layers of the MLPs into and out of the blocks.
        experts: the MLPs in a feed-forward layer, mixed by a gate that sees positions only.

    >>> GNOTConfig(experts=3).width
    96
    """

    width: int = 96
    blocks: int = 4
    heads: int = 8
    layers: int = 3
    experts: int = 1

    def __post_init__(self) -> None:
        for name, most in (("width", 8192), ("blocks", 512), ("layers", 64), ("experts", 256)):
            require_count(f"GNOTConfig.{name}", getattr(self, name), most)
        # Modules take their time even where a hostile file is refused before they hold anything.
        require_count("GNOTConfig.blocks times experts", self.blocks * self.experts, 2048)
        require_heads("GNOTConfig", self.heads, self.width)


def normalised_attention(
    q: Float[Tensor, "b q h e"],
    k: Float[Tensor, "b n h e"],
    v: Float[Tensor, "b n h e"],
    mask: Bool[Tensor, "b n"] | None = None,
) -> Float[Tensor, "b q h e"]:
    """Σₙ (q̃·k̃ₙ) vₙ / Σₙ (q̃·k̃ₙ) of normalised q̃ and k̃, in time linear in the points.

    >>> one = torch.ones(1, 1, 2, 4)
    >>> normalised_attention(one / 4, one / 4, 3 * one)[0, 0, 0]
    tensor([3., 3., 3., 3.])
    """
    if mask is not None:
        k = k.masked_fill(~mask[..., None, None], 0.0)
    read = torch.einsum("bqhe,bhef->bqhf", q, torch.einsum("bnhe,bnhf->bhef", k, v))
    total = torch.einsum("bqhe,bhe->bqh", q, k.sum(dim=1))
    return read / total.clamp_min(LEAST)[..., None]


class LinearAttention(nn.Module):
    """Normalised attention with several heads, from points to the same points or to others.

    >>> f, g = torch.rand(2, 30, 16), torch.rand(2, 5, 16)
    >>> LinearAttention(width=16, heads=4)(f, g).shape
    torch.Size([2, 30, 16])
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key_value = nn.Linear(width, width), nn.Linear(width, 2 * width)
        self.output = nn.Linear(width, width)

    def forward(
        self,
        f: Float[Tensor, "b q c"],
        g: Float[Tensor, "b n c"],
        mask: Bool[Tensor, "b n"] | None = None,
    ) -> Float[Tensor, "b q c"]:
        q = self.query(f).unflatten(-1, (self.heads, -1))
        k, v = self.key_value(g).unflatten(-1, (2, self.heads, -1)).unbind(-3)
        with full_precision(q):  # sums over thousands of points
            dtype = torch.promote_types(q.dtype, torch.float32)
            q, k = (torch.softmax(w, dim=-1, dtype=dtype) for w in (q, k))
            heads = q + normalised_attention(q, k, v.to(dtype), mask)
        return self.output(heads.flatten(2).to(v.dtype))


class Experts(nn.Module):
    """Feed-forward networks side by side, the mean of which is weighted by a gate.

    >>> Experts(width=16, count=2)(torch.rand(3, 30, 16), torch.full((3, 30, 2), 0.5)).shape
    torch.Size([3, 30, 16])
    """

    def __init__(self, width: int, count: int) -> None:
        super().__init__()
        inner = EXPANSION * width
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width))
            for _ in range(count)
        )

    def forward(
        self, f: Float[Tensor, "b q c"], gate: Float[Tensor, "#b q k"] | None
    ) -> Float[Tensor, "b q c"]:
        if gate is None:
            return self.experts[0](f)
        each = torch.stack([expert(f) for expert in self.experts], dim=-1)
        return (gate[..., None, :] * each).sum(dim=-1)


class QueryBlock(nn.Module):
    """Queries read the observations, then each other, each time followed by experts.

    >>> f, g, x_query = torch.rand(2, 7, 16), torch.rand(2, 50, 16), torch.rand(2, 7, 3)
    >>> QueryBlock(3, GNOTConfig(width=16, experts=2))(f, g, x_query).shape
    torch.Size([2, 7, 16])
    """

    def __init__(self, coordinates: int, config: GNOTConfig) -> None:
        super().__init__()
        c, heads, experts = config.width, config.heads, config.experts
        self.norm_cross, self.norm_observed = nn.LayerNorm(c), nn.LayerNorm(c)
        self.cross_attention = LinearAttention(c, heads)
        self.experts_cross, self.norm_experts_cross = Experts(c, experts), nn.LayerNorm(c)
        self.norm_self, self.self_attention = nn.LayerNorm(c), LinearAttention(c, heads)
        self.experts_self, self.norm_experts_self = Experts(c, experts), nn.LayerNorm(c)
        self.gate = MLP(coordinates, EXPANSION * c, experts, layers=1) if experts > 1 else None

    def forward(
        self,
        f: Float[Tensor, "b q c"],
        g: Float[Tensor, "b n c"],
        x_query: Float[Tensor, "#b q d"],
        mask: Bool[Tensor, "b n"] | None = None,
    ) -> Float[Tensor, "b q c"]:
        gate = None if self.gate is None else torch.softmax(self.gate(x_query), dim=-1)
        f = f + self.cross_attention(self.norm_cross(f), self.norm_observed(g), mask)
        f = f + self.norm_experts_cross(self.experts_cross(f, gate))
        normed = self.norm_self(f)
        f = f + self.self_attention(normed, normed)
        return f + self.norm_experts_self(self.experts_self(f, gate))


class GNOT(nn.Module):
    """GNOT: values at any points in, values at any points out, all queries together.

    Positions may have a batch axis of one when all samples share them.

    >>> model = GNOT(Spec(coordinates=2, in_channels=1, out_channels=3))
    >>> x, u, x_query = torch.rand(4, 50, 2), torch.rand(4, 50, 1), torch.rand(4, 7, 2)
    >>> model(x, u, x_query).shape
    torch.Size([4, 7, 3])
    """

    def __init__(self, spec: Spec, config: GNOTConfig | None = None) -> None:
        super().__init__()
        self.spec, self.config = spec, config or GNOTConfig()
        c, layers = self.config.width, self.config.layers
        self.trunk = MLP(spec.coordinates, c, c, layers)
        self.branch = MLP(spec.coordinates + spec.in_channels, c, c, layers)
        self.blocks = nn.ModuleList(
            QueryBlock(spec.coordinates, self.config) for _ in range(self.config.blocks)
        )
        self.head = MLP(c, c, spec.out_channels, layers)

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
            x_query: positions where the answer is wanted; each answer depends on all of them.
            mask: which observations are real; None: all.
        """
        b = u.shape[0]
        f = self.trunk(x_query).expand(b, -1, -1)
        g = self.branch(torch.cat((x.expand(b, -1, -1), u), dim=-1))
        for block in self.blocks:
            f = block(f, g, x_query, mask)
        return self.head(f)
