"""Forging against exact solutions, conservation of energy, and its own second implementation."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from on_gpu import GPU, assert_gpu_agrees
from scipy.optimize import minimize

from lno.data import Fields
from lno.problems import plasticity
from lno.problems.make import generator, make
from lno.problems.numerics import forging
from lno.problems.numerics.forging import Elements, Nodes, forge
from lno.problems.numerics.forging_cpu import forge_one, return_map
from lno.problems.plasticity import FILES, GRID, RISE, TOP, Plasticity, die_pieces, die_profile

CPU = torch.device("cpu")
COARSE = Plasticity(length_nodes=21, height_nodes=7, frames=6, duration=1.2)
FLAT = np.zeros((8, 4))


def die(index: int = 0) -> np.ndarray:
    return die_pieces(COARSE.draw(generator(0, index)))


def relative(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


def test_a_flat_die_stretches_the_block_at_constant_volume_and_yield_stress():
    """Uniaxial stress: the strains across it are equal, so L/L0 = (H/H0)^{-1/2}."""
    press = COARSE.press()._replace(interval=0.5 / 6)
    u, imbalance, stress = forge_one(press, FLAT)
    height = 1 + (u[-1, 1, :, 0] - u[-1, 1, :, -1]).mean() / 15
    length = 1 + (u[-1, 0, 0] - u[-1, 0, -1]).mean() / 50
    assert height == pytest.approx(1 - 3 * 5 / 6 * 0.5 / 15, abs=1e-6)
    assert length == pytest.approx(height**-0.5, abs=1e-3)  # inertia holds the sides back
    sxx, syy, sxy = stress
    assert syy.mean() == pytest.approx(-70, rel=1e-3)
    assert abs(sxx.mean()) < 0.2 and abs(sxy).max() < 1
    assert imbalance < 1e-3


def test_below_yield_the_block_is_linear_elastic():
    """σ = E ε along the block's height, and −ν ε across; oscillations are 1 % at this speed."""
    press = COARSE.press()._replace(interval=0.1, speed=0.003)
    u, _, stress = forge_one(press, FLAT)
    strain = -0.003 * 0.5 / 15
    length = (u[-1, 0, 0] - u[-1, 0, -1]).mean() / 50
    assert stress[1].mean() == pytest.approx(200e3 * strain, rel=0.015)
    assert length == pytest.approx(-0.3 * strain, rel=0.015)
    assert abs(stress[0].mean()) < 0.015 * abs(200e3 * strain)


@pytest.mark.parametrize("index", [0, 1])
def test_nodes_stay_outside_the_die_and_on_the_rollers(index):
    u, imbalance, _ = forge_one(COARSE.press(), die(index))
    top = u[:, :, :, 0] + COARSE.nodes()[:, 0].T
    drop = 3.0 * 0.2 * np.arange(6)[:, None]
    gap = TOP + die_profile(die(index), top[:, 0]) - drop - top[:, 1]
    assert gap.min() > -5e-6  # frames are stored in single precision
    assert gap[-1].min() < 5e-6  # and the die is in contact
    assert np.all(u[:, 1, :, -1] == 0) and np.all(u[0] == 0)
    assert abs(u[-1, 0, :, -1]).max() > 0.1  # rollers let the bottom slide
    assert imbalance < 1e-3


def test_a_symmetric_die_gives_a_symmetric_block():
    press = COARSE.press()._replace(right=0.0)  # the block right below the die
    knots = COARSE.draw(generator(0, 0))
    u, _, _ = forge_one(press, die_pieces((knots + knots[::-1]) / 2))
    mirrored = u[:, :, ::-1] * np.array([-1, 1])[:, None, None]
    assert relative(mirrored, u) < 1e-6


def test_the_batched_solver_agrees_with_the_one_for_a_single_block():
    press = replace(COARSE, frames=3, duration=0.3)
    both = [die(0), die(1), FLAT]
    batch = forge(press.press(), torch.from_numpy(np.stack(both)))
    for k, one in enumerate(both):
        u, imbalance, stress = forge_one(press.press(), one)
        assert relative(batch.u[k].numpy(), u) < 1e-7
        assert abs(batch.stress[k].numpy() - stress).max() < 1e-9 * 70
        assert batch.imbalance[k].item() == pytest.approx(imbalance, rel=1e-6)


def test_shorter_steps_change_little_and_balance_energy_better():
    steps = [forge_one(COARSE.press(safety), die()) for safety in (0.8, 0.4, 0.2)]
    assert relative(steps[0][0], steps[2][0]) < 1e-3
    for (_, longer, _), (_, shorter, _) in pairwise(steps):
        assert shorter == pytest.approx(longer / 2, rel=0.2)  # the imbalance is of first order


def test_a_block_is_bit_for_bit_the_same_whatever_else_is_solved():
    problem = replace(COARSE, duration=0.3)
    drawn = [problem.draw(generator(0, k)) for k in range(3)]
    alone = [problem.solve([d], CPU)[0] for d in drawn]
    torch.set_num_threads(2)
    assert np.array_equal(problem.solve(drawn[::-1], CPU), alone[::-1])
    dies = torch.from_numpy(np.stack([die_pieces(d) for d in drawn]))
    press = replace(problem, frames=2, duration=0.02).press()
    batch = forge(press, dies).u
    assert torch.equal(forge(press, dies[[2, 0]]).u, batch[[2, 0]])


@pytest.mark.parametrize("trial", [(200, -80, 35), (75, 75, 0), (0, 0, 44), (-300, 100, -500)])
def test_the_return_map_is_the_closest_point_on_the_yield_surface(trial):
    """In the norm of the elastic energy, among states of plane stress, found by another method."""
    press = COARSE.press()
    compliance = np.array([[1, -0.3, 0], [-0.3, 1, 0], [0, 0, 2.6]]) / 200e3

    def von_mises(s):
        return math.sqrt(s[0] ** 2 - s[0] * s[1] + s[1] ** 2 + 3 * s[2] ** 2)

    closest = minimize(
        lambda s: 1e3 * (s - trial) @ compliance @ (s - trial),
        np.array(trial) * 70 / von_mises(trial),
        constraints={"type": "eq", "fun": lambda s: von_mises(s) / 70 - 1},
        options={"ftol": 1e-14, "maxiter": 200},
    ).x
    single = np.array(return_map(press, *map(float, trial)))
    batch = forging.return_map(press, *torch.tensor(trial, dtype=torch.float64))
    assert von_mises(single) == pytest.approx(70, rel=1e-11)
    np.testing.assert_allclose(single, closest, atol=2e-4 * 70)
    np.testing.assert_allclose(torch.stack(batch), single, rtol=1e-11, atol=1e-9)


def test_stress_inside_the_yield_surface_does_not_change():
    inside = (30.0, -20.0, 10.0)
    assert return_map(COARSE.press(), *inside) == inside
    batch = forging.return_map(COARSE.press(), *torch.tensor([*inside, 0.0]).double()[:, None][:3])
    np.testing.assert_allclose(torch.cat(batch), inside, rtol=1e-15)
    assert not any(s.isnan().any() for s in forging.return_map(COARSE.press(), *torch.zeros(3, 1)))


def element_state(velocity: np.ndarray, stress=(0.0, 0.0, 0.0)) -> tuple[Nodes, Elements]:
    """A distorted mesh of 5 × 4 nodes that moves with a velocity gradient."""
    i, j = np.meshgrid(np.arange(5.0), np.arange(4.0), indexing="ij")
    x = np.stack((-i, -j)) + 0.2 * np.random.default_rng(0).uniform(-1, 1, (2, 5, 4))
    v = np.einsum("ab,bij->aij", velocity, x)
    nodes = [torch.from_numpy(f)[None] for f in (*x, *v)]
    zero = torch.zeros(1, 4, 3, dtype=torch.float64)
    return Nodes(*nodes, zero), Elements(*(zero + s for s in stress), *[zero] * 7)


def test_a_linear_motion_strains_all_elements_alike_and_excites_no_hourglass_mode():
    rate = np.array([[0.2, 0.5], [-0.1, -0.3]])
    nodes, elements = element_state(rate)
    h = 1e-9
    new = forging.deform(COARSE.press(), nodes, elements, torch.tensor([h]).double())
    exx, eyy, exy = h * rate[0, 0], h * rate[1, 1], h * (rate[0, 1] + rate[1, 0])
    modulus = 200e3 / (1 - 0.09)
    expected = modulus * (exx + 0.3 * eyy), modulus * (eyy + 0.3 * exx), 200e3 / 2.6 * exy
    for stress, value in zip(new[:3], expected, strict=True):
        np.testing.assert_allclose(stress, np.full((1, 4, 3), value), rtol=1e-6)
    assert max(q.abs().max().item() for q in (new.qx, new.qy)) < 1e-12 * modulus * h


def test_stress_turns_with_the_material():
    """A quarter turn takes (σ_xx, σ_yy, σ_xy) to (σ_yy, σ_xx, −σ_xy); the rate is Jaumann's."""
    nodes, elements = element_state(np.array([[0.0, -1.0], [1.0, 0.0]]), stress=(30, -10, 5))
    steps = 500
    h = math.pi / 2 / steps
    # Where the nodes are after half a step. The mesh itself need not turn: its rate counts.
    nodes = nodes._replace(x=nodes.x + h / 2 * nodes.vx, y=nodes.y + h / 2 * nodes.vy)
    for _ in range(steps):
        elements = forging.deform(COARSE.press(), nodes, elements, torch.tensor([h]).double())
    turned = [s.mean().item() for s in elements[:3]]
    assert turned == pytest.approx([-10, 30, -5], abs=0.3)


def test_dies_are_smooth_and_touch_the_block():
    width, x = 50 / 8, np.linspace(-50, 0, 20001)
    for k in range(20):
        pieces = die(k)
        profile = die_profile(pieces, x)
        assert profile[[0, -1]] == pytest.approx(RISE)
        assert profile.min() == pytest.approx(0, abs=1e-5) and profile.min() > -1e-12
        c3, c2, c1, c0 = pieces.T
        ends = np.array([((c3 * width + c2) * width + c1) * width + c0])
        slopes, curvatures = (3 * c3 * width + 2 * c2) * width + c1, 3 * c3 * width + c2
        for end, start in ((ends[0], c0), (slopes, c1), (curvatures, c2)):
            np.testing.assert_allclose(end[:-1], start[1:], atol=1e-10)
    assert np.array_equal(die_profile(pieces, np.array([-60.0, 5.0])), profile[[0, -1]])


def test_data_have_the_form_of_the_published_ones():
    problem = Plasticity()
    knots = problem.draw(generator(0, 0))
    published = FILES.build(np.zeros((1, GRID[0])), np.zeros((1, *GRID, 4)))
    data = problem.fields([knots], [np.zeros((*GRID, 2), np.float32)], {"problem": "plasticity"})
    assert data.y.shape == published["y"].shape and data.u.shape == published["u"].shape
    assert data.meaning() == Fields(**published).meaning()
    assert data.units["u"] == ["mm"] and data.units["y"] == ["mm"] * 4
    assert np.array_equal(data.cells, published["cells"]) and data.grid == tuple(published["grid"])
    np.testing.assert_allclose(data.x, published["x"], atol=1e-7)
    x, y = data.y.reshape(*GRID, 4)[..., 0, :2].transpose(2, 0, 1)
    np.testing.assert_allclose(x[[0, 1, -1], 0], [0.35, -0.15, -49.65], atol=1e-5)
    np.testing.assert_allclose(y[0, [0, 1, -1]], [14.9, 14.4, -0.1], atol=1e-6)
    profile = data.u.reshape(GRID)[:, 0, 0]  # from left to right: opposite to i
    expected = TOP + die_profile(die_pieces(knots), np.linspace(-50, 0, 101))
    np.testing.assert_allclose(profile, expected, rtol=1e-6)


def test_data_hold_positions_and_displacements():
    data = make(replace(COARSE, duration=0.2), samples=2, seed=3)
    y = data.y.reshape(2, 21, 7, 6, 4)
    start = y[..., :1, :2]
    np.testing.assert_allclose(y[..., :2] - start, y[..., 2:], atol=4e-6)
    assert data.y.dtype == np.float32 and np.all(y[..., 0, 2:] == 0) and np.any(y[..., -1, 2:])


def test_unstable_steps_are_failures_and_shorter_ones_are_not(monkeypatch):
    problem = replace(COARSE, duration=0.3)
    drawn = [problem.draw(generator(0, 0))]
    good = problem.solve(drawn, CPU)[0]
    monkeypatch.setattr(plasticity, "SAFETY", 2.0)
    assert problem.solve(drawn, CPU) == [None]
    assert relative(problem.solve_safely(drawn, CPU)[0], good) < 1e-3
    press, pieces = problem.press(2.0), die_pieces(drawn[0])
    assert forge(press, torch.from_numpy(pieces)[None]).imbalance.item() > 0.01


def test_inverted_elements_are_failures():
    u = np.zeros((6, 2, 21, 7), np.float32)
    assert COARSE.is_regular(u)
    u[3, 0, 5, 3] = 6  # beyond the next node
    assert not COARSE.is_regular(u)
    u[3, 0, 5, 3] = np.nan
    assert not COARSE.is_regular(u)


def test_impossible_parameters_are_errors():
    with pytest.raises(ValueError, match="the die to move at most"):
        Plasticity(duration=3.0)
    with pytest.raises(ValueError, match="poisson must be a number from 0 to"):
        Plasticity(poisson=0.5)
    with pytest.raises(ValueError, match="height_nodes must be a whole number from 3"):
        Plasticity(height_nodes=2)


@pytest.mark.gpu
def test_the_compiled_solver_agrees_with_the_cpu_and_the_batch_does_not_matter():
    problem = replace(COARSE, frames=3, duration=0.3)
    drawn = [problem.draw(generator(0, k)) for k in range(3)]
    assert_gpu_agrees(problem, drawn, 1e-6)
    dies = torch.from_numpy(np.stack([die_pieces(d) for d in drawn])).to(GPU)
    failed = forge(problem.press(2.0), dies)  # unstable steps: it ends all the same
    assert bool((failed.imbalance > 0.01).all())
