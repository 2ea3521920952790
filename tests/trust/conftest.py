"""Shared by the tests of bounds and out-of-distribution scores: calibrated operators."""

from __future__ import annotations

import pytest
from small_operators import Trained, clouds, lines, train

from lno.problems import Darcy
from lno.problems.make import make


@pytest.fixture(scope="session")
def darcy() -> Trained:
    """Darcy flow with coefficients 12 and 3, and samples with 16 and 3 as others."""
    data = make(Darcy(grid=15, every=1), 320, 0)
    others = make(Darcy(grid=15, every=1, high=16.0), 40, 1)
    return train(*data.split(160, 80, 80), others, epochs=3)


@pytest.fixture(scope="session")
def line() -> Trained:
    """Samples with a parameter on a line, and two channels of very different size as outputs."""
    return train(*lines(240).split(120, 60, 60), epochs=8)


@pytest.fixture(scope="session")
def cloud() -> Trained:
    """Clouds of different numbers of points without values: an operator that reads geometry."""
    return train(*clouds(100).split(50, 25, 25), epochs=3)
