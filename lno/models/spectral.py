"""Convolutions in Fourier space: each of the lowest wave numbers has a learnt complex matrix.

    y = F⁻¹(R · F x),   (R · x̂)ₖ = x̂ₖ Rₖ for the lowest wave numbers k, 0 for all others

Complex weights are stored as pairs of real numbers, so that optimisers, model files and autocast
see real parameters only. The transforms and products ignore autocast. Waves that an image is too
small for are left out, so the weights serve images of all sizes.
"""

from __future__ import annotations

import torch
from jaxtyping import Complex, Float
from torch import Tensor, nn

from lno.models.layers import full_precision


def low_waves(
    image: Float[Tensor, "b c h w"], rows: int, columns: int
) -> Complex[Tensor, "b c k l"]:
    """The Fourier coefficients of the wave numbers k = 0 … rows−1, −rows … −1, l = 0 … columns−1.

    >>> wave = torch.cos(2 * torch.pi * torch.arange(8) / 8).expand(1, 1, 8, 8)
    >>> low_waves(wave, rows=2, columns=2)[0, 0].real.round().int().tolist()
    [[0, 32], [0, 0], [0, 0], [0, 0]]
    """
    spectrum = torch.fft.fft(torch.fft.rfft(image)[..., :columns], dim=-2)
    return torch.cat((spectrum[..., :rows, :], spectrum[..., -rows:, :]), dim=-2)


def image_of_waves(
    waves: Complex[Tensor, "b c k l"], height: int, width: int
) -> Float[Tensor, "b c h w"]:
    """The image with the coefficients that `low_waves` gives, and no others.

    The coefficients of l = 0 need not be those of a real image. So the order of the two transforms
    matters: the second one ignores imaginary parts.
    """
    rows = waves.shape[-2] // 2
    # Where positive and negative wave numbers overlap, the negative ones count, as published.
    first, last = waves[..., : min(rows, height - rows), :], waves[..., rows:, :]
    gap = waves.new_zeros(*waves.shape[:-2], max(height - 2 * rows, 0), waves.shape[-1])
    spectrum = torch.cat((first, gap, last), dim=-2)
    return torch.fft.irfft(torch.fft.ifft(spectrum, dim=-2), n=width)


class WaveMixing(nn.Module):
    """A complex matrix for each wave number of `low_waves`: x̂ₖₗ ↦ x̂ₖₗ Rₖₗ.

    >>> mixing = WaveMixing(inputs=3, outputs=5, rows=4, columns=2)
    >>> mixing(torch.randn(2, 3, 8, 2, dtype=torch.complex64)).shape
    torch.Size([2, 5, 8, 2])
    """

    def __init__(self, inputs: int, outputs: int, rows: int, columns: int) -> None:
        super().__init__()
        self.rows, self.columns = rows, columns
        # Products over channels then are plain products of matrices, one for each wave number.
        shape = (2 * rows, columns, inputs, outputs, 2)
        self.weight = nn.Parameter(torch.rand(shape) / (inputs * outputs))

    def forward(self, waves: Complex[Tensor, "b i k l"]) -> Complex[Tensor, "b o k l"]:
        """All wave numbers, or the lowest of them."""
        weight, rows = torch.view_as_complex(self.weight), waves.shape[-2] // 2
        if rows < self.rows:
            weight = torch.cat((weight[:rows], weight[-rows:]))
        return torch.einsum("bikl,klio->bokl", waves, weight[:, : waves.shape[-1]])


class SpectralConvolution(nn.Module):
    """The convolution of an image with learnt Fourier coefficients of the lowest wave numbers.

    >>> convolution = SpectralConvolution(width=3, rows=4, columns=4)
    >>> convolution(torch.rand(2, 3, 20, 18)).shape
    torch.Size([2, 3, 20, 18])
    """

    def __init__(self, width: int, rows: int, columns: int) -> None:
        super().__init__()
        self.mixing = WaveMixing(width, width, rows, columns)

    def forward(self, image: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        height, width = image.shape[-2:]
        rows = min(self.mixing.rows, height)
        with full_precision(image):
            waves = low_waves(image.to(self.mixing.weight.dtype), rows, self.mixing.columns)
            return image_of_waves(self.mixing(waves), height, width)


class FourierLayer(nn.Module):
    """A spectral convolution, plus a linear map of the channels at each pixel.

    >>> FourierLayer(width=3, rows=4, columns=4)(torch.rand(2, 3, 20, 18)).shape
    torch.Size([2, 3, 20, 18])
    """

    def __init__(self, width: int, rows: int, columns: int) -> None:
        super().__init__()
        self.spectral = SpectralConvolution(width, rows, columns)
        self.pointwise = nn.Conv2d(width, width, kernel_size=1)

    def forward(self, image: Float[Tensor, "b c h w"]) -> Float[Tensor, "b c h w"]:
        return self.spectral(image) + self.pointwise(image)


class AxisConvolution(nn.Module):
    """A spectral convolution along one axis of an image, with channels last.

    Args:
        width: the number of channels.
        modes: the number of wave numbers.
        axis: 1 along the rows' index, 2 along the columns' index.
        gain: a factor of the initial weights (Xavier normal).

    >>> AxisConvolution(width=3, modes=4, axis=1)(torch.rand(2, 20, 18, 3)).shape
    torch.Size([2, 20, 18, 3])
    """

    def __init__(self, width: int, modes: int, axis: int, gain: float = 1.0) -> None:
        super().__init__()
        self.modes, self.axis = modes, axis
        # Fans as torch counts them in a tensor (in, out, modes, 2), the published layout.
        deviation = gain / (2 * width * modes) ** 0.5
        self.weight = nn.Parameter(deviation * torch.randn(modes, width, width, 2))

    def forward(self, image: Float[Tensor, "b h w c"]) -> Float[Tensor, "b h w c"]:
        with full_precision(image):
            image = image.to(self.weight.dtype)
            waves = torch.fft.rfft(image, dim=self.axis).narrow(
                self.axis, 0, min(self.modes, image.shape[self.axis] // 2 + 1)
            )
            weight = torch.view_as_complex(self.weight)[: waves.shape[self.axis]]
            product = "bkwi,kio->bkwo" if self.axis == 1 else "bhki,kio->bhko"
            waves = torch.einsum(product, waves, weight)
            return torch.fft.irfft(waves, n=image.shape[self.axis], dim=self.axis)
