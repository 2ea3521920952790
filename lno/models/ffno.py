"""F-FNO (Tran et al., "Factorized Fourier Neural Operators"), in the authors' form.

    image = Linear([x, u])                                     zeros may be appended to both axes
    b = FF(F₁⁻¹(R₁ · F₁ image) + F₂⁻¹(R₂ · F₂ image))          F₁, F₂: along rows', columns' index
    image ← image + b                                          L layers
    y = Linear(Linear(b))                                      b of the last layer

FF is Linear, ReLU, Linear and, if asked for, a layer norm. R₁ and R₂ have a complex matrix for each
of the lowest wave numbers along one axis, and may be the same in all layers. All linear layers are
weight-normalised: each row of a matrix is a direction times a length. As published, there is no
activation between the last two layers.

If there are no values u, the positions x are those of a deformed mesh, and positions in the unit
square are read as well. Where x already are these, deformed meshes come as values u. The published
code has another form for time; here, time is one of the input channels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from lno.data.fields import Spec
from lno.models.layers import full_precision, unit_square
from lno.models.model import ModelConfig
from lno.models.same_points import SamePointsModel
from lno.models.spectral import AxisConvolution

HEAD = 128  # features between the last two layers, as published
SHARED_GAIN = 0.1  # of initial spectral weights that all layers share, as published


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
        padding: zeros that are appended to both axes; 0 for periodic data.

    >>> FFNOConfig(layers=4).padding
    8
    """

    width: int = 64
    layers: int = 24
    row_modes: int = 16
    column_modes: int = 16
    mlp_ratio: int = 4
    shared: bool = False
    layer_norm: bool = False
    padding: int = 8

    limits: ClassVar[Mapping[str, tuple[int, int]]] = {
        "row_modes": (1, 2048),
        "column_modes": (1, 2048),
        "mlp_ratio": (1, 64),
        "padding": (0, 4096),
    }


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


class FFNO(SamePointsModel):
    """F-FNO: values on a 2-D grid in, values on the same grid out.

    >>> model = FFNO(Spec(2, 1, 3, grid=(10, 6)), FFNOConfig(width=16, layers=2))
    >>> x, u = torch.rand(1, 60, 2), torch.rand(4, 60, 1)
    >>> model(x, u, x).shape
    torch.Size([4, 60, 3])
    """

    needs_grid = True
    embeds_time = True
    config: FFNOConfig

    def __init__(self, spec: Spec, config: FFNOConfig | None = None) -> None:
        super().__init__(spec, config)
        self.require_plane()
        config = self.config
        inputs = spec.coordinates + (spec.in_channels or 2)
        self.input = WeightNormLinear(inputs, config.width)
        gain = SHARED_GAIN if config.shared else 1.0
        self.convolutions = nn.ModuleList(
            nn.ModuleList(
                AxisConvolution(config.width, modes, axis, gain)
                for axis, modes in ((1, config.row_modes), (2, config.column_modes))
            )
            for _ in range(1 if config.shared else config.layers)
        )
        self.layers = nn.ModuleList(FactorizedLayer(config) for _ in range(config.layers))
        self.hidden = WeightNormLinear(config.width, HEAD)
        self.output = WeightNormLinear(HEAD, spec.out_channels)

    @classmethod
    def default_config(cls, spec: Spec) -> FFNOConfig:
        """The published sizes for Pipe."""
        return FFNOConfig()

    def predict(
        self,
        x: Float[Tensor, "#b n d"],
        u: Float[Tensor, "b n i"],
        mask: Bool[Tensor, "b n"] | None = None,
    ) -> Float[Tensor, "b n o"]:
        (rows, columns), padding = self.require_plane(), self.config.padding
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
