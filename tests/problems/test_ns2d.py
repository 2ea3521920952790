"""NS2d against an exact solution, its order, its conservation laws, and its symmetries."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch

from lno.problems.make import generator, make
from lno.problems.ns2d import Flow, NS2d, flow_symmetries

CPU = torch.device("cpu")
DOUBLE = torch.empty(0, dtype=torch.float64)


def initial(problem: NS2d, count: int, seed: int = 0) -> torch.Tensor:
    """Initial vorticities (count, n, n) in double precision."""
    drawn = np.stack([problem.draw(generator(seed, k)) for k in range(count)])
    return torch.from_numpy(drawn).double()


def solve(problem: NS2d, w: torch.Tensor, device: torch.device = CPU) -> torch.Tensor:
    """Solutions (b, m, m, frames) for initial vorticities (b, n, n)."""
    return torch.from_numpy(np.stack(problem.solve(list(w.numpy()), device)))


def smooth(n: int, count: int = 1) -> torch.Tensor:
    """Initial vorticities that a coarse grid resolves, with velocities that matter."""
    return 10 * initial(NS2d(grid=n, every=1, alpha=6.0), count)


def test_a_single_mode_is_exact():
    # Vorticity cos 2π(x + y) moves along its own level lines: ω' = −λω + f with λ = 8π²ν.
    n, viscosity, forcing = 32, 1e-3, 0.1
    x = torch.arange(n, dtype=torch.float64) / n
    angle = 2 * math.pi * (x[:, None] + x)
    f, start = forcing * (torch.sin(angle) + torch.cos(angle)), 0.8 * torch.cos(angle)
    flow = Flow(DOUBLE, n, viscosity, forcing)
    end = flow.values(flow.advance(flow.modes(start[None]), 1.0))[0]
    rate = 8 * math.pi**2 * viscosity
    exact = start * math.exp(-rate) - f * math.expm1(-rate) / rate
    assert (end - exact).norm() < 1e-12 * exact.norm()


def test_fourth_order_in_time():
    flow = Flow(DOUBLE, 32, viscosity=1e-3, forcing=0.1)
    start = flow.modes(smooth(32))

    def after(steps: int) -> torch.Tensor:
        w, h = start, torch.full((1,), 1 / steps, dtype=torch.float64)
        for _ in range(steps):
            w = flow.step(w, h, flow.rate(flow.fields(w)))
        return w

    ends = [after(steps) for steps in (20, 40, 80, 160)]
    changes = [(a - b).abs().max().item() for a, b in pairwise(ends)]
    orders = [math.log2(a / b) for a, b in pairwise(changes)]
    assert all(order == pytest.approx(4, abs=0.25) for order in orders)


def test_the_velocity_has_the_vorticity_and_no_divergence():
    flow = Flow(DOUBLE, 32, viscosity=0.0, forcing=0.0)
    w = flow.modes(smooth(32))
    u, v = torch.fft.rfft2(flow.fields(w)[:, :2], norm="forward").unbind(1)
    kx = 2j * math.pi * torch.fft.fftfreq(32, 1 / 32, dtype=torch.float64)[:, None]
    ky = 2j * math.pi * torch.fft.rfftfreq(32, 1 / 32, dtype=torch.float64)
    torch.testing.assert_close(kx * v - ky * u, w)
    torch.testing.assert_close(kx * u + ky * v, torch.zeros_like(w))


def inner(flow: Flow, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """∫ a b of fields given by their modes."""
    return (flow.values(a) * flow.values(b)).mean((-2, -1))


def streamfunction(flow: Flow, w: torch.Tensor) -> torch.Tensor:
    return torch.where(flow.laplacian < 0, -w / flow.laplacian, 0)


def test_advection_keeps_mean_energy_and_enstrophy():
    flow = Flow(DOUBLE, 48, viscosity=0.0, forcing=0.0)
    w = flow.modes(initial(NS2d(grid=48, every=1), 2) + 0.3)  # every kept mode takes part
    rate = flow.rate(flow.fields(w))
    scale = rate.norm() * w.norm()
    assert rate[:, 0, 0].abs().max() < 1e-15 * scale
    assert inner(flow, streamfunction(flow, w), rate).abs().max() < 1e-14 * scale
    assert inner(flow, w, rate).abs().max() < 1e-14 * scale


def test_the_mean_is_kept_and_energy_is_balanced():
    # dE/dt = ν∫ψΔω + ∫ψf for E = ½∫ψω, integrated by Simpson's rule.
    viscosity, forcing, pieces = 1e-2, 2.0, 40
    flow = Flow(DOUBLE, 32, viscosity, forcing)
    force = flow.rate(flow.fields(flow.modes(torch.zeros(1, 32, 32, dtype=torch.float64))))
    w = flow.modes(smooth(32) + 0.3)
    mean = w[0, 0, 0].item()
    energy, power = [], []
    for _ in range(pieces + 1):
        psi = streamfunction(flow, w)
        energy.append(inner(flow, psi, w).item() / 2)
        power.append(inner(flow, psi, force + viscosity * flow.laplacian * w).item())
        assert abs(w[0, 0, 0].item() - mean) < 1e-14
        w = flow.advance(w, 1 / pieces)
    weights = np.array([1, *[4, 2] * (pieces // 2 - 1), 4, 1]) / (3 * pieces)
    assert abs(energy[-1] - energy[0]) > 0.1 * energy[0]
    assert energy[-1] - energy[0] == pytest.approx(weights @ power, rel=1e-6)


def test_a_sample_is_bit_for_bit_the_same_in_every_batch_and_for_any_number_of_threads():
    problem = NS2d(grid=64, frames=2)
    w = initial(problem, 4).float()
    w[3] *= 20  # needs many more steps
    alone = [solve(problem, w[k : k + 1]) for k in range(4)]
    torch.set_num_threads(3)
    assert torch.equal(solve(problem, w), torch.cat(alone))
    assert torch.equal(solve(problem, w[[2, 3, 1]]), torch.cat([alone[k] for k in (2, 3, 1)]))


def test_a_finished_sample_waits_unchanged():
    flow = Flow(DOUBLE, 32, viscosity=1e-3, forcing=0.1)
    slow, fast = flow.modes(smooth(32, 2)).split(1)
    together = flow.advance(torch.cat([slow, 20 * fast]), 1.0)
    torch.testing.assert_close(together[:1], flow.advance(slow, 1.0), rtol=0, atol=1e-14)
    nothing = torch.zeros(1, dtype=torch.float64)
    assert torch.equal(flow.step(slow, nothing, flow.rate(flow.fields(slow))), slow)


@pytest.mark.parametrize("symmetry", flow_symmetries(16)[:12], ids=lambda g: g.name)
def test_symmetries_map_solutions_to_solutions(symmetry):
    problem = NS2d(grid=32, every=2, viscosity=1e-3, frames=2, forcing=1.0)
    start = smooth(32)
    end = solve(problem, start)
    mapped, mapped_end = symmetry(start[..., None], end)
    torch.testing.assert_close(solve(problem, mapped[..., 0]), mapped_end, rtol=0, atol=1e-10)
    assert (mapped_end - end).norm() > 0.1 * end.norm() or symmetry.name == "translate 0"


def test_the_initial_vorticity_has_the_published_size():
    drawn = np.stack([NS2d(grid=64).draw(generator(0, k)) for k in range(2000)])
    k = np.fft.fftfreq(64, 1 / 64)
    variance = 2 * 7.0**3 * (4 * np.pi**2 * np.add.outer(k**2, k**2) + 49) ** -2.5
    assert drawn.var() == pytest.approx(variance.sum() - variance[0, 0], rel=0.03)
    assert drawn.std((1, 2)).mean() == pytest.approx(0.253, rel=0.03)


def test_single_precision_is_close_to_double():
    problem = NS2d(grid=64, viscosity=1e-3, frames=4)
    w = initial(problem, 2)
    single, double = solve(problem, w.float()), solve(problem, w)
    assert single.dtype == torch.float32
    assert (single - double).norm() < 1e-5 * double.norm()


def test_fields_are_the_first_and_the_last_frames():
    problem = NS2d(grid=32, every=2, viscosity=1e-2, frames=4)
    data = make(problem, samples=2, seed=3)
    frames = solve(problem, initial(problem, 2, seed=3).float())
    assert data.spec.grid == (16, 16) and data.period == (1.0, 1.0)
    assert data.names["u"] == ["w(t=1)", "w(t=2)"] and data.names["y"] == ["w(t=3)", "w(t=4)"]
    both = np.concatenate([data.u, data.y], axis=-1)
    assert np.array_equal(both.reshape(2, 16, 16, 4), frames)
    assert data.x[3 * 16 + 7] == pytest.approx([3 / 16, 7 / 16])


def test_impossible_parameters_and_inputs_are_errors():
    with pytest.raises(ValueError, match=r"multiple of 4 · every"):
        NS2d(grid=40, every=4)
    with pytest.raises(ValueError, match="even"):
        NS2d(frames=5)
    with pytest.raises(FloatingPointError, match="not finite"):
        NS2d(grid=16, every=1, frames=2).solve([np.full((16, 16), np.nan)], CPU)


@pytest.mark.gpu
def test_gpu_and_cpu_agree_and_the_batch_does_not_matter_bit_for_bit():
    problem = NS2d(grid=64, every=2, viscosity=1e-3, frames=4)
    w = initial(problem, 6)
    w[3] *= 10
    cuda = torch.device("cuda")
    cpu, gpu = solve(problem, w), solve(problem, w, cuda)
    assert (gpu - cpu).norm() < 1e-10 * cpu.norm()
    single, order = solve(problem, w.float(), cuda), torch.tensor([5, 0, 3, 1, 1, 2])
    assert (single - cpu).norm() < 1e-4 * cpu.norm()
    assert torch.equal(solve(problem, w[order].float(), cuda), single[order])
