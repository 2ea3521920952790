"""Small operators, calibrated on samples that they were not trained on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from lno import Fields, Operator

CONFIG = {"width": 16, "latents": 16, "blocks": 1, "heads": 2, "layers": 1}


@dataclass(frozen=True)
class Trained:
    """An operator, the samples that it was calibrated on, new ones, and ones of another kind."""

    operator: Operator
    held_out: Fields
    test: Fields
    others: Fields | None = None


def train(
    data: Fields, held_out: Fields, test: Fields, others: Fields | None = None, **keys: Any
) -> Trained:
    keys = {"config": CONFIG, "recipe": {"batch": 8}, "validation": 0.0, **keys}
    operator = Operator.fit(data, progress=False, device="cpu", **keys)
    return Trained(operator.calibrated(held_out), held_out, test, others)


def lines(samples: int, seed: int = 0) -> Fields:
    """u = a sin(x + b) at 20 points; outputs b · its derivative, and 1000 times its square."""
    random = np.random.default_rng(seed)
    x = np.linspace(0, 3, 20)[:, None]
    a, b = random.uniform(0.5, 2, (2, samples, 1, 1))
    y = np.concatenate((b * a * np.cos(x + b), 1000 * np.square(a * np.sin(x + b))), -1)
    names = {"u": ["f"], "y": ["df", "power"], "parameters": ["b"]}
    return Fields(x, a * np.sin(x + b), y=y, parameters=b[:, 0], names=names)


def clouds(samples: int, seed: int = 0) -> Fields:
    """Ellipses filled with 150 to 250 random points; the output is the distance from the centre."""
    random = np.random.default_rng(seed)
    x, y = [], []
    for _ in range(samples):
        disc = random.normal(size=(random.integers(150, 251), 2))
        disc *= random.uniform(size=(len(disc), 1)) ** 0.5 / np.linalg.norm(disc, axis=1)[:, None]
        x.append(disc * random.uniform(0.5, 1.0, 2))
        y.append(1 - np.linalg.norm(disc, axis=1)[:, None] ** 2)
    return Fields(x, y=y, names={"y": ["stress"]})


def auroc(usual: np.ndarray, others: np.ndarray) -> float:
    """The probability that a score of another kind is above a usual one."""
    above = others[:, None] > usual[None]
    return float((above + 0.5 * (others[:, None] == usual[None])).mean())
