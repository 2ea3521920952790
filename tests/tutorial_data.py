"""Small stand-ins for the published files of the tutorials: the same names and layouts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy.spatial import Delaunay

SIDE = 0.3  # of the hole


def holed_poisson(path: Path) -> None:
    """A grid of nodes that is moved with a hole at 11 × 11 places, and a smooth field on it."""
    ends = np.linspace(0, 1, 9)
    rest = np.stack(np.meshgrid(ends, ends, indexing="ij"), -1).reshape(-1, 2)
    outside = (np.abs(rest - 0.5) > 0.15).any(1)
    rest = rest[outside]
    corners = np.linspace(0.1, 0.6, 11)
    parameters = np.stack(np.meshgrid(corners, corners, indexing="ij"), -1).reshape(-1, 2)
    axis = [0, 0.35, 0.65, 1]  # the hole is in the middle of the grid at rest
    positions = np.empty((len(parameters), len(rest), 2))
    for k, corner in enumerate(parameters):
        for d, c in enumerate(corner):
            positions[k, :, d] = np.interp(rest[:, d], axis, [0, c, c + SIDE, 1])
    distance = np.abs(positions - parameters[:, None] - SIDE / 2).max(-1) - SIDE / 2
    values = distance * np.prod(positions * (1 - positions), -1)
    triangles = Delaunay(rest).simplices
    middle = np.abs(rest[triangles].mean(1) - 0.5).max(1)
    np.savez(
        path / "holed_poisson.npz",
        positions=positions.astype(np.float32),
        values=values[..., None].astype(np.float32),
        parameters=parameters.astype(np.float32),
        triangles=triangles[middle > 0.14].astype(np.int32),
    )


def darcy_small(path: Path) -> None:
    """Two materials and smooth pressures; half as many points in each direction."""
    random = np.random.default_rng(0)
    arrays = {}
    wave = {
        name: random.uniform(0, 6, (count, 2)) for name, count in (("train", 120), ("test", 12))
    }
    for name, shown, size in (("train", 16, 8), ("test", 16, 8), ("test", 32, 16)):
        x = np.stack(np.meshgrid(*[np.arange(size) / size] * 2, indexing="ij"), -1)
        inside = np.cos(5 * x + wave[name][:, None, None]).sum(-1)
        arrays[f"{name}_{shown}_coefficient"] = inside > 0
        arrays[f"{name}_{shown}_solution"] = (inside * np.prod(x * (1 - x), -1)).astype(np.float32)
    np.savez(path / "darcy_small.npz", **arrays)


def sea_surface_temperature(path: Path) -> None:
    """Ten years on a grid of 13 × 24 from north to south; a continent, and the south pole."""
    random = np.random.default_rng(0)
    lat, lon, month = np.linspace(90, -90, 13), np.arange(0, 360, 15.0), np.arange(517, 637)
    up, around = (np.deg2rad(v) for v in np.meshgrid(lat, lon, indexing="ij"))
    season = 5 * np.sin(up) * np.cos(2 * np.pi * month / 12)[:, None, None]
    phase = random.uniform(0, 6, (len(month), 1, 1))
    sst = 28 * np.cos(up) ** 2 + season + np.cos(up) * np.cos(around + phase)
    sst[:, -2:] = sst[:, 3:9, 4:9] = np.nan
    np.savez(
        path / "sea_surface_temperature.npz",
        sst=sst.astype(np.float32),
        lat=lat.astype(np.float32),
        lon=lon.astype(np.float32),
        month=month.astype(np.int32),
    )


def make(path: Path) -> None:
    """All of them, into a folder."""
    for one in (holed_poisson, darcy_small, sea_surface_temperature):
        one(path)
