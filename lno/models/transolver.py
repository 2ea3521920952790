"""Transolver (Wu et al., "Transolver: A Fast Transformer Solver for PDEs on General Geometries").

    f = MLP([x, u])                                             features of the points
    w = softmax over slices(Slice(Keys(LN f)) / temperature)    points to soft slices, per head
    z = Σₙ w · Values(LN f) / Σₙ w                              one token per slice
    f ← f + Output(w · Attention(z));  f ← f + MLP(LN f)        L blocks
    y = Linear(LN f)

With `time_input`, the last input channel is the time of the sample. Instead of being read at every
point, it is embedded and added to the features (`Stem`).

On point clouds Keys and Values are linear. On 2-D grids they are 3×3 convolutions, and distances to
a regular grid of reference points can replace positions. It predicts at the observed points only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from lno.data.fields import Spec
from lno.models.layers import TransformerBlock, full_precision, initialise_linear, read_out
from lno.models.model import ModelConfig
from lno.models.same_points import SamePointsModel
from lno.models.stem import Stem

EPSILON = 1e-5  # added to the total weight of a slice, which may have no points
TEMPERATURES = (0.1, 5.0)  # the range on grids; the published code has none on point clouds


@dataclass(frozen=True)
class TransolverConfig(ModelConfig):
    """Sizes of a Transolver. The defaults are the published ones for Darcy.

    Args:
        width: the number of features of a point.
        layers: the number of blocks.
        heads: the number of heads of a block; divides the width. Each head has its own slices.
        slices: the number of slices, and so of tokens, of a head.
        mlp_ratio: hidden features of a block's MLP, in multiples of the width.
        convolution: keys and values are 3×3 convolutions; needs data on a 2-D grid.
        reference: the number of reference points along each axis; the distances to them replace
            positions. Needs data on a 2-D grid. None: use positions.
        time_input: the last input channel is the time of the sample, which is embedded.

    >>> TransolverConfig(width=256, slices=32).reference
    8
    """

    width: int = 128
    layers: int = 8
    heads: int = 8
    slices: int = 64
    mlp_ratio: int = 1
    convolution: bool = True
    reference: int | None = 8
    time_input: bool = False

    limits: ClassVar[Mapping[str, tuple[int, int]]] = {
        "layers": (1, 512),
        "mlp_ratio": (1, 64),
        "reference": (1, 256),
    }


class PhysicsAttention(nn.Module):
    """Attention between soft slices of the points; each head has its own slices and tokens.

    >>> attention = PhysicsAttention(TransolverConfig(width=16, heads=4), grid=(5, 6))
    >>> attention(torch.rand(2, 30, 16)).shape
    torch.Size([2, 30, 16])
    """

    def __init__(self, config: TransolverConfig, grid: tuple[int, ...] | None = None) -> None:
        super().__init__()
        self.heads, self.grid = config.heads, grid
        c, e = config.width, config.width // config.heads
        self.keys_values = (
            nn.Linear(c, 2 * c) if grid is None else nn.Conv2d(c, 2 * c, 3, padding=1)
        )
        self.slice = nn.Linear(e, config.slices)
        self.temperature = nn.Parameter(torch.full((config.heads,), 0.5))
        self.query_key_value = nn.Linear(e, 3 * e, bias=False)
        self.output = nn.Linear(c, c)

    def forward(
        self, f: Float[Tensor, "b n c"], mask: Bool[Tensor, "b n"] | None = None
    ) -> Float[Tensor, "b n c"]:
        both = self._project(f).unflatten(-1, (2, self.heads, -1))
        keys, values = both.permute(2, 0, 3, 1, 4)
        weights = self.weights(keys, mask)
        total = weights.sum(dim=2)[..., None] + EPSILON
        weights = weights.to(values.dtype)
        z = self._attend(torch.einsum("bhnm,bhne->bhme", weights, values) / total)
        points = torch.einsum("bhnm,bhme->bnhe", weights, z.to(weights.dtype))
        return self.output(points.flatten(2))

    def weights(
        self, keys: Float[Tensor, "b h n e"], mask: Bool[Tensor, "b n"] | None = None
    ) -> Float[Tensor, "b h n m"]:
        """How much of each point is in each slice: sums to one, or to zero for padding.

        In full precision even under autocast.
        """
        temperature = self.temperature[:, None, None]
        if self.grid is not None:
            temperature = temperature.clamp(*TEMPERATURES)
        with full_precision(keys):
            scores = self.slice(keys.to(self.slice.weight.dtype))
            weights = torch.softmax(scores / temperature, dim=-1)
        return weights if mask is None else weights.masked_fill(~mask[:, None, :, None], 0.0)

    def _project(self, f: Float[Tensor, "b n c"]) -> Float[Tensor, "b n k"]:
        if self.grid is None:
            return self.keys_values(f)
        image = f.unflatten(1, self.grid).permute(0, 3, 1, 2)
        return self.keys_values(image).permute(0, 2, 3, 1).flatten(1, 2)

    def _attend(self, z: Float[Tensor, "b h m e"]) -> Float[Tensor, "b h m e"]:
        # Fused kernels gain nothing with so few tokens.
        q, k, v = self.query_key_value(z).chunk(3, dim=-1)
        scores = torch.einsum("bhme,bhke->bhmk", q, k) * q.shape[-1] ** -0.5
        return torch.einsum("bhmk,bhke->bhme", torch.softmax(scores, dim=-1).to(v.dtype), v)


class Transolver(SamePointsModel):
    """Transolver: values at points in, values at the same points out.

    >>> config = TransolverConfig(width=16, layers=2, convolution=False, reference=None)
    >>> model = Transolver(Spec(coordinates=2, in_channels=1, out_channels=3), config)
    >>> x, u = torch.rand(4, 50, 2), torch.rand(4, 50, 1)
    >>> model(x, u, x).shape
    torch.Size([4, 50, 3])
    """

    embeds_time = True
    config: TransolverConfig

    def __init__(self, spec: Spec, config: TransolverConfig | None = None) -> None:
        super().__init__(spec, config)
        c, reference = self.config.width, self.config.reference
        self.needs_grid = self.config.convolution or reference is not None
        if self.needs_grid and spec.plane is None:
            raise ValueError(
                "TransolverConfig.convolution and .reference need data on a 2-D grid, got "
                f"grid {spec.grid}: pass Fields(..., grid=(rows, columns)), or "
                "TransolverConfig(convolution=False, reference=None) for point clouds"
            )
        self.stem = Stem(spec, c, reference, self.config.time_input)
        self.placeholder = nn.Parameter(torch.rand(c) / c)
        grid = spec.grid if self.config.convolution else None
        self.blocks = nn.ModuleList(
            TransformerBlock(c, PhysicsAttention(self.config, grid), self.config.mlp_ratio)
            for _ in range(self.config.layers)
        )
        self.norm, self.head = nn.LayerNorm(c), nn.Linear(c, spec.out_channels)
        # The published code also makes the slice layers orthogonal, but then overwrites them so.
        initialise_linear(self)

    @classmethod
    def default_config(cls, spec: Spec) -> TransolverConfig:
        """The published sizes; without a 2-D grid, those for point clouds."""
        if spec.plane:
            return TransolverConfig()
        return TransolverConfig(convolution=False, reference=None)

    def predict(
        self,
        x: Float[Tensor, "#b n d"],
        u: Float[Tensor, "b n i"],
        mask: Bool[Tensor, "b n"] | None = None,
    ) -> Float[Tensor, "b n o"]:
        f = self.stem(x, u)
        # As published: on grids the placeholder is only used if there are no values.
        if not self.config.convolution or self.stem.values == 0:
            f = f + self.placeholder
        for block in self.blocks:
            f = block(f, mask)
        return read_out(self.norm, self.head, f)
