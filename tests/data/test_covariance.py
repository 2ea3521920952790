"""The learned covariance of residuals: the formula, sensors, noise, and what it is chosen by."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from lno import Completion, Fields, Operator, RandomRatio
from lno.data.covariance import NUGGETS, Covariance, Residuals
from lno.data.gaussian_process import LENGTH_SCALES, GaussianProcess
from lno.data.krige import ConditionedModels

LEARNED = Covariance((0.3, 0.9), nugget=0.2, variance=2.0)


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).uniform(size=shape))


def matern(a: np.ndarray, b: np.ndarray, scales: np.ndarray | float) -> np.ndarray:
    s = np.sqrt(5) * np.linalg.norm((a[:, None] - b[None]) / scales, axis=-1)
    return (1 + s + s**2 / 3) * np.exp(-s)


@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_the_correction_is_the_formula_written_out(noise: float) -> None:
    x, q, values = draw(1, 25, 2), draw(1, 7, 2, seed=1), draw(2, 1, 25, 1, seed=2)
    process = GaussianProcess(x, values, torch.ones(1, 25).double(), noise, (0, 1), LEARNED, 1)
    at, there, v = x[0].numpy(), q[0].numpy(), values[1, 0].numpy()
    covariance = 2.0 * (matern(at, at, LEARNED.scales) + 0.2 * np.eye(25)) + noise**2 * np.eye(25)
    expected = 2.0 * matern(there, at, LEARNED.scales) @ np.linalg.solve(covariance, v)
    np.testing.assert_allclose(process(q)[1, 0].numpy(), expected, rtol=1e-9)
    alone = GaussianProcess(x, values[:1], torch.ones(1, 25).double(), noise, (0, 1))
    np.testing.assert_allclose(process(q)[0], alone(q)[0], rtol=1e-9)  # of the other functions


def test_predictions_pass_through_exact_sensors_all_the_same() -> None:
    x, u = draw(2, 30, 2), draw(2, 30, 1, seed=1)
    model = torch.zeros(1, 2, 30, 1).double()
    here, beside = (
        ConditionedModels(x, u, q, model, model, axes=(0, 1), learned=LEARNED)
        for q in (x, x + 0.01)
    )
    assert torch.allclose(here.mean[0], u, atol=1e-4)
    # What varies below all distances is not known beside a sensor.
    assert (here.deviation() < 0.1 * beside.deviation()).all()


def test_padding_does_not_change_the_correction() -> None:
    x, u, q = draw(1, 30, 2), draw(1, 30, 1, seed=1), draw(1, 9, 2, seed=2)
    here, there = torch.sin(9 * x[..., :1])[None], torch.sin(9 * q[..., :1])[None]
    whole = ConditionedModels(x, u, q, here, there, axes=(0, 1), learned=LEARNED).mean
    more = [torch.cat((v, 1 + v[..., :5, :]), -2) for v in (x, u, here)]
    mask = (torch.arange(35) < 30)[None]
    given = (more[0], more[1], q, more[2], there, mask, 0.0, (0, 1), LEARNED)
    assert torch.allclose(ConditionedModels(*given).mean, whole, atol=1e-9)


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
    corrections = []
    for one in fields(10, 2, scale=0.01, nugget=0.0):
        real = torch.ones(1, 30).double()
        given = (one.x[None], one.at_sensors[None, None], real, 0.0, None)
        process = GaussianProcess(*given, found, 1)
        corrections.append(process(one.x_others[None]).abs().mean())
    assert max(corrections) < 0.25


def test_mistakes_are_refused() -> None:
    with pytest.raises(ValueError, match="expected residuals in at least one field, got none"):
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
    with pytest.raises(
        ValueError, match=r"expected 2, one for each coordinate"
    ):
        Operator.load(tmp_path / "b.safetensors", device="cpu")
