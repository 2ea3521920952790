"""The learned covariance of residuals: the formula, sensors, noise, and what it is chosen by."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from lno import Completion, Fields, Operator, RandomRatio
from lno.kernel_methods.covariance import NUGGETS, Covariance, FieldsAtPoints, Residuals
from lno.kernel_methods.gaussian_process import LENGTH_SCALES

LEARNED = Covariance((0.3, 0.9), nugget=0.2, variance=2.0)


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).uniform(size=shape))


def matern(a: np.ndarray, b: np.ndarray, scales: np.ndarray | float) -> np.ndarray:
    s = np.sqrt(5) * np.linalg.norm((a[:, None] - b[None]) / scales, axis=-1)
    return (1 + s + s**2 / 3) * np.exp(-s)


@pytest.mark.parametrize("noise", [0.0, 0.5])
@pytest.mark.parametrize("sample", [False, True])
def test_the_correction_is_the_formula_written_out(noise: float, sample: bool) -> None:
    x, q, values = draw(1, 25, 2), draw(1, 7, 2, seed=1), draw(3, 1, 25, 1, seed=2)
    at, there = x[0].numpy(), q[0].numpy()
    learned, s, s_query, s_own = LEARNED, np.ones((25, 25)), np.ones((7, 25)), np.ones(7)
    if sample:
        points = np.concatenate((at, there))
        known = np.random.default_rng(5).normal(size=(9, 32))
        learned = replace(LEARNED, fields=FieldsAtPoints(points, known))
        whole = known.T @ known
        whole /= np.diagonal(whole).mean()
        s, s_query, s_own = whole[:25, :25], whole[25:, :25], np.diagonal(whole)[25:]
    covariance = 2.0 * (s * matern(at, at, LEARNED.scales) + 0.2 * np.eye(25))
    covariance += noise**2 * np.eye(25)
    between = 2.0 * s_query * matern(there, at, LEARNED.scales)
    found, left = learned.correct(x, values, q, noise=noise, axes=(0, 1))
    solved = np.linalg.solve(covariance, values[:, 0, :, 0].numpy().T)
    np.testing.assert_allclose(found[:, 0, :, 0].numpy().T, between @ solved, rtol=1e-6)
    rest = 2.0 * (s_own + 0.2) - (between * np.linalg.solve(covariance, between.T).T).sum(1)
    np.testing.assert_allclose(left[0, :, 0].numpy(), np.sqrt(rest), rtol=1e-6)


def test_corrected_predictions_pass_through_exact_sensors() -> None:
    x, residuals = draw(2, 30, 2), draw(1, 2, 30, 1, seed=1)
    found, left = LEARNED.correct(x, residuals, x, axes=(0, 1))
    torch.testing.assert_close(found, residuals, atol=1e-6, rtol=1e-6)
    _, beside = LEARNED.correct(x, residuals, x + 0.01, axes=(0, 1))
    assert (left < 0.01 * beside).all()  # what varies below all distances is not known there


def test_padding_and_shared_positions_do_not_change_the_correction() -> None:
    x, residuals, q = draw(1, 30, 2), draw(1, 2, 30, 1, seed=1), draw(1, 9, 2, seed=2)
    whole = LEARNED.correct(x, residuals, q, axes=(0, 1))
    more = [torch.cat((v, 1 + v[..., :5, :]), -2) for v in (x, residuals)]
    mask = (torch.arange(35) < 30)[None].expand(2, -1)
    for a, b in zip(LEARNED.correct(*more, q, mask, axes=(0, 1)), whole, strict=True):
        torch.testing.assert_close(a, b)


def fields(count: int, seed: int, scale: float, nugget: float) -> list[Residuals]:
    random = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        x = random.uniform(0, 3, size=(60, 2))
        covariance = matern(x, x, scale) + nugget * np.eye(60)
        v = np.linalg.cholesky(covariance) @ random.standard_normal((60, 1))
        x, v = torch.from_numpy(x), torch.from_numpy(v)
        found.append(Residuals(x[:30], v[:30], x[30:], v[30:]))
    return found


def test_no_candidate_has_less_error_where_there_is_no_sensor() -> None:
    known = fields(12, 0, scale=0.5, nugget=0.4)
    found = Covariance.fit(known, (0, 1))

    def error(scales: tuple[float, ...], nugget: float) -> float:
        total = 0.0
        for one in known:
            x, v, q, truth = (part.numpy() for part in one)
            k = matern(x, x, np.array(scales)) + nugget * np.eye(len(x))
            total += np.square(truth - matern(q, x, np.array(scales)) @ np.linalg.solve(k, v)).sum()
        return total

    best = error(found.scales, found.nugget)
    for scale in LENGTH_SCALES:
        assert all(error((scale, scale), nugget) >= best * (1 - 1e-9) for nugget in NUGGETS)


def test_white_residuals_are_not_spread() -> None:
    """A nugget takes them: a correction by chance would make everything worse."""
    found = Covariance.fit(fields(30, 1, scale=0.01, nugget=0.0))
    for one in fields(10, 2, scale=0.01, nugget=0.0):
        given = (one.x[None], one.at_sensors[None, None], one.x_others[None])
        assert found.correct(*given)[0].abs().mean() < 0.25


def test_the_sample_covariance_is_taken_where_it_is_better() -> None:
    """Fields of two patterns: a sensor tells of far points what no distance does."""
    random = np.random.default_rng(3)
    x, patterns = random.uniform(0, 9, size=(80, 2)), random.normal(size=(2, 80))
    draws = random.normal(size=(70, 2)) @ patterns
    known = FieldsAtPoints(x, draws[:50] - draws[:50].mean(0))
    held_out = [
        Residuals(*(torch.from_numpy(v) for v in (x[:40], f[:40, None], x[40:], f[40:, None])))
        for f in draws[50:]
    ]
    found = Covariance.fit(held_out, None, known)
    assert found.fields is known
    alone = Covariance.fit(held_out)
    errors = []
    for learned in (found, alone):
        added = [
            learned.correct(r.x[None], r.at_sensors[None, None], r.x_others[None])[0]
            for r in held_out
        ]
        pairs = zip(added, held_out, strict=True)
        errors.append(sum(float((a[0, 0] - r.at_others).square().sum()) for a, r in pairs))
    assert errors[0] < 0.1 * errors[1]
    with pytest.raises(ValueError, match="expected 80 points, got 79"):
        FieldsAtPoints(x, draws[:, :79])


def test_mistakes_are_refused() -> None:
    with pytest.raises(ValueError, match="expected those of at least one field, got none"):
        Covariance.fit([])
    with pytest.raises(ValueError, match=r"Covariance\.nugget"):
        Covariance((1.0,), -1.0, 1.0)
    with pytest.raises(ValueError, match=r"Covariance\.scales"):
        Covariance((0.0,), 0.1, 1.0)


def operator() -> Operator:
    """Fields of a smooth wave and as much white noise, which no sensor tells of its neighbours."""
    random, side = np.random.default_rng(0), np.linspace(0, 1, 12)
    x = np.stack(np.meshgrid(side, side, indexing="ij"), -1).reshape(-1, 2)
    phase = random.uniform(0, 6, size=(60, 1))
    y = np.sin(3 * x.sum(1) + phase) + 0.5 * random.standard_normal((60, 144))
    small = {"width": 16, "latents": 8, "blocks": 1, "heads": 2}
    return Operator.fit(
        Fields(x, y=y[..., None]),
        task=Completion(RandomRatio(0.3)),
        conditional=True,
        config=small,
        epochs=2,
        validation=0.4,
        device="cpu",
        progress=False,
    )


def test_rough_fields_get_a_nugget_which_the_file_keeps(tmp_path: Path) -> None:
    op = operator()
    assert op.covariance is not None and op.covariance.nugget > 0.01
    op.save(tmp_path / "a.safetensors")
    assert Operator.load(tmp_path / "a.safetensors", device="cpu").covariance == op.covariance
    wrong = replace(op, covariance=LEARNED)
    wrong.covariance = replace(LEARNED, scales=(0.3, 0.3, 0.3))
    wrong.save(tmp_path / "b.safetensors")
    with pytest.raises(ValueError, match=r"expected 2, one for each coordinate"):
        Operator.load(tmp_path / "b.safetensors", device="cpu")
