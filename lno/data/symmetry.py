"""Symmetries of a problem: maps of functions on a square that take solutions to solutions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from lno.data.batch import Batch
from lno.data.normalize import Normalizers

Grid = TypeVar("Grid", np.ndarray, Tensor)
Matrix = tuple[tuple[int, int], tuple[int, int]]
Shift = tuple[Fraction | int, Fraction | int]


@dataclass(frozen=True)
class Symmetry:
    """The map (g w)(x) = sign · w(M x + shift) of functions on the unit square, applied to grids.

    Args:
        name: what it does, in words.
        matrix: M, a signed permutation of the two coordinates.
        shift: in units of the side of the square.
        sign: 1, or −1 for values that change sign with it.
        periodic: the grid has the points i/n of a torus; otherwise i/(n−1), both ends included.

    Called with values u and y of shape (..., n, n, c), arrays or tensors, it gives the values of
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
        i, j = self._source(w.shape[-2])
        return w[..., i, j, :] * self.sign

    def _source(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        """For each point of the grid, the indices of the point whose value it gets."""
        cells = n if self.periodic else n - 1
        shift = [Fraction(s) * cells for s in self.shift]
        if any(s.denominator > 1 for s in shift):
            raise ValueError(
                f"{self.name}: expected a grid with points {' and '.join(map(str, self.shift))} "
                f"of its side apart, got {n} × {n}"
            )
        index = np.einsum("ab,bij->aij", self.matrix, np.indices((n, n)))
        i, j = (row + int(s) for row, s in zip(index, shift, strict=True))
        return (i % n, j % n) if self.periodic else (i, j)


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
    """Random symmetries for encoded batches on a grid: every sample is replaced by an image of it.

    Args:
        symmetries: of the problem; the identity among them.
        grid: the shape (n, n) of the points.
        normalizers: of the data, since a change of sign is one of physical values.

    >>> from lno.data.normalize import Coordinates, Normalizers, Standardizer
    >>> same = Standardizer.identity(1)
    >>> scale = Normalizers(Coordinates(Standardizer.identity(2), (None, None)), same, same)
    >>> orbit = Orbit(square(), (3, 3), scale)
    >>> x = torch.zeros(1, 9, 2)
    >>> u = torch.arange(9.0).reshape(1, 9, 1)
    >>> image = orbit.draw(Batch(x, u, x, u), torch.Generator().manual_seed(1))
    >>> image.u.flatten().tolist()
    [2.0, 5.0, 8.0, 1.0, 4.0, 7.0, 0.0, 3.0, 6.0]
    """

    def __init__(
        self, symmetries: Sequence[Symmetry], grid: tuple[int, ...] | None, normalizers: Normalizers
    ) -> None:
        if grid is None or len(grid) != 2 or grid[0] != grid[1]:
            raise ValueError(f"symmetries act on data on a square grid, these have the grid {grid}")
        if not symmetries:
            raise ValueError("expected at least one symmetry")
        points = np.arange(grid[0] * grid[1]).reshape(*grid, 1)
        self.source = torch.stack(
            [
                torch.from_numpy(g(points + 1, points)[0].reshape(-1) * g.sign - 1)
                for g in symmetries
            ]
        )
        self.sign = torch.tensor([float(g.sign) for g in symmetries])
        # −v encodes to −(e + c) − c with c = mean/std, if v encodes to e.
        self.centre = [
            torch.tensor(s.mean) / torch.tensor(s.std) for s in (normalizers.u, normalizers.y)
        ]

    def draw(self, batch: Batch, generator: torch.Generator) -> Batch:
        """The batch with a random symmetry applied to each of its samples."""
        if batch.x_query is not batch.x or len(batch.x) != 1 or batch.mask is not None:
            raise ValueError("symmetries act on data that observe and ask for one shared grid")
        chosen = torch.randint(len(self.source), (len(batch),), generator=generator)
        source = self.source[chosen].to(batch.u.device)[..., None]
        sign = self.sign[chosen].to(batch.u)[:, None, None]

        def image(values: Tensor, centre: Tensor) -> Tensor:
            c = centre.to(values)
            moved = values.gather(1, source.expand(-1, -1, values.shape[-1]))
            return sign * (moved + c) - c

        assert batch.y is not None
        u, y = (image(v, c) for v, c in zip((batch.u, batch.y), self.centre, strict=True))
        return replace(batch, u=u, y=y)
