"""Shared by the tests of reconstruction."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from small_waves import SOME, WINDOW, waves

from lno import Completion, Operator, Propagation, RandomRatio, Recipe
from lno.calibration import Nonconformity
from lno.reconstruct import Reconstructor

CONFIG = {"width": 24, "latents": 12, "blocks": 1, "heads": 2, "layers": 1}


@pytest.fixture(scope="session")
def whole() -> Reconstructor:
    """Trained for a few seconds, not calibrated."""
    keys = {"config": CONFIG, "members": 3, "device": "cpu", "progress": False}
    keys["recipe"] = Recipe(epochs=15, batch=8)
    data = waves(96, 0)
    pattern = Completion(RandomRatio(0.05, 0.3), WINDOW)
    return Reconstructor(
        Operator.fit(data, task=pattern, conditional=True, **keys),
        Operator.fit(data, task=Propagation(WINDOW), **keys),
    )


@pytest.fixture(scope="session")
def folder(whole: Reconstructor, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model")
    replace(whole, calibration=SOME).save(path)
    return path


@pytest.fixture(scope="session")
def scored(whole: Reconstructor) -> dict[float, tuple[list[Nonconformity], list[Nonconformity]]]:
    """Of fields to calibrate on and of others, by the share of points that is observed."""
    return {
        r: tuple(whole.nonconformity(waves(40, k), [RandomRatio(r)], seed=k) for k in (1, 2))
        for r in (0.05, 0.2)
    }
