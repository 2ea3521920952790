"""Steady flow through a curved pipe, from its shape to the horizontal velocity.

    (u·∇)u − ν Δu + ∇p = 0,  ∇·u = 0,    ν = 0.005

The pipe is |y − c(x)| ≤ ½ for 0 ≤ x ≤ 10. Its centreline c consists of four cubic Hermite pieces of
length 2.5. Heights and slopes at the five joints are random: c(0) = 0, the other heights are
U[−1, 1], the slopes U[−2, 2] per piece, so c' = slope / 2.5. The inflow is (¼ − y², 0), the walls
are no-slip, and the outlet is free of traction, ν ∂u/∂n = p n. The first axis of the grid runs
along the pipe, the second from wall to wall.

Taylor–Hood elements Q2–Q1 on n × n quadrilaterals, and Newton's method from the Stokes flow; n = 64
has the 129 × 129 nodes of the published data. Each linear system is solved directly, see
`lno.problems.numerics.taylor_hood`. Double precision throughout. Poiseuille flow is exact to 2e-14.
In a random pipe, the relative L2 error against 96² elements is 3e-4, against P2–P1 triangles of
scikit-fem 5e-4. The flux through a station is exact at the outlet, and to 7e-5 (root mean square)
inside. The order is 3 in smooth pipes, and about 2 in random ones, since the curvature of the walls
jumps where pieces join.

Known about the published data: the equation, the grid, the shapes and the inflow (read off public
code and figures). Assumed: the viscosity and the free outlet. Published outlets have spikes next to
the walls; here there are none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy.interpolate import CubicHermiteSpline
from torch import Tensor

from lno.config import require_count, require_range
from lno.data import Fields
from lno.data.foreign import NPY
from lno.data.published import SAMPLES, Array, Layout
from lno.data.symmetry import Symmetry
from lno.problems.numerics.batches import solve_in_batches
from lno.problems.numerics.grids import mapped_grid
from lno.problems.numerics.taylor_hood import Flow, TaylorHood
from lno.problems.problem import Problem, Protocol

LENGTH, PIECES = 10.0, 4
NODES = (129, 129)  # of the published data
GRAD_DIV = 0.05  # γ, see `TaylorHood`; without it, the error is 1.4e-3 instead of 3e-4

# A flow has converged when the Euclidean norm of its residual (all momentum and mass equations that
# are not replaced by boundary values) is at most this times the norm for fluid at rest.
TOLERANCE = 1e-10
STEPS = 10  # of Newton's method; 4 are usual
# Slower and safer: the factor of (u·∇)u grows in these stages from the Stokes flow, and steps are
# halved until the residual falls. The ratio of inertia to viscosity is all that matters, so this is
# the same as a viscosity that falls.
SAFE_STAGES = tuple(2 ** (-k / 2) for k in range(10, -1, -1))
SAFE_STEPS, SAFE_HALVINGS = 30, 4


def mirror_symmetries() -> tuple[Symmetry, ...]:
    """The identity and the reflection y → −y, which swaps the walls.

    The reflection reverses the second axis of the grid and the sign of the nodes' y. The horizontal
    velocity keeps its sign. Equation, inflow, walls and outlet stay the same. Heights and slopes of
    the centreline are uniform in intervals that are symmetric about 0, so a pipe and its mirror
    image have the same distribution.
    """
    return (
        Symmetry("identity", ((1, 0), (0, 1)), (0, 0)),
        Symmetry("reflect y", ((1, 0), (0, -1)), (0, 1), channel_signs={"u": (1, -1), "y": (1,)}),
    )


def field_arguments(
    x: Float[np.ndarray, "s n m"], y: Float[np.ndarray, "s n m"], u: Float[np.ndarray, "s n m"]
) -> dict[str, Any]:
    """Node coordinates and horizontal velocities to the arguments of `Fields`."""
    names = {"x": ["xi", "eta"], "u": ["x", "y"], "y": ["u"]}
    return {**mapped_grid(x, y, u), "names": names, "units": {"u": ["width", "width"]}}


FILES = Layout(
    files=("Pipe_X.npy", "Pipe_Y.npy", "Pipe_Q.npy"),
    kind=NPY,
    arrays=(
        Array(0, "", (SAMPLES, *NODES)),
        Array(1, "", (SAMPLES, *NODES)),
        Array(2, "", (SAMPLES, 3, *NODES), (0,)),  # velocity (2), pressure
    ),
    build=field_arguments,
)


@dataclass(frozen=True)
class Pipe(Problem):
    """Horizontal velocity at the nodes of a mapped grid; the nodes' positions are the input.

    Args:
        elements: n, the elements along each axis, a multiple of 4; the grid has (2n + 1)² nodes.
        viscosity: ν.
        height: the largest height of a joint of the centreline.
        slope: the largest slope at a joint, in heights per piece of the centreline.

    >>> from lno.problems.make import make
    >>> make(Pipe(elements=4), samples=2, seed=7)
    Fields(2 samples: x, y at 81 points of xi, eta → u at the same points)
    """

    elements: int = 64
    viscosity: float = 0.005
    height: float = 1.0
    slope: float = 2.0

    name: ClassVar[str] = "pipe"
    title: ClassVar[str] = "Pipe"
    equation: ClassVar[str] = "(u·∇)u − 0.005 Δu + ∇p = 0, ∇·u = 0"
    protocols: ClassVar[Mapping[str, Protocol]] = {
        "standard": Protocol(1000, 200),
        "small": Protocol(200, 50, {"elements": 24}),
        "reference": Protocol(1000, 200),
    }
    # The files hold more samples than are used: the reference code tests on the last ones.
    published: ClassVar[Mapping[str, Layout]] = {
        "standard": FILES,
        "reference": replace(FILES, last=True),
    }
    symmetries: ClassVar[tuple[Symmetry, ...]] = mirror_symmetries()
    picture: ClassVar[Mapping[str, tuple[str, ...]]] = {"u": (), "y": ("u",)}
    batch: ClassVar[int] = 100

    def __post_init__(self) -> None:
        require_count("elements", self.elements, 256)
        require_range("viscosity", self.viscosity, 1e-6, 1e6)
        require_range("height", self.height, 0.0, 10.0)
        require_range("slope", self.slope, 0.0, 20.0)
        if self.elements % PIECES:
            raise ValueError(
                f"expected elements to be a multiple of {PIECES}, so that the pieces of the "
                f"centreline join between elements, got {self.elements}"
            )

    def draw(self, random: np.random.Generator) -> Float[np.ndarray, "2 5"]:
        """Heights and slopes of the centreline at its joints; the first height is 0."""
        heights = random.uniform(-self.height, self.height, PIECES)
        slopes = random.uniform(-self.slope, self.slope, PIECES + 1)
        return np.stack((np.append(0.0, heights), slopes))

    def mesh(self, drawn: Float[np.ndarray, "2 5"]) -> Float[np.ndarray, "m m 2"]:
        """The positions of the m = 2n + 1 nodes along each axis."""
        x = np.linspace(0, LENGTH, 2 * self.elements + 1)
        joints, piece = np.linspace(0, LENGTH, PIECES + 1), LENGTH / PIECES
        centreline = CubicHermiteSpline(joints, drawn[0], drawn[1] / piece)(x)
        y = centreline[:, None] + self.across()
        return np.stack((np.broadcast_to(x[:, None], y.shape), y), axis=-1)

    def across(self) -> Float[np.ndarray, " m"]:
        """Distances of the nodes from the centreline, from the lower wall to the upper."""
        return np.linspace(-0.5, 0.5, 2 * self.elements + 1)

    def inflow(self) -> Float[Tensor, " m"]:
        """The horizontal velocity at the nodes of the inlet."""
        return torch.from_numpy(0.25 - self.across() ** 2)

    def equations(self, nodes: Float[Tensor, "b m m 2"]) -> TaylorHood:
        """The discrete equations on a batch of meshes."""
        return TaylorHood(nodes, self.viscosity, GRAD_DIV)

    def solve(self, inputs: list[np.ndarray], device: torch.device) -> list[np.ndarray | None]:
        """Centrelines (2, 5) to horizontal velocities (m, m), float32."""
        return self._solve(inputs, device, (1.0,), STEPS, halvings=0)

    def solve_safely(
        self, inputs: list[np.ndarray], device: torch.device
    ) -> list[np.ndarray | None]:
        """Like `solve`, with inertia that grows in steps, and damped Newton steps."""
        return self._solve(inputs, device, SAFE_STAGES, SAFE_STEPS, SAFE_HALVINGS)

    def _solve(
        self,
        inputs: list[np.ndarray],
        device: torch.device,
        stages: Sequence[float],
        steps: int,
        halvings: int,
    ) -> list[np.ndarray | None]:
        inflow = self.inflow().to(device)

        def velocities(nodes: Tensor) -> Tensor:
            flow, converged = steady_flow(self.equations(nodes), inflow, stages, steps, halvings)
            return torch.where(converged[:, None, None], flow.velocity[..., 0], torch.nan).float()

        meshes = [self.mesh(drawn) for drawn in inputs]
        return solve_in_batches(velocities, meshes, device, cpu=1, gpu=self.batch)

    def fields(
        self,
        inputs: Sequence[np.ndarray],
        solutions: Sequence[np.ndarray],
        provenance: Mapping[str, Any],
    ) -> Fields:
        """Positions of the nodes as the observed values, horizontal velocities as the outputs."""
        nodes = np.stack([self.mesh(drawn) for drawn in inputs]).astype(np.float32)
        arguments = field_arguments(nodes[..., 0], nodes[..., 1], np.stack(solutions))
        return Fields(**arguments, provenance=provenance)


def steady_flow(
    equations: TaylorHood,
    inflow: Float[Tensor, " j"],
    stages: Sequence[float] = (1.0,),
    steps: int = STEPS,
    halvings: int = 0,
) -> tuple[Flow, Bool[Tensor, " b"]]:
    """Solve the Navier–Stokes equations by Newton's method, beginning with the Stokes flow.

    Args:
        equations: on a batch of meshes.
        inflow: the velocity at the inlet.
        stages: values of the inertia to solve for one after the other; the last one is 1.
        steps: the most steps of Newton's method for each stage.
        halvings: how often a step may be halved until it reduces the residual; 0 takes full steps.

    Returns:
        The flows, and whether they have converged.
    """
    rest = equations.at_rest(inflow)
    enough = TOLERANCE * equations.residual(rest, 1.0).norm()
    change = equations.newton_step(rest, equations.residual(rest, 0.0), 0.0)
    flow = rest.plus(torch.ones_like(enough), change)
    for inertia in stages:
        flow, converged = newton(equations, flow, inertia, enough, steps, halvings)
    return flow, converged


def newton(
    equations: TaylorHood,
    flow: Flow,
    inertia: float,
    enough: Float[Tensor, " b"],
    steps: int,
    halvings: int,
) -> tuple[Flow, Bool[Tensor, " b"]]:
    """Newton's method until the norm of the residual is at most `enough`; see `steady_flow`.

    A flow that has converged no longer changes while the others go on.
    """
    residual = equations.residual(flow, inertia)
    for _ in range(steps):
        norm = residual.norm()
        active = (norm > enough) & norm.isfinite()
        if not active.any():  # once in a step, the host waits for the GPU
            break
        change = equations.newton_step(flow, residual, inertia)
        length = active.to(enough.dtype)
        for _ in range(halvings):
            shorter = active & ~(
                equations.residual(flow.plus(length, change), inertia).norm() < norm
            )
            if not shorter.any():
                break
            length = torch.where(shorter, length / 2, length)
        flow = flow.plus(length, change)
        residual = equations.residual(flow, inertia)
    norm = residual.norm()
    return flow, (norm <= enough) & norm.isfinite()  # not ∞ ≤ ∞, where a mesh overflows
