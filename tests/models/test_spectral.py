from __future__ import annotations

import numpy as np
import pytest
import torch
from small_models import close

from lno.models.spectral import (
    AxisConvolution,
    FourierLayer,
    SpectralConvolution,
    WaveMixing,
    image_of_waves,
    low_waves,
)

CONVOLUTIONS = [
    SpectralConvolution(3, rows=3, columns=4),
    AxisConvolution(3, modes=4, axis=1),
    AxisConvolution(3, modes=4, axis=2),
]
EVERY_CONVOLUTION = pytest.mark.parametrize("layer", CONVOLUTIONS, ids=["plane", "rows", "columns"])


def image(height: int, width: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(2, 3, height, width, generator=generator, dtype=torch.float64)


def smooth(height: int, width: int) -> torch.Tensor:
    """A function of few waves, at the points of a periodic grid."""
    y, x = (torch.arange(n, dtype=torch.float64) / n for n in (height, width))
    waves = [
        torch.cos(2 * torch.pi * (k * y[:, None] + m * x) + 0.3 * k + c)
        for c, (k, m) in enumerate([(1, 2), (-2, 1), (0, 3)])
    ]
    return torch.stack(waves)[None].expand(2, -1, -1, -1)


def apply(layer: torch.nn.Module, v: torch.Tensor) -> torch.Tensor:
    """A layer's image; some have channels last."""
    layer = layer.double()
    if isinstance(layer, AxisConvolution):
        return layer(v.movedim(1, -1)).movedim(-1, 1)
    return layer(v)


@pytest.mark.parametrize("size", [(12, 11), (9, 16), (5, 8), (4, 4), (2, 3)])
def test_a_spectral_convolution_is_its_equation(size: tuple[int, int]) -> None:
    """In a whole spectrum, by numpy's transforms; also where it is too small for all waves."""
    (h, w), layer, v = size, SpectralConvolution(3, rows=3, columns=4).double(), image(*size)
    weight = torch.view_as_complex(layer.mixing.weight.detach()).numpy()
    given, out = np.fft.rfft2(v.numpy()), np.zeros((2, 3, h, w // 2 + 1), complex)
    for k in [*range(3), *range(-3, 0)]:  # negative wave numbers come last, and count
        for m in range(min(4, w // 2 + 1)):
            if -h <= k < h:
                out[:, :, k, m] = given[:, :, k, m] @ weight[k, m]
    expected = np.fft.irfft(np.fft.ifft(out, axis=2), n=w, axis=3)
    assert close(layer(v), torch.from_numpy(expected), 1e-12)


@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("size", [(12, 11), (5, 4)])
def test_a_convolution_along_an_axis_is_its_equation(axis: int, size: tuple[int, int]) -> None:
    layer, v = AxisConvolution(3, modes=4, axis=axis).double(), image(*size).movedim(1, -1)
    weight, n = torch.view_as_complex(layer.weight.detach()).numpy(), size[axis - 1]
    given = np.moveaxis(np.fft.rfft(v.numpy(), axis=axis), axis, 0)
    out = np.zeros_like(given)
    for k in range(min(4, n // 2 + 1)):
        out[k] = given[k] @ weight[k]
    expected = np.fft.irfft(np.moveaxis(out, 0, axis), n=n, axis=axis)
    assert close(layer(v), torch.from_numpy(expected), 1e-12)


@EVERY_CONVOLUTION
def test_convolutions_commute_with_shifts(layer: torch.nn.Module) -> None:
    v = image(12, 14)
    assert close(
        apply(layer, v.roll((3, -5), (2, 3))), apply(layer, v).roll((3, -5), (2, 3)), 1e-12
    )


@EVERY_CONVOLUTION
def test_a_finer_grid_has_the_same_waves(layer: torch.nn.Module) -> None:
    """The result is a function, whatever the grid on which it is computed."""
    coarse, fine = apply(layer, smooth(12, 10)), apply(layer, smooth(36, 20))
    assert close(fine[..., ::3, ::2], coarse, 1e-12)


def test_images_of_few_waves_are_their_coefficients() -> None:
    v = smooth(12, 10)
    assert close(image_of_waves(low_waves(v, 3, 4), 12, 10), v, 1e-12)
    assert not close(image_of_waves(low_waves(v, 3, 3), 12, 10), v, 1e-3)


def test_weights_are_real_and_start_as_published() -> None:
    torch.manual_seed(0)
    mixing, axis = WaveMixing(8, 16, rows=6, columns=5), AxisConvolution(16, modes=12, axis=1)
    assert all(not p.is_complex() for layer in (mixing, axis) for p in layer.parameters())
    assert mixing.weight.shape == (12, 5, 8, 16, 2)
    weight = mixing.weight.detach() * 8 * 16  # uniform between 0 and 1
    assert float(weight.min()) >= 0 and float(weight.max()) <= 1
    assert float(weight.mean()) == pytest.approx(0.5, rel=0.02)
    other = torch.empty(16, 16, 12, 2)  # the published layout
    torch.nn.init.xavier_normal_(other)
    assert float(axis.weight.detach().std()) == pytest.approx(float(other.std()), rel=0.05)
    shared = AxisConvolution(16, modes=12, axis=1, gain=0.1)
    assert float(shared.weight.detach().std()) == pytest.approx(float(other.std()) / 10, rel=0.05)


def test_transforms_ignore_autocast() -> None:
    layer, v = FourierLayer(3, rows=3, columns=4), image(12, 14).float()
    with torch.autocast("cpu", torch.bfloat16):
        half = layer.spectral(v.bfloat16())
    assert half.dtype == torch.float32
    assert torch.equal(half, layer.spectral(v.bfloat16().float()))
