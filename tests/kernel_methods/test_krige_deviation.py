"""The standard deviation of the kriging error: the textbook formula, and what it says of errors."""

from __future__ import annotations

import pytest
import torch

from lno.kernel_methods import gaussian_process
from lno.kernel_methods.gaussian_process import GaussianProcess, add_nugget, matern
from lno.kernel_methods.krige import ConditionedModels


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_deviation_is_that_of_the_conditional_distribution() -> None:
    """Two functions of two channels, in two samples, one of which is padded."""
    x, q = draw(2, 30, 2), draw(2, 17, 2, seed=1)
    values = torch.stack((torch.sin(3 * x), torch.cos(5 * x)))
    real = torch.ones(2, 30).double()
    real[1, 20:] = 0
    process = GaussianProcess(x, values, real, 0.0, (0, 1))
    found = process.deviation(q)
    assert found.shape == (2, 2, 17, 2)
    for g in range(2):
        for b, count in enumerate((30, 20)):
            k = process.kernels.index[g, b]
            scales, nugget = process.kernels.scales[k], process.kernels.nuggets[k, 0]
            at, asked = x[b, :count] / scales, q[b] / scales
            covariance = add_nugget(matern(torch.cdist(at, at)), torch.ones(count), nugget)
            across = matern(torch.cdist(asked, at))
            reduction = (across * torch.linalg.solve(covariance, across.mT).mT).sum(1)
            known = values[g, b, :count]
            variance = (known * torch.linalg.solve(covariance, known)).sum(0) / count
            expected = ((1 - reduction).clamp(min=0)[:, None] * variance).sqrt()
            torch.testing.assert_close(found[g, b], expected, rtol=1e-3, atol=1e-6)


def test_a_random_subset_of_many_observations_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    x, q = draw(1, 120, 2), draw(1, 40, 2, seed=1)
    process = GaussianProcess(x, torch.sin(6 * x[..., :1])[None], torch.ones(1, 120), 0.0, None)
    exact = process.deviation(q)
    monkeypatch.setattr(gaussian_process, "DEVIATION_POINTS", 60)
    assert torch.all(process.deviation(q) >= exact - 1e-9)


def test_deviations_vanish_at_observations_and_cover_the_errors_elsewhere() -> None:
    x = draw(3, 25, 1)
    u = torch.sin(7 * x)
    q = torch.cat((x, draw(3, 25, 1, seed=1)), 1)
    prior = (torch.zeros(2, 3, 25, 1).double(), torch.zeros(2, 3, 50, 1).double())
    conditioned = ConditionedModels(x, u, q, *prior)
    at, elsewhere = conditioned.deviation().split(25, 2)
    assert at.max() < 0.02 * elsewhere.max()
    errors = (conditioned.mean - torch.sin(7 * q))[..., 25:, :].abs()
    assert (errors < 4 * elsewhere + 1e-3).double().mean() > 0.95


@pytest.mark.gpu
def test_deviation_on_a_gpu_is_that_of_the_cpu() -> None:
    x, q = draw(2, 30, 2), draw(2, 17, 2, seed=1)
    prior = torch.zeros(1, 2, 30, 1).double(), torch.zeros(1, 2, 17, 1).double()
    given = (x, torch.sin(3 * x[..., :1]), q, *prior)
    here = ConditionedModels(*given).deviation()
    there = ConditionedModels(*(v.cuda() for v in given)).deviation()
    torch.testing.assert_close(there.cpu(), here, rtol=1e-4, atol=1e-6)
