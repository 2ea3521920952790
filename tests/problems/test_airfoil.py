"""Shapes and grids of the airfoil problem, and its solver from draws to data."""

from functools import partial

import numpy as np
import pytest
import torch

from lno.data import Fields
from lno.problems import Airfoil
from lno.problems import airfoil as module
from lno.problems.airfoil import field_arguments
from lno.problems.make import generator, make
from lno.problems.numerics.batches import solve_in_batches
from lno.problems.numerics.c_grid import deform, stretched, surface_positions, thickness
from lno.problems.numerics.euler_cpu import RelaxationCPU
from lno.problems.numerics.steady_flow import Schedule

CPU = torch.device("cpu")
STANDARD = Airfoil()
COARSE = Airfoil(surface=16, wake=4, normal=6, far=5.0)


def areas(points: np.ndarray) -> np.ndarray:
    """Signed areas of the triangles at all four corners of each cell."""
    a, b, c, d = points[:-1, :-1], points[:-1, 1:], points[1:, 1:], points[1:, :-1]
    corners = ((a, b, d), (b, c, a), (c, d, b), (d, a, c))
    sides = [(second - first, third - first) for first, second, third in corners]
    return np.stack([(p[..., 0] * q[..., 1] - p[..., 1] * q[..., 0]) / 2 for p, q in sides])


def test_cells_are_convex_and_ordered():
    corners = 0.05 * np.array([[0, 1, 1, 1, 1, 1, 1, 1], [0, 1, -1, 1, -1, 1, -1, 1]])
    drawn = [STANDARD.draw(generator(1, k)) for k in range(50)]
    for moved in [np.zeros(8), *corners, *-corners, *drawn]:
        points = STANDARD.grid(moved)
        assert points.shape == (221, 51, 2)
        assert areas(points).min() > 0


def test_far_field():
    points = STANDARD.grid(STANDARD.draw(generator(0, 3)))
    outer = points[:, -1]
    assert np.abs(np.hypot(outer[50:171, 0] - 1, outer[50:171, 1]) - 40).max() < 1e-12
    assert np.abs(outer[:50, 1] - 40).max() < 1e-12 and np.abs(outer[171:, 1] + 40).max() < 1e-12
    assert np.abs(points[[0, -1], :, 0] - 40).max() < 1e-12  # the outflow


def test_spacing():
    steps = np.diff(stretched(50, 1 / 60 / 40)) * 40
    assert abs(steps[0] - 1 / 60) < 1e-12
    assert np.abs(steps[1:38] / steps[:37] - 1.02).max() < 1e-9
    rest = steps[38:] / steps[37:-1]
    assert rest.std() < 1e-6 and rest[0] > 1.02 and abs(steps.sum() - 40) < 1e-12
    x = surface_positions(60)
    assert abs(x[1] / x[2] - 0.25) < 1e-12 and np.abs(np.diff(x[2:]) - 1 / 59).max() < 1e-12
    points = STANDARD.grid(np.zeros(8))
    first = np.linalg.norm(points[:, 1] - points[:, 0], axis=-1)[50:171]
    assert np.abs(first * 60 - 1).max() < 0.03
    wake = np.linalg.norm(np.diff(points[:52, 0], axis=0), axis=-1)
    assert abs(wake[-2] / wake[-1] - 1) < 0.05  # the wake begins as the surface ends


def test_copies_of_wake_nodes_coincide():
    points = STANDARD.grid(STANDARD.draw(generator(0, 4)))
    assert np.array_equal(points[:51, 0], points[:169:-1, 0])


def test_surface_is_the_deformed_profile():
    moved = STANDARD.draw(generator(0, 5))
    surface = STANDARD.grid(moved)[50:171, 0]
    x = surface[:, 0]
    y = np.where(np.arange(121) < 60, 1, -1) * thickness(x)
    nodes = np.array([-0.25, 0.25, 0.75, 1.25])
    low, high = (np.polyval(np.polyfit(nodes, d, 3), x) for d in (moved[:4], moved[:3:-1]))
    assert np.abs(surface[:, 1] - (y + low * (0.5 - 5 * y) + high * (0.5 + 5 * y))).max() < 1e-12
    corner = np.array([[1.25, 0.1]])
    assert np.allclose(deform(corner, moved) - corner, [[0, moved[4]]])


def test_draws_are_uniform_with_one_corner_fixed():
    drawn = np.stack([STANDARD.draw(generator(0, k)) for k in range(500)])
    assert (drawn[:, 0] == 0).all() and np.abs(drawn).max() <= 0.05
    assert np.abs(drawn[:, 1:].std(0) - 0.05 / np.sqrt(3)).max() < 0.003


def test_solutions_do_not_depend_on_the_others():
    inputs = [COARSE.draw(generator(0, k)) for k in range(3)]
    together = COARSE.solve(inputs, CPU)
    assert np.array_equal(together[2], COARSE.solve(inputs[2:], CPU)[0])
    assert not np.array_equal(together[0], together[1])


def test_wake_is_continuous():
    (mach,) = COARSE.solve([COARSE.draw(generator(0, 0))], CPU)
    assert mach.dtype == np.float32
    assert np.array_equal(mach[:5, 0], mach[:-6:-1, 0])


def test_safer_settings_give_the_same_flow():
    inputs = [COARSE.draw(generator(0, 1))]
    (usual,), (safe,) = COARSE.solve(inputs, CPU), COARSE.solve_safely(inputs, CPU)
    assert np.abs(usual - safe).max() < 1e-3


@pytest.mark.parametrize("schedule", [Schedule(iterations=200), Schedule(cfl=20.0)])
def test_what_does_not_converge_is_none(monkeypatch, schedule):
    """Too few iterations, or unstable ones that end in NaN."""
    monkeypatch.setattr(module, "USUAL", schedule)
    assert COARSE.solve([COARSE.draw(generator(0, 0))], CPU) == [None]


def test_fields_are_those_of_the_published_files():
    fields = make(COARSE, samples=2, seed=3)
    points = np.stack([COARSE.grid(COARSE.draw(generator(3, k))) for k in range(2)])
    published = field_arguments(points[..., 0], points[..., 1], np.ones((2, 25, 7)))
    assert fields.grid == published["grid"] == (25, 7)
    assert fields.u.shape == published["u"].shape and fields.y.shape == published["y"].shape
    assert fields.meaning() == Fields(**published).meaning()
    assert fields.units["u"] == ["chord", "chord"]
    assert np.allclose(fields.u[1].reshape(25, 7, 2), points[1], atol=1e-6)
    assert np.array_equal(fields.cells, published["cells"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"surface": 21}, "surface must be even"),
        ({"normal": 500}, "normal must be a whole number from 3 to 128"),
        ({"mach": 0.0}, "mach must be a number from 0.1 to 3"),
    ],
)
def test_settings_are_checked(settings, message):
    with pytest.raises(ValueError, match=message):
        Airfoil(**settings)


@pytest.mark.gpu
def test_gpu_gives_the_same_flow():
    inputs = [COARSE.draw(generator(0, k)) for k in range(3)]
    gpu = torch.device("cuda")
    solved = COARSE.solve(inputs, gpu)
    for a, b in zip(COARSE.solve(inputs, CPU), solved, strict=True):
        assert np.abs(a - b).max() < 1e-3
    assert np.array_equal(COARSE.solve(inputs[2:], gpu)[0], solved[2])


def test_copies_that_fill_up_a_batch_are_solved_once(monkeypatch):
    drawn, iterated = COARSE.draw(generator(0, 0)), []
    advance = RelaxationCPU.advance

    def counted(self, iterations, cfl):
        iterated.append(int((cfl > 0).sum()))
        advance(self, iterations, cfl)

    monkeypatch.setattr(RelaxationCPU, "advance", counted)
    filled = partial(solve_in_batches, cpu=3)
    monkeypatch.setattr(module, "solve_in_batches", lambda *a, cpu, gpu: filled(*a, gpu=gpu))
    solved = COARSE.solve([drawn, drawn], CPU)
    assert set(iterated) == {1}
    assert np.array_equal(solved[0], solved[1]) and np.isfinite(solved[0]).all()
