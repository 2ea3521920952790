"""Symmetries of a problem: maps of functions on a rectangle that take solutions to solutions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from lno.data import columns
from lno.data.batch import Batch
from lno.data.fields import Fields
from lno.data.normalize import Normalizers

Grid = TypeVar("Grid", np.ndarray, Tensor)
Matrix = tuple[tuple[int, int], tuple[int, int]]
Shift = tuple[Fraction | int, Fraction | int]


@dataclass(frozen=True)
class Symmetry:
    """The map (g w)(x) = sign · w(M x + shift) of functions on a rectangle, applied to grids.

    Args:
        name: what it does, in words.
        matrix: M, a signed permutation of the two coordinates.
        shift: in units of the sides.
        sign: 1, or −1 for values that change sign with it.
        periodic: the grid has the points i/n of a torus, at least along the axes that are moved;
            otherwise i/(n−1), both ends included.

    Called with values u and y of shape (..., n, m, c), arrays or tensors, it gives the values of
    the mapped sample. `g @ h` is g after h.

    >>> turn = Symmetry("turn", ((0, 1), (-1, 0)), (0, 1))
    >>> u = np.arange(4.0).reshape(2, 2, 1)
    >>> turned, _ = turn(u, u)
    >>> turned[..., 0].tolist()
    [[1.0, 3.0], [0.0, 2.0]]
    """

    name: str
    matrix: Matrix
    shift: Shift
    sign: int = 1
    periodic: bool = False

    def __call__(self, u: Grid, y: Grid) -> tuple[Grid, Grid]:
        return self._map(u), self._map(y)

    def __matmul__(self, other: Symmetry) -> Symmetry:
        (a, b), (c, d) = self.matrix
        (p, q), (r, s) = other.matrix
        x, y = self.shift
        shift = (p * x + q * y + other.shift[0], r * x + s * y + other.shift[1])
        return Symmetry(
            name=f"{self.name} after {other.name}",
            matrix=((p * a + q * c, p * b + q * d), (r * a + s * c, r * b + s * d)),
            shift=(shift[0] % 1, shift[1] % 1) if self.periodic else shift,
            sign=self.sign * other.sign,
            periodic=self.periodic,
        )

    def _map(self, w: Grid) -> Grid:
        i, j = self.source(w.shape[-3:-1])
        return w[..., i, j, :] * self.sign

    def source(self, grid: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """For each point of a grid (n, m), the indices of the point whose value it gets."""
        n, m = grid
        if n != m and self.matrix[0][0] == 0:
            raise ValueError(f"{self.name}: expected a square grid, got {n} × {m}")
        shift = [
            Fraction(s) * (size if self.periodic else size - 1)
            for s, size in zip(self.shift, grid, strict=True)
        ]
        if any(s.denominator > 1 for s in shift):
            raise ValueError(
                f"{self.name}: expected a grid with points {' and '.join(map(str, self.shift))} "
                f"of its side apart, got {n} × {m}"
            )
        index = np.einsum("ab,bij->aij", self.matrix, np.indices((n, m)))
        i, j = (row + int(s) for row, s in zip(index, shift, strict=True))
        return (i % n, j % m) if self.periodic else (i, j)


def square() -> tuple[Symmetry, ...]:
    """The eight symmetries of the unit square.

    >>> [g.name for g in square()][:3]
    ['identity', 'reverse y', 'reverse x']
    """
    found = []
    for swap in (False, True):
        for p in (1, -1):
            for q in (1, -1):
                names = ["swap x and y"] * swap + ["reverse x"] * (p < 0) + ["reverse y"] * (q < 0)
                matrix = ((0, p), (q, 0)) if swap else ((p, 0), (0, q))
                # M x + shift keeps the centre (½, ½).
                shift = ((1 - p) // 2, (1 - q) // 2)
                found.append(Symmetry(", ".join(names) or "identity", matrix, shift))
    return tuple(found)


class Orbit:
    """Random symmetries for encoded batches: every sample is replaced by an image of it.

    Args:
        symmetries: of the problem; the identity among them.
        data: what batches are taken from. Answers are at the points of a grid; observations are at
            some of them, which the symmetries map onto each other.
        normalizers: of the data, since a change of sign is one of physical values.

    >>> from lno.data.normalize import Normalizers
    >>> side = np.linspace(0, 1, 3)
    >>> x = np.stack(np.meshgrid(side, side, indexing="ij"), -1).reshape(9, 2)
    >>> data = Fields(x, np.arange(9.0).reshape(1, 9, 1), y=np.ones((1, 9, 1)), grid=(3, 3))
    >>> orbit = Orbit(square(), data, Normalizers.fit(data))
    >>> image = orbit.draw(data.batch([0]), torch.Generator().manual_seed(1))
    >>> image.u.flatten().tolist()
    [2.0, 5.0, 8.0, 1.0, 4.0, 7.0, 0.0, 3.0, 6.0]
    """

    def __init__(
        self, symmetries: Sequence[Symmetry], data: Fields, normalizers: Normalizers
    ) -> None:
        grid = data.grid
        if grid is None or len(grid) != 2:
            raise ValueError(
                f"symmetries act on data on a grid of two axes, these have the grid {grid}"
            )
        if not symmetries:
            raise ValueError("expected at least one symmetry")
        if not columns.is_shared(data.x) or not columns.is_shared(data.x_query):
            raise ValueError("symmetries act on samples that share their points")
        source = np.stack(
            [np.ravel_multi_index(g.source(grid), grid).reshape(-1) for g in symmetries]
        )
        observed = source
        if not data.same_points and data.spec.in_channels:
            observed = _among(np.asarray(data.x), np.asarray(data.x_query), source)
        # For each symmetry and each point, the point whose value it gets: of u, and of y.
        self.source = [torch.from_numpy(s) for s in (observed, source)]
        self.sign = torch.tensor([float(g.sign) for g in symmetries])
        # −v encodes to −(e + c) − c with c = mean/std, if v encodes to e.
        self.centre = [
            torch.tensor(s.mean) / torch.tensor(s.std) for s in (normalizers.u, normalizers.y)
        ]

    def draw(self, batch: Batch, generator: torch.Generator) -> Batch:
        """The batch with a random symmetry applied to each of its samples."""
        assert batch.y is not None
        where = batch.y.device
        # Kept where the batches are, and nothing is moved there that anyone would wait for.
        self.source = [s.to(where) for s in self.source]
        self.centre = [c.to(batch.y) for c in self.centre]
        self.sign = self.sign.to(batch.y)
        chosen = torch.randint(len(self.sign), (len(batch),), generator=generator)
        chosen = chosen.to(where, non_blocking=True)
        sign = self.sign[chosen][:, None, None]

        def image(values: Tensor, source: Tensor, centre: Tensor) -> Tensor:
            if values.shape[-1] == 0:  # observations are still to be drawn
                return values
            moved = values.gather(1, source[chosen][..., None].expand(values.shape))
            return sign * (moved + centre) - centre

        u, y = map(image, (batch.u, batch.y), self.source, self.centre)
        return replace(batch, u=u, y=y)


def _among(x: np.ndarray, x_query: np.ndarray, source: np.ndarray) -> np.ndarray:
    """Of some of the points, which of them gets whose value, given that of all points.

    Args:
        x: some of the points, (n, d).
        x_query: all of them, (q, d).
        source: for each of all points, the one whose value it gets, (symmetries, q).
    """
    place = {point.tobytes(): k for k, point in enumerate(x_query)}
    chosen = np.array([place.get(point.tobytes(), -1) for point in x])
    if (chosen < 0).any():
        raise ValueError("symmetries act on observations at points where answers are given")
    back = np.full(len(x_query), -1)
    back[chosen] = np.arange(len(x))
    moved = back[source[:, chosen]]
    if (moved < 0).any():
        raise ValueError("these symmetries move observed points to others that are not observed")
    return moved
