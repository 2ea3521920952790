"""Control volumes around the nodes of C-grids: faces, weights of differences, walls and the cut."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor


class Mesh(NamedTuple):
    """Control volumes of a batch of C-grids of n × m nodes, whose wake has `wake` cells.

    The face between nodes i − 1 and i has number i: there are n + 1 along the first axis, with both
    boundaries. Along the second there are m, since the wall, or cut, is apart. Normals point to
    larger indices. Three numbers of a face: its unit normal and its length. Four weights of a node:
    those of the differences to the nodes before and after it, scaled to one spacing, and the parts
    of the limited difference that lead to the faces before and after it.
    """

    faces_i: Float[Tensor, "3 b _ m"]
    faces_j: Float[Tensor, "3 b n m"]
    weights_i: Float[Tensor, "4 b n m"]
    weights_j: Float[Tensor, "4 b n m"]
    wall: Float[Tensor, "2 b n"]  # normal times length, zero in the wake
    cut: Float[Tensor, " n"]  # 1 at nodes of the wake and the trailing edge, else 0

    def of_first_order(self) -> Mesh:
        """The same mesh without reconstruction: states are constant in each control volume."""
        keep = self.weights_i.new_tensor([1.0, 1.0, 0.0, 0.0])[:, None, None, None]
        return self._replace(weights_i=keep * self.weights_i, weights_j=keep * self.weights_j)


def build_mesh(points: Float[np.ndarray, "b n m 2"], wake: int) -> Mesh:
    """The control volumes of grids. Double precision, on the CPU.

    The sum of the normals of a control volume is zero, so a uniform flow has no residual.
    """
    b, n = points.shape[:2]
    centre = (points[:, 1:, 1:] + points[:, :-1, 1:] + points[:, 1:, :-1] + points[:, :-1, :-1]) / 4
    middle_i = (points[:, 1:] + points[:, :-1]) / 2
    middle_j = (points[:, :, 1:] + points[:, :, :-1]) / 2

    # The faces across the first axis run through these points, one more than there are nodes.
    first, last = points[:, :, :1], points[:, :, -1:]
    ends = np.concatenate([first, middle_j, last], axis=2)[:, [0, -1]]
    inside = np.concatenate([middle_i[:, :, :1], centre, middle_i[:, :, -1:]], axis=2)
    along = np.diff(np.concatenate([ends[:, :1], inside, ends[:, 1:]], axis=1), axis=2)
    faces_i = _faces(-along[..., 1], along[..., 0])

    inside = np.concatenate([middle_j[:, :1], centre, middle_j[:, -1:]], axis=1)
    sides = np.concatenate([points[:, :1], middle_i, points[:, -1:]], axis=1)[:, :, [0, -1]]
    along = np.diff(np.concatenate([inside, sides[:, :, 1:]], axis=2), axis=1)
    faces_j = _faces(along[..., 1], -along[..., 0])

    surface = slice(wake, n - wake)
    corners = np.concatenate(
        [
            points[:, wake : wake + 1, 0],
            middle_i[:, wake : n - 1 - wake, 0],
            points[:, [-wake - 1], 0],
        ],
        axis=1,
    )
    along = np.diff(corners, axis=1)
    wall = np.zeros((2, b, n))
    wall[:, :, surface] = along[..., 1], -along[..., 0]

    spacing = np.linalg.norm(np.diff(points, axis=1), axis=-1)
    before = np.concatenate([spacing[:, :1], spacing], axis=1)
    after = np.concatenate([spacing, spacing[:, -1:]], axis=1)
    weights_i = _weights(before, after)
    weights_i[2, :, 0] = weights_i[3, :, -1] = 0  # the boundary passes through the node itself

    spacing = np.linalg.norm(np.diff(points, axis=2), axis=-1)
    cut = np.ones(n)
    cut[wake + 1 : n - wake - 1] = 0
    # Across the cut, the node before is the first one of the other side.
    across = np.where(cut, spacing[:, ::-1, 0], spacing[:, :, 0])
    before = np.concatenate([across[..., None], spacing], axis=2)
    after = np.concatenate([spacing, spacing[:, :, -1:]], axis=2)
    weights_j = _weights(before, after)
    weights_j[3, :, :, -1] = 0
    arrays = faces_i, faces_j, weights_i, weights_j, wall, cut
    return Mesh(*(torch.from_numpy(np.ascontiguousarray(array)) for array in arrays))


def _faces(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    length = np.hypot(x, y)
    return np.stack([x / length, y / length, length])


def _weights(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    mean = (before + after) / 2
    return np.stack([mean / before, mean / after, before / mean / 2, after / mean / 2])
