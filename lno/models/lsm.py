"""LSM (Wu et al., "Solving High-Dimensional PDEs with Latent Spectral Models", 2023).

    image = points to image(Stem(x, u))                    see `image_model`
    image ← U-Net with a neural spectral block on each of its five levels
    y = MLP(image to points(image))

A neural spectral block cuts its map into patches, 16 × 16 on the first level and one on the last.
Each head projects the pixels t of a patch to a few latent tokens z, and back:

    z = latent + softmax over pixels(latent · Keys(t)) · Values(t)
    z ← z + Σⱼ aⱼ sin(π j z / J) + bⱼ cos(π j z / J),   j = 0 … J−1
    t ← t + softmax over tokens(Queries(t) · z) · z

`latent`, a and b are learnt; each feature has its own a and b. The form is that of
Neural-Solver-Library. As published, scores are not scaled.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import pi

import torch
from jaxtyping import Float
from torch import Tensor, nn

from lno.data.fields import Spec
from lno.models.geometry_map import LatentGrid
from lno.models.image_model import ImageConfig, ImageModel
from lno.models.layers import full_precision
from lno.models.model import ModelConfig
from lno.models.unet import LEVELS, SMALLEST, UNet, require_unet_image


@dataclass(frozen=True)
class LSMConfig(ImageConfig):
    """Sizes of an LSM. The defaults are the published ones for Darcy.

    Args:
        width, reference, time_input, cloud: see `ImageConfig`.
        heads: the number of heads of a spectral block; divides the width.
        tokens: the number of latent tokens of a patch and head.
        basis: the number of sines, and of cosines, of a spectral block.
        batch_norm: the U-Net normalises by statistics of the batch, as published for steady
            problems. False: by those of each image, as published for problems in time.

    >>> LSMConfig(width=32).tokens
    4
    """

    width: int = 64
    heads: int = 8
    tokens: int = 4
    basis: int = 12
    batch_norm: bool = True


class SpectralBlock(nn.Module):
    """A neural spectral block on maps of any size.

    Args:
        width: the number of channels.
        config: sizes.
        patch: rows and columns of a patch.

    >>> block = SpectralBlock(6, LSMConfig(width=6, heads=2), patch=(2, 3))
    >>> block(torch.rand(4, 6, 8, 6)).shape
    torch.Size([4, 6, 8, 6])
    """

    def __init__(self, width: int, config: LSMConfig, patch: tuple[int, int]) -> None:
        super().__init__()
        self.patch, self.heads, size = patch, config.heads, width // config.heads
        self.latent = nn.Parameter(torch.rand(config.heads, config.tokens, size) / width)
        self.waves = nn.Parameter(torch.rand(config.heads, size, 2, config.basis) / width)
        self.keys_values = nn.Linear(width, 2 * width)
        self.queries = nn.Linear(width, width)

    def forward(self, image: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        (p, q), (b, _, h, w) = self.patch, image.shape
        patches = image.unflatten(3, (w // q, q)).unflatten(2, (h // p, p))
        t = patches.permute(0, 2, 4, 3, 5, 1).flatten(3, 4).flatten(0, 2)  # patch, pixel, channel
        t = (t + self._read(t)).unflatten(1, (p, q)).unflatten(0, (b, h // p, w // q))
        return t.permute(0, 5, 1, 3, 2, 4).flatten(4, 5).flatten(2, 3)

    def _read(self, t: Float[Tensor, "b n c"]) -> Float[Tensor, "b n c"]:
        """What each pixel of a patch reads from the latent tokens."""
        keys, values = self.keys_values(t).unflatten(-1, (2, self.heads, -1)).unbind(2)
        weights = torch.softmax(torch.einsum("hme,bnhe->bhmn", self.latent, keys), dim=-1)
        z = self.latent + torch.einsum("bhmn,bnhe->bhme", weights.to(values.dtype), values)
        z = self._transition(z)
        queries = self.queries(t).unflatten(-1, (self.heads, -1))
        weights = torch.softmax(torch.einsum("bnhe,bhme->bnhm", queries, z.to(t.dtype)), dim=-1)
        return torch.einsum("bnhm,bhme->bnhe", weights, z.to(weights.dtype)).flatten(2)

    def _transition(self, z: Float[Tensor, "b h m e"]) -> Float[Tensor, "b h m e"]:
        """Add to each number its trigonometric series. In full precision."""
        with full_precision(z):
            z = z.to(self.waves.dtype)
            steps = torch.arange(self.waves.shape[-1], dtype=z.dtype, device=z.device)
            angles = z[..., None] * (pi / len(steps) * steps)
            sines, cosines = self.waves.unbind(2)
            z = z + torch.einsum("bhmej,hej->bhme", angles.sin(), sines)
            return z + torch.einsum("bhmej,hej->bhme", angles.cos(), cosines)


class LSM(ImageModel):
    """LSM: values at points in, values at the same points out.

    >>> model = LSM(Spec(2, 1, 3, grid=(10, 6)), LSMConfig(width=4, heads=2))
    >>> x, u = torch.rand(1, 60, 2), torch.rand(4, 60, 1)
    >>> model(x, u, x).shape
    torch.Size([4, 60, 3])
    """

    head_ratio = 2
    config: LSMConfig

    def __init__(self, spec: Spec, config: LSMConfig | None = None) -> None:
        super().__init__(spec, config)
        width, batch_norm = self.config.width, self.config.batch_norm
        self.keeps_statistics = batch_norm
        require_unet_image("LSM", self.image_size, batch_norm)
        rows, columns = (size // SMALLEST for size in self.image_size)
        blocks = [SpectralBlock(k * width, self.config, (rows, columns)) for k in LEVELS]
        self.unet = UNet(width, batch_norm, blocks)

    @classmethod
    def default_config(cls, spec: Spec) -> LSMConfig:
        """The published sizes for Darcy; without a 2-D grid, those for Elasticity."""
        if spec.plane:
            return LSMConfig()
        return LSMConfig(width=32, cloud=LatentGrid())

    @classmethod
    def with_time(cls, config: ModelConfig) -> LSMConfig:
        """The same sizes, with `time_input` and, as published, without `batch_norm`."""
        assert isinstance(config, LSMConfig)
        return replace(config, time_input=True, batch_norm=False)

    def process(self, image: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        """The U-Net with its spectral blocks."""
        return self.unet(image)
