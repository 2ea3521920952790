"""U-FNO (Wen et al., 2022), as in Neural-Solver-Library: an FNO with U-Nets in its last layers.

    image = points to image(Stem(x, u))                              see `image_model`
    image ← GELU(F⁻¹(R · F image) + Linear(image))                   2 layers
    image ← GELU(F⁻¹(R · F image) + Linear(image) + U-Net(image))    the third
    image ← F⁻¹(R · F image) + Linear(image) + U-Net(image)          the last
    y = MLP(image to points(image))

R has a complex matrix for each of the lowest wave numbers, as in `fno`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from lno.data.fields import Spec
from lno.models.geometry_map import LatentGrid
from lno.models.image_model import ImageConfig, ImageModel
from lno.models.model import ModelConfig
from lno.models.spectral import FourierLayer
from lno.models.unet import UNet, require_unet_image

LAYERS, UNETS = 4, 2  # as published


@dataclass(frozen=True)
class UFNOConfig(ImageConfig):
    """Sizes of a U-FNO. The defaults are the published ones for Darcy.

    Args:
        width, reference, time_input, cloud: see `ImageConfig`.
        modes: wave numbers along both axes: −modes … modes − 1 and 0 … modes − 1.
        batch_norm: the U-Nets normalise by statistics of the batch, as published for steady
            problems. False: by those of each image, as published for problems in time.

    >>> UFNOConfig(batch_norm=False).width
    32
    """

    reference: int | None = 8
    modes: int = 12
    batch_norm: bool = True

    limits: ClassVar[Mapping[str, tuple[int, int]]] = {**ImageConfig.limits, "modes": (1, 2048)}


class UFNO(ImageModel):
    """U-FNO: values at points in, values at the same points out.

    >>> import torch
    >>> model = UFNO(Spec(2, 1, 3, grid=(10, 6)), UFNOConfig(width=4, modes=4))
    >>> x, u = torch.rand(1, 60, 2), torch.rand(4, 60, 1)
    >>> model(x, u, x).shape
    torch.Size([4, 60, 3])
    """

    config: UFNOConfig

    def __init__(self, spec: Spec, config: UFNOConfig | None = None) -> None:
        super().__init__(spec, config)
        width, modes, batch_norm = self.config.width, self.config.modes, self.config.batch_norm
        self.keeps_statistics = batch_norm
        require_unet_image("UFNO", self.image_size, batch_norm)
        self.layers = nn.ModuleList(FourierLayer(width, modes, modes) for _ in range(LAYERS))
        self.unets = nn.ModuleList(UNet(width, batch_norm) for _ in range(UNETS))

    @classmethod
    def default_config(cls, spec: Spec) -> UFNOConfig:
        """The published sizes for Darcy; without a 2-D grid, with a latent grid in its place."""
        if spec.plane:
            return UFNOConfig()
        return UFNOConfig(reference=None, cloud=LatentGrid())

    @classmethod
    def with_time(cls, config: ModelConfig) -> UFNOConfig:
        """The same sizes, with `time_input` and, as published, without `batch_norm`."""
        assert isinstance(config, UFNOConfig)
        return replace(config, time_input=True, batch_norm=False)

    def process(self, image: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        """The Fourier layers, the last of them with U-Nets."""
        plain = LAYERS - UNETS
        for layer in self.layers[:plain]:
            image = F.gelu(layer(image))
        for k, (layer, unet) in enumerate(zip(self.layers[plain:], self.unets, strict=True)):
            image = layer(image) + unet(image)
            image = F.gelu(image) if k < UNETS - 1 else image
        return image
