"""The method of `lno.problems.numerics.forging` for one block on one core, compiled by numba.

The same operations in the same order, one element after the other, so that a block stays in the
cache. Forces are summed in another order, so results agree up to rounding.
"""

from __future__ import annotations

import math

import numba
import numpy as np
from jaxtyping import Float

from lno.problems.numerics.forging import HOURGLASS, NEWTON, SMALLEST_STEP, STEPS, Press

# Division by zero gives infinity, as in torch: a block that fails must not raise.
# No fast-math: it would reorder sums differently on other machines.
compiled = numba.njit(cache=True, nogil=True, error_model="numpy")


def forge_one(
    press: Press, die: Float[np.ndarray, "pieces 4"]
) -> tuple[Float[np.ndarray, "frames 2 n m"], float, Float[np.ndarray, "3 n-1 m-1"]]:
    """Forge one block: displacements, energy imbalance and final stress, as `forging.forge`."""
    return _forge(press, np.ascontiguousarray(die, dtype=np.float64))


@compiled
def _forge(press: Press, die: np.ndarray) -> tuple[np.ndarray, float, np.ndarray]:
    n, m = press.n, press.m
    position, velocity, force = np.empty((n, m, 2)), np.zeros((n, m, 2)), np.zeros((n, m, 2))
    mass, stress, hourglass = (
        np.empty((n, m)),
        np.zeros((3, n - 1, m - 1)),
        np.zeros((2, n - 1, m - 1)),
    )
    u = np.zeros((press.frames, 2, n, m), dtype=np.float32)
    for i in range(n):
        for j in range(m):
            position[i, j, 0] = press.right - i * press.dx
            position[i, j, 1] = press.top - j * press.dy
            along = 0.5 if i == 0 or i == n - 1 else 1.0
            across = 0.5 if j == 0 or j == m - 1 else 1.0
            mass[i, j] = press.density * press.dx * press.dy * along * across
    floor = SMALLEST_STEP * _stable_step(press, position)
    frame, remaining, given, taken = 1, press.interval, 0.0, 0.0
    while frame < press.frames:
        bound = _stable_step(press, position)
        if not bound > floor:
            return u, math.inf, stress
        chunks = max(math.ceil(remaining / (STEPS * bound)), 1)
        h = remaining / (STEPS * chunks)
        time = frame * press.interval - remaining
        for k in range(STEPS):
            drop = press.speed * (time + (k + 1) * h)
            given += _move(press, die, mass, position, velocity, force, drop, h)
            taken += _deform(press, position, velocity, stress, hourglass, force, h)
        remaining -= STEPS * h
        if chunks == 1:
            for i in range(n):
                for j in range(m):
                    u[frame, 0, i, j] = position[i, j, 0] - (press.right - i * press.dx)
                    u[frame, 1, i, j] = position[i, j, 1] - (press.top - j * press.dy)
            frame, remaining = frame + 1, press.interval
    kinetic = 0.0
    for i in range(n):
        for j in range(m):
            kinetic += 0.5 * mass[i, j] * (velocity[i, j, 0] ** 2 + velocity[i, j, 1] ** 2)
    imbalance = abs(given - taken - kinetic) / max(given, 1e-30)
    return u, (imbalance if math.isfinite(imbalance) else math.inf), stress


@compiled
def _stable_step(press: Press, position: np.ndarray) -> float:
    sound = math.sqrt(press.young / (1 - press.poisson**2) / press.density)
    least = math.inf
    for i in range(press.n - 1):
        for j in range(press.m - 1):
            a, b = position[i + 1, j + 1], position[i, j + 1]
            c, d = position[i, j], position[i + 1, j]
            px, py, rx, ry = c[0] - a[0], c[1] - a[1], d[0] - b[0], d[1] - b[1]
            squares = px * px + py * py + rx * rx + ry * ry
            length = (px * ry - rx * py) / math.sqrt(2 * squares)
            if not length > 0:  # inside out, or not a number
                return 0.0
            least = min(least, length)
    return press.safety / sound * least


@compiled
def _move(
    press: Press,
    die: np.ndarray,
    mass: np.ndarray,
    position: np.ndarray,
    velocity: np.ndarray,
    force: np.ndarray,
    drop: float,
    h: float,
) -> float:
    """One step of the nodes; the work that the die does. Forces are zero afterwards."""
    work = 0.0
    for i in range(press.n):
        old_x, old_y = velocity[i, 0, 0], velocity[i, 0, 1]
        for j in range(press.m):
            rate = h / mass[i, j]
            velocity[i, j, 0] += rate * force[i, j, 0]
            velocity[i, j, 1] += rate * force[i, j, 1]
            force[i, j, 0] = force[i, j, 1] = 0.0
        velocity[i, -1, 1] = 0.0  # rollers
        height, slope = _die_height(press, die, position[i, 0, 0] + h * velocity[i, 0, 0])
        depth = position[i, 0, 1] + h * velocity[i, 0, 1] - (press.top + height - drop)
        if depth > 0:
            speed = depth / (h * (1 + slope * slope))
            velocity[i, 0, 0] += speed * slope
            velocity[i, 0, 1] -= speed
            mean_x, mean_y = old_x + velocity[i, 0, 0], old_y + velocity[i, 0, 1]
            work += 0.5 * mass[i, 0] * speed * (slope * mean_x - mean_y)
        for j in range(press.m):
            position[i, j, 0] += h * velocity[i, j, 0]
            position[i, j, 1] += h * velocity[i, j, 1]
    return work


@compiled
def _die_height(press: Press, die: np.ndarray, x: float) -> tuple[float, float]:
    pieces = die.shape[0]
    along = min(max(x - press.left, 0.0), pieces * press.piece)
    index = min(max(int(along / press.piece), 0), pieces - 1)
    s = along - index * press.piece
    c3, c2, c1, c0 = die[index]
    slope = (3 * c3 * s + 2 * c2) * s + c1 if along == x - press.left else 0.0
    return ((c3 * s + c2) * s + c1) * s + c0, slope


@compiled
def _deform(
    press: Press,
    position: np.ndarray,
    velocity: np.ndarray,
    stress: np.ndarray,
    hourglass: np.ndarray,
    force: np.ndarray,
    h: float,
) -> float:
    """One step of the elements, which adds to the forces; the work of the stresses."""
    modulus, shear = press.young / (1 - press.poisson**2), press.young / (2 + 2 * press.poisson)
    size = press.dx * press.dy
    most = press.yield_stress * math.sqrt(size)
    work = 0.0
    for i in range(press.n - 1):
        for j in range(press.m - 1):
            va, vb, vc, vd = (
                velocity[i + 1, j + 1],
                velocity[i, j + 1],
                velocity[i, j],
                velocity[i + 1, j],
            )
            pu, ru, wu = vc[0] - va[0], vd[0] - vb[0], (va[0] + vc[0]) - (vb[0] + vd[0])
            pv, rv, wv = vc[1] - va[1], vd[1] - vb[1], (va[1] + vc[1]) - (vb[1] + vd[1])
            a, b, c, d = (
                position[i + 1, j + 1],
                position[i, j + 1],
                position[i, j],
                position[i + 1, j],
            )
            back = 0.5 * h
            px, rx = (c[0] - a[0]) - back * pu, (d[0] - b[0]) - back * ru
            py, ry = (c[1] - a[1]) - back * pv, (d[1] - b[1]) - back * rv
            wx = (a[0] + c[0]) - (b[0] + d[0]) - back * wu
            wy = (a[1] + c[1]) - (b[1] + d[1]) - back * wv
            per_area = 2 / (px * ry - rx * py)
            lxx, lxy = 0.5 * per_area * (ry * pu - py * ru), 0.5 * per_area * (px * ru - rx * pu)
            lyx, lyy = 0.5 * per_area * (ry * pv - py * rv), 0.5 * per_area * (px * rv - rx * pv)

            exx, eyy, exy = h * lxx, h * lyy, h * (lxy + lyx)
            turn = 0.5 * h * (lxy - lyx)
            sxx, syy, sxy = stress[0, i, j], stress[1, i, j], stress[2, i, j]
            new_xx, new_yy, new_xy = return_map(
                press,
                sxx + 2 * turn * sxy + modulus * (exx + press.poisson * eyy),
                syy - 2 * turn * sxy + modulus * (eyy + press.poisson * exx),
                sxy + turn * (syy - sxx) + shear * exy,
            )
            stiffness = HOURGLASS / 4 * modulus * per_area * (px * px + py * py + rx * rx + ry * ry)
            sway_x, sway_y = h * (wu - lxx * wx - lxy * wy), h * (wv - lyx * wx - lyy * wy)
            qx, qy = hourglass[0, i, j], hourglass[1, i, j]
            new_qx = min(max(qx + stiffness * sway_x, -most), most)
            new_qy = min(max(qy + stiffness * sway_y, -most), most)
            work += 0.5 * (
                size * ((sxx + new_xx) * exx + (syy + new_yy) * eyy + (sxy + new_xy) * exy)
                + ((qx + new_qx) * sway_x + (qy + new_qy) * sway_y)
            )
            stress[0, i, j], stress[1, i, j], stress[2, i, j] = new_xx, new_yy, new_xy
            hourglass[0, i, j], hourglass[1, i, j] = new_qx, new_qy

            thickness = size * per_area
            txx, txy = (
                thickness * new_xx - per_area * new_qx * wx,
                thickness * new_xy - per_area * new_qx * wy,
            )
            tyx, tyy = (
                thickness * new_xy - per_area * new_qy * wx,
                thickness * new_yy - per_area * new_qy * wy,
            )
            fpx, fpy = 0.5 * (ry * txx - rx * txy), 0.5 * (ry * tyx - rx * tyy)
            frx, fry = 0.5 * (px * txy - py * txx), 0.5 * (px * tyy - py * tyx)
            force[i + 1, j + 1, 0] += fpx - new_qx
            force[i + 1, j + 1, 1] += fpy - new_qy
            force[i, j + 1, 0] += frx + new_qx
            force[i, j + 1, 1] += fry + new_qy
            force[i, j, 0] -= fpx + new_qx
            force[i, j, 1] -= fpy + new_qy
            force[i + 1, j, 0] += new_qx - frx
            force[i + 1, j, 1] += new_qy - fry
    return work


@compiled
def return_map(press: Press, sxx: float, syy: float, sxy: float) -> tuple[float, float, float]:
    """See `forging.return_map`."""
    k1 = press.young / (3 - 3 * press.poisson)
    k2 = press.young / (1 + press.poisson)
    radius = math.sqrt(2 / 3) * press.yield_stress
    s, d = sxx + syy, sxx - syy
    volume, shape = s * s / 6, 0.5 * d * d + 2 * sxy * sxy
    if volume + shape <= radius * radius:
        return sxx, syy, sxy
    g, r1, r2 = 0.0, 1.0, 1.0
    for _ in range(NEWTON):
        q1, q2 = volume * r1 * r1, shape * r2 * r2
        excess = math.sqrt(q1 + q2) / radius - 1
        if excess < 1e-12:  # a third iteration is rarely needed
            break
        g += (q1 + q2) * excess / (k1 * q1 * r1 + k2 * q2 * r2)
        c1, c2 = 1 + k1 * g, 1 + k2 * g
        both = 1 / (c1 * c2)  # one division instead of two
        r1, r2 = c2 * both, c1 * both
    s, d = s * r1, d * r2
    return 0.5 * (s + d), 0.5 * (s - d), sxy * r2
