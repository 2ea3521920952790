from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.special import iv

from lno.data.symmetry import Symmetry
from lno.problems import Burgers
from lno.problems.burgers import MODES, etdrk4, initial_value, wave_symmetries
from lno.problems.make import generator, make

CPU = torch.device("cpu")


def cole_hopf(coefficients: np.ndarray, t: float, x: np.ndarray, viscosity: float) -> np.ndarray:
    """The exact solution: u = c − 2ν φ_x/φ, φ_t = ν φ_xx, in the frame of the mean c."""
    points = 8192
    y = np.arange(points) / points
    k = np.arange(1, coefficients.shape[1])[:, None]
    mean, (a, b) = coefficients[0, 0], coefficients[:, 1:, None]
    wave = 2 * np.pi * k
    integral = (a * np.sin(wave * y) / wave - b * (np.cos(wave * y) - 1) / wave).sum(0)
    phi = np.exp(-(integral - integral.mean()) / (2 * viscosity))
    modes = np.fft.fftfreq(points, 1 / points)
    amplitude = np.fft.fft(phi) / points * np.exp(-viscosity * (2 * np.pi * modes) ** 2 * t)
    kept = np.abs(modes) < 600
    waves = np.exp(2j * np.pi * np.outer(x - mean * t, modes[kept]))
    value = (waves @ amplitude[kept]).real
    slope = (waves @ (2j * np.pi * modes * amplitude)[kept]).real
    return mean - 2 * viscosity * slope / value


def test_solutions_match_cole_hopf() -> None:
    problem = Burgers()
    inputs = np.stack([problem.draw(generator(5, k)) for k in range(4)])
    x = np.arange(128) / 128
    fine = initial_value(torch.from_numpy(inputs), torch.arange(512).double() / 512)
    solved = etdrk4(fine, 0.01, 128, 12)[..., ::4].numpy()
    stored = problem.solve(list(inputs), CPU)
    assert np.array_equal(stored, solved.astype(np.float32)), "the data are these, rounded"
    for k in range(4):
        for row in (32, 95, 127):
            exact = cole_hopf(inputs[k], row / 127, x, 0.01)
            error = np.linalg.norm(solved[k, row] - exact) / np.linalg.norm(exact)
            assert error < 1e-8


def test_time_stepping_is_of_fourth_order() -> None:
    inputs = torch.from_numpy(np.stack([Burgers().draw(generator(0, 0))]))
    u0 = initial_value(inputs, torch.arange(512, dtype=torch.float64) / 512)
    coarse, middle, fine = (etdrk4(u0, 0.01, 65, k)[:, -1] for k in (1, 2, 4))
    order = torch.log2((coarse - middle).norm() / (middle - fine).norm())
    assert 3.7 < float(order) < 4.6


def test_initial_values_have_the_papers_covariance() -> None:
    draws = np.stack([Burgers().draw(generator(1, k)) for k in range(4000)])
    x = torch.tensor([0.0, 0.2, 0.5], dtype=torch.float64)
    u = initial_value(torch.from_numpy(draws), x).numpy()
    expected = np.exp(-2 * np.sin(np.pi * (x[:, None] - x[None]).numpy()) ** 2)
    assert np.abs(np.cov(u.T) - expected).max() < 0.07  # three standard errors of 4000 draws
    # The series of variances is complete: it sums to the variance of the process, one.
    assert np.exp(-1) * (iv(0, 1) + 2 * iv(np.arange(1, MODES), 1).sum()) == pytest.approx(1)


def test_mean_is_conserved_and_energy_falls() -> None:
    inputs = torch.from_numpy(np.stack([Burgers().draw(generator(2, k)) for k in range(3)]))
    u = etdrk4(initial_value(inputs, torch.arange(512).double() / 512), 0.01, 64, 4)
    mean = u.mean(2)
    assert float((mean - mean[:, :1]).abs().max()) < 1e-13
    energy = u.square().mean(2)
    assert bool((energy.diff(dim=1) < 0).all())


def test_a_sample_is_the_same_however_it_is_made() -> None:
    few, many = make(Burgers(grid=64), 2, seed=3), make(Burgers(grid=64), 20, seed=3)
    assert np.array_equal(few.y, many.y[:2])
    assert not np.array_equal(make(Burgers(grid=64), 1, seed=4).y, few.y[:1])
    assert few.digest == make(Burgers(grid=64), 2, seed=3).digest


def test_a_finer_grid_holds_the_same_solution() -> None:
    coarse, fine = (make(Burgers(grid=n), 1, 0).y.reshape(n, n) for n in (64, 128))
    # Columns i/64 are every second of i/128; the first and last times agree.
    assert np.abs(coarse[0] - fine[0, ::2]).max() < 1e-6
    assert np.abs(coarse[-1] - fine[-1, ::2]).max() < 1e-5


@pytest.mark.parametrize(
    "keys", [{"grid": 100}, {"grid": 1}, {"viscosity": 0.0}, {"viscosity": "x"}]
)
def test_impossible_parameters_are_errors(keys: dict) -> None:
    with pytest.raises(ValueError, match="must be"):
        Burgers(**keys)


@pytest.mark.parametrize("symmetry", wave_symmetries(4), ids=lambda g: g.name)
def test_symmetries_map_solutions_to_solutions(symmetry: Symmetry) -> None:
    x = torch.arange(512).double() / 512
    start = initial_value(torch.from_numpy(Burgers().draw(generator(0, 1))[None]), x)
    trajectory = etdrk4(start, 0.01, 9, 190)
    mapped, _ = symmetry(trajectory[..., None], trajectory[..., None])
    again = etdrk4(mapped[:, 0, :, 0], 0.01, 9, 190)
    assert (again - mapped[..., 0]).abs().max() < 1e-9
    moved = (mapped[..., 0] - trajectory).norm() > 0.1 * trajectory.norm()
    assert moved or symmetry.name == "translate 0"
