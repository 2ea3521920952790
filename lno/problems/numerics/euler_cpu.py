"""The iterations of `lno.problems.numerics.euler` for one sample at a time, compiled by numba.

The arithmetic is the same, in another order of summation. The flow of one sample fits into the
cache, so each stage goes along the rows of the grid once.

The loops over a row are written so that the compiler vectorises them, which makes them three times
faster. It must know that arrays do not overlap. So arrays are one-dimensional, and each row of each
quantity has a fixed length, `PITCH`. Indices are unsigned, because negative ones would count from
the end.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float
from numba import njit
from torch import Tensor

from lno.problems.numerics.dual_mesh import Mesh
from lno.problems.numerics.euler import ENTROPY_FIX, GAMMA, REFRESH, SMOOTH, STAGES, Outside

U = np.uint64
PITCH = U(136)  # not a power of two: rows would compete for the same lines of the cache
ONE, TWO, FOUR = U(1), U(2), U(4)
NODE = FOUR * PITCH  # the four quantities of a row of nodes
# Where the geometry of a row is: faces before it, faces along it, weights along both axes.
FACES_I, FACES_J, WEIGHTS_I, WEIGHTS_J = U(0), U(3) * PITCH, U(6) * PITCH, U(10) * PITCH
GEOMETRY = U(14) * PITCH
# Where a row of states and fluxes is in the scratch array.
LEFT, RIGHT, FLUX, NEXT = U(0), NODE, TWO * NODE, U(3) * NODE
MOST = int(PITCH) - 1  # nodes along the second axis

# Compiled code is kept on disk until this file changes. So constants of other files that may change
# are passed as arguments.
compiled = njit(cache=True, error_model="numpy", nogil=True)


@compiled
def _primitive(w, q, at, m):  # type: ignore[no-untyped-def]
    for j in range(m):
        density = w[at + j]
        momentum_x, momentum_y = w[at + PITCH + j], w[at + TWO * PITCH + j]
        u, v = momentum_x / density, momentum_y / density
        q[at + j], q[at + PITCH + j], q[at + TWO * PITCH + j] = density, u, v
        kinetic = (momentum_x * u + momentum_y * v) / 2
        q[at + U(3) * PITCH + j] = (GAMMA - 1) * (w[at + U(3) * PITCH + j] - kinetic)


@compiled
def _limited(before, after, smooth):  # type: ignore[no-untyped-def]
    mean = (after * after + smooth) * before + (before * before + smooth) * after
    mean = mean / (before * before + after * after + 2 * smooth)
    return mean if before * after > -smooth else 0.0


@compiled
def _states_i(q, geometry, scratch, smooth, i, n, m):  # type: ignore[no-untyped-def]
    """States on both sides of the row: RIGHT of the faces before it, NEXT of those after it."""
    at, weights = i * NODE, i * GEOMETRY + WEIGHTS_I
    # At boundaries the difference to the missing node is that to the node on the other side.
    first = at if i == 0 else at - NODE
    last = at if i == n - ONE else at + NODE
    for k in range(FOUR):
        row = k * PITCH
        for j in range(m):
            value = q[at + row + j]
            before, after = value - q[first + row + j], q[last + row + j] - value
            if i == 0:
                before = after
            if i == n - ONE:
                after = before
            change = _limited(
                before * geometry[weights + j], after * geometry[weights + PITCH + j], smooth
            )
            scratch[RIGHT + row + j] = value - change * geometry[weights + TWO * PITCH + j]
            scratch[NEXT + row + j] = value + change * geometry[weights + U(3) * PITCH + j]


@compiled
def _states_j(q, geometry, scratch, far, cut, smooth, i, n, m):  # type: ignore[no-untyped-def]
    """States on both sides of the faces along the row."""
    at, weights = i * NODE, i * GEOMETRY + WEIGHTS_J
    mirror = (n - ONE - i) * NODE
    for k in range(FOUR):
        row = k * PITCH
        for j in range(ONE, m - ONE):
            value = q[at + row + j]
            before, after = value - q[at + row + j - ONE], q[at + row + j + ONE] - value
            change = _limited(
                before * geometry[weights + j], after * geometry[weights + PITCH + j], smooth
            )
            scratch[RIGHT + row + j - ONE] = value - change * geometry[weights + TWO * PITCH + j]
            scratch[LEFT + row + j] = value + change * geometry[weights + U(3) * PITCH + j]
        value, after = q[at + row], q[at + row + ONE] - q[at + row]
        before = q[mirror + row] - q[mirror + row + ONE] if cut[i] > 0 else after
        change = _limited(before * geometry[weights], after * geometry[weights + PITCH], smooth)
        scratch[LEFT + row] = value + change * geometry[weights + U(3) * PITCH]
        j = m - ONE
        value = q[at + row + j]
        before = value - q[at + row + j - ONE]
        change = _limited(
            before * geometry[weights + j], before * geometry[weights + PITCH + j], smooth
        )
        scratch[RIGHT + row + j - ONE] = value - change * geometry[weights + TWO * PITCH + j]
        scratch[LEFT + row + j] = value + change * geometry[weights + U(3) * PITCH + j]
        scratch[RIGHT + row + j] = far[k]


@compiled
def _roe(scratch, geometry, entropy_fix, face, m):  # type: ignore[no-untyped-def]
    """FLUX between LEFT and RIGHT: see `lno.problems.numerics.euler.roe_flux`."""
    for j in range(m):
        nx, ny = geometry[face + j], geometry[face + PITCH + j]
        scale = geometry[face + TWO * PITCH + j] / 2
        r1, u1 = scratch[LEFT + j], scratch[LEFT + PITCH + j]
        v1, p1 = scratch[LEFT + TWO * PITCH + j], scratch[LEFT + U(3) * PITCH + j]
        r2, u2 = scratch[RIGHT + j], scratch[RIGHT + PITCH + j]
        v2, p2 = scratch[RIGHT + TWO * PITCH + j], scratch[RIGHT + U(3) * PITCH + j]
        normal1, normal2 = u1 * nx + v1 * ny, u2 * nx + v2 * ny
        enthalpy1 = GAMMA / (GAMMA - 1) * p1 / r1 + (u1 * u1 + v1 * v1) / 2
        enthalpy2 = GAMMA / (GAMMA - 1) * p2 / r2 + (u2 * u2 + v2 * v2) / 2

        root = np.sqrt(r2 / r1)
        part = 1 / (1 + root)
        r, u, v = root * r1, (u1 + root * u2) * part, (v1 + root * v2) * part
        enthalpy = (enthalpy1 + root * enthalpy2) * part
        kinetic = (u * u + v * v) / 2
        c2 = (GAMMA - 1) * (enthalpy - kinetic)
        c, normal = np.sqrt(c2), u * nx + v * ny

        least = entropy_fix * c
        slow, fast, drift = abs(normal - c), abs(normal + c), abs(normal)
        raised = (slow * slow / least + least) / 2
        slow = raised if slow < least else slow
        raised = (fast * fast / least + least) / 2
        fast = raised if fast < least else fast

        dr, dp, dn = r2 - r1, p2 - p1, normal2 - normal1
        half = 0.5 / c2
        back, forth = slow * (dp - r * c * dn) * half, fast * (dp + r * c * dn) * half
        entropy, shear = drift * (dr - dp / c2), drift * r
        du, dv = u2 - u1 - dn * nx, v2 - v1 - dn * ny
        sound, change = back + entropy + forth, (forth - back) * c
        mass1, mass2, pressure = r1 * normal1, r2 * normal2, p1 + p2
        scratch[FLUX + j] = scale * (mass1 + mass2 - sound)
        scratch[FLUX + PITCH + j] = scale * (
            mass1 * u1 + mass2 * u2 + pressure * nx - sound * u - change * nx - shear * du
        )
        scratch[FLUX + TWO * PITCH + j] = scale * (
            mass1 * v1 + mass2 * v2 + pressure * ny - sound * v - change * ny - shear * dv
        )
        scratch[FLUX + U(3) * PITCH + j] = scale * (
            mass1 * enthalpy1
            + mass2 * enthalpy2
            - (back + forth) * enthalpy
            - change * normal
            - entropy * kinetic
            - shear * (u * du + v * dv)
        )


@compiled
def _residual(  # type: ignore[no-untyped-def]
    q, geometry, wall, cut, far, net, scratch, smooth, entropy_fix, n, m
):
    for k in range(FOUR):
        for j in range(m):
            scratch[NEXT + k * PITCH + j] = far[k]
    for i in range(n + ONE):
        at = i * NODE
        for j in range(NODE):
            scratch[LEFT + j] = scratch[NEXT + j]
        if i < n:
            _states_i(q, geometry, scratch, smooth, i, n, m)
        else:
            for k in range(FOUR):
                for j in range(m):
                    scratch[RIGHT + k * PITCH + j] = far[k]
        _roe(scratch, geometry, entropy_fix, i * GEOMETRY + FACES_I, m)
        if i > 0:
            for j in range(NODE):
                net[at - NODE + j] += scratch[FLUX + j]
        if i == n:
            break
        for j in range(NODE):
            net[at + j] = -scratch[FLUX + j]
        _states_j(q, geometry, scratch, far, cut, smooth, i, n, m)
        _roe(scratch, geometry, entropy_fix, i * GEOMETRY + FACES_J, m)
        for k in range(FOUR):
            row = k * PITCH
            for j in range(m):
                net[at + row + j] += scratch[FLUX + row + j]
            for j in range(ONE, m):
                net[at + row + j] -= scratch[FLUX + row + j - ONE]
        pressure = q[at + U(3) * PITCH]
        net[at + PITCH] -= pressure * wall[0, i]
        net[at + TWO * PITCH] -= pressure * wall[1, i]
    # Both copies of a node of the wake get the sum of the two.
    for i in range(n // TWO):
        if cut[i] > 0:
            for k in range(FOUR):
                upper, lower = i * NODE + k * PITCH, (n - ONE - i) * NODE + k * PITCH
                both = net[upper] + net[lower]
                net[upper] = both
                net[lower] = both


@compiled
def _local_step(q, geometry, cut, step, cfl, n, m):  # type: ignore[no-untyped-def]
    for i in range(n):
        at, own, following = i * NODE, i * GEOMETRY, (i + ONE) * GEOMETRY
        for j in range(m):
            u, v = q[at + PITCH + j], q[at + TWO * PITCH + j]
            c = np.sqrt(GAMMA * q[at + U(3) * PITCH + j] / q[at + j])
            total = 0.0
            for face in (own + FACES_I + j, following + FACES_I + j, own + FACES_J + j):
                normal = abs(u * geometry[face] + v * geometry[face + PITCH])
                total += (normal + c) * geometry[face + TWO * PITCH] / 2
            if j > 0:
                face = own + FACES_J + j - ONE
                normal = abs(u * geometry[face] + v * geometry[face + PITCH])
                total += (normal + c) * geometry[face + TWO * PITCH] / 2
            step[i * PITCH + j] = total
    for i in range(n // TWO):
        if cut[i] > 0:
            both = step[i * PITCH] + step[(n - ONE - i) * PITCH]
            step[i * PITCH] = both
            step[(n - ONE - i) * PITCH] = both
    for i in range(n):
        for j in range(m):
            step[i * PITCH + j] = cfl / step[i * PITCH + j]


@compiled
def _advance(  # type: ignore[no-untyped-def]
    w, geometry, wall, cut, far, stages, rounds, refresh, cfl, smooth, entropy_fix, n, m
):
    start, q, net = w.copy(), w.copy(), np.zeros_like(w)
    step, scratch = np.ones(n * PITCH), np.ones(U(4) * NODE)
    for _ in range(rounds):
        for i in range(n):
            _primitive(w, q, i * NODE, m)
        _local_step(q, geometry, cut, step, cfl, n, m)
        for _ in range(refresh):
            start[:] = w
            for part in stages:
                for i in range(n):
                    _primitive(w, q, i * NODE, m)
                _residual(q, geometry, wall, cut, far, net, scratch, smooth, entropy_fix, n, m)
                for i in range(n):
                    for k in range(FOUR):
                        at = i * NODE + k * PITCH
                        for j in range(m):
                            change = part * step[i * PITCH + j] * net[at + j]
                            w[at + j] = start[at + j] - change


class RelaxationCPU:
    """Runge–Kutta iterations of a batch, in place, one sample after the other.

    Args:
        mesh: of the batch.
        outside: the free stream.
        w: the state (4, b, n, m), which the iterations change.
    """

    def __init__(self, mesh: Mesh, outside: Outside, w: Float[Tensor, "4 b n m"]) -> None:
        _, b, n, m = w.shape
        if m > MOST:
            raise ValueError(f"expected at most {MOST} nodes from wall to far field, got {m}")
        self.w, self._mesh, self._far = w, mesh, np.array(outside)
        geometry = np.ones((b, n + 1, 14, int(PITCH)))
        for first, part in (
            (0, mesh.faces_i),
            (3, mesh.faces_j),
            (6, mesh.weights_i),
            (10, mesh.weights_j),
        ):
            rows = part.numpy().transpose(1, 2, 0, 3)
            geometry[:, : rows.shape[1], first : first + rows.shape[2], :m] = rows
        self._geometry = geometry.reshape(b, -1)

    def advance(self, iterations: int, cfl: Float[Tensor, " b"]) -> None:
        """Iterate with a CFL number of each sample; samples with 0 are left alone."""
        _, b, n, m = self.w.shape
        rounds = -(-iterations // REFRESH)
        for k in range(b):
            if cfl[k] == 0:
                continue
            rows = np.ones((n, 4, int(PITCH)))
            rows[:, :, :m] = self.w[:, k].numpy().transpose(1, 0, 2)
            flat = rows.reshape(-1)
            wall = np.ascontiguousarray(self._mesh.wall[:, k].numpy())
            cut = self._mesh.cut.numpy()
            _advance(
                flat, self._geometry[k], wall, cut, self._far, np.array(STAGES), rounds,
                REFRESH, float(cfl[k]), SMOOTH, ENTROPY_FIX, U(n), U(m),
            )  # fmt: skip
            self.w[:, k] = torch.from_numpy(rows[:, :, :m].transpose(1, 0, 2).copy())
