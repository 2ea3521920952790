"""Burgers' equation, the paper's inverse problem.

    u_t + u u_x = ν u_xx,    x ∈ [0, 1) periodic,  t ∈ [0, 1],  ν = 0.01
    u(·, 0) ~ Gaussian process with covariance exp(−2 sin²(π d))

The covariance is exp(−1) exp(cos 2πd). Its Fourier modes have the variances e⁻¹ I_k(1), so the
initial values are drawn exactly, mode by mode. Time integration is ETDRK4 (Cox & Matthews 2002,
with the contour integrals of Kassam & Trefethen 2005) on at least 512 points, dealiased by the 2/3
rule. The error against the Cole–Hopf solution is below 1e-8.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from scipy.special import ive
from torch import Tensor

from lno.config import require_count, require_range
from lno.data import Fields
from lno.data.foreign import NPZ
from lno.data.grids import grid_points
from lno.data.published import ANY, SAMPLES, Array, Layout
from lno.data.symmetry import Symmetry
from lno.problems.numerics.batches import solve_in_batches
from lno.problems.numerics.grids import one_channel
from lno.problems.problem import Problem, Protocol

MODES = 40  # the variance of mode 40 is 1e-60
CONVERT = """The published Burgers files are pickles, which can run any code: never opened here.
If you trust one, convert it yourself, every fourth point of it:
    d = np.load("Burgers_IC_std_train.npy", allow_pickle=True).item()
    np.savez("train.npz", x=d["x"][0, ::4, ::4], y=d["y"][:, ::4, ::4], f=d["f"][:, ::4, ::4])
Expected are two such files, train and test, of plain arrays: x (times, positions, 2), each
(position, time); y and f (samples, times, positions, 1)."""


def wave_symmetries(n: int) -> tuple[Symmetry, ...]:
    """The 2n symmetries of waves on a circle with n translations: translate, or reverse x and u.

    If u(t, x) solves the equation, so do u(t, x + s) and −u(t, s − x). The covariance depends on
    distances alone, so initial values and their images have the same distribution.

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


def field_arguments(t: Float[np.ndarray, " t"], u: Float[np.ndarray, "s t x"]) -> dict[str, Any]:
    """The arguments of `Fields` for whole solutions: outputs alone, which tasks observe."""
    positions = u.shape[2]
    return {
        "x": grid_points(t, np.arange(positions) / positions),
        "y": one_channel(u),
        "grid": u.shape[1:],
        "period": (None, 1.0),
        "names": {"x": ["t", "x"], "y": ["u"]},
        "frame": "time and position in the periodic unit interval",
    }


def from_published(
    y: Float[np.ndarray, "s t x 1"],
    f: Float[np.ndarray, "s t x 1"],
    points: Float[np.ndarray, "rows columns 2"],
) -> dict[str, Any]:
    """Solutions y, forces f and points (position, time) to the arguments of `Fields`.

    The published positions i/(n−1) belong to n cells of a periodic grid, so the period is one cell
    longer than the last position. They are taken as i/n of the period 1, as in generated data.
    """
    if f.any():
        raise ValueError("f: expected zeros; Burgers' equation with a force is another problem")
    if points.shape[:2] != y.shape[1:3]:
        raise ValueError(
            f"x: expected a point for each value of y, {y.shape[1:3]}, got {points.shape[:2]}"
        )
    x, t = points[0, :, 0], points[:, 0, 1]
    even = np.allclose(x, x[-1] * np.linspace(0, 1, len(x))) and np.all(np.diff(t) > 0)
    if not even or not np.array_equal(points, np.stack(np.meshgrid(x, t), axis=-1)):
        raise ValueError("x: expected (position, time) on a regular grid, rows being times")
    return field_arguments(t, y[..., 0])


FILES = Layout(
    files=("train.npz", "test.npz"),
    kind=NPZ,
    arrays=(
        *(Array(0, key, (SAMPLES, ANY, ANY, 1)) for key in "yf"),
        Array(0, "x", (ANY, ANY, 2)),
    ),
    build=from_published,
    split=(4096, 128),
    separate=True,
    advice=CONVERT,
)


@dataclass(frozen=True)
class Burgers(Problem):
    """Whole solutions u(t, x) on a grid; rows are times j/(n−1), columns are positions i/n.

    Args:
        grid: n, the number of output times and positions, a power of two.
        viscosity: ν.

    >>> from lno.problems.make import make
    >>> make(Burgers(grid=64), samples=3, seed=7)
    Fields(3 samples: no values at 4096 points of t, x → u at the same points)
    """

    grid: int = 128
    viscosity: float = 0.01

    name: ClassVar[str] = "burgers"
    title: ClassVar[str] = "Burgers' equation"
    equation: ClassVar[str] = "u_t + u u_x = 0.01 u_xx, periodic in x"
    protocols: ClassVar[Mapping[str, Protocol]] = {
        "standard": Protocol(4096, 256),
        "small": Protocol(512, 64, {"grid": 64}),
        "reference": Protocol(4096, 128),
    }
    published: ClassVar[Mapping[str, Layout]] = {"standard": FILES, "reference": FILES}
    symmetries: ClassVar[tuple[Symmetry, ...]] = wave_symmetries(16)
    batch: ClassVar[int] = 512
    cpu_batch: ClassVar[int] = 16

    def __post_init__(self) -> None:
        require_count("grid", self.grid, 4096)
        require_range("viscosity", self.viscosity, 0.005, 10.0)
        if self.grid < 2 or 4096 % self.grid:
            raise ValueError(f"grid must be a power of two from 2 to 4096, got {self.grid}")

    def draw(self, random: np.random.Generator) -> Float[np.ndarray, "2 modes"]:
        """Fourier coefficients of the initial value: cosines, then sines."""
        variance = ive(np.arange(MODES), 1.0)
        variance[1:] *= 2
        return np.sqrt(variance) * random.standard_normal((2, MODES))

    def solve(self, inputs: list[np.ndarray], device: torch.device) -> list[np.ndarray | None]:
        """Coefficients (2, modes) to solutions (t, x), float32."""
        points = max(512, self.grid)
        x = torch.arange(points, dtype=torch.float64, device=device) / points
        # Steps of 1/1500 or less keep the error below 1e-8 at all times, steep shocks included.
        substeps = math.ceil(1500 / (self.grid - 1))

        def solutions(coefficients: Tensor) -> Tensor:
            u = etdrk4(initial_value(coefficients, x), self.viscosity, self.grid, substeps)
            return u[..., :: points // self.grid].float()

        return solve_in_batches(solutions, inputs, device, cpu=self.cpu_batch, gpu=self.batch)

    def fields(
        self,
        inputs: Sequence[np.ndarray],
        solutions: Sequence[np.ndarray],
        provenance: Mapping[str, Any],
    ) -> Fields:
        """Whole solutions as the outputs; tasks draw observations from them."""
        arguments = field_arguments(np.linspace(0, 1, self.grid), np.stack(solutions))
        return Fields(**arguments, provenance=provenance)


def initial_value(
    coefficients: Float[Tensor, "b 2 modes"], x: Float[Tensor, " n"]
) -> Float[Tensor, "b n"]:
    """The values at x of the functions with these Fourier coefficients."""
    k = torch.arange(coefficients.shape[-1], dtype=x.dtype, device=x.device)
    angle = 2 * math.pi * k[:, None] * x
    return coefficients[:, 0] @ torch.cos(angle) + coefficients[:, 1] @ torch.sin(angle)


def etdrk4(
    u: Float[Tensor, "b n"], viscosity: float, times: int, substeps: int
) -> Float[Tensor, "b {times} n"]:
    """Solutions from u at t = 0, at equally spaced times from 0 to 1.

    The equation is solved in the frame that moves with the mean of u, which is conserved. A shock
    travels less there, and the same steps are several times more accurate.
    """
    b, n = u.shape
    wave = 2 * math.pi * torch.arange(n // 2 + 1, dtype=u.dtype, device=u.device)
    linear = -viscosity * wave**2
    h = 1 / (times - 1) / substeps
    keep = torch.arange(n // 2 + 1, device=u.device) <= n // 3
    flux = torch.where(keep, -0.5j * wave, 0)

    def nonlinear(v: Tensor) -> Tensor:
        return flux * torch.fft.rfft(torch.fft.irfft(v, n=n).square())

    # The coefficients have removable singularities at 0: take the mean over a circle around each
    # h·linear instead of the value there.
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
