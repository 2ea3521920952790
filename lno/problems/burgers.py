"""Burgers' equation, the paper's inverse problem.

    u_t + u u_x = ν u_xx,    x ∈ [0, 1) periodic,  t ∈ [0, 1],  ν = 0.01
    u(·, 0) ~ Gaussian process with covariance exp(−2 sin²(π d))

The covariance exp(−1) exp(cos 2πd) has the Fourier variances e⁻¹ I_k(1), so initial values are
drawn mode by mode, exactly. Time is advanced by ETDRK4 (Cox & Matthews 2002, with the contour
integrals of Kassam & Trefethen 2005) on at least 512 points, dealiased by the 2/3 rule. The error
against the Cole–Hopf solution is below 1e-8.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import torch
from scipy.special import ive
from torch import Tensor

from lno.config import require_count, require_range
from lno.data import Fields
from lno.data.symmetry import Symmetry
from lno.problems.numerics.samples import solve_samples

MODES = 40  # the variance of mode 40 is 1e-60


def wave_symmetries(n: int) -> tuple[Symmetry, ...]:
    """The 2n symmetries of waves on a circle, by n shifts: translate, or reverse x and u.

    If u(t, x) solves the equation, so do u(t, x + s) and −u(t, s − x), and random initial values
    are as likely as their images.

    >>> [g.name for g in wave_symmetries(16)[:3]]
    ['translate 0', 'reverse after translate 0', 'translate 1/16']
    """
    reverse = Symmetry("reverse", ((1, 0), (0, -1)), (0, 0), sign=-1, periodic=True)
    found = []
    for k in range(n):
        shift = Fraction(k, n)
        translate = Symmetry(f"translate {shift}", ((1, 0), (0, 1)), (0, shift), periodic=True)
        found += [translate, reverse @ translate]
    return tuple(found)


@dataclass(frozen=True)
class Burgers:
    """Whole solutions u(t, x) on a grid; rows are times j/(n−1), columns are positions i/n.

    Args:
        grid: n, the number of output times and positions; divides or is a multiple of 512.
        viscosity: ν.

    >>> from lno.problems.make import make
    >>> make(Burgers(grid=64), samples=3, seed=7)
    Fields(3 samples: no values at 4096 points of t, x → u at the same points)
    """

    grid: int = 128
    viscosity: float = 0.01

    symmetries: ClassVar[tuple[Symmetry, ...]] = wave_symmetries(16)
    name: ClassVar[str] = "burgers"
    batch: ClassVar[int] = 512

    def __post_init__(self) -> None:
        require_count("grid", self.grid, 4096)
        require_range("viscosity", self.viscosity, 0.005, 10.0)
        if self.grid < 2 or 4096 % self.grid:
            raise ValueError(f"grid must be a power of two from 2 to 4096, got {self.grid}")

    def draw(self, random: np.random.Generator) -> np.ndarray:
        """Fourier coefficients (2, modes) of the initial value: cosines, then sines."""
        variance = ive(np.arange(MODES), 1.0)
        variance[1:] *= 2
        return np.sqrt(variance) * random.standard_normal((2, MODES))

    def solve(self, inputs: Tensor) -> Tensor:
        """(b, 2, modes) coefficients to solutions (b, t, x), float32."""
        points = max(512, self.grid)
        x = torch.arange(points, dtype=torch.float64, device=inputs.device) / points
        # Steps of 1/1500 or less keep the error below 1e-8 at all times, steep shocks included.
        substeps = math.ceil(1500 / (self.grid - 1))

        def on_the_grid(part: Tensor) -> Tensor:
            u = etdrk4(initial_value(part, x), self.viscosity, self.grid, substeps)
            return u[..., :: points // self.grid].float()

        return solve_samples(on_the_grid, inputs, cpu=16, gpu=512)

    def fields(
        self, inputs: np.ndarray, solutions: np.ndarray, provenance: dict[str, Any]
    ) -> Fields:
        """Whole fields as the answers; tasks draw observations from them."""
        t, x = np.linspace(0, 1, self.grid), np.arange(self.grid) / self.grid
        positions = np.stack(np.meshgrid(t, x, indexing="ij"), axis=-1).reshape(-1, 2)
        return Fields(
            positions,
            y=solutions.reshape(len(solutions), -1, 1),
            grid=(self.grid, self.grid),
            period=(None, 1.0),
            names={"x": ["t", "x"], "y": ["u"]},
            frame="time and position in the periodic unit interval",
            provenance=provenance,
        )


def initial_value(coefficients: Tensor, x: Tensor) -> Tensor:
    """(b, 2, modes) Fourier coefficients to values (b, n) at x (n,)."""
    k = torch.arange(coefficients.shape[-1], dtype=x.dtype, device=x.device)
    angle = 2 * math.pi * k[:, None] * x
    return coefficients[:, 0] @ torch.cos(angle) + coefficients[:, 1] @ torch.sin(angle)


def etdrk4(u: Tensor, viscosity: float, times: int, substeps: int) -> Tensor:
    """Solve from u (b, n) at t = 0; returns (b, times, n) at equal steps up to t = 1.

    The equation is solved in the frame that moves with the mean of u, which is conserved: there a
    shock travels less, and the same steps are several times more accurate.
    """
    b, n = u.shape
    wave = 2 * math.pi * torch.arange(n // 2 + 1, dtype=u.dtype, device=u.device)
    linear = -viscosity * wave**2
    h = 1 / (times - 1) / substeps
    keep = torch.arange(n // 2 + 1, device=u.device) <= n // 3
    flux = torch.where(keep, -0.5j * wave, 0)

    def nonlinear(v: Tensor) -> Tensor:
        return flux * torch.fft.rfft(torch.fft.irfft(v, n=n).square())

    # The coefficients have removable singularities: mean over a circle around each h·linear.
    circle = torch.exp(1j * math.pi * (torch.arange(32, dtype=u.dtype, device=u.device) + 0.5) / 32)
    r = h * linear[:, None] + circle

    def around(values: Tensor) -> Tensor:
        return h * values.mean(1).real

    whole, half = torch.exp(h * linear), torch.exp(h * linear / 2)
    q = around((torch.exp(r / 2) - 1) / r)
    f1 = around((-4 - r + torch.exp(r) * (4 - 3 * r + r**2)) / r**3)
    f2 = around((2 + r + torch.exp(r) * (r - 2)) / r**3)
    f3 = around((-4 - 3 * r - r**2 + torch.exp(r) * (4 - r)) / r**3)

    mean = u.mean(dim=1, keepdim=True)
    v = torch.fft.rfft(u - mean)
    out = u.new_empty(b, times, n)
    out[:, 0] = u
    for j in range(1, times):
        for _ in range(substeps):
            nv = nonlinear(v)
            a = half * v + q * nv
            na = nonlinear(a)
            nb = nonlinear(half * v + q * na)
            nc = nonlinear(half * a + q * (2 * nb - nv))
            v = whole * v + f1 * nv + 2 * f2 * (na + nb) + f3 * nc
        back = torch.exp(-1j * wave * mean * (j / (times - 1)))
        out[:, j] = torch.fft.irfft(v * back, n=n) + mean
    return out
