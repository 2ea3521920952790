"""The U-Net of Neural-Solver-Library: five levels of 3×3 convolutions (Ronneberger et al., 2015).

    e₁ = C(image),  eₖ₊₁ = C(max-pool(eₖ)),  k = 1 … 4           w, 2w, 4w, 8w, 8w channels
    d₅ = s₅(e₅),    dₖ = C([sₖ(eₖ), upsample(dₖ₊₁)]),  k = 4 … 1
    image = Linear(d₁)

C is twice a 3×3 convolution, a normalisation and a ReLU. The maps sₖ between encoder and decoder
are the identity, unless a model has others there.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

LEVELS = (1, 2, 4, 8, 8)  # channels of each level, in multiples of the width
SMALLEST = 2 ** (len(LEVELS) - 1)  # the sizes of an image are multiples of this


class DoubleConvolution(nn.Sequential):
    """Twice: 3×3 convolution, normalisation, ReLU.

    >>> DoubleConvolution(3, 8, 5, batch_norm=True)(torch.rand(2, 3, 16, 16)).shape
    torch.Size([2, 5, 16, 16])
    """

    def __init__(self, inputs: int, middle: int, outputs: int, batch_norm: bool) -> None:
        def norm(channels: int) -> nn.Module:
            if batch_norm:
                return nn.BatchNorm2d(channels)
            return nn.InstanceNorm2d(channels, affine=True)

        super().__init__(
            nn.Conv2d(inputs, middle, 3, padding=1, bias=False),
            norm(middle),
            nn.ReLU(),
            nn.Conv2d(middle, outputs, 3, padding=1, bias=False),
            norm(outputs),
            nn.ReLU(),
        )


class UNet(nn.Module):
    """A U-Net on images whose sizes are multiples of 16.

    Args:
        width: the number of channels of the image, in and out.
        batch_norm: normalise by the statistics of a batch, and of training in evaluation. False:
            by those of each image and channel, which need more than one pixel on the last level.
        between: maps between encoder and decoder, one for each level. None: none.

    >>> UNet(width=4)(torch.rand(2, 4, 32, 16)).shape
    torch.Size([2, 4, 32, 16])
    """

    def __init__(
        self, width: int, batch_norm: bool = True, between: Sequence[nn.Module] | None = None
    ) -> None:
        super().__init__()
        channels = [factor * width for factor in LEVELS]
        self.first = DoubleConvolution(width, width, width, batch_norm)
        self.down = nn.ModuleList(
            DoubleConvolution(above, below, below, batch_norm)
            for above, below in pairwise(channels)
        )
        self.between = nn.ModuleList(between or (nn.Identity() for _ in channels))
        # A level of the decoder reads two maps of its size and gives one of the size above it.
        self.up = nn.ModuleList(
            DoubleConvolution(2 * own, own, channels[max(k - 1, 0)], batch_norm)
            for k, own in reversed(list(enumerate(channels[:-1])))
        )
        self.output = nn.Conv2d(width, width, kernel_size=1)

    def forward(self, image: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        maps = [self.first(image)]
        for down in self.down:
            maps.append(down(F.max_pool2d(maps[-1], 2)))
        maps = [module(one) for module, one in zip(self.between, maps, strict=True)]
        y = maps.pop()
        for up in self.up:
            larger = F.interpolate(y, scale_factor=2, mode="bilinear", align_corners=True)
            y = up(torch.cat((maps.pop(), larger), dim=1))
        return self.output(y)


def require_unet_image(model: str, size: tuple[int, int], batch_norm: bool) -> None:
    """Raise unless a U-Net can read images of this size."""
    if any(n % SMALLEST for n in size):
        raise ValueError(
            f"{model} needs a latent grid whose sizes are multiples of {SMALLEST}, got "
            f"{size[0]} × {size[1]}"
        )
    if not batch_norm and max(size) == SMALLEST:
        raise ValueError(
            f"{model} with batch_norm=False normalises each image by itself and needs more than "
            f"{SMALLEST} × {SMALLEST} pixels, got {size[0]} × {size[1]}: pass batch_norm=True"
        )
