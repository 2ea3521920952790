"""A small model with everything that needs care in training: batch normalisation, complex weights
of a Fourier layer, convolutions, and a grid that it is bound to."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lno import Fields, Operator, Recipe, Spec
from lno.models import Model, ModelConfig

GRID = (8, 6)
# Small models that keep statistics, by their names in MODELS.
SIZES: dict[str, dict[str, Any]] = {
    "toy": {},
    "lsm": {"width": 4, "heads": 2, "tokens": 2, "basis": 2},
    "ufno": {"width": 4, "modes": 4, "reference": 3},
    "ono": {"width": 16, "layers": 1, "heads": 2, "modes": 3},
}
EVERYTHING = Recipe(
    epochs=2, batch=3, optimizer="muon", learning_rate=2e-3, clip=1.0, ema=0.8, weight_decay=0.01
)


@dataclass(frozen=True)
class ToyConfig(ModelConfig):
    width: int = 20
    modes: int = 3


class Toy(Model):
    predicts_anywhere = False
    needs_grid = True
    keeps_statistics = True
    config: ToyConfig

    def __init__(self, spec: Spec, config: ToyConfig | None = None) -> None:
        super().__init__(spec, config)
        c, modes = self.config.width, self.config.modes
        self.lift = nn.Linear(spec.coordinates + spec.in_channels, c)
        self.mix = nn.Parameter(torch.randn(c, c, modes, modes, 2) / c)  # real and imaginary parts
        self.convolution = nn.Conv2d(c, c, 3, padding=1)
        self.norm = nn.BatchNorm2d(c)
        self.head = nn.Linear(c, spec.out_channels)

    @classmethod
    def default_config(cls, spec: Spec) -> ToyConfig:
        return ToyConfig()

    def forward(self, x: Tensor, u: Tensor, x_query: Tensor, mask: Tensor | None = None) -> Tensor:
        grid, k = self.spec.grid or (), self.config.modes
        f = self.lift(torch.cat((x.expand(len(u), -1, -1), u), -1))
        f = f.unflatten(1, grid).permute(0, 3, 1, 2)
        low = torch.fft.rfft2(f)[..., :k, :k]
        mixed = torch.einsum("bchw,cdhw->bdhw", low, torch.view_as_complex(self.mix))
        f = torch.relu(self.norm(self.convolution(f) + torch.fft.irfft2(mixed, s=grid)))
        return self.head(f.permute(0, 2, 3, 1).flatten(1, 2))


def grid_samples(samples: int = 10, grid: tuple[int, int] = GRID) -> Fields:
    """Random values and their cumulative sums, far from standardised."""
    random, n = np.random.default_rng(0), prod(grid)
    axes = np.meshgrid(*(np.linspace(0, 1, side) for side in grid), indexing="ij")
    u = random.normal(3, 2, size=(samples, n, 1))
    return Fields(np.stack(axes, -1).reshape(n, 2), u, y=np.cumsum(u, 1) + 1, grid=grid)


def fit(kind: str = "toy", data: Fields | None = None, **keys: Any) -> Operator:
    settings = {"model": kind, "progress": False, "device": "cpu", "recipe": EVERYTHING, **keys}
    settings = settings if "init" in keys else {"config": SIZES[kind], **settings}
    return Operator.fit(grid_samples() if data is None else data, **settings)


def state(operator: Operator, k: int = 0) -> dict[str, Tensor]:
    """Copies of all weights and statistics of a member."""
    return {name: v.clone() for name, v in operator.members[k].state_dict().items()}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    """Whether two states are equal, bit-for-bit."""
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)
