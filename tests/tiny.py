"""A tiny LNO, and tiny data for it, that many tests share."""

from __future__ import annotations

import numpy as np

from lno import Fields

LNO = {"width": 16, "latents": 8, "blocks": 1, "heads": 2, "layers": 1}


def lines() -> Fields:
    """Forty samples of a small smooth operator on a line: u = a·sin(x + b) to its derivative."""
    random = np.random.default_rng(0)
    x = np.linspace(0, 3, 24)[:, None]
    a, b = random.uniform(0.5, 2, (2, 40, 1, 1))
    return Fields(x, u=a * np.sin(x + b), y=a * np.cos(x + b), names={"u": ["f"], "y": ["df"]})
