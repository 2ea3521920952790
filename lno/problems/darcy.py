"""Steady flow through a porous medium (Darcy), from permeability to pressure.

    −∇·(a ∇u) = 1 in the unit square,    u = 0 on its boundary
    a = 12 where g ≥ 0, else 3,          g ~ N(0, τ^{2α−2} (−Δ + τ²)^{−α}), Neumann, α = 2, τ = 3

Five-point finite differences at the nodes i/(n−1). The coefficient between two nodes is their mean,
as in the published data. The systems are solved by conjugate gradients, preconditioned with the
Laplacian, which the sine transform inverts exactly. The condition number is at most high/low, so
the number of iterations (16 to 19) does not grow with the grid. Double precision throughout. On
421² nodes the error against a sparse direct solver is 3e-11. The scheme is of second order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad

from lno.config import require_count, require_range
from lno.data import Fields
from lno.data.foreign import MAT
from lno.data.published import SAMPLES, Array, Layout
from lno.data.symmetry import Symmetry, square
from lno.problems.numerics.batches import solve_in_batches
from lno.problems.numerics.conjugate_gradients import conjugate_gradients
from lno.problems.numerics.grids import one_channel, unit_grid
from lno.problems.numerics.random_fields import neumann_field
from lno.problems.problem import Problem, Protocol

TOLERANCE = 1e-9  # of the solver; solutions are stored in single precision, 6e-8


def field_arguments(a: Float[np.ndarray, "s m m"], u: Float[np.ndarray, "s m m"]) -> dict[str, Any]:
    """Coefficients and solutions to the arguments of `Fields`."""
    return {
        "x": unit_grid(a.shape[1:]),
        "u": one_channel(a),
        "y": one_channel(u),
        "grid": a.shape[1:],
        "names": {"x": ["x", "y"], "u": ["a"], "y": ["u"]},
        "frame": "unit square",
    }


def files(n: int, every: int) -> Layout:
    """The published files of n² nodes, every k-th of which is read."""
    part = (slice(None, None, every),) * 2
    return Layout(
        files=tuple(f"piececonst_r{n}_N1024_smooth{k}.mat" for k in (1, 2)),
        kind=MAT,
        arrays=tuple(Array(0, key, (SAMPLES, n, n), part) for key in ("coeff", "sol")),
        build=field_arguments,
        separate=True,
    )


@dataclass(frozen=True)
class Darcy(Problem):
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
    title: ClassVar[str] = "Darcy flow"
    equation: ClassVar[str] = "−∇·(a ∇u) = 1 in the unit square, u = 0 on its boundary"
    protocols: ClassVar[Mapping[str, Protocol]] = {
        "standard": Protocol(1000, 200, {"grid": 421, "every": 5}),
        "small": Protocol(500, 100, {"grid": 85, "every": 2}),
        # Trained on 43² points and tested on other resolutions of the same fields.
        "resolution": Protocol(1000, 200, {"grid": 421, "every": 10}),
        "reference": Protocol(1024, 1024, {"grid": 241, "every": 1}),
    }
    published: ClassVar[Mapping[str, Layout]] = {
        "standard": files(421, every=5),
        "reference": files(241, every=1),
    }
    symmetries: ClassVar[tuple[Symmetry, ...]] = square()
    batch: ClassVar[int] = 32

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

    def draw(self, random: np.random.Generator) -> Bool[np.ndarray, "n n"]:
        """Where the coefficient has its high value, at the nodes of the solver."""
        return neumann_field(random, self.grid, self.alpha, self.tau) >= 0

    def solve(self, inputs: list[np.ndarray], device: torch.device) -> list[np.ndarray | None]:
        """Draws (n, n) to solutions (m, m) at every k-th node, float32."""

        def solutions(high: Tensor) -> Tensor:
            a, b = (high.new_tensor(v, dtype=torch.float64) for v in (self.high, self.low))
            u, _ = solve_diffusion(torch.where(high, a, b))
            return u[:, :: self.every, :: self.every].float()

        return solve_in_batches(solutions, inputs, device, cpu=1, gpu=self.batch)

    def fields(
        self,
        inputs: Sequence[np.ndarray],
        solutions: Sequence[np.ndarray],
        provenance: Mapping[str, Any],
    ) -> Fields:
        """Coefficients as the observed values, solutions as the outputs."""
        high = np.stack([drawn[:: self.every, :: self.every] for drawn in inputs])
        a = np.where(high, np.float32(self.high), np.float32(self.low))
        return Fields(**field_arguments(a, np.stack(solutions)), provenance=provenance)


def solve_diffusion(
    a: Float[Tensor, "b n n"],
    source: Float[Tensor, "*batch n n"] | float = 1.0,
    tolerance: float = TOLERANCE,
) -> tuple[Float[Tensor, "b n n"], Int[Tensor, " b"]]:
    """Solve −∇·(a ∇u) = source with u = 0 on the boundary, in the precision of `a`.

    Args:
        a: coefficients at the nodes of the unit square.
        source: a number, or values at the nodes; those on the boundary are not used.
        tolerance: the relative error in the energy norm is at most this times (max a / min a)½.

    Returns:
        The solutions u, and the number of iterations of each sample.

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

    The fields are zero outside, so sines are its eigenvectors. The sine transform is two dense
    matrix products: the same code on every device, and 1200 fields of 421² take a second on a GPU.

    >>> inverse_laplacian(1, torch.empty(0))(torch.ones(1, 1, 1)).item()
    0.25
    """
    k = torch.arange(1, n + 1, device=like.device)
    # Whole periods are subtracted as integers: the sine of a large angle would lose digits.
    angle = (torch.outer(k, k) % (2 * n + 2)).double() * (math.pi / (n + 1))
    sines = (math.sqrt(2 / (n + 1)) * torch.sin(angle)).to(like)
    one_axis = (4 * torch.sin(k.double() * (math.pi / (2 * n + 2))) ** 2).to(like)
    eigenvalues = one_axis[:, None] + one_axis

    def transform(r: Tensor) -> Tensor:
        each = sines.expand(len(r), n, n)  # one product for each sample, none over all of them
        return each.bmm(r).bmm(each)

    return lambda r: transform(transform(r) / eigenvalues)
