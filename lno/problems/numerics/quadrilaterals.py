"""Lagrange elements on quadrilaterals: quadrature, shape functions, and their gradients on a mesh.

The reference square is [−1, 1]². The nodes of an element of order k are a grid of (k + 1)² points
on it in C order: the second reference coordinate varies fastest. Geometry is isoparametric: nodes
of a mesh are mapped by the same shape functions.
"""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from lno.data.grids import grid_points


def gauss_rule(n: int) -> tuple[Float[np.ndarray, "p 2"], Float[np.ndarray, " p"]]:
    """Points and weights of the n × n Gauss–Legendre rule, exact for degree 2n − 1 in each axis.

    >>> points, weights = gauss_rule(2)
    >>> f"{(weights * points[:, 0] ** 2 * points[:, 1] ** 2).sum():.6f}"  # (2/3)²
    '0.444444'
    """
    x, w = np.polynomial.legendre.leggauss(n)
    return grid_points(x, x), np.outer(w, w).ravel()


def shape_functions(
    order: int, points: Float[np.ndarray, "p 2"]
) -> tuple[Float[np.ndarray, "p k"], Float[np.ndarray, "p k 2"]]:
    """Values of the k = (order + 1)² shape functions at points, and their reference gradients.

    >>> values, gradients = shape_functions(2, np.array([[0.3, -0.7]]))
    >>> f"{values.sum():.6f}", f"{abs(gradients.sum(axis=1)).max():.6f}"
    ('1.000000', '0.000000')
    """
    (a, da), (b, db) = (_lagrange(order, points[:, axis]) for axis in (0, 1))

    def products(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        return (first[:, :, None] * second[:, None, :]).reshape(len(points), -1)

    return products(a, b), np.stack([products(da, b), products(a, db)], axis=-1)


def mapped_gradients(
    gradients: Float[Tensor, "p k 2"], nodes: Float[Tensor, "*batch k 2"]
) -> tuple[Float[Tensor, "*batch p k 2"], Float[Tensor, "*batch p"]]:
    """Gradients in the coordinates of a mesh, and the determinant of the map to it.

    Args:
        gradients: of the shape functions in reference coordinates.
        nodes: the positions of the nodes of each element.

    >>> corners = torch.tensor([[0.0, 0.0], [0.0, 3.0], [2.0, 0.0], [2.0, 3.0]])
    >>> reference = torch.tensor(shape_functions(1, np.zeros((1, 2)))[1], dtype=torch.float32)
    >>> on_mesh, determinant = mapped_gradients(reference, corners)
    >>> determinant.item(), on_mesh[0, -1].tolist()  # area 6 over 4; ∇ = (1/4, 1/6)
    (1.5, [0.25, 0.1666666716337204])
    """
    jacobian = torch.einsum("pkr,...kx->...pxr", gradients, nodes)
    (a, b), (c, d) = (jacobian[..., x, :].unbind(-1) for x in (0, 1))
    determinant = a * d - b * c
    inverse = torch.stack((d, -b, -c, a), -1).unflatten(-1, (2, 2)) / determinant[..., None, None]
    return torch.einsum("pkr,...prx->...pkx", gradients, inverse), determinant


def disjoint_groups(elements: Int[np.ndarray, "e k"]) -> list[Int[np.ndarray, " _"]]:
    """Numbers of elements in groups, so that no two elements of a group have a node in common.

    The contributions of a group are added to different places. So group after group, sums do not
    depend on the order in which a GPU adds, and are the same in every run.

    >>> [group.tolist() for group in disjoint_groups(np.array([[0, 1], [1, 2], [2, 3], [3, 4]]))]
    [[0, 2], [1, 3]]
    """
    groups: list[tuple[list[int], set[int]]] = []
    for number, nodes in enumerate(elements.tolist()):
        members, taken = next((g for g in groups if g[1].isdisjoint(nodes)), ([], set()))
        if not members:
            groups.append((members, taken))
        members.append(number)
        taken.update(nodes)
    return [np.array(members) for members, _ in groups]


def _lagrange(order: int, x: Float[np.ndarray, " p"]) -> tuple[np.ndarray, np.ndarray]:
    """Lagrange polynomials on equispaced nodes of [−1, 1] and their slopes, (p, order + 1)."""
    nodes = np.linspace(-1, 1, order + 1)
    values, slopes = np.empty((2, len(x), order + 1))
    for k, node in enumerate(nodes):
        polynomial = np.polynomial.Polynomial.fromroots(np.delete(nodes, k))
        polynomial = polynomial / polynomial(node)
        values[:, k], slopes[:, k] = polynomial(x), polynomial.deriv()(x)
    return values, slopes
