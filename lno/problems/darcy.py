"""Steady flow through a porous medium (Darcy), from permeability to pressure.

    −∇·(a ∇u) = 1 in the unit square,    u = 0 on its boundary
    a = 12 where g ≥ 0, else 3,          g ~ N(0, τ^{2α−2} (−Δ + τ²)^{−α}), Neumann, α = 2, τ = 3

Five-point finite differences at the nodes i/(n−1), the coefficient between two nodes being their
mean, as in the published data. The systems are solved by conjugate gradients preconditioned with
the Laplacian, which the sine transform inverts exactly: the condition number is at most high/low,
so the number of iterations (16 to 19) does not grow with the grid. Double precision throughout;
against a sparse direct solution on 421² nodes the error is 3e-11, and on a smooth solution the
scheme is of second order.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from lno.config import require_count, require_range
from lno.data import Fields
from lno.data.symmetry import Symmetry, square
from lno.problems.numerics.conjugate_gradients import conjugate_gradients
from lno.problems.numerics.random_fields import neumann_field
from lno.problems.numerics.samples import solve_samples

TOLERANCE = 1e-9  # of the solver; solutions are kept in single precision, 6e-8


@dataclass(frozen=True)
class Darcy:
    """Coefficients a and solutions u at every k-th node of a grid on the unit square.

    Args:
        grid: n, the nodes of the solver along each axis.
        every: k; the grid of the data has (n − 1)/k + 1 nodes along each axis.
        high, low: the two values of a.
        alpha, tau: smoothness and inverse length of the random field.

    >>> from lno.problems.make import make
    >>> make(Darcy(grid=29, every=4), samples=2, seed=7)
    Fields(2 samples: a at 64 points of x, y → u at the same points)
    """

    grid: int = 421
    every: int = 5
    high: float = 12.0
    low: float = 3.0
    alpha: float = 2.0
    tau: float = 3.0

    name: ClassVar[str] = "darcy"
    batch: ClassVar[int] = 32
    symmetries: ClassVar[tuple[Symmetry, ...]] = square()

    def __post_init__(self) -> None:
        require_count("grid", self.grid, 2049)
        require_count("every", self.every, 2048)
        require_range("low", self.low, 1e-3, 1e3)
        require_range("high", self.high, self.low, 1e3 * self.low)
        require_range("alpha", self.alpha, 1.0, 10.0)
        require_range("tau", self.tau, 0.1, 100.0)
        if self.grid < 3 or (self.grid - 1) % self.every:
            raise ValueError(
                "expected grid − 1 to be a multiple of every, "
                f"got grid {self.grid} and every {self.every}"
            )

    def draw(self, random: np.random.Generator) -> np.ndarray:
        """Where the coefficient has its high value: (grid, grid) bool."""
        return neumann_field(random, self.grid, self.alpha, self.tau) >= 0

    def solve(self, inputs: Tensor) -> Tensor:
        """(b, grid, grid) bool, as drawn, to solutions (b, m, m) at every k-th node, float32."""

        def on_the_grid(part: Tensor) -> Tensor:
            u, _ = solve_diffusion(self._coefficient(part))
            return u[:, :: self.every, :: self.every].float()

        return solve_samples(on_the_grid, inputs, cpu=1, gpu=self.batch)

    def fields(
        self, inputs: np.ndarray, solutions: np.ndarray, provenance: dict[str, Any]
    ) -> Fields:
        """Coefficients as the observed values, solutions as the answers."""
        m = solutions.shape[-1]
        side = np.linspace(0, 1, m)
        positions = np.stack(np.meshgrid(side, side, indexing="ij"), axis=-1).reshape(-1, 2)
        a = np.where(inputs[:, :: self.every, :: self.every], self.high, self.low)
        return Fields(
            positions,
            u=a.reshape(len(a), -1, 1).astype(np.float32),
            y=solutions.reshape(len(a), -1, 1).astype(np.float32),
            grid=(m, m),
            names={"x": ["x", "y"], "u": ["a"], "y": ["u"]},
            frame="unit square",
            provenance=provenance,
        )

    def _coefficient(self, inputs: Tensor) -> Tensor:
        high, low = (inputs.new_tensor(v, dtype=torch.float64) for v in (self.high, self.low))
        return torch.where(inputs, high, low)


def solve_diffusion(
    a: Tensor, source: Tensor | float = 1.0, tolerance: float = TOLERANCE
) -> tuple[Tensor, Tensor]:
    """Solve −∇·(a ∇u) = source with u = 0 on the boundary, in the precision of `a`.

    Args:
        a: coefficients (b, n, n) at the nodes of the unit square.
        source: a number, or values (b, n, n) or (n, n), of which the boundary is not used.
        tolerance: the relative error in the energy norm is at most this times (max a / min a)½.

    Returns:
        u (b, n, n) and the number of iterations of each sample (b,).

    >>> u, iterations = solve_diffusion(torch.ones(1, 65, 65, dtype=torch.float64))
    >>> f"{u.max().item():.4f}", iterations.tolist()
    ('0.0737', [1])
    """
    n = a.shape[-1]
    along_x = (a[:, 1:, 1:-1] + a[:, :-1, 1:-1]) / 2
    along_y = (a[:, 1:-1, 1:] + a[:, 1:-1, :-1]) / 2

    def apply(u: Tensor) -> Tensor:  # the operator times h²
        u = pad(u, (1, 1, 1, 1))
        flux_x = along_x * u[:, :, 1:-1].diff(dim=1)
        flux_y = along_y * u[:, 1:-1, :].diff(dim=2)
        return -flux_x.diff(dim=1) - flux_y.diff(dim=2)

    b = torch.as_tensor(source, dtype=a.dtype, device=a.device).expand_as(a)[:, 1:-1, 1:-1]
    u, iterations = conjugate_gradients(
        apply, inverse_laplacian(n - 2, a), b / (n - 1) ** 2, tolerance
    )
    return pad(u, (1, 1, 1, 1)), iterations


def inverse_laplacian(n: int, like: Tensor) -> Callable[[Tensor], Tensor]:
    """The inverse of the five-point Laplacian, with 4 on its diagonal, of fields (b, n, n).

    Sine functions are its eigenvectors, the fields being zero outside. The transform is two dense
    products: one code for every device, and 1200 fields of 421² take a second on a large GPU.

    >>> inverse_laplacian(1, torch.empty(0))(torch.ones(1, 1, 1)).item()
    0.25
    """
    k = torch.arange(1, n + 1, device=like.device)
    # Whole periods are taken off as integers: the sine of a large angle would lose digits.
    angle = (torch.outer(k, k) % (2 * n + 2)).double() * (math.pi / (n + 1))
    sines = (math.sqrt(2 / (n + 1)) * torch.sin(angle)).to(like)
    one_axis = (4 * torch.sin(k.double() * (math.pi / (2 * n + 2))) ** 2).to(like)
    eigenvalues = one_axis[:, None] + one_axis

    def transform(r: Tensor) -> Tensor:
        each = sines.expand(len(r), n, n)  # a product for each sample: they do not mix
        return each.bmm(r).bmm(each)

    return lambda r: transform(transform(r) / eigenvalues)
