"""Finite volumes of the Euler equations: exact properties, both paths against each other."""

import math

import numpy as np
import pytest
import torch

from lno.problems.numerics import euler, steady_flow
from lno.problems.numerics.anderson import Anderson
from lno.problems.numerics.c_grid import c_grid
from lno.problems.numerics.dual_mesh import Mesh, build_mesh
from lno.problems.numerics.euler import (
    FEW,
    GAMMA,
    Relaxation,
    conserved,
    fluxes,
    free_stream,
    primitive,
    reconstruct,
    residual,
    roe_flux,
)
from lno.problems.numerics.steady_flow import Schedule, march, uniform

CPU = torch.device("cpu")
WAKE = 8
STREAM = free_stream(0.8, 1.25)


def grids(count: int) -> np.ndarray:
    """Grids of 41 × 13 nodes around deformed profiles."""
    random = np.random.default_rng(0)
    moved = random.uniform(-0.05, 0.05, (count, 8))
    return np.stack([c_grid(d, surface=24, wake=WAKE, normal=12, far=20.0) for d in moved])


def states(count: int, amount: float = 0.1) -> torch.Tensor:
    """The free stream with random perturbations, equal at the two copies of each wake node."""
    random = np.random.default_rng(1)
    q = torch.tensor(STREAM)[:, None, None, None] + torch.from_numpy(
        amount * random.uniform(-1, 1, (4, count, 41, 13))
    )
    q[..., -WAKE - 1 :, 0] = q[..., : WAKE + 1, 0].flip(-1)
    return torch.stack(conserved(q.unbind()))


def tensors(*values: float) -> tuple[torch.Tensor, ...]:
    return tuple(torch.tensor(value, dtype=torch.float64) for value in values)


def physical_flux(q, normal):
    density, u, v, pressure = q
    through = u * normal[0] + v * normal[1]
    enthalpy = GAMMA / (GAMMA - 1) * pressure / density + (u**2 + v**2) / 2
    mass = density * through
    return mass, mass * u + pressure * normal[0], mass * v + pressure * normal[1], mass * enthalpy


def largest(values) -> float:
    return max(float(value.abs().max()) for value in values)


def test_roe_flux_of_equal_states_is_the_physical_flux():
    q, (nx, ny) = tensors(1.3, 0.4, -0.9, 2.1), (0.6, 0.8)
    flux = roe_flux(q, q, tensors(nx, ny, 2.0))
    exact = physical_flux(q, (2 * nx, 2 * ny))
    assert largest(a - b for a, b in zip(flux, exact, strict=True)) < 1e-14


def test_roe_flux_is_upwind_in_supersonic_flow():
    left, right = tensors(1.0, 3.0, 0.2, 1.0), tensors(1.4, 2.8, -0.1, 1.3)
    flux = roe_flux(left, right, tensors(1.0, 0.0, 1.0))
    exact = physical_flux(left, (1.0, 0.0))
    assert largest(a - b for a, b in zip(flux, exact, strict=True)) < 1e-13


def test_roe_flux_keeps_a_contact_discontinuity_at_rest():
    flux = roe_flux(tensors(1, 0, 0.7, 1), tensors(3, 0, -0.4, 1), tensors(1.0, 0.0, 1.0))
    assert [round(float(f), 14) for f in flux] == [0, 1, 0, 0]


def test_roe_flux_of_a_mirror_image_is_the_mirror_image():
    left, right = tensors(1.0, 0.9, 0.2, 1.0), tensors(1.4, 0.5, -0.1, 1.3)
    a = roe_flux(left, right, tensors(0.6, 0.8, 1.5))
    flip = (1, 1, -1, 1)
    left, right = (tuple(s * v for s, v in zip(flip, q, strict=True)) for q in (left, right))
    b = roe_flux(left, right, tensors(0.6, -0.8, 1.5))
    assert largest(x - s * y for s, x, y in zip(flip, a, b, strict=True)) == 0


def test_shock_tube_of_sod():
    """First order on 400 cells against the exact state between the waves."""
    n, t, end = 400, 0.0, 0.2
    first = torch.arange(n) < n // 2
    w = conserved(
        tuple(torch.where(first, a, b) for a, b in ((1.0, 0.125), (0, 0), (0, 0), (1.0, 0.1)))
    )
    w = torch.stack(w).double()
    face = tensors(1.0, 0.0, 1.0)
    while t < end:
        density, u, v, pressure = primitive(w.unbind())
        fastest = (u.abs() + torch.sqrt(GAMMA * pressure / density)).max()
        dt = min(float(0.9 / n / fastest), end - t)
        q = torch.stack((density, u, v, pressure))
        flux = torch.stack(roe_flux(q[:, :-1].unbind(), q[:, 1:].unbind(), face))
        w[:, 1:-1] -= dt * n * (flux[:, 1:] - flux[:, :-1])
        t += dt
    density, u, _, pressure = primitive(w.unbind())
    between = slice(
        int(0.62 * n), int(0.66 * n)
    )  # contact at 0.685, tail of the expansion at 0.486
    assert abs(pressure[between].mean() - 0.30313) < 0.002
    assert abs(u[between].mean() - 0.92745) < 0.005
    assert abs(density[int(0.75 * n) : int(0.82 * n)].mean() - 0.26557) < 0.005
    shock = (torch.arange(n) / n)[pressure > 0.2].max()
    assert abs(shock - (0.5 + 0.2 * 1.75216)) < 0.01


def test_uniform_flow_has_no_residual():
    """With the flux of the flow itself through the wall, on deformed grids."""
    points = grids(3)
    mesh = build_mesh(points, WAKE)
    net = residual(uniform(points, STREAM).unbind(), mesh, STREAM)
    through = physical_flux(tensors(*STREAM), mesh.wall)
    pressed = (0.0, mesh.wall[0], mesh.wall[1], 0.0)
    for value, full, part in zip(net, through, pressed, strict=True):
        missing = full - part
        value[:, :, 0] -= missing + missing.flip(1) * mesh.cut
    assert largest(net) < 1e-12


def test_gas_at_rest_stays_at_rest():
    points, rest = grids(3), (1.0, 0.0, 0.0, 1.0)
    net = residual(uniform(points, rest).unbind(), build_mesh(points, WAKE), rest)
    assert largest(net) < 1e-13


def test_conservation():
    """The sum of all residuals is what leaves through wall and far field: the rest cancels."""
    mesh, w = build_mesh(grids(2), WAKE), states(2)
    q, along_i, along_j = reconstruct(w.unbind(), mesh)
    flux_i, flux_j = fluxes(q, along_i, along_j, mesh, STREAM)
    net = residual(w.unbind(), mesh, STREAM)
    once = torch.ones(41, 13)
    once[-WAKE - 1 :, 0] = 0  # copies of nodes of the wake
    for k in range(4):
        outer = flux_i[k][:, -1].sum(-1) - flux_i[k][:, 0].sum(-1) + flux_j[k][:, :, -1].sum(-1)
        wall = (q[3][:, :, 0] * mesh.wall[k - 1]).sum(-1) if k in (1, 2) else 0
        total = (net[k] * once).sum((1, 2))
        assert largest([total - (outer - wall)]) < 1e-11 * float(net[k].abs().sum())


def test_copies_of_wake_nodes_get_the_same_residual():
    mesh = build_mesh(grids(2), WAKE)
    for value in residual(states(2).unbind(), mesh, STREAM):
        first = value[:, :, 0]
        assert torch.equal(first[:, : WAKE + 1], first[:, -WAKE - 1 :].flip(1))


def test_first_order_means_constant_states():
    mesh = build_mesh(grids(1), WAKE).of_first_order()
    w = states(1)
    q = primitive(w.unbind())
    flux, _ = fluxes(*reconstruct(w.unbind(), mesh), mesh, STREAM)
    plain = roe_flux(
        tuple(v[:, :-1] for v in q), tuple(v[:, 1:] for v in q), mesh.faces_i[:, :, 1:-1].unbind()
    )
    assert largest(a[:, 1:-1] - b for a, b in zip(flux, plain, strict=True)) < 1e-13


def test_both_paths_agree():
    from lno.problems.numerics.euler_cpu import RelaxationCPU

    mesh = build_mesh(grids(2), WAKE)
    a, b = states(2, 0.02), states(2, 0.02)
    cfl = torch.tensor([1.1, 0.6], dtype=torch.float64)
    Relaxation(mesh, STREAM, a).advance(60, cfl)
    RelaxationCPU(mesh, STREAM, b).advance(60, cfl)
    assert float((a - b).abs().max()) < 1e-12
    assert float((a - states(2, 0.02)).abs().max()) > 0.01


@pytest.mark.gpu
def test_gpu_agrees():
    from lno.problems.numerics.euler_cpu import RelaxationCPU

    mesh, gpu = build_mesh(grids(2), WAKE), torch.device("cuda")
    a, b = states(2, 0.02), states(2, 0.02).to(gpu)
    cfl = torch.tensor([1.1, 0.6], dtype=torch.float64)
    RelaxationCPU(mesh, STREAM, a).advance(60, cfl)
    Relaxation(Mesh(*(part.to(gpu) for part in mesh)), STREAM, b).advance(60, cfl.to(gpu))
    assert float((a - b.cpu()).abs().max()) < 1e-11


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_chunks_of_either_size_give_the_same_bit_for_bit(device):
    """Many samples are iterated in large chunks, the last few in small ones."""
    count = FEW + 2
    mesh = Mesh(*(part.to(device) for part in build_mesh(grids(count), WAKE)))
    together, alone = states(count, 0.02).to(device), states(count, 0.02).to(device)
    cfl = torch.full((count,), 1.1, dtype=torch.float64, device=device)
    Relaxation(mesh, STREAM, together).advance(10, cfl)
    cfl[torch.arange(count, device=device) != 4] = 0
    Relaxation(mesh, STREAM, alone).advance(10, cfl)
    assert torch.equal(alone[:, 4], together[:, 4])
    assert not torch.equal(alone[:, 5], together[:, 5])


def test_a_step_of_length_zero_changes_nothing():
    mesh, w = build_mesh(grids(2), WAKE), states(2, 0.02)
    Relaxation(mesh, STREAM, w).advance(5, torch.tensor([0.0, 1.1], dtype=torch.float64))
    assert torch.equal(w[:, 0], states(2, 0.02)[:, 0])
    assert not torch.equal(w[:, 1], states(2, 0.02)[:, 1])


def test_chunks_do_not_change_the_result(monkeypatch):
    """Three of five samples, two at a time, against all of them at once."""
    mesh, flows = build_mesh(grids(5), WAKE), [states(5, 0.02), states(5, 0.02)]
    cfl = torch.tensor([1.1, 0.0, 0.6, 0.0, 0.9], dtype=torch.float64)
    Relaxation(mesh, STREAM, flows[0]).advance(10, cfl)
    monkeypatch.setattr(euler, "CHUNK", 2)
    Relaxation(mesh, STREAM, flows[1]).advance(10, cfl)
    assert torch.equal(*flows)
    assert torch.equal(flows[0][:, 1], states(5, 0.02)[:, 1])
    assert not torch.equal(flows[0][:, 4], states(5, 0.02)[:, 4])


def test_converged_samples_do_not_depend_on_the_others(monkeypatch):
    """In one batch of the path for GPUs, run here on the CPU, with short cycles."""
    monkeypatch.setattr(steady_flow, "relaxation", Relaxation)
    monkeypatch.setattr(steady_flow, "CYCLE", 10)
    monkeypatch.setattr(steady_flow, "MIX_BELOW", 1.0)
    points, schedule = grids(3), Schedule(residual=0.5, change=0.2)

    def flow(points):
        w = uniform(points, STREAM)
        return w, march(build_mesh(points, WAKE), w, STREAM, schedule, 200)

    first, converged = flow(points[[0, 1]])
    second, _ = flow(points[[2, 0]])
    assert converged.all()
    assert torch.equal(first[:, 0], second[:, 1])


def test_mixing_starts_anew_for_some_samples():
    """After a pair that does not fit, the one that restarts finds the fixed point (10, 100)."""
    mix, x = Anderson(depth=3), torch.ones(2, 2, dtype=torch.float64)
    mix(x, x + torch.tensor([-7.0, 20.0]))
    for k in range(4):
        x = mix(x, x * torch.tensor([0.9, 0.99]) + 1)
        if k == 0:
            mix.restart(torch.tensor([False, True]))
    error = (x - torch.tensor([10.0, 100.0])).abs().amax(1)
    assert error[1] < 1e-3 < error[0]


def test_mixing_leads_to_the_same_flow_sooner(monkeypatch):
    from lno.problems.numerics.euler_cpu import RelaxationCPU

    count, advance = [], RelaxationCPU.advance

    def counting(self, iterations, cfl):
        count.append(iterations)
        advance(self, iterations, cfl)

    monkeypatch.setattr(RelaxationCPU, "advance", counting)
    points, flows, steps = grids(1), [], []
    mesh = build_mesh(points, WAKE)
    for depth in (0, 10):
        flows.append(uniform(points, STREAM))
        schedule = Schedule(residual=1e-6, change=1e-6, depth=depth)
        assert march(mesh, flows[-1], STREAM, schedule, 10_000).all()
        steps.append(sum(count))
        count.clear()
    assert float((flows[0] - flows[1]).abs().max()) < 1e-4
    assert steps[1] <= 0.8 * steps[0]


def test_symmetric_flow_around_a_symmetric_profile():
    points = c_grid(np.zeros(8), surface=48, wake=16, normal=20, far=40.0)[None]
    w, converged = steady_flow.steady_flow(points, 16, free_stream(0.8, 0.0), Schedule(), CPU)
    assert converged.all()
    mirrored = w.flip(2) * torch.tensor([1, 1, -1, 1])[:, None, None, None]
    assert float((w - mirrored).abs().max()) < 1e-10


def test_shock_at_half_the_chord():
    """NACA-0012 at Mach 0.8 on the standard grid: shock, suction peak and stagnation pressure."""
    points = c_grid(np.zeros(8), surface=120, wake=50, normal=50, far=40.0)[None]
    w, converged = steady_flow.steady_flow(points, 50, free_stream(0.8, 0.0), Schedule(), CPU)
    assert converged.all()
    pressure = primitive(w.unbind())[3][0, 50:171, 0].numpy()
    cp = (pressure - 1) / (GAMMA / 2 * 0.8**2)
    x, upper = points[0, 50:111, 0, 0][::-1], cp[:61][::-1]
    peak = upper.argmin()
    middle = (upper[peak] + upper[peak : peak + 8].max()) / 2
    k = peak + int((upper[peak:] > middle).argmax()) - 1
    shock = x[k] + (middle - upper[k]) / (upper[k + 1] - upper[k]) * (x[k + 1] - x[k])
    assert abs(shock - 0.50) < 0.01
    assert abs(cp.min() + 0.931) < 0.005
    exact = ((1 + 0.2 * 0.8**2) ** 3.5 - 1) / (GAMMA / 2 * 0.8**2)
    assert math.isclose(exact, 1.170, abs_tol=1e-3) and abs(cp.max() - exact) < 0.03


@pytest.mark.parametrize(
    ("surface", "wake", "normal", "halved"),
    [(48, 16, 20, True), (50, 16, 20, False), (48, 15, 20, False), (48, 16, 21, False)],
)
def test_a_coarse_start_keeps_the_nose(surface, wake, normal, halved, monkeypatch):
    """It is taken where every second node makes a grid around the whole profile."""
    points = c_grid(np.zeros(8), surface=surface, wake=wake, normal=normal, far=40.0)[None]
    nose, grids = points[0, wake + surface // 2, 0], []

    def watched(mesh, *_):
        grids.append(mesh)
        return torch.ones(1, dtype=torch.bool)

    monkeypatch.setattr(steady_flow, "build_mesh", lambda points, wake: points)
    monkeypatch.setattr(steady_flow, "march", watched)
    steady_flow.steady_flow(points, wake, STREAM, Schedule(), CPU)
    assert len(grids) == 1 + halved
    assert all((grid[0, :, 0] == nose).all(-1).any() for grid in grids)
