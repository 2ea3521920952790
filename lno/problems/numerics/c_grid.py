"""C-grids around airfoils that are deformed NACA-0012 profiles.

The profile lies on 0 ≤ x ≤ 1 and has a sharp trailing edge. Its points are moved in y by the eight
corners and side points of a design element, a box around it:

    y ← y + Σ_k d_k Φ_k(x) Ψ_k(y)

with cubic Lagrange polynomials Φ on four nodes in x and linear ones Ψ in y. The grid is algebraic:
straight lines from the inner boundary (wake, upper side, lower side, wake) to the outer one (two
horizontal lines and a half circle).

    ┌───────────────────── i = 0, the far field j = m − 1
    │      ╭────╮__________ upper side of the wake, j = 0
    │      ╰────╯           lower side of the wake: the same points in reverse order
    └───────────────────── i = n − 1

The construction is that of the public generator of the published data.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float
from scipy.optimize import brentq

SPAN = (1.5, 0.2)  # of the design element, centred at (0.5, 0)
GROWTH = 1.02  # of the spacing near the wall, at most


def thickness(x: Float[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Half the thickness of NACA-0012, with the coefficients that close the trailing edge.

    >>> thickness(np.array([0.0, 0.3, 1.0])).round(4).tolist()
    [0.0, 0.06, 0.0]
    """
    series = 0.2969 * np.sqrt(x) + x * (-0.1260 + x * (-0.3516 + x * (0.2843 - 0.1036 * x)))
    return np.maximum(0.6 * series, 0.0)  # rounding makes it negative at x = 1


def deform(
    points: Float[np.ndarray, "n 2"], displacements: Float[np.ndarray, " 8"]
) -> Float[np.ndarray, "n 2"]:
    """Points moved with the design element.

    Args:
        points: in the undeformed plane.
        displacements: of the lower nodes from left to right, then the upper ones back to the left.

    >>> deform(np.array([[0.5, 0.0]]), np.full(8, 0.01)).round(9).tolist()  # a translation
    [[0.5, 0.01]]
    """
    x, y = points.T
    nodes = 0.5 + SPAN[0] * np.array([-1 / 2, -1 / 6, 1 / 6, 1 / 2])
    along = np.stack(
        [
            np.prod([(x - other) / (node - other) for other in np.delete(nodes, k)], axis=0)
            for k, node in enumerate(nodes)
        ]
    )
    upper = 0.5 + y / SPAN[1]
    moved = (1 - upper) * (displacements[:4] @ along) + upper * (displacements[:3:-1] @ along)
    return np.stack([x, y + moved], axis=-1)


def surface_positions(cells: int) -> Float[np.ndarray, " n"]:
    """Where the nodes of one side are between leading edge 0 and trailing edge 1.

    Uniform, but the first cell is cut at a quarter of its length, which resolves the nose.

    >>> surface_positions(4).round(3).tolist()
    [0.0, 0.083, 0.333, 0.667, 1.0]
    """
    uniform = np.linspace(0, 1, cells)
    return np.concatenate([[0.0, uniform[1] / 4], uniform[1:]])


def stretched(cells: int, first: float) -> Float[np.ndarray, " n"]:
    """Positions from 0 to 1 whose spacing begins with `first` and grows geometrically.

    The ratio is the one that ends at 1. Where it exceeds `GROWTH`, three quarters of the points use
    `GROWTH`, and the ratio of the rest is solved for. Uniform where `first` is too large to grow.

    >>> stretched(4, 0.2).round(3).tolist(), stretched(2, 0.9).tolist()
    ([0.0, 0.2, 0.404, 0.612, 1.0], [0.0, 0.5, 1.0])
    """
    if first * cells >= 1:
        return np.linspace(0, 1, cells + 1)
    ratio = _ratio(1 / first, cells)
    near = 3 * (cells + 1) // 4 - 1 if ratio > GROWTH else cells  # cells that use the first ratio
    steps = first * min(ratio, GROWTH) ** np.arange(near + 1)
    if near == cells:
        steps = steps[:-1]
    else:
        rest, left = steps[-1], 1 - steps[:-1].sum()
        growth = _ratio(left / rest, cells - near)
        steps = np.concatenate([steps[:-1], rest * growth ** np.arange(cells - near)])
    positions = np.concatenate([[0.0], np.cumsum(steps)])
    positions[-1] = 1.0
    return positions


def _ratio(length: float, cells: int) -> float:
    """The r ≥ 1 with 1 + r + … + r^{cells − 1} = length ≥ cells; 1 for a single cell."""
    if cells == 1:
        return 1.0
    powers, highest = np.arange(cells), length ** (1 / (cells - 1))
    return float(brentq(lambda r: (r**powers).sum() - length, 1.0, 1.001 * highest, xtol=1e-14))


def c_grid(
    displacements: Float[np.ndarray, " 8"], surface: int, wake: int, normal: int, far: float
) -> Float[np.ndarray, "n m 2"]:
    """The nodes of the grid, (2·wake + surface + 1, normal + 1, 2).

    Args:
        displacements: of the design element.
        surface: cells around the airfoil, an even number.
        wake: cells on each side of the wake.
        normal: cells from the airfoil to the far field.
        far: the radius of the far field in chords, centred at the trailing edge, and the x at which
            the grid ends downstream.

    The spacing at the wall is 2/surface. That of the wake begins as the surface ends.

    >>> points = c_grid(np.zeros(8), surface=120, wake=50, normal=50, far=40)
    >>> points.shape, points[110, 0].tolist(), points[110, -1].round(6).tolist()
    ((221, 51, 2), [0.0, 0.0], [-39.0, 0.0])
    """
    x = surface_positions(surface // 2)[::-1]
    y = thickness(x)
    # The spacing of the wake comes from the undeformed profile, as in the published grids.
    last = np.hypot(x[0] - x[1], y[0] - y[1])
    profile = np.concatenate([np.stack([x, y], -1), np.stack([x, -y], -1)[-2::-1]])
    profile = deform(profile, displacements)

    along = stretched(wake, last / (far - 1))[::-1, None]
    behind = (1 - along) * profile[0] + along * np.array([far, 0.0])
    inner = np.concatenate([behind[:-1], profile, behind[-2::-1]])
    inner[-wake - 1 :] = inner[wake::-1]  # both sides of the cut: bit-for-bit the same points

    straight = np.linspace(far, 1, wake + 1)[:-1]
    angle = np.linspace(0, 1, surface // 2 + 1) * np.pi / 2
    flat = np.stack([straight, np.full(wake, far)], -1)
    quarter = np.stack([1 - far * np.sin(angle), far * np.cos(angle)], -1)
    quarter[-1, 1] = 0.0
    upper = np.concatenate([flat, quarter])
    outer = np.concatenate([upper, upper[-2::-1] * np.array([1, -1])])

    weight = stretched(normal, 2 / surface / far)[:, None]
    return (1 - weight) * inner[:, None] + weight * outer[:, None]
