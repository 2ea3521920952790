"""FNO (Li et al., "Fourier Neural Operator for Parametric PDEs"), as in Neural-Solver-Library.

    image = points to image(Stem(x, u))                      see `image_model`
    image ← GELU(F⁻¹(R · F image) + Linear(image))           3 layers, then one without GELU
    y = MLP(image to points(image))

R has a complex matrix for each of the lowest wave numbers; all others are left out. `geofno` on a
grid is the classic FNO-2D, which differs in its first and last layers and in how it pads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from lno.data.fields import Spec
from lno.models.geometry_map import LatentGrid
from lno.models.image_model import ImageConfig, ImageModel
from lno.models.spectral import FourierLayer

LAYERS = 4  # as published, whatever the settings there say


@dataclass(frozen=True)
class FNOConfig(ImageConfig):
    """Sizes of an FNO. The defaults are the published ones for Darcy.

    Args:
        width, reference, time_input, cloud: see `ImageConfig`.
        modes: wave numbers along both axes: −modes … modes − 1 and 0 … modes − 1.

    >>> FNOConfig(width=32, reference=None, cloud=LatentGrid()).modes
    12
    """

    width: int = 128
    reference: int | None = 8
    modes: int = 12

    limits: ClassVar[Mapping[str, tuple[int, int]]] = {**ImageConfig.limits, "modes": (1, 2048)}


class FNO(ImageModel):
    """FNO: values at points in, values at the same points out.

    >>> import torch
    >>> model = FNO(Spec(2, 1, 3, grid=(10, 6)), FNOConfig(width=16, modes=4))
    >>> x, u = torch.rand(1, 60, 2), torch.rand(4, 60, 1)
    >>> model(x, u, x).shape
    torch.Size([4, 60, 3])
    """

    config: FNOConfig

    def __init__(self, spec: Spec, config: FNOConfig | None = None) -> None:
        super().__init__(spec, config)
        width, modes = self.config.width, self.config.modes
        self.layers = nn.ModuleList(FourierLayer(width, modes, modes) for _ in range(LAYERS))

    @classmethod
    def default_config(cls, spec: Spec) -> FNOConfig:
        """The published sizes for Darcy; without a 2-D grid, those for Elasticity."""
        if spec.plane:
            return FNOConfig()
        return FNOConfig(width=32, reference=None, cloud=LatentGrid())

    def process(self, image: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        """The Fourier layers."""
        for layer in self.layers[:-1]:
            image = F.gelu(layer(image))
        return self.layers[-1](image)
