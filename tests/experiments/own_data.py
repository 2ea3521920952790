"""Data as a user may have them: clouds of points, sensors, trajectories."""

from __future__ import annotations

import numpy as np

from lno import Fields


def clouds(samples: int = 12, parameters: bool = False, provenance: dict | None = None) -> Fields:
    """Samples that differ in their number of points."""
    random = np.random.default_rng(0)
    x = [random.uniform(size=(n, 2)) for n in random.integers(9, 15, samples)]
    load = random.uniform(1, 2, samples)
    return Fields(
        x,
        None if parameters else [np.sin(points[:, :1]) for points in x],
        y=[a * points.sum(1, keepdims=True) for a, points in zip(load, x, strict=True)],
        parameters=load[:, None] if parameters else None,
        provenance=provenance,
    )


def sensors(samples: int = 12) -> Fields:
    """Clouds of sensors, and outputs at other points, both different in every sample."""
    random = np.random.default_rng(0)
    x, q = ([random.uniform(size=(n, 2)) for n in random.integers(9, 15, samples)] for _ in "xq")
    u, y = ([np.sin(points[:, :1]) for points in where] for where in (x, q))
    return Fields(x, u, q, y)


def trajectories(samples: int = 12) -> Fields:
    """Two channels a frame: three frames given, two to predict, of a rotating field."""
    random, side = np.random.default_rng(0), np.linspace(0, 1, 5)
    x = np.stack(np.meshgrid(side, side, indexing="ij"), -1).reshape(-1, 2)
    phase = random.uniform(0, 6, (samples, 1, 1)) + x @ [[3.0], [2.0]] + 0.4 * np.arange(5)
    frames = np.stack((np.cos(phase), np.sin(phase)), -1).reshape(samples, 25, 10)
    return Fields(x, frames[..., :6], y=frames[..., 6:], grid=(5, 5))
