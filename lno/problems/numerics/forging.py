"""Explicit dynamics of a block under a rigid die: a batch of blocks at once, on any device.

The block is a grid of quadrilaterals with four nodes and one integration point, in plane stress.
Node (i, j) starts at (right − i dx, top − j dy). Row j = 0 meets the die, row j = m − 1 stands on
rollers. The corners of element (i, j) are

    d (i+1, j) ─── c (i, j)
         │              │            diagonals p = c − a,  r = d − b
    a (i+1, j+1) ─ b (i, j+1)        area A = (p × r) / 2

One step of length h:

1. Nodes. v += h f / mass. A node of the top row that would end up inside the die is pushed out
   along the normal of the die (kinematic contact without friction). x += h v.
2. Elements, at the middle of the step. The velocity gradient L maps the diagonals to their rates.
   The stress turns with the material (Jaumann rate), grows elastically, and returns to the yield
   surface (J2 plasticity without hardening). The thickness is that of an incompressible solid,
   A0 / A. The rate at which a + c − b − d departs from linear motion is resisted by a small
   stiffness (hourglass control of Flanagan and Belytschko).

`STEPS` steps of equal length make a chunk. Frames fall on ends of chunks, and the length of the
steps is chosen at their beginnings, from the bound of Flanagan and Belytschko on the highest
frequency. So nothing is asked of the host inside a chunk, which is one CUDA graph on a GPU.

Units are mm, ms, g, and MPa = g / (mm ms²). Thickness and forces are those of 1 mm of the block.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

STEPS = 50  # of a chunk
CHECK = 8  # chunks between two looks of the host, which wait for the GPU
NEWTON = 3  # iterations of the return map: 2e-12 at worst, whatever the trial stress
HOURGLASS = 0.05  # stiffness against hourglass motion, relative to that of the element
SMALLEST_STEP = 0.01  # of the first step; a block that needs shorter ones has failed


class Press(NamedTuple):
    """A block, its material, and the motion of the die.

    Args:
        n: nodes along the block.
        m: nodes through its height.
        frames: how many states are kept, the initial one among them.
        interval: time between two of them, ms.
        speed: of the die, downwards, mm/ms.
        young: Young's modulus, MPa.
        poisson: Poisson's ratio.
        yield_stress: MPa.
        density: g/mm³.
        safety: step over the largest stable step.
        dx, dy: size of an element, mm.
        right, top: where node (0, 0) starts, mm.
        left: where the die begins, mm.
        piece: length of a piece of the die, mm.
    """

    n: int
    m: int
    frames: int
    interval: float
    speed: float
    young: float
    poisson: float
    yield_stress: float
    density: float
    safety: float
    dx: float
    dy: float
    right: float
    top: float
    left: float
    piece: float


class Forged(NamedTuple):
    """What became of blocks.

    Args:
        u: displacements at each frame, single precision; not written after a failure.
        imbalance: |W − T − U| / W at the end, with the work W of the die, the kinetic energy T and
            the work U of the stresses; infinite after a failure.
        stress: σ_xx, σ_yy, σ_xy in each element at the end.
    """

    u: Float[Tensor, "b frames 2 n m"]
    imbalance: Float[Tensor, " b"]
    stress: Float[Tensor, "b 3 n-1 m-1"]


class Nodes(NamedTuple):
    """Positions and velocities of all nodes (b, n, m); the work done on the top row (b, n)."""

    x: Tensor
    y: Tensor
    vx: Tensor
    vy: Tensor
    work: Tensor


class Elements(NamedTuple):
    """Stress, hourglass force q, the forces of both diagonals, and work, each (b, n − 1, m − 1).

    Corners a, b, c, d feel P − q, R + q, −P − q and −R + q.
    """

    sxx: Tensor
    syy: Tensor
    sxy: Tensor
    qx: Tensor
    qy: Tensor
    px: Tensor
    py: Tensor
    rx: Tensor
    ry: Tensor
    work: Tensor


def forge(press: Press, die: Float[Tensor, "b pieces 4"]) -> Forged:
    """Forge a batch of blocks. On a GPU, steps are compiled and chunks are captured.

    Args:
        press: what all blocks have in common.
        die: each piece of a die as a cubic of the distance from its left end, highest power first:
            the height above the block at t = 0. It is level beyond its ends.
    """
    run = Run(press, die)
    run.chunk()  # compiles; nothing can be compiled while a graph is captured
    chunk, between = run.chunk, 1
    if die.is_cuda:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run.chunk()
        chunk, between = graph.replay, CHECK
    while bool(run.active.any()):
        for _ in range(between):
            chunk()
    return run.result()


class Run:
    """The state of a batch of blocks, in buffers that stay where they are."""

    def __init__(self, press: Press, die: Tensor) -> None:
        b, n, m = len(die), press.n, press.m
        zeros = die.new_zeros(b, n, m)
        i, j = (torch.arange(k, dtype=die.dtype, device=die.device) for k in (n, m))
        self.press = press
        self.start = (press.right - i * press.dx)[:, None], (press.top - j * press.dy)[None]
        self.mass = nodal_mass(press, die)
        inverse = 1 / self.mass
        rollers = inverse.clone()
        rollers[:, -1] = 0  # no force moves the bottom row vertically
        self.constants = tuple(c.contiguous() for c in die.unbind(-1)), inverse, rollers
        x, y = (zeros + axis for axis in self.start)
        self.nodes = Nodes(x, y, zeros.clone(), zeros.clone(), die.new_zeros(b, n))
        self.elements = Elements(*(zeros[:, 1:, 1:].clone() for _ in Elements._fields))
        self.frame = torch.ones(b, dtype=torch.long, device=die.device)  # the next one
        self.remaining = die.new_full((b,), press.interval)  # time until then
        self.active = self.frame < press.frames
        self.u = torch.zeros(b, press.frames, 2, n, m, device=die.device)
        self.each = torch.arange(b, device=die.device)
        self.counts = torch.arange(1, STEPS + 1, device=die.device)[:, None]
        self.floor = SMALLEST_STEP * stable_step(press, x, y)
        fast = compiled if die.is_cuda else _as_it_is
        self._move, self._deform = fast(move), fast(deform)

    def chunk(self) -> None:
        """`STEPS` steps towards the next frame; a block that is finished or has failed stays."""
        press, nodes, elements = self.press, self.nodes, self.elements
        bound = stable_step(press, nodes.x, nodes.y)
        active = (self.frame < press.frames) & (bound > self.floor)  # False if it is not a number
        chunks = (self.remaining / (STEPS * bound)).ceil().clamp(min=1)
        # masked_fill, since torch.where copies numbers from the host, which no graph can capture
        h = (self.remaining / (STEPS * chunks)).masked_fill(~active, 0)
        per_h = (1 / h).masked_fill(~active, 0)
        time = self.frame.to(h) * press.interval - self.remaining
        drops = press.speed * (time + self.counts * h)
        for drop in drops:
            nodes = self._move(press, *self.constants, nodes, elements, drop, h, per_h)
            elements = self._deform(press, nodes, elements, h)

        reached = active & (chunks == 1)
        row = self.each, self.frame.clamp(max=press.frames - 1)
        moved = torch.stack((nodes.x - self.start[0], nodes.y - self.start[1]), 1).float()
        self.u[row] = torch.where(reached[:, None, None, None], moved, self.u[row])
        self.remaining.copy_((self.remaining - STEPS * h).masked_fill(reached, press.interval))
        self.frame += reached
        self.active.copy_(active & (self.frame < press.frames))
        for old, new in zip((*self.nodes, *self.elements), (*nodes, *elements), strict=True):
            old.copy_(new)

    def result(self) -> Forged:
        nodes, elements = self.nodes, self.elements
        kinetic = (0.5 * self.mass * (nodes.vx**2 + nodes.vy**2)).sum((1, 2))
        given, taken = nodes.work.sum(1), elements.work.sum((1, 2))
        imbalance = (given - taken - kinetic).abs() / given.clamp(min=1e-30)
        complete = (self.frame == self.press.frames) & imbalance.isfinite()
        imbalance = torch.where(complete, imbalance, math.inf)
        stress = torch.stack((elements.sxx, elements.syy, elements.sxy), 1)
        return Forged(self.u, imbalance, stress)


def move(
    press: Press,
    die: tuple[Tensor, ...],
    inverse_mass_x: Float[Tensor, "n m"],
    inverse_mass_y: Float[Tensor, "n m"],
    nodes: Nodes,
    elements: Elements,
    drop: Float[Tensor, " b"],
    h: Float[Tensor, " b"],
    per_h: Float[Tensor, " b"],
) -> Nodes:
    """One step of the nodes, to the time at which the die has come down by `drop`.

    A step of length 0, for which `per_h` is 0 too, moves nothing.
    """
    x, y, vx, vy, work = nodes
    _, _, _, qx, qy, px, py, rx, ry, _ = elements

    # The top row first, with the forces of the elements below it.
    top = [force[..., :1] for force in (px, rx, qx, py, ry, qy)]
    step = h[:, None]
    old_x, old_y = vx[..., 0], vy[..., 0]
    free_x = old_x + step * inverse_mass_x[:, 0] * nodal_sum(*top[:3])[..., 0]
    free_y = old_y + step * inverse_mass_y[:, 0] * nodal_sum(*top[3:])[..., 0]
    height, slope = die_height(press, die, x[..., 0] + step * free_x)
    depth = (y[..., 0] + step * free_y) - (press.top + height - drop[:, None])
    speed = depth.clamp(min=0) * per_h[:, None] / (1 + slope * slope)
    push_x, push_y = speed * slope, -speed
    mean_x, mean_y = old_x + free_x + push_x, old_y + free_y + push_y  # twice the mean velocity
    work = work + (push_x * mean_x + push_y * mean_y) / (2 * inverse_mass_x[:, 0])

    step = h[:, None, None]
    below = (0, press.m - 1)
    vx = vx + step * inverse_mass_x * nodal_sum(px, rx, qx) + pad(push_x[..., None], below)
    vy = vy + step * inverse_mass_y * nodal_sum(py, ry, qy) + pad(push_y[..., None], below)
    return Nodes(x + step * vx, y + step * vy, vx, vy, work)


def deform(press: Press, nodes: Nodes, elements: Elements, h: Float[Tensor, " b"]) -> Elements:
    """One step of the elements, which ends at the positions of the nodes."""
    sxx, syy, sxy, qx, qy, _, _, _, _, work = elements
    h = h[:, None, None]
    modulus, shear = press.young / (1 - press.poisson**2), press.young / (2 + 2 * press.poisson)
    size = press.dx * press.dy

    px, rx, wx = corner_sums(nodes.x - 0.5 * h * nodes.vx)
    py, ry, wy = corner_sums(nodes.y - 0.5 * h * nodes.vy)
    pu, ru, wu = corner_sums(nodes.vx)
    pv, rv, wv = corner_sums(nodes.vy)
    per_area = 2 / (px * ry - rx * py)
    lxx, lxy = 0.5 * per_area * (ry * pu - py * ru), 0.5 * per_area * (px * ru - rx * pu)
    lyx, lyy = 0.5 * per_area * (ry * pv - py * rv), 0.5 * per_area * (px * rv - rx * pv)

    exx, eyy, exy = h * lxx, h * lyy, h * (lxy + lyx)
    turn = 0.5 * h * (lxy - lyx)
    new_xx, new_yy, new_xy = return_map(
        press,
        sxx + 2 * turn * sxy + modulus * (exx + press.poisson * eyy),
        syy - 2 * turn * sxy + modulus * (eyy + press.poisson * exx),
        sxy + turn * (syy - sxx) + shear * exy,
    )
    stiffness = HOURGLASS / 4 * modulus * per_area * (px * px + py * py + rx * rx + ry * ry)
    most = press.yield_stress * math.sqrt(size)
    sway_x, sway_y = h * (wu - lxx * wx - lxy * wy), h * (wv - lyx * wx - lyy * wy)
    new_qx = (qx + stiffness * sway_x).clamp(-most, most)
    new_qy = (qy + stiffness * sway_y).clamp(-most, most)
    work = work + 0.5 * (
        size * ((sxx + new_xx) * exx + (syy + new_yy) * eyy + (sxy + new_xy) * exy)
        + ((qx + new_qx) * sway_x + (qy + new_qy) * sway_y)
    )

    thickness = size * per_area
    txx, txy = (
        thickness * new_xx - per_area * new_qx * wx,
        thickness * new_xy - per_area * new_qx * wy,
    )
    tyx, tyy = (
        thickness * new_xy - per_area * new_qy * wx,
        thickness * new_yy - per_area * new_qy * wy,
    )
    return Elements(
        *(new_xx, new_yy, new_xy, new_qx, new_qy),
        *(0.5 * (ry * txx - rx * txy), 0.5 * (ry * tyx - rx * tyy)),
        *(0.5 * (px * txy - py * txx), 0.5 * (px * tyy - py * tyx)),
        work,
    )


def return_map(
    press: Press, sxx: Tensor, syy: Tensor, sxy: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The stress on or inside the yield surface that an elastic trial stress returns to.

    With s = σ_xx + σ_yy and d = σ_xx − σ_yy, yielding begins at q = s²/6 + d²/2 + 2 σ_xy² = R² =
    ⅔ σ_Y². The return divides s by 1 + k₁g, and d and σ_xy by 1 + k₂g. Newton's method finds the g
    at which q^{-1/2}, which is almost linear in g, is 1/R. Inside the surface, g stays 0.
    """
    k1 = press.young / (3 - 3 * press.poisson)
    k2 = press.young / (1 + press.poisson)
    radius = math.sqrt(2 / 3) * press.yield_stress
    s, d = sxx + syy, sxx - syy
    volume, shape = s * s / 6, 0.5 * d * d + 2 * sxy * sxy
    g = torch.zeros_like(s)
    for _ in range(NEWTON):
        r1, r2 = 1 / (1 + k1 * g), 1 / (1 + k2 * g)
        q1, q2 = volume * r1 * r1, shape * r2 * r2
        excess = ((q1 + q2).sqrt() / radius - 1).clamp(min=0)
        g = g + (q1 + q2) * excess / (k1 * q1 * r1 + k2 * q2 * r2 + 1e-30)
    r1, r2 = 1 / (1 + k1 * g), 1 / (1 + k2 * g)
    s, d = s * r1, d * r2
    return 0.5 * (s + d), 0.5 * (s - d), sxy * r2


def die_height(
    press: Press, die: tuple[Tensor, ...], x: Float[Tensor, "b n"]
) -> tuple[Float[Tensor, "b n"], Float[Tensor, "b n"]]:
    """Height and slope at x of dies, given as four tensors (b, pieces), highest power first."""
    pieces = die[0].shape[1]
    along = (x - press.left).clamp(0, pieces * press.piece)
    # Clamped once more as a whole number: of a block that has failed, x may be anything.
    index = (along / press.piece).long().clamp(0, pieces - 1)
    s = along - index * press.piece
    c3, c2, c1, c0 = (c.gather(1, index) for c in die)
    slope = torch.where(x - press.left == along, (3 * c3 * s + 2 * c2) * s + c1, 0)
    return ((c3 * s + c2) * s + c1) * s + c0, slope


def nodal_sum(p: Tensor, r: Tensor, q: Tensor) -> Tensor:
    """Forces of elements (b, n − 1, m − 1), summed at the nodes (b, n, m)."""
    at_a, at_b = pad(p - q, (1, 0, 1, 0)), pad(r + q, (1, 0, 0, 1))
    at_c, at_d = pad(-p - q, (0, 1, 0, 1)), pad(q - r, (0, 1, 1, 0))
    return (at_a + at_c) + (at_b + at_d)


def corner_sums(values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Differences c − a, d − b and a + c − b − d of nodal values (b, n, m), for each element."""
    a, b = values[:, 1:, 1:], values[:, :-1, 1:]
    c, d = values[:, :-1, :-1], values[:, 1:, :-1]
    return c - a, d - b, (a + c) - (b + d)


def nodal_mass(press: Press, like: Tensor) -> Float[Tensor, "n m"]:
    """A quarter of each element at each of its corners."""
    along, across = (like.new_ones(k) for k in (press.n, press.m))
    for ones in (along, across):
        ones[[0, -1]] = 0.5
    return press.density * press.dx * press.dy * torch.outer(along, across)


def stable_step(press: Press, x: Tensor, y: Tensor) -> Float[Tensor, " b"]:
    """`safety` times A / (c √((p² + r²) / 2)), the least of all elements, for each block (b, n, m).

    c is the speed of sound of the elastic block.
    """
    sound = math.sqrt(press.young / (1 - press.poisson**2) / press.density)
    (px, rx, _), (py, ry, _) = corner_sums(x), corner_sums(y)
    squares = px * px + py * py + rx * rx + ry * ry
    length = (px * ry - rx * py) / (2 * squares).sqrt()
    return press.safety / sound * length.amin((1, 2))


def _as_it_is(function: Callable[..., Any]) -> Callable[..., Any]:
    return function


@lru_cache
def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function compiled for fixed shapes: a few kernels instead of some hundred."""
    return torch.compile(function, dynamic=False)
