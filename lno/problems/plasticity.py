"""Forging of a block by a rigid die, from the shape of the die to the deformation over time.

    ρ ü = ∇·σ,    elastic and perfectly plastic (von Mises), plane stress, large deformation

A block of 50 mm × 15 mm stands on rollers. A rigid die without friction comes down on it at 3 m/s,
6 mm in 2 ms. A steel-like model material: E = 200 GPa, ν = 0.3, ρ = 7850 kg/m³, with a low yield
stress, σ_Y = 70 MPa, and no hardening. The die is a random curve: a cubic spline through nine
equispaced knots, the outer ones 7.5 mm above its lowest point, the inner ones uniform between. It
touches the block at t = 0. Frame k of 20 is the state at k · 0.1 ms. The first axis of the 101 × 31
× 20 grid runs along the block, from right to left, the second from top to bottom, the third is
time. The outputs are the position and the displacement of each node, the input is the height of the
die.

Explicit dynamics on 100 × 30 elements with one integration point, in double precision; see
`lno.problems.numerics.forging`. Inertia matters: sliding along the die is resisted by nothing else.
So the density is the real one. A flat die stretches the block by (H/H0)^{-1/2} within 6e-4 at a
stress of σ_Y within 5e-4. docs/problems/plasticity.md has all that was checked.

A sample has failed if an element turned inside out, if the time step became very short, or if the
work of the die is not the kinetic energy plus the work of the stresses, within 1 %.

Of the published data, the grid, the sizes, the frames, the profile of the die and the order of its
values were measured from figures. The material is an assumption. So is plane stress, which the
shrinking area of the published blocks supports.

No symmetries are listed. The mirror image of a forged block is one as well, but the published
positions are measured from one end of it, so mirroring them is more than a change of sign.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from scipy.interpolate import CubicSpline

from lno.config import require_count, require_range
from lno.data import Fields
from lno.data.foreign import MAT
from lno.data.published import SAMPLES, Array, Layout
from lno.mesh import grid_cells
from lno.problems.numerics.forging import Press, forge
from lno.problems.numerics.grids import one_channel, unit_grid
from lno.problems.problem import Problem, Protocol

GRID = (101, 31, 20)

LENGTH, HEIGHT = 50.0, 15.0  # of the block, mm
RIGHT, TOP = 0.35, 14.9  # where its upper right corner is
LEFT = -50.0  # where the die begins; it ends at 0
KNOTS = 9  # of the die
RISE = 7.5  # of its ends above its lowest point, mm

SAFETY = 0.8  # time step over the largest stable one
IMBALANCE = 0.01  # of energy, relative to the work of the die


def field_arguments(
    die: Float[np.ndarray, "s n"], state: Float[np.ndarray, "s n m t 4"]
) -> dict[str, Any]:
    """Die profiles and states to the arguments of `Fields`; u at (i, j, t) is die[i].

    A picture or a mesh file shows the block at one time. The cells are those of the last: the final
    shape of the block.
    """
    s, *grid, channels = state.shape
    times = grid[-1]
    return {
        "x": unit_grid(grid),
        "u": one_channel(np.broadcast_to(die[:, :, None, None], (s, *grid))),
        "y": state.reshape(s, -1, channels),
        "grid": grid,
        "cells": grid_cells(grid[:2]) * times + times - 1,
        "geometry": {"y": ["x", "y"]},
        "names": {"x": ["xi", "eta", "t"], "u": ["die"], "y": ["x", "y", "u_x", "u_y"]},
        "units": {"u": ["mm"], "y": ["mm"] * 4},
        "frame": "reference grid",
    }


FILES = Layout(
    files=("plas_N987_T20.mat",),
    kind=MAT,
    arrays=(Array(0, "input", (SAMPLES, GRID[0])), Array(0, "output", (SAMPLES, *GRID, 4))),
    build=field_arguments,
    last=True,
)


@dataclass(frozen=True)
class Plasticity(Problem):
    """Positions and displacements of the nodes at 20 times; the profile of the die is the input.

    Args:
        length_nodes: nodes along the block, and values of the profile of the die.
        height_nodes: nodes through the height of the block.
        frames: times that are kept, from 0 on.
        duration: ms; frame k is at k · duration / frames.
        speed: of the die, mm/ms.
        young: Young's modulus, MPa.
        poisson: Poisson's ratio.
        yield_stress: MPa.
        density: g/mm³.

    The time step is proportional to the size of the elements.

    >>> from lno.problems.make import make
    >>> make(Plasticity(length_nodes=11, height_nodes=4, frames=4), samples=1, seed=7)
    Fields(1 sample: die at 176 points of xi, eta, t → x, y, u_x, u_y at the same points)
    """

    length_nodes: int = 101
    height_nodes: int = 31
    frames: int = 20
    duration: float = 2.0
    speed: float = 3.0
    young: float = 200e3
    poisson: float = 0.3
    yield_stress: float = 70.0
    density: float = 7.85e-3

    name: ClassVar[str] = "plasticity"
    title: ClassVar[str] = "Plasticity"
    equation: ClassVar[str] = "ρ ü = ∇·σ, elastic and perfectly plastic, plane stress"
    protocols: ClassVar[Mapping[str, Protocol]] = {
        "standard": Protocol(900, 80),
        "reference": Protocol(900, 87),
        "small": Protocol(200, 50, {"length_nodes": 34, "height_nodes": 11, "frames": 10}),
    }
    published: ClassVar[Mapping[str, Layout]] = {"standard": FILES, "reference": FILES}
    picture: ClassVar[Mapping[str, tuple[str, ...]]] = {"u": ("die",), "y": ("u_x", "u_y")}
    batch: ClassVar[int] = 128  # their state fits into the cache of a large GPU

    def __post_init__(self) -> None:
        require_count("length_nodes", self.length_nodes, 2001, least=3)
        require_count("height_nodes", self.height_nodes, 1001, least=3)
        require_count("frames", self.frames, 1000, least=2)
        require_range("duration", self.duration, 1e-3, 10.0)
        require_range("speed", self.speed, 1e-6, 100.0)
        require_range("young", self.young, 1.0, 1e7)
        require_range("poisson", self.poisson, 0.0, 0.49)
        require_range("yield_stress", self.yield_stress, 1e-3, 1e7)
        require_range("density", self.density, 1e-6, 1.0)
        if self.duration * self.speed > RISE:
            raise ValueError(
                f"expected the die to move at most {RISE:g} mm, after which its ends reach the "
                f"block, got duration · speed = {self.duration * self.speed:g}"
            )

    def draw(self, random: np.random.Generator) -> Float[np.ndarray, " knots"]:
        """The heights of the inner knots of the die, mm."""
        return random.uniform(0, RISE, KNOTS - 2)

    def solve(self, inputs: list[np.ndarray], device: torch.device) -> list[np.ndarray | None]:
        """Knots to displacements (n, m, frames, 2) of the nodes, float32."""
        return self._solve(inputs, device, SAFETY)

    def solve_safely(
        self, inputs: list[np.ndarray], device: torch.device
    ) -> list[np.ndarray | None]:
        """With a quarter of the time step."""
        return self._solve(inputs, device, SAFETY / 4)

    def _solve(
        self, inputs: list[np.ndarray], device: torch.device, safety: float
    ) -> list[np.ndarray | None]:
        dies = np.stack([die_pieces(knots) for knots in inputs])
        forged = forge_on_gpu if device.type == "cuda" else forge_on_cpu
        return [
            u.transpose(2, 3, 0, 1) if imbalance < IMBALANCE and self.is_regular(u) else None
            for u, imbalance in forged(self.press(safety), dies, device, self.batch)
        ]

    def press(self, safety: float = SAFETY) -> Press:
        """The numbers that the solver needs."""
        return Press(
            n=self.length_nodes,
            m=self.height_nodes,
            frames=self.frames,
            interval=self.duration / self.frames,
            speed=float(self.speed),
            young=float(self.young),
            poisson=float(self.poisson),
            yield_stress=float(self.yield_stress),
            density=float(self.density),
            safety=safety,
            dx=LENGTH / (self.length_nodes - 1),
            dy=HEIGHT / (self.height_nodes - 1),
            right=RIGHT,
            top=TOP,
            left=LEFT,
            piece=-LEFT / (KNOTS - 1),
        )

    def nodes(self) -> Float[np.ndarray, "n m 2"]:
        """The positions of the nodes at t = 0."""
        x = RIGHT - np.linspace(0, LENGTH, self.length_nodes)
        y = TOP - np.linspace(0, HEIGHT, self.height_nodes)
        return np.stack(np.meshgrid(x, y, indexing="ij"), axis=-1)

    def is_regular(self, u: Float[np.ndarray, "frames 2 n m"]) -> bool:
        """Whether all elements have a positive area at all frames."""
        x = u + self.nodes().transpose(2, 0, 1)
        return bool((areas(x) > 0).all())

    def fields(
        self,
        inputs: Sequence[np.ndarray],
        solutions: Sequence[np.ndarray],
        provenance: Mapping[str, Any],
    ) -> Fields:
        """The profile of the die, y at t = 0 from left to right, as the observed values."""
        x = np.linspace(LEFT, 0, self.length_nodes)
        die = np.stack([TOP + die_profile(die_pieces(knots), x) for knots in inputs])
        u = np.stack(solutions)
        state = np.concatenate((u, u), axis=-1)
        state[..., :2] += self.nodes()[:, :, None]
        arguments = field_arguments(die.astype(np.float32), state)
        return Fields(**arguments, provenance=provenance)


def forge_on_cpu(
    press: Press, dies: Float[np.ndarray, "s pieces 4"], device: torch.device, batch: int
) -> list[tuple[np.ndarray, float]]:
    """Displacements and energy imbalance of each block, one block in each thread."""
    from lno.problems.numerics.forging_cpu import forge_one  # numba takes a second to import

    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        return [
            (u, imbalance) for u, imbalance, _ in pool.map(lambda die: forge_one(press, die), dies)
        ]


def forge_on_gpu(
    press: Press, dies: Float[np.ndarray, "s pieces 4"], device: torch.device, batch: int
) -> list[tuple[np.ndarray, float]]:
    """The same in batches of one size, the last one padded: one compilation, the same kernels."""
    padding = np.repeat(dies[:1], -len(dies) % batch, axis=0)
    solved: list[tuple[np.ndarray, float]] = []
    for part in torch.from_numpy(np.concatenate((dies, padding))).to(device).split(batch):
        u, imbalance, _ = forge(press, part)
        solved += zip(u.cpu().numpy(), imbalance.tolist(), strict=True)
    return solved[: len(dies)]


def die_pieces(knots: Float[np.ndarray, " knots"]) -> Float[np.ndarray, "pieces 4"]:
    """The die through its inner knots, as a cubic in each piece, highest power first.

    The spline is shifted and scaled so that its lowest point is 0 and its ends are at 7.5 mm.

    >>> die_profile(die_pieces(np.full(7, 2.0)), np.array([-50.0, 0.0])).round(9).tolist()
    [7.5, 7.5]
    """
    heights = np.concatenate(([RISE], knots, [RISE]))
    spline = CubicSpline(np.linspace(LEFT, 0, KNOTS), heights)
    turns = spline.derivative().roots(discontinuity=False, extrapolate=False)
    lowest = min(heights.min(), spline(turns[np.isfinite(turns)]).min(initial=RISE))
    pieces = spline.c.T.copy()
    pieces[:, -1] -= lowest
    return pieces * (RISE / (RISE - lowest))


def die_profile(
    pieces: Float[np.ndarray, "pieces 4"], x: Float[np.ndarray, "*any"]
) -> Float[np.ndarray, "*any"]:
    """The height of the die above its lowest point at x; level beyond its ends."""
    width = -LEFT / len(pieces)
    along = np.clip(x - LEFT, 0, -LEFT)
    index = np.minimum(along // width, len(pieces) - 1).astype(int)
    c3, c2, c1, c0 = np.moveaxis(pieces[index], -1, 0)
    s = along - index * width
    return ((c3 * s + c2) * s + c1) * s + c0


def areas(x: Float[np.ndarray, "*any 2 n m"]) -> Float[np.ndarray, "*any n-1 m-1"]:
    """The areas of the elements between nodes at x; negative if turned inside out."""
    p = x[..., :-1, :-1] - x[..., 1:, 1:]
    r = x[..., 1:, :-1] - x[..., :-1, 1:]
    return 0.5 * (p[..., 0, :, :] * r[..., 1, :, :] - p[..., 1, :, :] * r[..., 0, :, :])
