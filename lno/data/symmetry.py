"""Symmetries of a problem: maps of functions that take solutions to solutions.

On a grid a symmetry moves values between grid points; on a point cloud it moves the points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from operator import mul
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
    """The map (g w)(x) = sign · w(M x + shift) of functions on a rectangle.

    Args:
        name: what it does, in words.
        matrix: M, a signed permutation of the first two coordinates.
        shift: in units of the sides of the grid's rectangle; of the coordinates on a cloud.
        sign: 1, or −1 for values that change sign.
        periodic: the grid has the points i/n of a torus, at least along the axes that are moved;
            otherwise i/(n−1), both ends included.
        channel_signs: signs that differ between channels, `{"u": (1, -1), "y": (1,)}`; where given
            they replace `sign`.

    Called with values u and y of shape (..., n, m, c) on a grid, arrays or tensors, it gives the
    values of the mapped sample. `g @ h` is g after h.

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
    channel_signs: Mapping[str, Sequence[int]] = field(default_factory=dict)

    def __call__(self, u: Grid, y: Grid) -> tuple[Grid, Grid]:
        return self._map(u, "u"), self._map(y, "y")

    def __matmul__(self, other: Symmetry) -> Symmetry:
        (a, b), (c, d) = self.matrix
        (p, q), (r, s) = other.matrix
        x, y = self.shift
        shift = (p * x + q * y + other.shift[0], r * x + s * y + other.shift[1])
        counts = {k: len(v) for g in (self, other) for k, v in g.channel_signs.items()}
        signs = {k: (self.signs(k, n), other.signs(k, n)) for k, n in counts.items()}
        return Symmetry(
            name=f"{self.name} after {other.name}",
            matrix=((p * a + q * c, p * b + q * d), (r * a + s * c, r * b + s * d)),
            shift=(shift[0] % 1, shift[1] % 1) if self.periodic else shift,
            sign=self.sign * other.sign,
            periodic=self.periodic,
            channel_signs={k: tuple(map(mul, *both)) for k, both in signs.items()},
        )

    def signs(self, key: str, channels: int) -> tuple[int, ...]:
        """The sign of each channel of u or y."""
        if channels == 0:  # observations are still to be drawn
            return ()
        signs = tuple(self.channel_signs.get(key, (self.sign,) * channels))
        if len(signs) != channels:
            raise ValueError(
                f"{self.name}: has signs for {len(signs)} channels of {key}, the data have "
                f"{channels}"
            )
        return signs

    def _map(self, w: Grid, key: str) -> Grid:
        i, j = self.source(w.shape[-3:-1])
        signs = self.signs(key, w.shape[-1])
        moved = w[..., i, j, :]
        if isinstance(moved, Tensor):
            return moved * moved.new_tensor(signs)
        return moved * np.array(signs, moved.dtype)

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


class RandomSymmetry:
    """Data augmentation: every sample of an encoded batch is replaced by a random image of it.

    Args:
        symmetries: of the problem; the identity among them.
        data: what batches are taken from. On one grid that all samples share, values move between
            its points, and observations are at some of them, which the symmetries map onto each
            other. Otherwise the points themselves move.
        normalizers: of the data, since a change of sign or place is one of physical values.

    >>> from lno.data.normalize import Normalizers
    >>> side = np.linspace(0, 1, 3)
    >>> x = np.stack(np.meshgrid(side, side, indexing="ij"), -1).reshape(9, 2)
    >>> data = Fields(x, np.arange(9.0).reshape(1, 9, 1), y=np.ones((1, 9, 1)), grid=(3, 3))
    >>> augment = RandomSymmetry(square(), data, Normalizers.fit(data))
    >>> image = augment.draw(data.batch([0]), torch.Generator().manual_seed(1))
    >>> image.u.flatten().tolist()
    [2.0, 5.0, 8.0, 1.0, 4.0, 7.0, 0.0, 3.0, 6.0]
    """

    def __init__(
        self, symmetries: Sequence[Symmetry], data: Fields, normalizers: Normalizers
    ) -> None:
        if not symmetries:
            raise ValueError("expected at least one symmetry")
        i, o = columns.channels(data.u), data.spec.out_channels
        self.signs = {
            key: torch.tensor([g.signs(key, n) for g in symmetries], dtype=torch.float32)
            for key, n in (("u", i), ("y", o))
        }
        # −v encodes to −(e + c) − c with c = mean/std, if v encodes to e.
        scales = {"u": normalizers.u, "y": normalizers.y}
        self.centre = {k: torch.tensor(s.mean) / torch.tensor(s.std) for k, s in scales.items()}
        shared = columns.is_shared(data.x) and columns.is_shared(data.x_query)
        self.source: dict[str, Tensor] = {}
        self.moves_points = not (shared and data.spec.grid is not None)
        if data.background is not None:
            raise ValueError("symmetries do not act on a background: train without symmetries")
        if self.moves_points:
            self._prepare_cloud(symmetries, normalizers)
        else:
            self._prepare_grid(symmetries, data)

    def draw(self, batch: Batch, generator: torch.Generator) -> Batch:
        """The batch with a random symmetry applied to each of its samples."""
        assert batch.y is not None
        device = batch.y.device
        # Kept on the device of the batches: nothing is moved there in a step.
        self.signs = {key: s.to(batch.y) for key, s in self.signs.items()}
        self.centre = {key: c.to(batch.y) for key, c in self.centre.items()}
        chosen = torch.randint(len(self.signs["y"]), (len(batch),), generator=generator)
        chosen = chosen.to(device, non_blocking=True)
        changes: dict[str, Tensor] = {"u": batch.u, "y": batch.y}
        if self.moves_points:
            x = self._moved(batch.x, chosen)
            same = batch.x_query is batch.x
            changes |= {"x": x, "x_query": x if same else self._moved(batch.x_query, chosen)}
        else:
            self.source = {key: s.to(device) for key, s in self.source.items()}
            index = {key: source[chosen] for key, source in self.source.items()}
            for key in ("u", "y"):
                values = changes[key]
                at = index[key][..., None].expand(values.shape)
                changes[key] = values.gather(1, at) if values.shape[-1] else values
            for name, key in (("weights", "u"), ("query_weights", "y")):
                sizes = getattr(batch, name)
                if sizes is not None:
                    changes[name] = sizes.expand(len(batch), -1).gather(1, index[key])
        for key in ("u", "y"):
            if changes[key].shape[-1]:  # else observations are still to be drawn
                sign, centre = self.signs[key][chosen][:, None], self.centre[key]
                changes[key] = sign * (changes[key] + centre) - centre
        return replace(batch, **changes)

    def _prepare_grid(self, symmetries: Sequence[Symmetry], data: Fields) -> None:
        grid = data.spec.grid or ()
        if len(grid) != 2:
            raise ValueError(
                f"symmetries act on grids of two axes and on clouds; these have the grid {grid}"
            )
        source = np.stack(
            [np.ravel_multi_index(g.source(grid), grid).reshape(-1) for g in symmetries]
        )
        observed = source
        if not data.same_points and columns.channels(data.u):
            observed = _among(np.asarray(data.x), np.asarray(data.x_query), source)
        # For each symmetry and each point, the point whose value it gets: of u, and of y.
        self.source = {"u": torch.from_numpy(observed), "y": torch.from_numpy(source)}

    def _prepare_cloud(self, symmetries: Sequence[Symmetry], normalizers: Normalizers) -> None:
        coordinates = normalizers.x
        if len(coordinates.period) < 2 or any(p is not None for p in coordinates.period[:2]):
            raise ValueError(
                "on point clouds symmetries act on two coordinates without a period: expected "
                f"at least two, got periods {coordinates.period}"
            )
        mean, std = (torch.tensor(v[:2]) for v in (coordinates.scale.mean, coordinates.scale.std))
        # The image has at x the value that was at M x + s: so a point z moves to M⁻¹ (z − s).
        inverse = torch.tensor([g.matrix for g in symmetries], dtype=torch.float64).inverse()
        shift = torch.tensor([[float(s) for s in g.shift] for g in symmetries]).double()
        mean, std = mean.double(), std.double()
        self.linear = (inverse * std / std[:, None]).float()
        self.offset = ((torch.einsum("gij,gj->gi", inverse, mean - shift) - mean) / std).float()

    def _moved(self, x: Tensor, chosen: Tensor) -> Tensor:
        """Encoded positions (#b, n, d) after the chosen symmetries."""
        self.linear, self.offset = self.linear.to(x), self.offset.to(x)
        first = x[..., :2].expand(len(chosen), -1, -1)
        moved = torch.einsum("bij,bnj->bni", self.linear[chosen], first)
        rest = x[..., 2:].expand(len(chosen), -1, -1)
        return torch.cat((moved + self.offset[chosen][:, None], rest), dim=-1)


def _among(x: np.ndarray, x_query: np.ndarray, source: np.ndarray) -> np.ndarray:
    """For some of the points, which of them gets whose value, given that of all points.

    Args:
        x: some of the points, (n, d).
        x_query: all of them, (q, d).
        source: for each of all points, the one whose value it gets, (symmetries, q).
    """
    place = {point.tobytes(): k for k, point in enumerate(x_query)}
    chosen = np.array([place.get(point.tobytes(), -1) for point in x])
    if (chosen < 0).any():
        raise ValueError("symmetries act on observations at points where outputs are given")
    back = np.full(len(x_query), -1)
    back[chosen] = np.arange(len(x))
    moved = back[source[:, chosen]]
    if (moved < 0).any():
        raise ValueError("these symmetries move observed points to others that are not observed")
    return moved
