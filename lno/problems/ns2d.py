"""Two-dimensional turbulence: the vorticity of a forced viscous flow on the unit torus.

    ω_t + ∇·(u ω) = ν Δω + f,    u = (ψ_y, −ψ_x),  −Δψ = ω,    ν = 1e-5
    f = 0.1 (sin 2π(x + y) + cos 2π(x + y))
    ω(0) ~ N(0, 2 τ^{2α−2} (−Δ + τ²)^{−α}) without its mean, α = 2.5, τ = 7

Fourier modes, dealiased by the 2/3 rule; viscosity is integrated exactly, the rest by the classical
Runge–Kutta method of fourth order. Each sample has its own steps, at most half the limit of
stability. Single precision by default.

Errors on 8 samples (relative L2) at t = 1, 10, 20: single precision 2e-6, 1e-5, 1e-4; steps halved
5e-6, 2e-7, 1e-6; against 512² points 3e-5, 1e-4, 4e-3, since small differences grow in such a flow.

The factor 2 of the variance is that of the published data (a sample has std 0.262 at t = 1; here
0.256 ± 0.053 at t = 0, 0.273 ± 0.047 at t = 1), not of the code that is public today.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.fft import irfft2, rfft2

from lno.config import require_count, require_range
from lno.data import Fields
from lno.data.symmetry import Symmetry
from lno.problems.numerics.random_fields import periodic_field
from lno.problems.numerics.samples import solve_samples

# Classical Runge–Kutta is stable for frequencies up to 2.8 / step on the imaginary axis.
LIMIT = 2.8
SAFETY = 0.5


def flow_symmetries(n: int) -> tuple[Symmetry, ...]:
    """The 4n symmetries of the forced flow on a grid of n × n points, n a multiple of 4.

    Translations along (1, −1) by k/n, each after one of: nothing; ω(x, y) → −ω(y + ½, x);
    ω(x, y) → ω(¼ − x, −y); both.

    >>> len(flow_symmetries(64)), flow_symmetries(64)[5].name
    (256, 'translate 1/64 after reflect')
    """
    if n < 4 or n % 4:
        raise ValueError(f"expected the points along an axis to be a multiple of 4, got {n}")
    same, swap, back = ((1, 0), (0, 1)), ((0, 1), (1, 0)), ((-1, 0), (0, -1))
    reflect = Symmetry("reflect", swap, (Fraction(1, 2), 0), sign=-1, periodic=True)
    turn = Symmetry("turn", back, (Fraction(1, 4), 0), periodic=True)
    translations = [
        Symmetry(f"translate {t}", same, (t, -t), periodic=True)
        for t in (Fraction(k, n) for k in range(n))
    ]
    return tuple(g for t in translations for g in (t, t @ reflect, t @ turn, t @ reflect @ turn))


@dataclass(frozen=True)
class NS2d:
    """Vorticity at every k-th point of a grid at t = 1, 2, ...: the first half gives the second.

    Args:
        grid: n, the points of the solver along each axis.
        every: k; the grid of the data has n/k points along each axis.
        viscosity: ν.
        frames: the number of times, an even number.
        forcing: the amplitude of f.
        alpha, tau: smoothness and inverse length of the initial vorticity.

    The precision of the solver is that of its inputs.

    >>> from lno.problems.make import generator
    >>> problem = NS2d(grid=32, every=2, viscosity=1e-2, frames=4)
    >>> w = torch.from_numpy(problem.draw(generator(seed=7, index=0)))
    >>> problem.solve(w[None]).shape
    torch.Size([1, 16, 16, 4])
    """

    grid: int = 256
    every: int = 4
    viscosity: float = 1e-5
    frames: int = 20
    forcing: float = 0.1
    alpha: float = 2.5
    tau: float = 7.0

    name: ClassVar[str] = "ns2d"
    batch: ClassVar[int] = 64
    symmetries: ClassVar[tuple[Symmetry, ...]] = flow_symmetries(4)

    def __post_init__(self) -> None:
        require_count("grid", self.grid, 4096)
        require_count("every", self.every, 1024)
        require_range("viscosity", self.viscosity, 0.0, 1.0)
        require_count("frames", self.frames, 1000)
        require_range("forcing", self.forcing, 0.0, 100.0)
        require_range("alpha", self.alpha, 1.0, 10.0)
        require_range("tau", self.tau, 0.1, 100.0)
        if self.grid % (4 * self.every):
            raise ValueError(
                "expected grid to be a multiple of 4 · every, as its symmetries need, "
                f"got grid {self.grid} and every {self.every}"
            )
        if self.frames % 2:
            raise ValueError(
                f"frames must be even: half are given, half asked for; got {self.frames}"
            )

    def draw(self, random: np.random.Generator) -> np.ndarray:
        """The vorticity at t = 0: (grid, grid) float32."""
        field = periodic_field(random, self.grid, self.alpha, self.tau)
        return (math.sqrt(2) * field).astype(np.float32)

    def solve(self, inputs: Tensor) -> Tensor:
        """(b, grid, grid) initial vorticity to (b, m, m, frames) on the grid of the data."""
        flow = Flow(inputs.new_empty(0), self.grid, self.viscosity, self.forcing)

        def trajectories(initial: Tensor) -> Tensor:
            w, frames = flow.modes(initial), []
            for _ in range(self.frames):
                w = flow.advance(w, 1.0)
                frames.append(flow.values(w)[:, :: self.every, :: self.every])
            return torch.stack(frames, dim=-1)

        return solve_samples(trajectories, inputs, cpu=1, gpu=self.batch)

    def fields(
        self, inputs: np.ndarray, solutions: np.ndarray, provenance: dict[str, Any]
    ) -> Fields:
        """The first half of the frames as the observed values, the second half as the answers."""
        s, m, half = len(solutions), solutions.shape[1], self.frames // 2
        side = np.arange(m) / m
        positions = np.stack(np.meshgrid(side, side, indexing="ij"), axis=-1).reshape(-1, 2)
        w = solutions.reshape(s, m * m, self.frames).astype(np.float32)
        names = [f"w(t={k + 1})" for k in range(self.frames)]
        return Fields(
            positions,
            u=w[..., :half],
            y=w[..., half:],
            grid=(m, m),
            period=(1.0, 1.0),
            names={"x": ["x", "y"], "u": names[:half], "y": names[half:]},
            frame="periodic unit square",
            provenance=provenance,
        )


class Flow:
    """The vorticity equation for the Fourier modes ω̂ (b, n, n/2 + 1), where ω = Σ ω̂ exp(2πi k·x).

    Args:
        like: an empty tensor with the precision and device to compute in.
        n: points along each axis; modes with a wave number up to n/3 are kept.
        viscosity: ν.
        forcing: the amplitude of f.

    >>> flow = Flow(torch.empty(0, dtype=torch.float64), 16, viscosity=0.1, forcing=0.1)
    >>> w = flow.advance(flow.modes(torch.zeros(1, 16, 16, dtype=torch.float64)), duration=0.1)
    >>> f"{flow.values(w)[0, 0, 0].item():.6f}"
    '0.006915'
    """

    def __init__(self, like: Tensor, n: int, viscosity: float, forcing: float) -> None:
        real = torch.float64
        kx, ky = torch.fft.fftfreq(n, 1 / n, dtype=real), torch.fft.rfftfreq(n, 1 / n, dtype=real)
        self.cut = (n - 1) // 3  # products of kept modes never fold back onto kept modes
        keep = (kx.abs() <= self.cut)[:, None] & (ky <= self.cut)
        dx, dy = 2j * math.pi * kx[:, None], 2j * math.pi * ky[None, :]
        laplacian = (dx**2 + dy**2).real
        inverse = torch.where(laplacian < 0, 1 / laplacian, 0)
        ones = torch.ones_like(inverse)
        force = torch.zeros_like(inverse * dx)
        force[1, 1] = torch.tensor(forcing * (1 - 1j) / 2, dtype=force.dtype)

        complex_like = torch.complex(like, like)
        self.n = n
        self.keep = keep.to(like)
        self.laplacian = laplacian.to(like)
        self._decay = viscosity * self.laplacian
        # ψ = −Δ⁻¹ω, u = ψ_y, v = −ψ_x
        self._to_fields = torch.stack([-dy * inverse, dx * inverse, ones]).to(complex_like)
        self._divergence = (torch.stack([dx * ones, dy * ones]) * keep / n**2).to(complex_like)
        self._force = force.to(complex_like)
        # Steps a unit of time: at least 20, and ten for each e-folding of the forced mode.
        self._fewest = 20 + 10 * viscosity * 8 * math.pi**2

    def modes(self, values: Tensor) -> Tensor:
        """Values (b, n, n) at the points i/n to modes (b, n, n/2 + 1), the finest left out."""
        return rfft2(values, norm="forward") * self.keep

    def values(self, w: Tensor) -> Tensor:
        """Modes (..., n, n/2 + 1) to values (..., n, n)."""
        return irfft2(w, s=(self.n, self.n), norm="forward")

    def fields(self, w: Tensor) -> Tensor:
        """Velocity and vorticity (b, 3, n, n): u, v, ω."""
        return self.values(self._to_fields * w[:, None])

    def rate(self, fields: Tensor) -> Tensor:
        """Forcing minus advection, f − ∇·(u ω), as modes (b, n, n/2 + 1)."""
        flux = self._divergence * rfft2(fields[:, :2] * fields[:, 2:])
        return self._force - flux[:, 0] - flux[:, 1]

    def step(self, w: Tensor, h: Tensor, rate: Tensor) -> Tensor:
        """One step of Runge–Kutta of the lengths h (b,), given the rate at its start.

        The modes of exp(−νΔt) ω have no viscous term; a step of length 0 changes nothing.
        """
        h = h[:, None, None]
        decay = torch.exp(h / 2 * self._decay)
        k1, start = rate, decay * w
        k2 = self.rate(self.fields(start + h / 2 * decay * k1))
        k3 = self.rate(self.fields(start + h / 2 * k2))
        k4 = self.rate(self.fields(decay * (start + h * k3)))
        return decay * (decay * (w + h / 6 * k1) + h / 3 * (k2 + k3)) + h / 6 * k4

    def advance(self, w: Tensor, duration: float) -> Tensor:
        """The modes after `duration`, by as many steps as the velocity of each sample demands."""
        remaining = torch.full((len(w),), duration, dtype=torch.float64, device=w.device)
        frequency = 2 * math.pi * self.cut / (SAFETY * LIMIT)
        left = 1
        while left:
            # The host waits for the device only here, having queued half of the steps foreseen.
            for _ in range((left + 1) // 2):
                fields = self.fields(w)
                speed = fields[:, :2].abs().sum(1).amax((1, 2))
                demand = (speed * frequency).clamp(min=self._fewest)
                steps = (remaining * demand).ceil().clamp(min=1)
                h = remaining / steps
                w = self.step(w, h.to(self.laplacian.dtype), self.rate(fields))
                remaining = torch.where(steps == 1, 0, remaining - h)  # a finished sample: h = 0
            most = steps.max().item()
            if not math.isfinite(most):
                raise FloatingPointError(
                    "the vorticity is not finite: expected finite initial values"
                )
            left = int(most) - 1
        return w
