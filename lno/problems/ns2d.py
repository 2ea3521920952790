"""Two-dimensional turbulence: the vorticity of a forced viscous flow on the unit torus.

    ω_t + ∇·(u ω) = ν Δω + f,    u = (ψ_y, −ψ_x),  −Δψ = ω,    ν = 1e-5
    f = 0.1 (sin 2π(x + y) + cos 2π(x + y))
    ω(0) ~ N(0, 2 τ^{2α−2} (−Δ + τ²)^{−α}) without its mean, α = 2.5, τ = 7

Pseudo-spectral, dealiased by the 2/3 rule. Viscosity is integrated exactly, the rest by the
classical fourth-order Runge–Kutta method. Each sample has its own time step, at most half the
stability limit. Single precision by default.

Relative L2 errors on 8 samples at t = 1, 10, 20: single precision 2e-6, 1e-5, 1e-4; halved steps
5e-6, 2e-7, 1e-6; against 512² points 3e-5, 1e-4, 4e-3, since small differences grow in such a flow.

The variance has a factor 2 that today's public generator lacks, because the published data have it.
A published sample has std 0.262 at t = 1; here it is 0.256 ± 0.053 at t = 0 and 0.273 ± 0.047 at
t = 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Complex, Float
from torch import Tensor
from torch.fft import irfft2, rfft2

from lno.config import require_count, require_range
from lno.data import Fields
from lno.data.foreign import MAT
from lno.data.grids import grid_points
from lno.data.published import SAMPLES, Array, Layout
from lno.data.symmetry import Symmetry
from lno.problems.numerics.batches import solve_in_batches
from lno.problems.numerics.random_fields import periodic_field
from lno.problems.problem import Problem, Protocol

# On the imaginary axis, classical Runge–Kutta is stable for frequencies up to 2.8 / step.
LIMIT = 2.8
SAFETY = 0.5


def flow_symmetries(n: int) -> tuple[Symmetry, ...]:
    """The 4n symmetries of the forced flow on a grid of n × n points, n a multiple of 4.

    Translations along (1, −1) by k/n, each after one of: the identity; ω(x, y) → −ω(y + ½, x);
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


def field_arguments(w: Float[np.ndarray, "s m m frames"]) -> dict[str, Any]:
    """Vorticity at t = 1, 2, … to the arguments of `Fields`: the first half predicts the second."""
    s, *grid, frames = w.shape
    values, half = w.reshape(s, -1, frames), frames // 2
    names = [f"w(t={k + 1})" for k in range(frames)]
    return {
        "x": grid_points(*(np.arange(n) / n for n in grid)),
        "u": values[..., :half],
        "y": values[..., half:],
        "grid": grid,
        "period": (1.0, 1.0),
        "names": {"x": ["x", "y"], "u": names[:half], "y": names[half:]},
        "frame": "periodic unit square",
    }


FILES = Layout(
    files=("NavierStokes_V1e-5_N1200_T20.mat",),
    kind=MAT,
    arrays=(Array(0, "u", (SAMPLES, 64, 64, 20)),),
    build=field_arguments,
    last=True,
)


@dataclass(frozen=True)
class NS2d(Problem):
    """Vorticity at every k-th point of a grid at t = 1, 2, …: the first half predicts the second.

    Args:
        grid: n, the points of the solver along each axis.
        every: k; the grid of the data has n/k points along each axis.
        viscosity: ν.
        frames: the number of times, an even number.
        forcing: the amplitude of f.
        alpha, tau: smoothness and inverse length of the initial vorticity.

    The solver computes in the precision of its inputs.

    >>> from lno.problems.make import generator
    >>> problem = NS2d(grid=32, every=2, viscosity=1e-2, frames=4)
    >>> w = problem.draw(generator(seed=7, index=0))
    >>> [solved.shape for solved in problem.solve([w], torch.device("cpu"))]
    [(16, 16, 4)]
    """

    grid: int = 256
    every: int = 4
    viscosity: float = 1e-5
    frames: int = 20
    forcing: float = 0.1
    alpha: float = 2.5
    tau: float = 7.0

    name: ClassVar[str] = "ns2d"
    title: ClassVar[str] = "Navier–Stokes"
    equation: ClassVar[str] = "ω_t + u·∇ω = 1e-5 Δω + f on the unit torus, ω = curl u"
    protocols: ClassVar[Mapping[str, Protocol]] = {
        "standard": Protocol(1000, 200),
        "reference": Protocol(1000, 200),
    }
    published: ClassVar[Mapping[str, Layout]] = {"standard": FILES, "reference": FILES}
    symmetries: ClassVar[tuple[Symmetry, ...]] = flow_symmetries(4)
    batch: ClassVar[int] = 64

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
                f"frames must be even: half are inputs, half are outputs; got {self.frames}"
            )

    def draw(self, random: np.random.Generator) -> Float[np.ndarray, "n n"]:
        """The vorticity at t = 0, in single precision."""
        field = periodic_field(random, self.grid, self.alpha, self.tau)
        return (math.sqrt(2) * field).astype(np.float32)

    def solve(self, inputs: list[np.ndarray], device: torch.device) -> list[np.ndarray | None]:
        """Initial vorticity (n, n) to (m, m, frames) at every k-th point."""
        like = torch.from_numpy(inputs[0]).to(device).new_empty(0)
        flow = Flow(like, self.grid, self.viscosity, self.forcing)

        def trajectories(initial: Tensor) -> Tensor:
            w, frames = flow.modes(initial), []
            for _ in range(self.frames):
                w = flow.advance(w, 1.0)
                frames.append(flow.values(w)[:, :: self.every, :: self.every])
            return torch.stack(frames, dim=-1)

        return solve_in_batches(trajectories, inputs, device, cpu=1, gpu=self.batch)

    def fields(
        self,
        inputs: Sequence[np.ndarray],
        solutions: Sequence[np.ndarray],
        provenance: Mapping[str, Any],
    ) -> Fields:
        """The first half of the frames as the observed values, the second half as the outputs."""
        w = np.stack(solutions).astype(np.float32)
        return Fields(**field_arguments(w), provenance=provenance)


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
        # Steps per unit of time: at least 20, plus ten for each e-folding of the forced mode.
        self._fewest = 20 + 10 * viscosity * 8 * math.pi**2

    def modes(self, values: Float[Tensor, "b n n"]) -> Complex[Tensor, "b n k"]:
        """Values at the points i/n to modes, those above the cut-off set to zero."""
        return rfft2(values, norm="forward") * self.keep

    def values(self, w: Complex[Tensor, "*b n k"]) -> Float[Tensor, "*b n n"]:
        """Modes to values at the points i/n."""
        return irfft2(w, s=(self.n, self.n), norm="forward")

    def fields(self, w: Complex[Tensor, "b n k"]) -> Float[Tensor, "b 3 n n"]:
        """Velocity and vorticity: u, v, ω."""
        return self.values(self._to_fields * w[:, None])

    def rate(self, fields: Float[Tensor, "b 3 n n"]) -> Complex[Tensor, "b n k"]:
        """The modes of forcing minus advection, f − ∇·(u ω)."""
        flux = self._divergence * rfft2(fields[:, :2] * fields[:, 2:])
        return self._force - flux[:, 0] - flux[:, 1]

    def step(
        self, w: Complex[Tensor, "b n k"], h: Float[Tensor, " b"], rate: Complex[Tensor, "b n k"]
    ) -> Complex[Tensor, "b n k"]:
        """One Runge–Kutta step of length h, given the rate at its start.

        It integrates exp(−νΔt) ω, whose equation has no viscous term. A step of length 0 changes
        nothing.
        """
        h = h[:, None, None]
        decay = torch.exp(h / 2 * self._decay)
        k1, start = rate, decay * w
        k2 = self.rate(self.fields(start + h / 2 * decay * k1))
        k3 = self.rate(self.fields(start + h / 2 * k2))
        k4 = self.rate(self.fields(decay * (start + h * k3)))
        return decay * (decay * (w + h / 6 * k1) + h / 3 * (k2 + k3)) + h / 6 * k4

    def advance(self, w: Complex[Tensor, "b n k"], duration: float) -> Complex[Tensor, "b n k"]:
        """The modes after `duration`, in as many steps as the velocity of each sample requires."""
        remaining = torch.full((len(w),), duration, dtype=torch.float64, device=w.device)
        frequency = 2 * math.pi * self.cut / (SAFETY * LIMIT)
        left = 1
        while left:
            # Reading `steps` below makes the host wait for the GPU. So do it rarely: half of the
            # remaining steps are queued before.
            for _ in range((left + 1) // 2):
                fields = self.fields(w)
                speed = fields[:, :2].abs().sum(1).amax((1, 2))
                per_unit = (speed * frequency).clamp(min=self._fewest)
                steps = (remaining * per_unit).ceil().clamp(min=1)
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
