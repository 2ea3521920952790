"""Marching to the steady state: a coarse grid first, then the fine one, until nothing changes.

Explicit iterations remove most of the error soon. What remains are a few slow modes: circulation
and shocks adjust to each other by waves that travel far. Anderson's mixing of the states every
200 iterations removes these. A lifting airfoil needs half of the iterations.

Mixing assumes that the iterations are nearly linear. They are not while a strong shock moves from
node to node: a mean of two shocks is none, and mixing would undo for ever what the iterations do.
So a sample is mixed only when its flow has nearly settled, and not where that raises its residual.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from lno.problems.numerics.anderson import Anderson
from lno.problems.numerics.dual_mesh import Mesh, build_mesh
from lno.problems.numerics.euler import (
    Outside,
    Relaxation,
    conserved,
    mach_number,
    primitive,
    residual,
)

if TYPE_CHECKING:
    from lno.problems.numerics.euler_cpu import RelaxationCPU

CYCLE = 200  # iterations between two mixings; the host looks at the samples as often
MIX_BELOW = 0.005  # change of Mach numbers in a cycle; a sample is mixed once it has been below
ALLOWED_GROWTH = 2.0  # factor by which mixing may raise the norm of the residual
LEAST = 0.05  # density and pressure that a mixed state must have, with 1 in the free stream


@dataclass(frozen=True)
class Schedule:
    """How to march.

    Args:
        iterations: on the grid itself, at most.
        coarse: on the grid of every second node, at most. It only has to give a start.
        first_order: on each grid without reconstruction, before the others.
        cfl: the CFL number; 1.1 is about the limit of stability.
        depth: how many earlier states are mixed; 0 for none.
        residual: a sample has converged when the norm of its mass residual is this fraction of the
            one that the free stream has on its grid, and
        change: no Mach number has changed by more than this in the last cycle.
    """

    iterations: int = 15_000
    coarse: int = 3000
    first_order: int = 0
    cfl: float = 1.1
    depth: int = 10
    residual: float = 3e-4
    change: float = 2e-4


def steady_flow(
    points: Float[np.ndarray, "b n m 2"],
    wake: int,
    outside: Outside,
    schedule: Schedule,
    device: torch.device,
    wanted: Bool[Tensor, " b"] | None = None,
) -> tuple[Float[Tensor, "4 b n m"], Bool[Tensor, " b"]]:
    """The steady flow on C-grids: density, momentum and energy, and which samples have converged.

    Args:
        points: the nodes of the grids.
        wake: cells on each side of the wake.
        outside: density, velocity and pressure of the free stream.
        schedule: how to march.
        device: where to compute. On a CPU, the samples of a batch are solved one by one.
        wanted: samples to solve; the others do not converge and take no time. None: all.
    """
    halved = points[:, ::2, ::2] if _can_halve(points, wake) else None
    if halved is None:
        w = uniform(points, outside).to(device)
    else:
        w = uniform(halved, outside).to(device)
        mesh = build_mesh(halved, wake // 2)
        march(mesh, w, outside, schedule, schedule.coarse, wanted)
        w = prolongated(w)
    mesh = build_mesh(points, wake)
    converged = march(mesh, w, outside, schedule, schedule.iterations, wanted)
    # The two copies of a node of the wake may differ in their last bits.
    w[..., -wake - 1 :, 0] = w[..., : wake + 1, 0].flip(-1)
    return w, converged


def _can_halve(points: np.ndarray, wake: int) -> bool:
    """Whether every second node makes a grid, one that keeps the nose and has cells enough."""
    surface, normal = points.shape[1] - 1 - 2 * wake, points.shape[2] - 1
    even = surface % 4 == 0 and wake % 2 == 0 and normal % 2 == 0
    return even and min(surface // 2, normal) >= 4


def uniform(like: Float[np.ndarray, "b n m *_"] | Tensor, outside: Outside) -> Tensor:
    """The free stream (4, b, n, m) at all nodes of grids."""
    value = torch.tensor(outside, dtype=torch.float64)
    return torch.stack(conserved(value.unbind()))[:, None, None, None].repeat(1, *like.shape[:3])


def prolongated(w: Float[Tensor, "4 b n m"]) -> Float[Tensor, "4 b _ _"]:
    """A state on a grid of twice as many cells along each axis, by linear interpolation."""
    n, m = w.shape[-2:]
    fine = w.new_empty(*w.shape[:2], 2 * n - 1, 2 * m - 1)
    fine[..., ::2, ::2] = w
    fine[..., 1::2, ::2] = (w[..., 1:, :] + w[..., :-1, :]) / 2
    fine[..., 1::2] = (fine[..., :-1:2] + fine[..., 2::2]) / 2
    return fine


def march(
    mesh: Mesh,
    w: Float[Tensor, "4 b n m"],
    outside: Outside,
    schedule: Schedule,
    most: int,
    wanted: Bool[Tensor, " b"] | None = None,
) -> Bool[Tensor, " b"]:
    """Iterate in place until samples have converged, or `most` iterations. Which have converged?

    A sample that has converged, or become NaN, no longer changes while the others go on.
    """
    mesh = Mesh(*(part.to(w.device) for part in mesh))
    active = torch.ones_like(w[0, :, 0, 0], dtype=torch.bool) if wanted is None else wanted.clone()
    if schedule.first_order:
        cfl = schedule.cfl * active.to(w.dtype)
        relaxation(mesh.of_first_order(), outside, w).advance(schedule.first_order, cfl)
    enough = schedule.residual * mass_residual(uniform(w[0], outside).to(w), mesh, outside)
    relax, mix = relaxation(mesh, outside, w), Anderson(max(1, schedule.depth))
    converged = torch.zeros_like(enough, dtype=torch.bool)
    settled = converged.clone()
    for _ in range(0, most, CYCLE):
        before = w.clone()
        relax.advance(CYCLE, schedule.cfl * active.to(w.dtype))
        change = (mach_number(w) - mach_number(before)).abs().amax((1, 2))
        norm = mass_residual(w, mesh, outside)
        converged |= active & (change <= schedule.change) & (norm <= enough)
        active &= ~converged & change.isfinite()
        if not active.any():
            break
        if schedule.depth:
            mixed = mix(_by_sample(before), _by_sample(w)).view(-1, *w[:, 0].shape).transpose(0, 1)
            density, _, _, pressure = primitive(mixed.unbind())
            settled |= change <= MIX_BELOW
            good = active & settled & (mass_residual(mixed, mesh, outside) <= ALLOWED_GROWTH * norm)
            good &= torch.minimum(density, pressure).amin((1, 2)) > LEAST
            w.copy_(torch.where(good[:, None, None], mixed, w))
            mix.restart(~good)
    return converged


def _by_sample(w: Float[Tensor, "4 b n m"]) -> Float[Tensor, "b _"]:
    return w.transpose(0, 1).flatten(1)


def relaxation(mesh: Mesh, outside: Outside, w: Tensor) -> Relaxation | RelaxationCPU:
    """The iterations for the device of a state."""
    if w.is_cuda:
        return Relaxation(mesh, outside, w)
    from lno.problems.numerics.euler_cpu import RelaxationCPU  # numba is slow to import

    return RelaxationCPU(mesh, outside, w)


def mass_residual(w: Float[Tensor, "4 b n m"], mesh: Mesh, outside: Outside) -> Float[Tensor, " b"]:
    """The norm of the mass residual; rows are summed first, so no order depends on the batch."""
    mass = residual(w.unbind(), mesh, outside)[0]
    return (mass * mass).sum(-1).sum(-1).sqrt()
