from __future__ import annotations

import numpy as np
import pytest
import torch
from small_models import LATENT, PYRAMID, close, mask_of_lengths

from lno import Spec
from lno.config import from_dict, to_dict
from lno.models import FNOConfig, LatentGrid
from lno.models.geometry_map import Geometry, GeometryMap


def geometry(grid: LatentGrid = LATENT) -> Geometry:
    torch.manual_seed(0)
    return Geometry(Spec(2, 1, 1), 3, grid).double()


def points(n: int = 20) -> torch.Tensor:
    return torch.rand(2, n, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def mapped(model: Geometry, x: torch.Tensor) -> np.ndarray:
    with torch.no_grad():
        return model.map(0.5 + x / 12**0.5 if model.grid.standardized else x).numpy()


def wave_numbers(grid: LatentGrid) -> tuple[np.ndarray, np.ndarray]:
    rows = np.concatenate((np.arange(grid.row_modes), np.arange(-grid.row_modes, 0)))
    return rows, np.arange(grid.column_modes)


@pytest.mark.parametrize("grid", [LATENT, PYRAMID, LatentGrid(9, 7, 2, 4, 4, standardized=False)])
def test_points_to_image_is_its_equation(grid: LatentGrid) -> None:
    """Sums over points, one coefficient after the other, in a whole spectrum."""
    model, x = geometry(grid), points()
    f = torch.randn(2, 20, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    xi, weight = mapped(model, x), torch.view_as_complex(model.inward.weight.detach()).numpy()
    spectrum = np.zeros((2, 3, grid.rows, grid.columns // 2 + 1), complex)
    for k in wave_numbers(grid)[0]:
        for m in wave_numbers(grid)[1]:
            wave = np.exp(-2j * np.pi * (k * xi[..., 0] + m * xi[..., 1]))
            spectrum[:, :, k, m] = np.einsum("bnc,bn->bc", f.numpy(), wave) @ weight[k, m]
    expected = np.fft.irfft(np.fft.ifft(spectrum, axis=2), n=grid.columns, axis=3)
    assert close(model.to_image(f, model.waves(x)), torch.from_numpy(expected), 1e-12)


@pytest.mark.parametrize("grid", [LATENT, PYRAMID, LatentGrid(9, 7, 2, 4, 4, standardized=False)])
def test_image_to_points_is_the_published_sum_over_all_waves(grid: LatentGrid) -> None:
    """Columns of negative wave numbers are written out: conjugate, rows and columns reversed."""
    model, x = geometry(grid), points()
    v = torch.randn(2, 3, grid.rows, grid.columns, dtype=torch.float64)
    weight = torch.view_as_complex(model.outward.weight.detach()).numpy()
    (rows, columns), transform = wave_numbers(grid), np.fft.rfft2(v.numpy())
    half = np.zeros((2, 3, len(rows), len(columns)), complex)
    for r, k in enumerate(rows):
        for m in columns:
            half[:, :, r, m] = transform[:, :, k, m] @ weight[r, m]
    whole = np.concatenate((half, half[:, :, ::-1, :0:-1].conj()), axis=-1)
    every = np.concatenate((columns, -columns[:0:-1]))
    xi = mapped(model, x)
    phase = rows[:, None] * xi[..., 0, None, None] + every * xi[..., 1, None, None]
    expected = np.einsum("bckl,bnkl->bnc", whole, np.exp(2j * np.pi * phase)).real
    assert close(model.to_points(v, model.waves(x)), torch.from_numpy(expected), 1e-12)


def test_standardised_positions_are_moved_to_the_unit_square() -> None:
    """Coordinates that are evenly distributed from 0 to 1 have mean ½ and variance 1/12."""
    x, plain = points(), geometry(LatentGrid(16, 12, 3, 4, 8, standardized=False))
    waves = geometry().waves((x - 0.5) * 12**0.5)
    assert close(waves.cos, plain.waves(x).cos, 1e-12)


def test_the_map_of_one_point() -> None:
    model, p = GeometryMap(width=8).double(), torch.tensor([[[0.3, 0.7]]], dtype=torch.float64)
    away = p[0, 0] - 1e-4
    four = torch.stack((*p[0, 0], torch.atan2(away[1], away[0]), away.square().sum().sqrt()))
    angles = torch.stack([four * np.pi, four * 2 * np.pi], dim=1).flatten()
    r = model.input(torch.cat((model.features(four), angles.sin(), angles.cos())))
    for layer in model.hidden:
        r = layer(r).tanh()
    assert close(model(p)[0, 0], p[0, 0] * (1 + model.output(r)), 1e-12)


def test_padding_does_not_count() -> None:
    model, x, mask = geometry(), points(), mask_of_lengths(20, 7, n=20)
    f = torch.randn(2, 20, 3, dtype=torch.float64)
    junk = torch.where(mask[..., None], f, 1e6)
    image = model.to_image(junk, model.waves(x), mask)
    assert close(image[1:], model.to_image(f[1:, :7], model.waves(x[1:, :7])), 1e-12)


def test_waves_are_float32_inside_half_precision() -> None:
    model, x = geometry().float(), points().float()
    with torch.autocast("cpu", torch.bfloat16):
        waves = model.waves(x)
        image = model.to_image(torch.ones(2, 20, 3).bfloat16(), waves)
        f = model.to_points(image.bfloat16(), waves)
    assert waves.cos.dtype == image.dtype == f.dtype == torch.float32
    assert torch.equal(waves.cos, model.waves(x).cos)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"map_width": 10}, "map_width must be a multiple of 4, got 10"),
        ({"rows": 8, "row_modes": 9}, "row_modes must be at most 8 with 8 rows, got 9"),
        ({"columns": 9, "column_modes": 6}, "column_modes must be at most 5 with 9 columns, got 6"),
        ({"standardized": 1}, "standardized must be True or False"),
    ],
)
def test_impossible_settings_are_errors(keys: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LatentGrid(**keys)


def test_a_latent_grid_is_part_of_a_config() -> None:
    config = FNOConfig(32, None, cloud=LatentGrid(32, 24))
    assert from_dict(FNOConfig, to_dict(config)) == config
    assert to_dict(config)["cloud"]["rows"] == 32
    with pytest.raises(ValueError, match=r"LatentGrid has no key 'row' \(did you mean 'rows'"):
        from_dict(FNOConfig, {"cloud": {"row": 3}})
    with pytest.raises(ValueError, match=r"FNOConfig.cloud: expected LatentGrid\(...\) or null"):
        FNOConfig(cloud=96)  # type: ignore[arg-type]
