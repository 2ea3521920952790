"""F-FNO (Tran et al., "Factorized Fourier Neural Operators"), in the authors' forms.

On 2-D grids, also deformed ones:

    image = Linear([x, u])                                     zeros may be appended to both axes
    b = FF(F₁⁻¹(R₁ · F₁ image) + F₂⁻¹(R₂ · F₂ image))          F₁, F₂: along rows', columns' index
    image ← image + b                                          L layers
    y = Linear(Linear(b))                                      b of the last layer

FF is Linear, ReLU, Linear and, if asked for, a layer norm. R₁ and R₂ have a complex matrix for each
of the lowest wave numbers along one axis, and may be the same in all layers. All linear layers are
weight-normalised: each row of a matrix is a direction times a length. As published, there is no
activation between the last two layers.

If there are no values u, the positions x are those of a deformed mesh, and positions in the unit
square are read as well. Where x already are these, deformed meshes come as values u.

On point clouds, a learnt map leads to a latent image and back, to any points (`geometry_map`). The
coefficients of the points are those of the image, without learnt matrices:

    image = points to image(Linear([x, u])) + Linear(g)        g: the pixels' own positions
    b = FF(F₁⁻¹(R₁ · F₁ image) + F₂⁻¹(R₂ · F₂ image))
    image ← image + b + Linear(g)                              L layers, with the same Linear(g)
    y = MLP(image to points(image) + Linear(x_query))          plain linear layers, but for FF

The published code counts the way back to points as another layer, can read the shape of an object
as well, and has another form for time. Here, time is one of the input channels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from lno.config import require_count
from lno.data.fields import Spec
from lno.models.geometry_map import Geometry, LatentGrid
from lno.models.layers import MLP, full_precision, joined, unit_square
from lno.models.model import Model, ModelConfig
from lno.models.spectral import AxisConvolution

HEAD = 128  # features between the last two layers, as published
SHARED_GAIN = 0.1  # of initial spectral weights that all layers share, as published
MOST_PADDING = 4096
IMAGE = LatentGrid(64, 64, 16, 16, map_width=64)  # the published sizes for Elasticity


@dataclass(frozen=True)
class FFNOConfig(ModelConfig):
    """Sizes of an F-FNO. The defaults are the published ones for Pipe.

    Args:
        width: the number of features of a point.
        layers: the number of layers.
        row_modes: the number of wave numbers along the rows' index.
        column_modes: the number of wave numbers along the columns' index.
        mlp_ratio: hidden features of a layer, in multiples of the width.
        shared: all layers have the same spectral weights.
        layer_norm: normalise what a layer adds.
        image: what the layers work on. A number: the data's own 2-D grid, with so many zeros
            appended to both axes; 0 for periodic data. A `LatentGrid`: an image to which a learnt
            map leads from point clouds.

    >>> FFNOConfig(layers=4).image
    8
    >>> FFNOConfig(layers=4, image=LatentGrid(rows=40)).image.rows
    40
    """

    width: int = 64
    layers: int = 24
    row_modes: int = 16
    column_modes: int = 16
    mlp_ratio: int = 4
    shared: bool = False
    layer_norm: bool = False
    image: LatentGrid | int = 8

    limits: ClassVar[Mapping[str, tuple[int, int]]] = {
        "row_modes": (1, 2048),
        "column_modes": (1, 2048),
        "mlp_ratio": (1, 64),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.image, LatentGrid):
            require_count("FFNOConfig.image", self.image, MOST_PADDING, least=0)


class WeightNormLinear(nn.Module):
    """A linear map whose rows are lengths times directions: y = (g v / |v|) x + bias.

    >>> layer = WeightNormLinear(3, 5)
    >>> torch.allclose(layer.length, layer.direction.norm(dim=1))  # initially
    True
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        linear = nn.Linear(inputs, outputs)
        self.direction, self.bias = linear.weight, linear.bias
        self.length = nn.Parameter(linear.weight.detach().norm(dim=1))

    def forward(self, f: Float[Tensor, "*batch i"]) -> Float[Tensor, "*batch o"]:
        return F.linear(f, self.weight, self.bias)

    @property
    def weight(self) -> Float[Tensor, "o i"]:
        """The matrix."""
        scale = self.length / self.direction.norm(dim=1)
        return scale[:, None] * self.direction


class FactorizedLayer(nn.Module):
    """What a layer adds to the features, from spectral convolutions along each of the axes."""

    def __init__(self, config: FFNOConfig) -> None:
        super().__init__()
        hidden = config.mlp_ratio * config.width
        self.up = WeightNormLinear(config.width, hidden)
        self.down = WeightNormLinear(hidden, config.width)
        self.norm = nn.LayerNorm(config.width) if config.layer_norm else None

    def forward(
        self, f: Float[Tensor, "b h w c"], convolutions: nn.ModuleList
    ) -> Float[Tensor, "b h w c"]:
        rows, columns = convolutions
        b = self.down(F.relu(self.up(rows(f) + columns(f))))
        return b if self.norm is None else self.norm(b)


class FFNO(Model):
    """F-FNO: values at points in, values out; on point clouds at any points.

    >>> model = FFNO(Spec(2, 1, 3, grid=(10, 6)), FFNOConfig(width=16, layers=2))
    >>> x, u = torch.rand(1, 60, 2), torch.rand(4, 60, 1)
    >>> model(x, u, x).shape
    torch.Size([4, 60, 3])
    >>> image = LatentGrid(16, 16, 4, 4, map_width=8)
    >>> model = FFNO(Spec(2, 1, 3), FFNOConfig(width=16, layers=2, image=image))
    >>> model(x, u, torch.rand(1, 70, 2)).shape
    torch.Size([4, 70, 3])
    """

    predicts_anywhere = False
    embeds_time = True
    config: FFNOConfig

    def __init__(self, spec: Spec, config: FFNOConfig | None = None) -> None:
        super().__init__(spec, config)
        config, image = self.config, self.config.image
        width, cloud = config.width, isinstance(image, LatentGrid)
        self.needs_grid, self.predicts_anywhere = not cloud, cloud
        if isinstance(image, LatentGrid):
            # Coefficients are not mixed on the way to the image, as published.
            self.geometry: Geometry | None = Geometry(spec, width, image, nn.Identity())
            inputs = spec.coordinates + spec.in_channels
            self.input: nn.Linear | WeightNormLinear = nn.Linear(inputs, width)
            self.pixels, self.queries = nn.Linear(2, width), nn.Linear(2, width)
        else:
            self.require_plane("FFNOConfig(image=LatentGrid())")
            self.geometry = None
            self.input = WeightNormLinear(spec.coordinates + (spec.in_channels or 2), width)
        gain = SHARED_GAIN if config.shared else 1.0
        self.convolutions = nn.ModuleList(
            nn.ModuleList(
                AxisConvolution(width, modes, axis, gain)
                for axis, modes in ((1, config.row_modes), (2, config.column_modes))
            )
            for _ in range(1 if config.shared else config.layers)
        )
        self.layers = nn.ModuleList(FactorizedLayer(config) for _ in range(config.layers))
        if cloud:
            self.head = MLP(width, HEAD, spec.out_channels, layers=0)
        else:
            self.hidden = WeightNormLinear(width, HEAD)
            self.output = WeightNormLinear(HEAD, spec.out_channels)

    @classmethod
    def default_config(cls, spec: Spec) -> FFNOConfig:
        """The published sizes for Pipe; without a 2-D grid, those for Elasticity."""
        if spec.plane:
            return FFNOConfig()
        return FFNOConfig(layers=23, mlp_ratio=2, image=IMAGE)

    @classmethod
    def for_other_points(cls, config: ModelConfig) -> FFNOConfig:
        """The same sizes with a latent image, also for data on a grid."""
        assert isinstance(config, FFNOConfig)
        return config if isinstance(config.image, LatentGrid) else replace(config, image=IMAGE)

    def forward(
        self,
        x: Float[Tensor, "#b n d"],
        u: Float[Tensor, "b n i"],
        x_query: Float[Tensor, "#b q d"],
        mask: Bool[Tensor, "b n"] | None = None,
    ) -> Float[Tensor, "b q o"]:
        """Predict at x_query from the values u observed at x; see `Model.forward`."""
        if self.geometry is not None:
            return self._from_cloud(self.geometry, x, u, x_query, mask)
        self.check_points(x, u, x_query, mask)
        return self._from_grid(x, u)

    def _from_grid(
        self, x: Float[Tensor, "#b n d"], u: Float[Tensor, "b n i"]
    ) -> Float[Tensor, "b n o"]:
        (rows, columns), padding = self.require_plane(), self.config.image
        assert isinstance(padding, int)
        values = u if u.shape[-1] else unit_square(rows, columns, like=u).flatten(0, 1)
        parts = [part.expand(u.shape[0], -1, -1) for part in (x, values)]
        with full_precision(u):
            f = self.input(torch.cat(parts, dim=-1).to(self.input.bias.dtype))
        f = F.pad(f.unflatten(1, (rows, columns)), (0, 0, 0, padding, 0, padding))
        b = f
        for k, layer in enumerate(self.layers):
            b = layer(f, self.convolutions[k % len(self.convolutions)])
            f = f + b
        b = b[:, :rows, :columns].flatten(1, 2)
        with full_precision(b):
            return self.output(self.hidden(b.to(self.output.bias.dtype)))

    def _from_cloud(
        self,
        geometry: Geometry,
        x: Float[Tensor, "#b n d"],
        u: Float[Tensor, "b n i"],
        x_query: Float[Tensor, "#b q d"],
        mask: Bool[Tensor, "b n"] | None,
    ) -> Float[Tensor, "b q o"]:
        waves = geometry.waves(x)
        with full_precision(u):
            f = self.input(joined(x, u).to(self.input.bias.dtype))
            f = geometry.to_image(f, waves, mask).movedim(1, -1)
            pixels = self.pixels(unit_square(geometry.grid.rows, geometry.grid.columns, like=f))
        f = f + pixels
        for k, layer in enumerate(self.layers):
            f = f + layer(f, self.convolutions[k % len(self.convolutions)]) + pixels
        waves = waves if x_query is x else geometry.waves(x_query)
        f = geometry.to_points(f.movedim(-1, 1), waves)
        with full_precision(x):
            f = f + self.queries(x_query.to(self.queries.weight.dtype))
        return self.head(f)
