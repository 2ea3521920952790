"""Travelling waves, sensors in them, and what the tests of reconstruction ask of a result."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from lno import Fields, Window
from lno.calibration import Calibration, calibrate
from lno.reconstruct import Reconstruction, Reconstructor

WINDOW = Window("t", 0.25, 0.75)
SOME = Calibration(0.8, 9, (9,), (3.0,), (4.0,), (99.0,), (99.0,))


def waves(samples: int, seed: int) -> Fields:
    """Travelling waves of random phase and speed on a periodic line."""
    random = np.random.default_rng(seed)
    t, x = np.linspace(0, 1, 17), np.arange(16) / 16
    points = np.stack(np.meshgrid(t, x, indexing="ij"), -1).reshape(-1, 2)
    phase, speed = random.uniform(size=(2, samples, 1))
    u = np.sin(2 * np.pi * (points[:, 1] - speed * points[:, 0] + phase))
    return Fields(
        points,
        y=u[..., None],
        grid=(17, 16),
        period=(None, 1.0),
        names={"x": ["t", "x"], "y": ["u"]},
    )


def calibrated(whole: Reconstructor, scored: dict, ratio: float = 0.2) -> Reconstructor:
    return replace(whole, calibration=calibrate(scored[ratio][0], 0.9))


def bounds(found: Reconstruction) -> tuple[np.ndarray, np.ndarray]:
    assert found.lower is not None and found.upper is not None
    return found.lower, found.upper


def sensors(count: int = 12, last: float = 0.75) -> np.ndarray:
    random = np.random.default_rng(3)
    t, x = random.uniform(0.25, last, count), random.uniform(size=count)
    return np.column_stack((x, t, np.sin(2 * np.pi * (x - 0.5 * t + 0.2))))
