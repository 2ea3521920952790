"""Elements on quadrilaterals: quadrature, interpolation and gradients on distorted elements."""

from itertools import combinations

import numpy as np
import pytest
import torch

from lno.problems.numerics.quadrilaterals import (
    disjoint_groups,
    gauss_rule,
    mapped_gradients,
    shape_functions,
)

ORDERS = (1, 2, 3)


def element_nodes(order: int) -> np.ndarray:
    side = np.linspace(-1, 1, order + 1)
    return np.stack(np.meshgrid(side, side, indexing="ij"), axis=-1).reshape(-1, 2)


def distorted(order: int, seed: int = 0) -> np.ndarray:
    """Nodes of an element that is rotated, stretched and bent."""
    nodes = element_nodes(order)
    moved = 0.08 * np.random.default_rng(seed).uniform(-1, 1, nodes.shape)
    return (nodes + moved) @ np.array([[0.9, 0.5], [-0.4, 1.1]]) + [3.0, -2.0]


@pytest.mark.parametrize("n", [1, 2, 3, 5])
def test_quadrature_is_exact_up_to_its_degree_and_no_further(n):
    points, weights = gauss_rule(n)

    def integral(p: int, q: int) -> float:
        return float((weights * points[:, 0] ** p * points[:, 1] ** q).sum())

    def exact(p: int) -> float:
        return 0.0 if p % 2 else 2 / (p + 1)

    for p in range(2 * n):
        for q in range(2 * n):
            assert integral(p, q) == pytest.approx(exact(p) * exact(q), abs=1e-14)
    assert abs(integral(2 * n, 0) - 2 * exact(2 * n)) > 1e-3


@pytest.mark.parametrize("order", ORDERS)
def test_shape_functions_are_one_at_their_own_node_and_zero_at_the_others(order):
    values, _ = shape_functions(order, element_nodes(order))
    np.testing.assert_allclose(values, np.eye((order + 1) ** 2), atol=1e-13)


@pytest.mark.parametrize("order", ORDERS)
def test_polynomials_of_the_order_and_their_gradients_are_interpolated_exactly(order):
    points = np.random.default_rng(1).uniform(-1, 1, (20, 2))
    values, gradients = shape_functions(order, points)
    nodes = element_nodes(order)
    for p in range(order + 1):
        for q in range(order + 1):
            at_nodes = nodes[:, 0] ** p * nodes[:, 1] ** q
            x, y = points.T
            np.testing.assert_allclose(values @ at_nodes, x**p * y**q, atol=1e-13)
            slope = np.stack([p * x ** max(p - 1, 0) * y**q, q * x**p * y ** max(q - 1, 0)], -1)
            np.testing.assert_allclose(
                np.einsum("pkr,k->pr", gradients, at_nodes), slope, atol=1e-12
            )


@pytest.mark.parametrize("order", ORDERS)
def test_gradients_of_linear_functions_are_exact_on_distorted_elements(order):
    nodes = torch.from_numpy(np.stack([distorted(order, seed) for seed in range(4)]))
    reference = torch.from_numpy(shape_functions(order, gauss_rule(4)[0])[1])
    gradients, _ = mapped_gradients(reference, nodes)
    slope = torch.tensor([[2.0, -3.0], [0.5, 7.0]], dtype=torch.float64)
    found = torch.einsum("bki,bpkj->bpij", nodes @ slope.T, gradients)
    torch.testing.assert_close(found, slope.expand_as(found), rtol=0, atol=1e-12)


def test_determinants_integrate_to_the_area_and_are_negative_for_inverted_elements():
    # The boundary integral ½ ∮ x dy − y dx has the same integrand along each quadratic side.
    nodes = distorted(2)
    points, weights = gauss_rule(3)
    reference = torch.from_numpy(shape_functions(2, points)[1])
    _, determinant = mapped_gradients(reference, torch.from_numpy(nodes))
    x, w = np.polynomial.legendre.leggauss(5)
    one = np.ones_like(x)
    sides = [((x, -one), 0, 1), ((one, x), 1, 1), ((x, one), 0, -1), ((-one, x), 1, -1)]
    area = 0.0
    for at, axis, sign in sides:
        values, slopes = shape_functions(2, np.stack(at, axis=-1))
        position, tangent = values @ nodes, slopes[..., axis] @ nodes
        turned = position[:, 0] * tangent[:, 1] - position[:, 1] * tangent[:, 0]
        area += sign * (w * turned).sum() / 2
    assert (determinant.numpy() * weights).sum() == pytest.approx(area, rel=1e-12)
    _, mirrored = mapped_gradients(reference, torch.from_numpy(nodes * [-1, 1]))
    assert (mirrored < 0).all()


def test_groups_hold_every_element_once_and_no_node_twice():
    node = np.arange(11 * 7).reshape(11, 7)
    windows = np.lib.stride_tricks.sliding_window_view(node, (3, 3))[::2, ::2]
    elements = windows.reshape(-1, 9)
    groups = disjoint_groups(elements)
    assert sorted(np.concatenate(groups)) == list(range(len(elements)))
    assert len(groups) == 4
    for group in groups:
        for a, b in combinations(group, 2):
            assert not set(elements[a]) & set(elements[b])
