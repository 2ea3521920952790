"""GNOT (Hao et al., "GNOT: A General Neural Operator Transformer for Operator Learning", 2023).

    f = MLP(x_query),  g = MLP([x, u])                  features of queries and of observations
    f ← f + Cross(LN f, LN g);  f ← f + LN Experts(f)   L blocks: queries attend to observations,
    f ← f + Self(LN f);         f ← f + LN Experts(f)   then to each other
    y = MLP(f)

    q̃ = softmax over features(q),  k̃ = softmax over features(k)              in each head
    Attention(q, k, v) = Output(q̃ + q̃ · Σₙ k̃ₙ vₙᵀ / (q̃ · Σₙ k̃ₙ))              normalised, linear
    Experts(f) = Σₑ gateₑ(x_query) MLPₑ(f),  gate = softmax over experts(MLP(x_query))

The weights of Attention are positive and sum to one; it takes time linear in the number of points.
The term q̃ and the norms after, not before, the experts are as in the published code.

Queries attend to each other, so a prediction depends on the other queries of the call. Predict with
sets of queries like those of training. The mask is that of the observations; it applies to the
queries as well if they are the observed points (`x_query is x`).

Departures from the published code: there is one input function (its "heterogeneous" attention is
for several); a single expert has no gate, which would always be 1; the gate's inner layer is
residual, as in every `MLP` of this package.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from lno.config import require_count
from lno.data.fields import Spec
from lno.models.layers import MLP, full_precision, joined
from lno.models.model import Model, ModelConfig

SMALLEST_TOTAL = 1e-20  # of the weights: a query and all keys may have no feature in common


@dataclass(frozen=True)
class GNOTConfig(ModelConfig):
    """Sizes of a GNOT. The defaults are the LNO paper's for inverse problems, where given.

    Args:
        width: the number of features of a point.
        blocks: the number of blocks; each has two attention and two feed-forward layers.
        heads: the number of attention heads; divides the width.
        layers: the number of hidden layers of the MLPs before and after the blocks.
        experts: the number of MLPs in a feed-forward layer, mixed by a gate that depends on
            positions only.
        mlp_ratio: hidden features of experts and gates, in multiples of the width.

    >>> GNOTConfig(experts=3).width
    96
    """

    width: int = 96
    blocks: int = 4
    heads: int = 8
    layers: int = 3
    experts: int = 1
    mlp_ratio: int = 4

    limits: ClassVar[Mapping[str, tuple[int, int]]] = {"experts": (1, 256), "mlp_ratio": (1, 64)}

    def __post_init__(self) -> None:
        super().__post_init__()
        # Building many modules takes long, even without memory for their weights.
        require_count("GNOTConfig.blocks times experts", self.blocks * self.experts, 2048)


def normalised_attention(
    q: Float[Tensor, "b q h e"],
    k: Float[Tensor, "b n h e"],
    v: Float[Tensor, "b n h e"],
    mask: Bool[Tensor, "b n"] | None = None,
) -> Float[Tensor, "b q h e"]:
    """Σₙ (q̃·k̃ₙ) vₙ / Σₙ (q̃·k̃ₙ) for normalised q̃ and k̃, in time linear in the points.

    >>> one = torch.ones(1, 1, 2, 4)
    >>> normalised_attention(one / 4, one / 4, 3 * one)[0, 0, 0]
    tensor([3., 3., 3., 3.])
    """
    if mask is not None:
        k = k.masked_fill(~mask[..., None, None], 0.0)
    read = torch.einsum("bqhe,bhef->bqhf", q, torch.einsum("bnhe,bnhf->bhef", k, v))
    total = torch.einsum("bqhe,bhe->bqh", q, k.sum(dim=1))
    return read / total.clamp_min(SMALLEST_TOTAL)[..., None]


class LinearAttention(nn.Module):
    """Multi-head normalised attention of the points f to the points g.

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
    """The mean of several feed-forward networks, weighted by a gate.

    >>> Experts(16, 64, count=2)(torch.rand(3, 30, 16), torch.full((3, 30, 2), 0.5)).shape
    torch.Size([3, 30, 16])
    """

    def __init__(self, width: int, inner: int, count: int) -> None:
        super().__init__()
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
    """Queries attend to the observations, then to each other; experts follow each attention.

    >>> f, g, x_query = torch.rand(2, 7, 16), torch.rand(2, 50, 16), torch.rand(2, 7, 3)
    >>> QueryBlock(3, GNOTConfig(width=16, experts=2))(f, g, x_query).shape
    torch.Size([2, 7, 16])
    """

    def __init__(self, coordinates: int, config: GNOTConfig) -> None:
        super().__init__()
        c, heads, experts = config.width, config.heads, config.experts
        inner = config.mlp_ratio * c
        self.norm_cross, self.norm_observed = nn.LayerNorm(c), nn.LayerNorm(c)
        self.cross_attention = LinearAttention(c, heads)
        self.experts_cross, self.norm_experts_cross = Experts(c, inner, experts), nn.LayerNorm(c)
        self.norm_self, self.self_attention = nn.LayerNorm(c), LinearAttention(c, heads)
        self.experts_self, self.norm_experts_self = Experts(c, inner, experts), nn.LayerNorm(c)
        self.gate = MLP(coordinates, inner, experts, layers=1) if experts > 1 else None

    def forward(
        self,
        f: Float[Tensor, "b q c"],
        g: Float[Tensor, "b n c"],
        x_query: Float[Tensor, "#b q d"],
        mask: Bool[Tensor, "b n"] | None = None,
        query_mask: Bool[Tensor, "b q"] | None = None,
    ) -> Float[Tensor, "b q c"]:
        gate = None if self.gate is None else torch.softmax(self.gate(x_query), dim=-1)
        f = f + self.cross_attention(self.norm_cross(f), self.norm_observed(g), mask)
        f = f + self.norm_experts_cross(self.experts_cross(f, gate))
        normed = self.norm_self(f)
        f = f + self.self_attention(normed, normed, query_mask)
        return f + self.norm_experts_self(self.experts_self(f, gate))


class GNOT(Model):
    """GNOT: values at any points in, values at any points out; queries attend to each other.

    >>> model = GNOT(Spec(coordinates=2, in_channels=1, out_channels=3))
    >>> x, u, x_query = torch.rand(4, 50, 2), torch.rand(4, 50, 1), torch.rand(4, 7, 2)
    >>> model(x, u, x_query).shape
    torch.Size([4, 7, 3])
    """

    queries_interact = True
    config: GNOTConfig

    def __init__(self, spec: Spec, config: GNOTConfig | None = None) -> None:
        super().__init__(spec, config)
        c, layers = self.config.width, self.config.layers
        self.trunk = MLP(spec.coordinates, c, c, layers)
        self.branch = MLP(spec.coordinates + spec.in_channels, c, c, layers)
        self.blocks = nn.ModuleList(
            QueryBlock(spec.coordinates, self.config) for _ in range(self.config.blocks)
        )
        self.head = MLP(c, c, spec.out_channels, layers)

    @classmethod
    def default_config(cls, spec: Spec) -> GNOTConfig:
        return GNOTConfig()

    def forward(
        self,
        x: Float[Tensor, "#b n d"],
        u: Float[Tensor, "b n i"],
        x_query: Float[Tensor, "#b q d"],
        mask: Bool[Tensor, "b n"] | None = None,
    ) -> Float[Tensor, "b q o"]:
        """Predict at x_query from the values u observed at x; see `Model.forward`."""
        b = u.shape[0]
        query_mask = mask if x_query is x else None
        f = self.trunk(x_query).expand(b, -1, -1)
        g = self.branch(joined(x, u))
        for block in self.blocks:
            f = block(f, g, x_query, mask, query_mask)
        return self.head(f)
