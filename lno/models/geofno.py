"""Geo-FNO (Li et al., "Fourier Neural Operator with Learned Deformations for PDEs").

On 2-D grids, also deformed ones, it is the classic FNO-2D:

    image = Linear([x, u])                                         zeros are appended to both axes
    image ← GELU(F⁻¹(R · F image) + Linear(image))                 3 layers, then one without GELU
    y = MLP(image)

If there are no values u, the positions x are those of a deformed mesh, and positions in the unit
square are read as well. Where x already are these, deformed meshes come as values u.

On point clouds a learnt map leads to a latent image and back, to any points (`geometry_map`):

    image = GELU(points to image(Linear([x, u])) + Linear(g))      g: the pixels' own positions
    image ← GELU(F⁻¹(R · F image) + Linear(image) + Linear(g))     3 layers
    y = MLP(image to points(image) + Linear(x_query))

The published code can read the shape of an object as well, and has another form for time. Here,
time is one of the input channels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from lno.data.fields import Spec
from lno.models.geometry_map import Geometry, LatentGrid
from lno.models.layers import MLP, full_precision, unit_square
from lno.models.model import Model, ModelConfig
from lno.models.spectral import FourierLayer

HEAD = 128  # hidden features of the last layers, as published
CLOUD = LatentGrid(rows=40, columns=40)  # the published sizes for Elasticity
LAYERS = 4  # on grids; on point clouds, the first of them is the map to the image


@dataclass(frozen=True)
class GeoFNOConfig(ModelConfig):
    """Sizes of a Geo-FNO. The defaults are the published ones for Pipe.

    Args:
        width: the number of features of a point and channels of the image.
        row_modes: wave numbers −row_modes … row_modes − 1 along the rows' index are used.
        column_modes: wave numbers up to column_modes − 1 along the columns' index are used.
        padding: zeros that are appended to both axes of a grid; 0 for periodic data.
        cloud: the latent image of point clouds. None: the data's own 2-D grid.

    >>> GeoFNOConfig(row_modes=24).column_modes
    12
    """

    width: int = 32
    row_modes: int = 12
    column_modes: int = 12
    padding: int = 8
    cloud: LatentGrid | None = None

    limits: ClassVar[Mapping[str, tuple[int, int]]] = {
        "row_modes": (1, 2048),
        "column_modes": (1, 2048),
        "padding": (0, 4096),
    }


class GeoFNO(Model):
    """Geo-FNO: values at points in, values out; on point clouds at any points.

    >>> config = GeoFNOConfig(width=16, cloud=LatentGrid(16, 16, 4, 4, map_width=8))
    >>> model = GeoFNO(Spec(coordinates=2, in_channels=1, out_channels=3), config)
    >>> model(torch.rand(4, 50, 2), torch.rand(4, 50, 1), torch.rand(1, 70, 2)).shape
    torch.Size([4, 70, 3])
    """

    predicts_anywhere = False
    embeds_time = True
    config: GeoFNOConfig

    def __init__(self, spec: Spec, config: GeoFNOConfig | None = None) -> None:
        super().__init__(spec, config)
        width, cloud = self.config.width, self.config.cloud
        modes = self.config.row_modes, self.config.column_modes
        self.needs_grid, self.predicts_anywhere = cloud is None, cloud is not None
        inputs = spec.coordinates + spec.in_channels
        if cloud is None:
            self.require_plane("GeoFNOConfig(cloud=LatentGrid())")
            inputs += 0 if spec.in_channels else 2
            self.layers = nn.ModuleList(FourierLayer(width, *modes) for _ in range(LAYERS))
            self.geometry = None
        else:
            self.geometry = Geometry(spec, width, cloud)
            self.layers = nn.ModuleList(FourierLayer(width, *modes) for _ in range(LAYERS - 1))
            self.pixels = nn.ModuleList(nn.Conv2d(2, width, 1) for _ in range(LAYERS))
            self.queries = nn.Linear(2, width)
        self.input = nn.Linear(inputs, width)
        self.head = MLP(width, HEAD, spec.out_channels, layers=0)

    @classmethod
    def default_config(cls, spec: Spec) -> GeoFNOConfig:
        """The published sizes for Pipe; without a 2-D grid, those for Elasticity."""
        if spec.plane:
            return GeoFNOConfig()
        return GeoFNOConfig(cloud=CLOUD)

    @classmethod
    def for_other_points(cls, config: ModelConfig) -> GeoFNOConfig:
        """The same sizes with a latent grid, also for data on a grid."""
        assert isinstance(config, GeoFNOConfig)
        return config if config.cloud is not None else replace(config, cloud=CLOUD)

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
        rows, columns = self.require_plane()
        f = self._features(x, u).unflatten(1, (rows, columns))
        image = F.pad(f.movedim(-1, 1), (0, self.config.padding, 0, self.config.padding))
        for layer in self.layers[:-1]:
            image = F.gelu(layer(image))
        image = self.layers[-1](image)[..., :rows, :columns]
        return self.head(image.flatten(2).mT)

    def _features(
        self, x: Float[Tensor, "#b n d"], u: Float[Tensor, "b n i"]
    ) -> Float[Tensor, "b n c"]:
        parts = [x.expand(u.shape[0], -1, -1), u]
        if self.geometry is None and self.spec.in_channels == 0:
            pixels = unit_square(*self.require_plane(), like=u).flatten(0, 1)
            parts.append(pixels.expand(u.shape[0], -1, -1))
        with full_precision(u):
            return self.input(torch.cat(parts, dim=-1).to(self.input.weight.dtype))

    def _from_cloud(
        self,
        geometry: Geometry,
        x: Float[Tensor, "#b n d"],
        u: Float[Tensor, "b n i"],
        x_query: Float[Tensor, "#b q d"],
        mask: Bool[Tensor, "b n"] | None,
    ) -> Float[Tensor, "b q o"]:
        waves = geometry.waves(x)
        image = geometry.to_image(self._features(x, u), waves, mask)
        pixels = unit_square(geometry.grid.rows, geometry.grid.columns, like=image)
        pixels = pixels.movedim(-1, 0)[None]
        image = F.gelu(image + self.pixels[0](pixels))
        for layer, own in zip(self.layers, self.pixels[1:], strict=True):
            image = F.gelu(layer(image) + own(pixels))
        f = geometry.to_points(image, waves if x_query is x else geometry.waves(x_query))
        with full_precision(x):
            f = f + self.queries(x_query.to(self.queries.weight.dtype))
        return self.head(f)
