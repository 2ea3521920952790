"""Steady compressible flow on C-grids: the Euler equations by finite volumes at the nodes.

    ∮ F(w)·n ds = 0,    w = (ρ, ρu, ρv, E),    γ = 1.4

The control volume of a node is bounded by the centroids of the cells around it. Fluxes are Roe's
with an entropy fix, between states that are reconstructed along the grid lines with van Albada's
limiter, weighted by distances. Slip walls enter by their pressure alone, the far field as the state
outside of a Roe flux. A node of the wake exists twice: its two halves have their residuals added.
Runge–Kutta steps of local length lead to the steady state.

Fluxes and states are tuples of four arrays, and each of the three functions of a stage is pointwise
with shifted reads. So `torch.compile` makes about one kernel of each, and no sum depends on
which other samples there are. `lno.problems.numerics.euler_cpu` does the same for one sample.

Pressure and density of the free stream are 1; distances are in chords.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from lno.problems.numerics.dual_mesh import Mesh

GAMMA = 1.4
# Runge–Kutta coefficients for upwind schemes of second order (van Leer, Tai and Powell, 1989).
STAGES = (0.0695, 0.1602, 0.2898, 0.5060, 1.0)
REFRESH = 5  # iterations between updates of the local time steps
# The limiter acts on variations whose square is above this. Below it, in smooth flow, it would
# switch on and off for ever, and the residual would stop falling.
SMOOTH = 1e-3
# Samples that are iterated at once. More would gain nothing, and fewer let the many that have
# converged leave the few that have not. The last few are iterated in smaller chunks, several times
# as fast.
CHUNK, FEW = 50, 8
# Acoustic speeds below this fraction of the speed of sound are raised: no expansion shocks.
ENTROPY_FIX = 0.1

State = tuple[Tensor, ...]  # four quantities; also the fluxes of them
Outside = tuple[float, float, float, float]  # density, velocity and pressure of the free stream


def free_stream(mach: float, angle: float) -> Outside:
    """Density, velocity and pressure of the free stream at an angle of attack in degrees.

    >>> [f"{value:.4f}" for value in free_stream(0.8, 0.0)]
    ['1.0000', '0.9466', '0.0000', '1.0000']
    """
    speed = mach * math.sqrt(GAMMA)
    turn = math.radians(angle)
    return 1.0, speed * math.cos(turn), speed * math.sin(turn), 1.0


def conserved(q: State) -> State:
    """Density, velocity, pressure to density, momentum, energy."""
    density, u, v, pressure = q
    energy = pressure / (GAMMA - 1) + density * (u * u + v * v) / 2
    return density, density * u, density * v, energy


def primitive(w: State) -> State:
    """Density, momentum, energy to density, velocity, pressure."""
    density, momentum_x, momentum_y, energy = w
    u, v = momentum_x / density, momentum_y / density
    pressure = (GAMMA - 1) * (energy - (momentum_x * u + momentum_y * v) / 2)
    return density, u, v, pressure


def mach_number(w: Float[Tensor, "4 b n m"]) -> Float[Tensor, "b n m"]:
    """Speed over speed of sound; NaN where the pressure is negative."""
    density, u, v, pressure = primitive(w.unbind())
    return torch.sqrt((u * u + v * v) * density / (GAMMA * pressure))


def roe_flux(left: State, right: State, face: tuple[Tensor, ...]) -> State:
    """The flux through faces, given as unit normal and length, that point from left to right."""
    nx, ny, length = face
    (r1, u1, v1, p1), (r2, u2, v2, p2) = left, right
    normal1, normal2 = u1 * nx + v1 * ny, u2 * nx + v2 * ny
    enthalpy1 = GAMMA / (GAMMA - 1) * p1 / r1 + (u1 * u1 + v1 * v1) / 2
    enthalpy2 = GAMMA / (GAMMA - 1) * p2 / r2 + (u2 * u2 + v2 * v2) / 2

    root = torch.sqrt(r2 / r1)
    part = 1 / (1 + root)
    r, u, v = root * r1, (u1 + root * u2) * part, (v1 + root * v2) * part
    enthalpy = (enthalpy1 + root * enthalpy2) * part
    kinetic = (u * u + v * v) / 2
    c2 = (GAMMA - 1) * (enthalpy - kinetic)
    c, normal = torch.sqrt(c2), u * nx + v * ny

    least = ENTROPY_FIX * c
    slow, fast = (normal - c).abs(), (normal + c).abs()
    slow = torch.where(slow < least, (slow * slow / least + least) / 2, slow)
    fast = torch.where(fast < least, (fast * fast / least + least) / 2, fast)
    drift = normal.abs()

    dr, dp, dn = r2 - r1, p2 - p1, normal2 - normal1
    half = 0.5 / c2
    back, forth = slow * (dp - r * c * dn) * half, fast * (dp + r * c * dn) * half
    entropy, shear = drift * (dr - dp / c2), drift * r
    du, dv = u2 - u1 - dn * nx, v2 - v1 - dn * ny
    sound, change = back + entropy + forth, (forth - back) * c
    mass1, mass2, pressure = r1 * normal1, r2 * normal2, p1 + p2
    scale = length / 2
    return (
        scale * (mass1 + mass2 - sound),
        scale * (mass1 * u1 + mass2 * u2 + pressure * nx - sound * u - change * nx - shear * du),
        scale * (mass1 * v1 + mass2 * v2 + pressure * ny - sound * v - change * ny - shear * dv),
        scale
        * (
            mass1 * enthalpy1
            + mass2 * enthalpy2
            - (back + forth) * enthalpy
            - change * normal
            - entropy * kinetic
            - shear * (u * du + v * dv)
        ),
    )


def _limited(before: Tensor, after: Tensor) -> Tensor:
    """Van Albada's mean of two differences, zero where their signs differ."""
    mean = (after * after + SMOOTH) * before + (before * before + SMOOTH) * after
    mean = mean / (before * before + after * after + 2 * SMOOTH)
    return torch.where(before * after > -SMOOTH, mean, 0.0)


def reconstruct(w: State, mesh: Mesh) -> tuple[State, State, State]:
    """Primitive variables, and their limited differences along both axes."""
    q = primitive(w)
    n, m = w[0].shape[-2:]
    # At boundaries the difference to the missing node is that to the node on the other side.
    along_i, along_j = [], []
    for value in q:
        step = value[:, 1:] - value[:, :-1]
        before = pad(step, (0, 0, 1, 0)) + pad(step[:, :1], (0, 0, 0, n - 1))
        after = pad(step, (0, 0, 0, 1)) + pad(step[:, -1:], (0, 0, n - 1, 0))
        along_i.append(_limited(before * mesh.weights_i[0], after * mesh.weights_i[1]))

        step = value[:, :, 1:] - value[:, :, :-1]
        first = step[:, :, :1]
        first = torch.where(mesh.cut[:, None] > 0, -first.flip(1), first)
        before = pad(step, (1, 0)) + pad(first, (0, m - 1))
        after = pad(step, (0, 1)) + pad(step[:, :, -1:], (m - 1, 0))
        along_j.append(_limited(before * mesh.weights_j[0], after * mesh.weights_j[1]))
    return q, tuple(along_i), tuple(along_j)


def fluxes(
    q: State,
    along_i: State,
    along_j: State,
    mesh: Mesh,
    outside: Outside,
) -> tuple[State, State]:
    """The fluxes through all faces but those of the wall, with the free stream outside."""
    weights = mesh.weights_i
    left, right = [], []
    for value, change, far in zip(q, along_i, outside, strict=True):
        left.append(pad(value + change * weights[3], (0, 0, 1, 0), value=far))
        right.append(pad(value - change * weights[2], (0, 0, 0, 1), value=far))
    flux_i = roe_flux(tuple(left), tuple(right), mesh.faces_i.unbind())
    weights = mesh.weights_j
    left, right = [], []
    for value, change, far in zip(q, along_j, outside, strict=True):
        left.append(value + change * weights[3])
        right.append(pad((value - change * weights[2])[:, :, 1:], (0, 1), value=far))
    flux_j = roe_flux(tuple(left), tuple(right), mesh.faces_j.unbind())
    return flux_i, flux_j


def balance(flux_i: State, flux_j: State, pressure: Tensor, mesh: Mesh) -> State:
    """The residual: what leaves the control volume of each node, the wall and the cut included."""
    m = pressure.shape[-1]
    residual = []
    for k, (along, across) in enumerate(zip(flux_i, flux_j, strict=True)):
        net = along[:, 1:] - along[:, :-1] + (across - pad(across[:, :, :-1], (1, 0)))
        first = net[:, :, :1]
        if k in (1, 2):
            through = -pressure[:, :, :1] * mesh.wall[k - 1][:, :, None]
            first = first + through
            net = net + pad(through, (0, m - 1))
        # Both copies of a node of the wake get the sum of the two.
        other = first.flip(1) * mesh.cut[:, None]
        residual.append(net + pad(other, (0, m - 1)))
    return tuple(residual)


def residual(w: State, mesh: Mesh, outside: Outside) -> State:
    """The residual of a state: `balance` of the `fluxes` of what `reconstruct` gives."""
    q, along_i, along_j = reconstruct(w, mesh)
    return balance(*fluxes(q, along_i, along_j, mesh, outside), q[3], mesh)


def local_step(w: State, mesh: Mesh) -> Tensor:
    """The time step at CFL number 1 over the volume, at each node."""
    density, u, v, pressure = primitive(w)
    c, m = torch.sqrt(GAMMA * pressure / density), density.shape[-1]

    def speed(face: Tensor) -> Tensor:
        nx, ny, length = face.unbind()
        return ((u * nx + v * ny).abs() + c) * length / 2

    faces_j = pad(mesh.faces_j[..., :-1], (1, 0))
    total = speed(mesh.faces_i[:, :, :-1]) + speed(mesh.faces_i[:, :, 1:])
    total = total + speed(mesh.faces_j) + speed(faces_j)
    other = total[:, :, :1].flip(1) * mesh.cut[:, None]
    return 1 / (total + pad(other, (0, m - 1)))


def update(
    start: State,
    flux_i: State,
    flux_j: State,
    pressure: Tensor,
    step: Tensor,
    coefficient: Tensor,
    mesh: Mesh,
) -> State:
    """A Runge–Kutta stage: the state at the start of the step minus a part of the residual."""
    net = balance(flux_i, flux_j, pressure, mesh)
    part = coefficient * step
    return tuple(w - part * r for w, r in zip(start, net, strict=True))


class Relaxation:
    """Runge–Kutta iterations of a batch, in place; on a GPU compiled and recorded as a graph.

    Samples are gathered from the batch in chunks of two sizes, so there are at most two graphs, and
    samples that are left alone take no time.

    Args:
        mesh: of the batch, on the device of the state.
        outside: the free stream.
        w: the state (4, b, n, m), which the iterations change.
    """

    def __init__(self, mesh: Mesh, outside: Outside, w: Float[Tensor, "4 b n m"]) -> None:
        self.mesh, self.outside, self.w = mesh, outside, w
        self._chunks: dict[int, _Chunk] = {}

    def advance(self, iterations: int, cfl: Float[Tensor, " b"]) -> None:
        """Iterate with a CFL number of each sample; samples with 0 are left alone."""
        for samples in cfl.nonzero()[:, 0].split(CHUNK):
            size = min(FEW if len(samples) <= FEW else CHUNK, len(cfl))
            if size not in self._chunks:
                self._chunks[size] = _Chunk(size, self.mesh, self.outside, self.w)
            # A chunk is filled up with copies of its first sample.
            filled = torch.cat((samples, samples[:1].expand(size - len(samples))))
            found = self._chunks[size].iterated(
                math.ceil(iterations / REFRESH), self.w, self.mesh, cfl, filled
            )
            self.w[:, samples] = found[:, : len(samples)]


class _Chunk:
    """Buffers for a fixed number of samples, and the graph that iterates them."""

    def __init__(self, size: int, mesh: Mesh, outside: Outside, w: Tensor) -> None:
        self._outside, self._w = outside, w[:, :size].clone()
        self._cfl = torch.zeros_like(self._w[0, :, :1, :1])
        # The cut is the same for all samples.
        self._mesh = Mesh(*(part if part is mesh.cut else part[:, :size].clone() for part in mesh))
        self._stages = [torch.tensor(part, dtype=w.dtype, device=w.device) for part in STAGES]
        self._graph: torch.cuda.CUDAGraph | None = None

    def iterated(
        self, rounds: int, w: Tensor, mesh: Mesh, cfl: Float[Tensor, " b"], samples: Tensor
    ) -> Tensor:
        """Some samples of a batch after `rounds` times `REFRESH` iterations."""
        self._w.copy_(w[:, samples])
        self._cfl.copy_(cfl[samples, None, None])
        for part, whole in zip(self._mesh[:-1], mesh[:-1], strict=True):
            part.copy_(whole[:, samples])
        if w.is_cuda and self._graph is None:
            # Each shape is compiled apart; there may be more than the usual limit, 8.
            with torch._dynamo.config.patch(recompile_limit=64):
                self._graph = self._record()
        for _ in range(rounds):
            if self._graph is None:
                self._iterate(_EAGER)
            else:
                self._graph.replay()
        return self._w

    def _iterate(self, parts: _Parts) -> None:
        step = self._cfl * parts.local_step(self._w.unbind(), self._mesh)
        for _ in range(REFRESH):
            w = start = self._w.unbind()
            for coefficient in self._stages:
                q, along_i, along_j = parts.reconstruct(w, self._mesh)
                flux_i, flux_j = parts.fluxes(q, along_i, along_j, self._mesh, self._outside)
                w = parts.update(start, flux_i, flux_j, q[3], step, coefficient, self._mesh)
            for old, new in zip(start, w, strict=True):
                old.copy_(new)

    def _record(self) -> torch.cuda.CUDAGraph:
        """Compile the parts, and record `REFRESH` iterations as a CUDA graph."""
        saved, parts = self._w.clone(), _compiled()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self._iterate(parts)  # compiles
        torch.cuda.current_stream().wait_stream(stream)
        self._w.copy_(saved)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._iterate(parts)
        return graph


class _Parts(NamedTuple):
    local_step: Callable[..., Any]
    reconstruct: Callable[..., Any]
    fluxes: Callable[..., Any]
    update: Callable[..., Any]


_EAGER = _Parts(local_step, reconstruct, fluxes, update)


@cache
def _compiled() -> _Parts:
    return _Parts(*(torch.compile(part, dynamic=False, fullgraph=True) for part in _EAGER))
