"""Gaussian process regression: exact formulas, length scales, prior means, noise and padding."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from lno.kernel_methods import gaussian_process as gp
from lno.kernel_methods import krige as kriging
from lno.kernel_methods.gaussian_process import GaussianProcess, add_nugget, matern
from lno.kernel_methods.krige import ConditionedModels, krige


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).uniform(size=shape))


def wave(x: Tensor, frequency: float = 6.0) -> Tensor:
    return torch.sin(frequency * x[..., :1]) * torch.cos(0.8 * frequency * x[..., 1:2])


def with_prior(x: Tensor, u: Tensor, q: Tensor, at_x: Tensor, at_q: Tensor, **keys) -> Tensor:
    """The conditional mean with one model as the prior mean."""
    return ConditionedModels(x, u, q, at_x[None], at_q[None], **keys).mean[0]


def test_the_prediction_passes_through_the_observations() -> None:
    for n in (1, 2, 3, 40, 300):
        x, u = draw(2, n, 2), draw(2, n, 3, seed=1)
        assert torch.allclose(krige(x, u, x), u, atol=1e-4)
    line = torch.linspace(0, 1, 12)[None, :, None] * torch.ones(2)
    assert torch.allclose(krige(line, line[..., :1] ** 2, line), line[..., :1] ** 2, atol=1e-4)


def test_it_is_the_mean_of_a_gaussian_process_given_its_values() -> None:
    """Written out with NumPy for the scale that is most likely."""
    x, q = draw(1, 60, 2), draw(1, 25, 2, seed=1)
    u = wave(x)
    found = krige(x, u, q)[0].numpy()

    def covariance(a: np.ndarray, b: np.ndarray, scale: float) -> np.ndarray:
        s = np.sqrt(5) * np.linalg.norm(a[:, None] - b[None], axis=-1) / scale
        return (1 + s + s**2 / 3) * np.exp(-s)

    likely, means = [], []
    for scale in gp.LENGTH_SCALES:
        k = covariance(x[0].numpy(), x[0].numpy(), scale) + 1e-8 * np.eye(60)
        weights = np.linalg.solve(k, u[0].numpy())
        variance = float((u[0].numpy() * weights).sum() / 60)
        likely.append(-60 * np.log(variance) - np.linalg.slogdet(k)[1])
        means.append(covariance(q[0].numpy(), x[0].numpy(), scale) @ weights)
    np.testing.assert_allclose(found, means[int(np.argmax(likely))], atol=1e-6)
    assert 0 < np.argmax(likely) < len(likely) - 1


def test_every_coordinate_has_a_scale_of_its_own() -> None:
    x, q = draw(2, 150, 2), draw(2, 200, 2, seed=1)
    stretch = torch.tensor([1.0, 8.0], dtype=torch.float64)
    truth, u = wave(q), wave(x)
    alike = krige(x, u, q, axes=(0, 1))
    found = krige(x * stretch, u, q * stretch, axes=(0, 1))
    shared = krige(x * stretch, u, q * stretch)
    best, error, other = ((v - truth).abs().mean() for v in (alike, found, shared))
    assert error < 1.2 * best
    assert error < 0.5 * other
    # Two features of one coordinate are stretched together: turning them changes nothing.
    angle = torch.tensor(0.7, dtype=torch.float64)
    turn = torch.eye(3, dtype=torch.float64)
    turn[1:, 1:] = torch.stack(
        (torch.stack((angle.cos(), angle.sin())), torch.stack((-angle.sin(), angle.cos())))
    )
    x, q = draw(1, 60, 3), draw(1, 30, 3, seed=1)
    a, b = (krige(x @ m, wave(x), q @ m, axes=(0, 1, 1)) for m in (torch.eye(3).double(), turn))
    assert torch.allclose(a, b, atol=1e-8)


def test_a_prior_mean_counts_for_what_it_helps() -> None:
    x, q = draw(3, 300, 2), draw(3, 200, 2, seed=1)
    u, truth = wave(x, 20.0), wave(q, 20.0)
    noise = torch.from_numpy(np.random.default_rng(3).standard_normal((3, 500, 1)))

    def near(v: Tensor) -> Tensor:  # wrong by a smooth function
        return 0.1 * wave(v, 2.0)

    good = (u + near(x), truth + near(q))
    bad = (noise[:, :300], noise[:, 300:])
    alone = krige(x, u, q)
    helped, misled = (with_prior(x, u, q, *model) for model in (good, bad))
    assert (helped - truth).abs().mean() < 0.1 * (alone - truth).abs().mean()
    assert (misled - truth).abs().mean() < 1.05 * (alone - truth).abs().mean()
    for at_x, _ in (good, bad):  # the prediction passes through the values all the same
        assert torch.allclose(with_prior(x, u, x, at_x, at_x), u, atol=1e-3)
    # Each sample on its own; and a prior mean of zero is kriging alone.
    mixed = [torch.cat((b[:1], g[1:])) for b, g in zip(bad, good, strict=True)]
    found = with_prior(x, u, q, *mixed)
    assert torch.allclose(found, torch.cat((misled[:1], helped[1:])))
    assert torch.allclose(with_prior(x, u, q, 0 * u, 0 * truth), alone, atol=1e-12)
    # A few observations cannot say much against it.
    one = with_prior(x[:, :1], u[:, :1] * 0 + 1e-3, x[:, :1] + 50, u[:, :1], truth[:, :1])
    assert torch.allclose(one, truth[:, :1], rtol=0.02)


def test_a_prior_mean_is_judged_at_the_queries_not_where_observations_are_dense() -> None:
    # On a grid of few rows, every observation has near neighbours in its row, which predict it
    # well. Between the rows they do not, and the model, which is less good in the rows, is needed.
    rows, columns = torch.linspace(0, 1, 4), torch.linspace(0, 1, 80)
    grid = torch.cartesian_prod(rows, columns)[None].double()
    between = grid[:, :-80] + torch.tensor([1 / 6, 0.0])

    def truth(v: Tensor) -> Tensor:
        return torch.sin(25 * v[..., :1]) * torch.cos(3 * v[..., 1:])

    def model(v: Tensor) -> Tensor:
        return truth(v) + 0.05 * torch.sin(90 * v[..., 1:] + 7 * v[..., :1])

    u, wanted = truth(grid), truth(between)
    alone = krige(grid, u, between, axes=(0, 1))
    helped = with_prior(grid, u, between, model(grid), model(between), axes=(0, 1))
    assert (helped - wanted).abs().mean() < 0.1 * (alone - wanted).abs().mean()


def members(x: Tensor) -> Tensor:
    """Three models of a wave, each wrong in its own way."""
    wrong = [wave(x, 7.0) * (1 - 0.2 * k) + 0.1 * wave(x, 3.0 + k) + 0.2 for k in range(3)]
    return torch.stack(wrong)


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_the_conditional_mean_is_the_formula_written_out(noise: float) -> None:
    """NumPy, one sample and one model at a time, every observation predicted by a solve."""
    x, q, axes = draw(2, 30, 2), draw(2, 12, 2, seed=1), (0, 1)
    errors = torch.from_numpy(np.random.default_rng(2).standard_normal((2, 30, 1)))
    u, at_x, at_q = wave(x, 9.0) + noise * errors, members(x), members(q)
    found = ConditionedModels(x, u, q, at_x, at_q, noise=noise, axes=axes).mean

    def matern_of(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        s = np.sqrt(5) * np.linalg.norm(a[:, None] - b[None], axis=-1)
        return (1 + s + s**2 / 3) * np.exp(-s)

    def fit(x: np.ndarray, u: np.ndarray) -> tuple[np.ndarray, float]:
        best = (-np.inf, np.ones(2), 1.0)

        def attempt(scales: np.ndarray, nugget: float) -> None:
            nonlocal best
            k = matern_of(x / scales, x / scales) + nugget * np.eye(len(x))
            square = float(u @ np.linalg.solve(k, u))
            variance = noise**2 / nugget if noise else square / len(x)
            logdet = np.linalg.slogdet(k)[1]
            likelihood = -len(x) * np.log(variance) - logdet - square / variance
            best = max(best, (likelihood, scales, nugget), key=lambda one: one[0])

        for scale in gp.LENGTH_SCALES:
            for nugget in gp.NUGGETS if noise else (1e-8,):
                attempt(scale * np.ones(2), nugget)
        for factor in gp.FACTORS:
            for k in range(2):
                attempt(best[1] * np.where(np.arange(2) == k, factor, 1.0), best[2])
        return best[1:]

    for b in range(2):
        at, there = x[b].numpy(), q[b].numpy()
        for m in range(3):
            level = float(at_q[m, b].mean())
            means, residuals = [], []
            for here, prior in ((np.full(30, level), np.full(12, level)), (at_x[m, b], at_q[m, b])):
                values = u[b, :, 0].numpy() - np.asarray(here).reshape(-1)
                scales, nugget = fit(at, values)
                measure = scales if not means else measure
                k = matern_of(at / scales, at / scales) + nugget * np.eye(30)
                reach = matern_of(there / scales, at / scales)
                means.append(np.asarray(prior).reshape(-1) + reach @ np.linalg.solve(k, values))
                asked = there[(np.arange(30) * kriging.GOLDEN % 1 * 12).astype(int)]
                radius = np.linalg.norm((asked[:, None] - at) / measure, axis=-1).min(1)
                each = []
                for j in range(30):
                    far = np.linalg.norm((at - at[j]) / measure, axis=-1) >= radius[j]
                    far[j] = False
                    inside = np.linalg.solve(k[far][:, far], values[far])
                    each.append(values[j] - k[j, far] @ inside)
                residuals.append(np.array(each))
            alone, model = residuals
            if noise:
                share = np.clip(alone @ (alone - model) / np.square(alone - model).sum(), 0, 1)
            else:
                share = 1 / (1 + (np.abs(model).sum() / np.abs(alone).sum()) ** 2)
            share = 1 + (share - 1) * 30**2 / (30**2 + kriging.PRIOR_WEIGHT**2)
            expected = (1 - share) * means[0] + share * means[1]
            np.testing.assert_allclose(found[m, b, :, 0], expected, atol=1e-6)


def test_models_at_once_are_each_of_them_and_share_their_covariances(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, q = draw(2, 41, 2), draw(2, 50, 2, seed=1)
    given = (x, wave(x, 9.0), q)
    factored, cholesky = [], torch.linalg.cholesky_ex

    def counted(matrix: Tensor) -> tuple[Tensor, Tensor]:
        factored.append(matrix[..., 0, 0].numel())
        return cholesky(matrix)

    monkeypatch.setattr(torch.linalg, "cholesky_ex", counted)
    each = [
        with_prior(*given, here, there, axes=(0, 1))
        for here, there in zip(members(x), members(q), strict=True)
    ]
    apart = sum(factored)
    factored.clear()
    together = ConditionedModels(*given, members(x), members(q), axes=(0, 1)).mean
    assert torch.allclose(together, torch.stack(each), atol=1e-10)
    assert sum(factored) < 0.6 * apart


def test_cross_validation_predicts_from_all_that_is_not_left_out() -> None:
    x, q = draw(2, 40, 2), draw(2, 500, 2, seed=2)
    u, real = wave(x), torch.ones(2, 40).double()
    real[1, 30:] = 0
    process = GaussianProcess(x, u[None], real, 0.0, None)
    scales = process.by_feature(process.kernels.scales)
    near, left_out = kriging._folds(x / scales, q / scales, real > 0)
    assert near[..., 0].tolist() == [list(range(40))] * 2
    assert left_out[..., 0].all()
    assert 1.2 < left_out[0].sum(1).double().mean() < 4
    found = kriging.cross_validate(process, q, process.kernels.index)[0, ..., 0]
    for b, count in enumerate((40, 30)):
        expected = []
        for k in range(count):
            rest = real[b] > 0
            rest[near[b, k][left_out[b, k]]] = False
            x_rest, x_one = x[b, rest] / scales[b], x[b, k : k + 1] / scales[b]
            ones, nugget = torch.ones(int(rest.sum())), process.kernels.nuggets[b, 0]
            covariance = add_nugget(matern(torch.cdist(x_rest, x_rest)), ones, nugget)
            weights = torch.linalg.solve(covariance, u[b, rest])
            expected.append(u[b, k, 0] - (matern(torch.cdist(x_one, x_rest)) @ weights)[0, 0])
        assert torch.allclose(found[b, :count], torch.stack(expected), rtol=1e-3, atol=1e-7)
        assert not found[b, count:].any()


def test_smooth_functions_reach_further_than_rough_ones_and_none_reaches_far() -> None:
    x = draw(1, 80, 2)
    rough = torch.from_numpy(np.random.default_rng(1).standard_normal((1, 80, 1)))
    beside = x[:, :1] + torch.tensor([0.0, 0.15])
    beside = torch.cat((beside, beside + 50), dim=1)
    near, far = krige(x, wave(x, 2.0), beside)[0, :, 0]
    assert near == pytest.approx(wave(beside, 2.0)[0, 0].item(), abs=0.05)
    assert far == pytest.approx(0, abs=1e-3)
    assert krige(x, rough, beside)[0, 1].abs() < 1e-6


def test_samples_at_once_are_each_of_them_and_padding_counts_for_nothing() -> None:
    x, q = draw(3, 40, 2), draw(3, 25, 2, seed=1)
    u = torch.cat((wave(x), wave(x, 9.0)), -1)
    counts = torch.tensor([40, 1, 23])
    mask = torch.arange(40) < counts[:, None]
    found = krige(x, u, q, mask)
    for k, n in enumerate(counts.tolist()):
        alone = krige(x[k : k + 1, :n], u[k : k + 1, :n], q[k : k + 1])
        assert torch.allclose(found[k], alone[0], atol=1e-9)
    u[~mask], x[~mask] = 1e6, 0.5
    assert torch.allclose(krige(x, u, q, mask), found, atol=1e-9)
    shared = krige(x, u, q[:1], mask)
    assert torch.allclose(shared[0], found[0], atol=1e-12)


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_padding_judges_no_prior_mean(noise: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kriging, "FOLDS", 20)
    x, q = draw(3, 400, 2), draw(3, 25, 2, seed=1)
    u = wave(x) + noise * draw(3, 400, 1, seed=2)
    model = wave(x) + 0.2, wave(q) + 0.2
    counts = torch.tensor([400, 9, 50])
    mask = torch.arange(400) < counts[:, None]
    found = with_prior(x, u, q, *model, mask=mask, noise=noise)
    for k, n in enumerate(counts.tolist()):
        one = (slice(k, k + 1), slice(n))
        here, there = model[0][one], model[1][k : k + 1]
        alone = with_prior(x[one], u[one], q[k : k + 1], here, there, noise=noise)
        assert torch.allclose(found[k], alone[0], atol=1e-6)


def test_observations_may_repeat() -> None:
    x, u = draw(1, 9, 2), draw(1, 9, 1, seed=1)
    twice = krige(torch.cat((x, x), 1), torch.cat((u, u), 1), x)
    assert torch.allclose(twice, u, atol=1e-4)
    assert torch.isfinite(krige(x[:, :1].expand(-1, 5, -1), u[:, :5] * 0, x)).all()


def test_some_observations_give_what_all_of_them_give(monkeypatch: pytest.MonkeyPatch) -> None:
    x, q = draw(2, 300, 2), draw(2, 50, 2, seed=1)
    u, mask = wave(x), torch.arange(300) < torch.tensor([[300], [250]])
    whole = krige(x, u, q, mask)
    monkeypatch.setitem(gp.SCRATCH, "cpu", 2 * 300 * 7)  # seven queries at a time
    assert torch.allclose(krige(x, u, q, mask), whole, atol=1e-10)
    monkeypatch.setattr(kriging, "MAX_POINTS", 200)
    assert torch.allclose(krige(x, u, q, mask), whole, atol=2e-2)
    helped = with_prior(x, u, q, 0.5 * u, 0.5 * wave(q), mask=mask)
    assert torch.allclose(helped, wave(q), atol=2e-2)
    monkeypatch.setattr(gp, "FIT_POINTS", 50)  # fewer observations decide the scale
    assert torch.allclose(krige(x, u, q, mask), whole, atol=2e-2)


def test_stations_that_report_often_are_not_mistaken_for_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Eight places, each with many values in a row: no choice among them may see one place only."""
    monkeypatch.setattr(gp, "FIT_POINTS", 64)
    t, place = torch.meshgrid(torch.linspace(0, 1, 128), torch.linspace(0, 1, 8), indexing="ij")
    q = draw(1, 60, 2, seed=1)

    def error(order: torch.Tensor) -> float:
        x = torch.stack((t, place), -1).double().view(1, -1, 2)[:, order]
        return float((krige(x, wave(x), q, axes=(0, 1)) - wave(q)).abs().mean())

    every = torch.arange(8 * 128)
    by_place = every.view(128, 8).T.flatten()
    reference = error(every)
    assert reference < 0.05
    assert error(by_place) < 2 * reference + 1e-3
    monkeypatch.setattr(kriging, "MAX_POINTS", 512)
    assert error(every) < 2 * reference + 1e-3
    assert error(by_place) < 2 * reference + 1e-3


def test_with_a_prior_mean_the_level_of_the_values_does_not_matter() -> None:
    x, q = draw(1, 60, 2), draw(1, 50, 2, seed=1)
    for level in (300.0, 1e4):
        low, high = (
            with_prior(x, v + wave(x), q, v + 0.3 * wave(x), v + 0.3 * wave(q))
            for v in (0.0, level)
        )
        assert torch.allclose(high - level, low, atol=1e-7)
        constant = torch.full_like(wave(x), level)
        passed = with_prior(x, level + wave(x), x, constant, constant)
        assert torch.allclose(passed - level, wave(x), atol=1e-4)


def test_padding_takes_no_place_among_those_that_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    x, q = draw(1, 40, 2), draw(1, 50, 2, seed=1)
    alone = krige(x, wave(x), q)
    padded = torch.cat((x, draw(1, 400, 2, seed=2)), 1)
    monkeypatch.setattr(gp, "FIT_POINTS", 60)
    for name in ("CV_POINTS", "MAX_POINTS"):
        monkeypatch.setattr(kriging, name, 60)
    found = krige(padded, wave(padded), q, torch.arange(440)[None] < 40)
    assert torch.allclose(found, alone, atol=1e-6)


@pytest.mark.parametrize("noise", [0.01, 0.05, 0.3])
def test_errors_are_smoothed_about_as_well_as_they_could_be(noise: float) -> None:
    x, q = draw(1, 300, 2), draw(1, 500, 2, seed=1)
    errors = torch.from_numpy(np.random.default_rng(2).standard_normal((1, 300, 1)))
    u, truth = wave(x) + noise * errors, wave(q)
    exact, smooth = ((krige(x, u, q, noise=s) - truth).abs().mean() for s in (0.0, noise))
    real = torch.ones(1, 300, dtype=torch.float64)
    best = torch.inf
    for scale in gp.LENGTH_SCALES:
        for nugget in gp.NUGGETS:
            k = add_nugget(matern(torch.cdist(x, x) / scale), real, 0 * real[:, 0] + nugget)
            reach = matern(torch.cdist(q, x) / scale)
            best = min(best, (reach @ torch.linalg.solve(k, u) - truth).abs().mean())
    assert smooth < 1.25 * best
    assert smooth < 0.7 * exact


@pytest.mark.parametrize("noise", [0.05, 0.3])
def test_noise_of_the_observations_is_not_held_against_a_prior_mean(noise: float) -> None:
    x, q = draw(1, 300, 2), draw(1, 500, 2, seed=1)
    u = wave(x) + noise * torch.from_numpy(np.random.default_rng(2).standard_normal((1, 300, 1)))
    alone = krige(x, u, q, noise=noise)
    guided = with_prior(x, u, q, wave(x), wave(q), noise=noise)
    errors = [(predicted - wave(q)).abs().mean() for predicted in (alone, guided)]
    assert errors[1] < 0.45 * errors[0]
