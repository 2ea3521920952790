"""Pipe flow against Poiseuille, an independent finite-element code, and its own refinement."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from on_gpu import assert_gpu_agrees
from published_files import mapped

from lno.problems import Pipe, read_published
from lno.problems.make import generator, make
from lno.problems.numerics import block_tridiagonal
from lno.problems.numerics.block_tridiagonal import BlockRow, solve_block_tridiagonal
from lno.problems.numerics.taylor_hood import Flow
from lno.problems.pipe import TOLERANCE, newton, steady_flow

CPU = torch.device("cpu")
ONE = torch.ones(1, dtype=torch.float64)


def drawn(index: int = 0) -> np.ndarray:
    return Pipe().draw(generator(0, index))


def solved(problem: Pipe, nodes: np.ndarray) -> Flow:
    """The flow in double precision, converged."""
    equations = problem.equations(torch.from_numpy(nodes)[None])
    flow, converged = steady_flow(equations, problem.inflow())
    assert converged.all()
    return flow


def smooth_pipe(problem: Pipe) -> np.ndarray:
    """A double bend with straight ends and without joints, so that the flow is smooth."""
    nodes = problem.mesh(np.zeros((2, 5)))
    nodes[..., 1] += 0.5 * np.tanh((nodes[..., 0] - 5) / 1.2)
    return nodes


def difference(a, b) -> float:
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


# -- the linear solver ----------------------------------------------------------------------------


@pytest.mark.parametrize("leaf", [2, 7, 1000])
def test_block_tridiagonal_systems_are_solved_like_dense_ones(monkeypatch, leaf):
    monkeypatch.setattr(block_tridiagonal, "LEAF", leaf)
    random, sizes, b = np.random.default_rng(0), (5, 12, 9, 12), 3
    ends = np.cumsum((0, *sizes))
    matrix, rhs, rows = np.zeros((b, ends[-1], ends[-1])), random.normal(size=(b, ends[-1], 1)), []
    spans = [slice(*pair) for pair in pairwise(ends)]
    for k, span in enumerate(spans):
        for other in spans[max(k - 1, 0) : k + 2]:
            matrix[:, span, other] = random.normal(
                size=(b, span.stop - span.start, other.stop - other.start)
            )
    for k, span in enumerate(spans):
        near = [spans[j] if 0 <= j < len(spans) else None for j in (k - 1, k, k + 1)]
        blocks = [None if s is None else torch.from_numpy(matrix[:, span, s]) for s in near]
        rows.append(BlockRow(*blocks, torch.from_numpy(rhs[:, span])))
    x = torch.cat(solve_block_tridiagonal(iter(rows)), dim=1).numpy()
    np.testing.assert_allclose(x, np.linalg.solve(matrix, rhs)[..., 0], rtol=1e-9, atol=1e-9)


def test_a_singular_block_gives_no_finite_solution():
    zero, one = torch.zeros(1, 1, 1), torch.ones(1, 1, 1)
    assert (
        not torch.cat(solve_block_tridiagonal([BlockRow(None, zero, None, one)])).isfinite().any()
    )


# -- the discrete equations -----------------------------------------------------------------------


def test_the_newton_step_inverts_the_derivative_of_the_residual():
    """The weak form is quadratic in the flow, so a central difference is its exact derivative."""
    problem = Pipe(elements=4, viscosity=0.02)
    equations = problem.equations(torch.from_numpy(problem.mesh(drawn()))[None])
    start = equations.at_rest(problem.inflow())
    random = np.random.default_rng(1)
    step = Flow(*(torch.from_numpy(random.normal(size=part.shape)) for part in start))
    step.velocity[:, 0] = step.velocity[:, :, 0] = step.velocity[:, :, -1] = 0
    flow = start.plus(0.1 * ONE, step)
    ahead, behind = (equations.residual(flow.plus(h * ONE, step), 1.0) for h in (1.0, -1.0))
    derivative = Flow(*((a - b) / 2 for a, b in zip(ahead, behind, strict=True)))
    back = equations.newton_step(flow, derivative, 1.0)
    for got, expected in zip(back, step, strict=True):
        torch.testing.assert_close(got, -expected, rtol=0, atol=1e-9)


def test_newton_converges_quadratically():
    problem = Pipe(elements=12)
    equations = problem.equations(torch.from_numpy(problem.mesh(drawn()))[None])
    rest = equations.at_rest(problem.inflow())
    first = equations.residual(rest, 1.0).norm()
    stokes = equations.newton_step(rest, equations.residual(rest, 0.0), 0.0)
    flow, norms = rest.plus(ONE, stokes), []
    for _ in range(4):
        flow, _ = newton(equations, flow, 1.0, 0 * first, steps=1, halvings=0)
        norms.append((equations.residual(flow, 1.0).norm() / first).item())
    assert norms[-1] < 1e-12
    triples = zip(norms, norms[1:], norms[2:], strict=False)
    orders = [math.log(c / b) / math.log(b / a) for a, b, c in triples]
    assert orders[0] > 1.7


# -- the flow -------------------------------------------------------------------------------------


@pytest.mark.parametrize("elements", [4, 12])
def test_a_straight_pipe_has_poiseuille_flow(elements):
    """Velocity is quadratic and pressure linear, so the discrete solution is exact."""
    problem = Pipe(elements=elements)
    nodes = problem.mesh(np.zeros((2, 5)))
    flow = solved(problem, nodes)
    u, p = flow.velocity[0].numpy(), flow.pressure[0].numpy()
    np.testing.assert_allclose(u[..., 0], 0.25 - nodes[..., 1] ** 2, rtol=0, atol=1e-12)
    np.testing.assert_allclose(u[..., 1], 0, rtol=0, atol=1e-12)
    # The pressure falls by 2ν per length to 0 at the outlet.
    np.testing.assert_allclose(p, 0.01 * (10 - nodes[::2, ::2, 0]), rtol=0, atol=1e-12)


def test_third_order_in_a_smooth_pipe():
    """Biquadratic elements have order 3 in velocity; at their nodes it may be more."""
    flows = [
        solved(problem, smooth_pipe(problem)).velocity[0, :: n // 8, :: n // 8].numpy()
        for n in (8, 16, 32)
        for problem in [Pipe(elements=n, viscosity=0.02)]
    ]
    coarse, fine = (np.linalg.norm(a - b) for a, b in pairwise(flows))
    assert math.log2(coarse / fine) > 2.9
    assert fine < 4e-3 * np.linalg.norm(flows[-1])


def weak_flux_change(flux: np.ndarray) -> np.ndarray:
    """∫ F'(x) q(x) dx of a flux that is quadratic in each element, for each hat function q."""
    a, b, c = flux[:-2:2], flux[1::2], flux[2::2]
    falling, rising = (-5 * a + 4 * b + c) / 6, (-a - 4 * b + 5 * c) / 6
    return np.append(falling, 0) + np.append(0, rising)


def station_flux(problem: Pipe, nodes: np.ndarray) -> np.ndarray:
    """The flux through each line of nodes over that of the inflow, by Simpson's rule.

    The rule is exact, as the velocity is quadratic across each element.
    """
    u = solved(problem, nodes).velocity[0, ..., 0].numpy()
    simpson = np.ones(u.shape[1])
    simpson[1::2], simpson[2:-1:2] = 4, 2
    return u @ simpson / problem.elements


def test_flux_is_conserved():
    """Weakly and at the outlet up to rounding, and at every station up to the discretisation."""
    problem = Pipe(elements=12)
    flux = station_flux(problem, problem.mesh(drawn()))
    assert abs(weak_flux_change(flux)).max() < 1e-13
    assert flux[[0, -1]] == pytest.approx(1, abs=1e-13)
    worst = [
        abs(station_flux(problem, smooth_pipe(problem)) - 1).max()
        for problem in (Pipe(elements=16, viscosity=0.02), Pipe(elements=32, viscosity=0.02))
    ]
    assert worst[1] < 1e-3
    assert worst[1] < worst[0] / 7  # third order


@pytest.mark.parametrize(
    ("kind", "elements", "limit"), [("quadrilaterals", 8, 1e-11), ("triangles", 20, 2e-3)]
)
def test_against_scikit_fem(kind, elements, limit):
    """The same elements up to rounding; P2–P1 triangles up to the error of both."""
    pytest.importorskip("skfem")
    from pipe_reference import reference_flow

    problem = Pipe(elements=elements, viscosity=0.02)
    nodes = smooth_pipe(problem)
    flow = solved(problem, nodes).velocity[0].permute(2, 0, 1).numpy()
    assert difference(flow, reference_flow(problem, nodes, kind)) < limit


@pytest.mark.parametrize("symmetry", Pipe.symmetries, ids=lambda g: g.name)
def test_symmetries_map_solutions_to_solutions(symmetry):
    problem = Pipe(elements=8)
    nodes = torch.from_numpy(problem.mesh(drawn()))[None]
    u = solved(problem, nodes[0].numpy()).velocity[..., :1]
    mapped_nodes, mapped_u = symmetry(nodes, u)
    again = solved(problem, mapped_nodes[0].numpy()).velocity[..., :1]
    torch.testing.assert_close(mapped_u, again, rtol=0, atol=1e-11)
    sign = -1 if symmetry.name == "reflect y" else 1
    np.testing.assert_allclose(mapped_nodes[0], problem.mesh(sign * drawn()), rtol=0, atol=1e-14)


# -- the generator --------------------------------------------------------------------------------


def test_a_sample_is_bit_for_bit_the_same_in_every_list_and_for_any_number_of_threads():
    problem = Pipe(elements=8)
    pipes = [drawn(k) for k in range(3)]
    pipes.append(np.zeros((2, 5)))  # converges at once
    alone = [problem.solve([d], CPU)[0] for d in pipes]
    torch.set_num_threads(3)
    order = (2, 3, 0, 1)
    together = problem.solve([pipes[k] for k in order], CPU)
    assert np.array_equal(together, [alone[k] for k in order])


def test_flows_of_a_batch_converge_as_they_do_alone():
    """On a GPU a batch is solved at once; flows that have converged wait for the others."""
    problem = Pipe(elements=8)
    nodes = np.stack([problem.mesh(d) for d in (np.zeros((2, 5)), drawn(0), drawn(1))])
    flow, converged = steady_flow(problem.equations(torch.from_numpy(nodes)), problem.inflow())
    assert converged.all()
    for k in range(3):
        torch.testing.assert_close(
            flow.velocity[k], solved(problem, nodes[k]).velocity[0], rtol=0, atol=1e-12
        )


def test_where_newton_fails_there_is_no_solution_and_safe_settings_find_one():
    problem = Pipe(elements=8, viscosity=0.0003)
    hard, easy = drawn(1), np.zeros((2, 5))
    failed, poiseuille = problem.solve([hard, easy], CPU)
    assert failed is None
    np.testing.assert_allclose(poiseuille[-1], 0.25 - problem.across() ** 2, atol=1e-7)
    (safe,) = problem.solve_safely([hard], CPU)
    # Other stages lead to the same flow.
    flow, converged = steady_flow(
        problem.equations(torch.from_numpy(problem.mesh(hard))[None]),
        problem.inflow(),
        stages=np.geomspace(0.05, 1, 12).tolist(),
        halvings=3,
    )
    assert converged.all()
    assert difference(safe, flow.velocity[0, ..., 0].numpy()) < 1e-6


def test_a_pipe_without_a_solution_gives_none_and_leaves_others_alone():
    problem, impossible = Pipe(elements=4), 1e200 * drawn()
    failed, other = problem.solve([impossible, drawn()], CPU)
    assert failed is None
    assert np.array_equal(other, problem.solve([drawn()], CPU)[0])
    assert problem.solve_safely([impossible], CPU) == [None]


def test_solutions_have_the_residual_that_is_claimed():
    problem = Pipe(elements=8)
    nodes = torch.from_numpy(problem.mesh(drawn()))[None]
    equations = problem.equations(nodes)
    flow, _ = steady_flow(equations, problem.inflow())
    first = equations.residual(equations.at_rest(problem.inflow()), 1.0).norm()
    assert equations.residual(flow, 1.0).norm() <= TOLERANCE * first
    (u,) = problem.solve([drawn()], CPU)
    assert u.dtype == np.float32
    np.testing.assert_array_equal(u, flow.velocity[0, ..., 0].float())


def test_centrelines():
    """Heights and slopes at the joints; the vertical width is 1; ranges and distribution."""
    problem, pipe = Pipe(elements=4), drawn(3)
    nodes = problem.mesh(pipe)
    centre = nodes[:, 4, 1]
    np.testing.assert_allclose(centre[::2], pipe[0], atol=1e-14)
    np.testing.assert_allclose(nodes[:, -1, 1] - nodes[:, 0, 1], 1, atol=1e-14)
    np.testing.assert_allclose(nodes[:, :, 0], np.linspace(0, 10, 9)[:, None] + np.zeros(9))
    (y0, y1), (s0, s1) = pipe[:, :2]
    assert centre[1] == pytest.approx((y0 + y1) / 2 + (s0 - s1) / 8)  # cubic Hermite at its middle
    fine = replace(problem, elements=256).mesh(pipe)[:, 256, 1]
    assert (fine[1] - fine[0]) * 512 / 4 == pytest.approx(s0, abs=0.1)  # 128 intervals in a piece
    many = np.stack([problem.draw(generator(1, k)) for k in range(2000)])
    assert np.all(many[:, 0, 0] == 0)
    for values, largest in ((many[:, 0, 1:], 1.0), (many[:, 1], 2.0)):
        assert 0.99 * largest < abs(values).max() <= largest
        assert values.std() == pytest.approx(largest / math.sqrt(3), rel=0.03)
        assert values.mean() == pytest.approx(0, abs=0.03 * largest)


def test_data_have_the_form_of_the_published_files(tmp_path):
    paths, *_ = mapped(tmp_path, "Pipe", 129, 129, 3)
    published = read_published("pipe", paths, counts=(3, 2))
    problem = Pipe()  # shapes alone: solving takes seconds
    flow = [np.zeros((129, 129), np.float32)] * 2
    data = problem.fields([drawn(0), drawn(1)], flow, {})
    assert data.meaning() == published.meaning()
    assert data.spec == published.spec
    assert np.array_equal(data.x, published.x) and np.array_equal(data.cells, published.cells)
    assert data.u.shape[1:] == published.u.shape[1:] and data.y.shape[1:] == published.y.shape[1:]
    assert data.u.dtype == data.y.dtype == np.float32


def test_making_data():
    problem = Pipe(elements=8)
    data = make(problem, samples=2, seed=3)
    pipe = problem.draw(generator(3, 1))
    np.testing.assert_allclose(data.geometry_of(1), problem.mesh(pipe).reshape(-1, 2), atol=1e-6)
    u = data.y.reshape(2, 17, 17)
    assert np.array_equal(u[1], problem.solve([pipe], CPU)[0])
    assert np.all(u[:, :, [0, -1]] == 0)
    assert np.allclose(u[:, 0], 0.25 - problem.across() ** 2)


def test_impossible_parameters_are_errors():
    with pytest.raises(ValueError, match="multiple of 4"):
        Pipe(elements=30)
    with pytest.raises(ValueError, match="viscosity must be a number from"):
        Pipe(viscosity=0.0)


@pytest.mark.gpu
def test_gpu_and_cpu_agree_and_the_batch_does_not_matter_bit_for_bit():
    assert_gpu_agrees(Pipe(elements=16), [drawn(k) for k in range(6)], 1e-7)
