"""Transolver (Wu et al., "Transolver: A Fast Transformer Solver for PDEs on General Geometries").

    f = MLP([x, u])                                             features of the points
    w = softmax over slices(Slice(Keys(LN f)) / temperature)    points to soft slices, per head
    z = Σₙ w · Values(LN f) / Σₙ w                              one token per slice
    f ← f + Output(w · Attention(z));  f ← f + MLP(LN f)        L blocks
    y = Linear(LN f)

With `time_input`, the last input channel is the time T of the sample. Instead of being read at
every point, it is added to the features:

    f ← f + Linear(SiLU(Linear([cos s, sin s]))),   sₖ = T · 10000^(−k / ⌊D/2⌋),   k < ⌊D/2⌋

On point clouds Keys and Values are linear. On 2-D grids they are 3×3 convolutions, and distances to
a regular grid of reference points can replace positions. It predicts at the observed points only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import log, prod
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from lno.data.fields import Spec
from lno.models.layers import MLP, full_precision
from lno.models.model import Model, ModelConfig

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


class PointBlock(nn.Module):
    """A pre-norm transformer block on the features of points: Physics-Attention, then an MLP.

    >>> block = PointBlock(TransolverConfig(width=16, heads=4))
    >>> block(torch.rand(2, 30, 16)).shape
    torch.Size([2, 30, 16])
    """

    def __init__(self, config: TransolverConfig, grid: tuple[int, ...] | None = None) -> None:
        super().__init__()
        c, hidden = config.width, config.width * config.mlp_ratio
        self.norm_attention, self.norm_mlp = nn.LayerNorm(c), nn.LayerNorm(c)
        self.attention = PhysicsAttention(config, grid)
        self.up, self.down = nn.Linear(c, hidden), nn.Linear(hidden, c)

    def forward(
        self, f: Float[Tensor, "b n c"], mask: Bool[Tensor, "b n"] | None = None
    ) -> Float[Tensor, "b n c"]:
        f = f + self.attention(self.norm_attention(f), mask)
        return f + self.down(F.gelu(self.up(self.norm_mlp(f))))


class Transolver(Model):
    """Transolver: values at points in, values at the same points out.

    >>> config = TransolverConfig(width=16, layers=2, convolution=False, reference=None)
    >>> model = Transolver(Spec(coordinates=2, in_channels=1, out_channels=3), config)
    >>> x, u = torch.rand(4, 50, 2), torch.rand(4, 50, 1)
    >>> model(x, u, x).shape
    torch.Size([4, 50, 3])
    """

    answers_anywhere = False
    embeds_time = True
    config: TransolverConfig

    def __init__(self, spec: Spec, config: TransolverConfig | None = None) -> None:
        super().__init__(spec, config)
        c, reference = self.config.width, self.config.reference
        self.needs_grid = self.config.convolution or reference is not None
        if self.needs_grid and (spec.grid is None or len(spec.grid) != 2):
            raise ValueError(
                "TransolverConfig.convolution and .reference need data on a 2-D grid, got "
                f"grid {spec.grid}: pass Fields(..., grid=(rows, columns)), or "
                "TransolverConfig(convolution=False, reference=None) for point clouds"
            )
        if self.config.time_input and spec.in_channels == 0:
            raise ValueError(
                "TransolverConfig.time_input: expected the time of the sample as the last input "
                "channel, got no input channels: pass task=Snapshots(times)"
            )
        positions = spec.coordinates if reference is None else reference**2
        self.values = spec.in_channels - self.config.time_input
        self.preprocess = MLP(positions + self.values, 2 * c, c, layers=0)
        if self.config.time_input:
            self.time = nn.Sequential(nn.Linear(c, c), nn.SiLU(), nn.Linear(c, c))
        self.placeholder = nn.Parameter(torch.rand(c) / c)
        grid = spec.grid if self.config.convolution else None
        self.blocks = nn.ModuleList(
            PointBlock(self.config, grid) for _ in range(self.config.layers)
        )
        self.norm, self.head = nn.LayerNorm(c), nn.Linear(c, spec.out_channels)
        self._initialise()

    @classmethod
    def default_config(cls, spec: Spec) -> TransolverConfig:
        """The published sizes; without a 2-D grid, those for point clouds."""
        if spec.grid is not None and len(spec.grid) == 2:
            return TransolverConfig()
        return TransolverConfig(convolution=False, reference=None)

    @classmethod
    def with_time(cls, config: ModelConfig) -> TransolverConfig:
        """The same sizes, with `time_input`."""
        assert isinstance(config, TransolverConfig)
        return replace(config, time_input=True)

    def forward(
        self,
        x: Float[Tensor, "#b n d"],
        u: Float[Tensor, "b n i"],
        x_query: Float[Tensor, "#b q d"],
        mask: Bool[Tensor, "b n"] | None = None,
    ) -> Float[Tensor, "b n o"]:
        """Predict at x from the values u observed there; see `Model.forward`.

        Pass `x` itself as `x_query`. Another tensor is compared with it, which makes a GPU wait.
        """
        self._check(x, u, x_query, mask)
        if self.config.reference is not None and self.spec.grid is not None:
            x = reference_distances(self.spec.grid, self.config.reference, like=u)[None]
        values = u[..., : self.values]
        f = self.preprocess(torch.cat((x.expand(u.shape[0], -1, -1), values), dim=-1))
        # As published: on grids the placeholder is only used if there are no values.
        if not self.config.convolution or self.values == 0:
            f = f + self.placeholder
        if self.config.time_input:
            with full_precision(u):
                features = time_features(u[:, 0, -1], self.config.width)
                f = f + self.time(features.to(self.placeholder.dtype))[:, None]
        for block in self.blocks:
            f = block(f, mask)
        with full_precision(f):
            return self.head(self.norm(f.to(self.head.weight.dtype)))

    @classmethod
    def from_reference(
        cls,
        weights: Mapping[str, Any],
        heads: int,
        grid: tuple[int, int] | None = None,
        in_channels: int = 1,
    ) -> Transolver:
        """A Transolver with weights of the published code, which determine all other sizes.

        Args:
            weights: arrays by their names there.
            heads: the number of heads.
            grid: the shape of the grid. None: a point cloud.
            in_channels: the number of input channels, without time. The weights only determine how
                many there are together with coordinates or, on a grid, distances to reference
                points.
        """
        from lno.models.transolver_reference import translate

        config, spec, state = translate(weights, heads, grid, in_channels)
        model = cls(spec, config)
        try:
            model.load_state_dict(state)
        except RuntimeError as error:
            raise ValueError(f"the weights do not fit one Transolver: {error}") from error
        return model

    def _initialise(self) -> None:
        """Small random weights in linear layers; torch's defaults elsewhere.

        The published code also makes the slice layers orthogonal, but then overwrites them so.
        """
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def _check(self, x: Tensor, u: Tensor, x_query: Tensor, mask: Tensor | None) -> None:
        if x_query is not x and not (
            x_query.shape[1:] == x.shape[1:] and bool((x_query == x).all())
        ):
            raise ValueError(
                "Transolver predicts at the observed points only: expected x_query to be x, got "
                f"other positions (x {tuple(x.shape)}, x_query {tuple(x_query.shape)})"
            )
        if not self.needs_grid:
            return
        if mask is not None:
            raise ValueError("a Transolver on a grid takes no mask: every point of it is needed")
        expected = prod(self.spec.grid or ())
        if u.shape[1] != expected:
            raise ValueError(
                f"this Transolver is for the grid {self.spec.grid} of {expected} points, got "
                f"{u.shape[1]}: use on_grid for data on another grid"
            )
