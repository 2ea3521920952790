from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny
import torch

from lno import Completion, Fields, Operator, RandomRatio, Recipe
from lno.data import Batch, Spec
from lno.data.observe import Window
from lno.data.symmetry import RandomSymmetry, Symmetry, square
from lno.metrics import METRICS
from lno.models import LNO, LNOConfig
from lno.problems import Burgers, Darcy
from lno.problems.make import make
from lno.problems.ns2d import flow_symmetries
from lno.tasks import Propagation, Steady
from lno.training.loop import next_batches
from lno.training.samples import Samples
from lno.training.state import Training
from lno.training.step import Loss, differences


@pytest.fixture(scope="module")
def darcy() -> Fields:
    return make(Darcy(grid=29, every=4), 12, seed=0)


def images(symmetries: tuple[Symmetry, ...], data: Fields, draws: int = 60) -> set[int]:
    """Draw images of the samples, check each against its symmetry, and tell which were drawn."""
    scale = Steady().normalizers(data)
    augment, generator = RandomSymmetry(symmetries, data, scale), torch.Generator().manual_seed(0)
    batch, seen = scale.encode(data.batch([0, 1])), set()
    u, y = (np.asarray(v).reshape(-1, *data.grid, v.shape[-1])[:2] for v in (data.u, data.y))
    for _ in range(draws):
        drawn = augment.draw(batch, generator)
        for k in range(2):
            got_u, got_y = scale.u.decode(drawn.u[k]).numpy(), scale.y.decode(drawn.y[k]).numpy()
            found = [
                j
                for j, g in enumerate(symmetries)
                for a, b in [g(u[k], y[k])]
                if np.allclose(got_u, a.reshape(got_u.shape), atol=1e-4)
                and np.allclose(got_y, b.reshape(got_y.shape), atol=1e-4)
            ]
            assert found, "an image that is none of the symmetries'"
            seen |= set(found)
    return seen


def test_every_symmetry_of_the_square_is_drawn(darcy: Fields) -> None:
    scaled = Fields(darcy.x, darcy.u, y=100 * np.asarray(darcy.y), grid=darcy.grid)
    assert images(square(), scaled) == set(range(8))


def test_signs_change_physical_values_not_encoded_ones() -> None:
    random = np.random.default_rng(0)
    x = np.stack(np.meshgrid(*[np.arange(8) / 8] * 2, indexing="ij"), -1).reshape(-1, 2)
    u, y = random.normal(3.0, 1.0, (2, 4, 64, 2))  # far from zero mean
    data = Fields(x, u, y=y, grid=(8, 8), period=(1.0, 1.0))
    assert len(images(flow_symmetries(8), data)) > 16


def test_what_is_observed_moves_with_the_outputs() -> None:
    """A propagator observes a part of the field: both belong to one and the same image."""
    data = make(Burgers(grid=32), 3, seed=0)
    task, window = Propagation(Window("t", 0.25, 0.75)), slice(8, 24)
    prepared = task.prepare(data)
    scale = task.normalizers(prepared)
    augment = RandomSymmetry(Burgers.symmetries, prepared, scale)
    batch, generator = scale.encode(prepared.batch([0, 1, 2])), torch.Generator().manual_seed(0)
    seen = set()
    for _ in range(20):
        drawn = augment.draw(batch, generator)
        for k in range(3):
            field = scale.y.decode(drawn.y[k]).view(32, 32)
            observed = scale.u.decode(drawn.u[k]).view(16, 32)
            assert torch.equal(field[window], observed)
            seen.add(round(float(field.sum()), 3) > 0)
    assert seen == {True, False}, "of both signs"
    turn = Symmetry("turn", ((0, 1), (-1, 0)), (0, 1))
    with pytest.raises(ValueError, match="move observed points to others that are not observed"):
        RandomSymmetry([turn], prepared, scale)
    with pytest.raises(ValueError, match="turn: expected a square grid, got 16 × 32"):
        RandomSymmetry([turn], Completion(RandomRatio(0.1), task.window).prepare(data), scale)


def test_completions_are_drawn_from_images_of_the_fields() -> None:
    data = make(Burgers(grid=32), 3, seed=0)
    task = Completion(RandomRatio(0.05), Window("t", 0.25, 0.75))
    prepared = task.prepare(data)
    scale = task.normalizers(prepared)
    batch = scale.encode(prepared.batch([0, 1, 2]))
    generator = torch.Generator().manual_seed(0)
    image = RandomSymmetry(Burgers.symmetries, prepared, scale).draw(batch, generator)
    observed = task.observe(image, prepared.grid, generator)
    for k in range(3):
        at = (observed.x[k][:, None] == image.x_query[0]).all(-1).nonzero()[:, 1]
        assert torch.equal(observed.u[k], image.y[k][at])
    # So it is in training: what a step reads are values of images, not of the fields themselves.
    model, cpu = LNO(Spec(3, 1, 1), LNOConfig(**tiny.LNO)), torch.device("cpu")
    fields = scale.y.decode(batch.y).view(3, *prepared.grid, 1)
    every = torch.cat([g(fields, fields)[1] for g in Burgers.symmetries]).flatten(1)
    for symmetries, possible in ((Burgers.symmetries, every), ((), fields.flatten(1))):
        training = Training(
            [model], task, scale, Recipe(batch=3), prepared, None, cpu, 0, symmetries=symmetries
        )
        [drawn], _ = next_batches(training, Samples(prepared, scale, cpu))
        plain = (drawn.y[:, None] - batch.y).abs().amax((2, 3)).amin(1) < 1e-4
        assert plain.all() != bool(symmetries)
        for k in range(3):
            at = (drawn.x[k][:, None] == drawn.x_query[0]).all(-1).nonzero()[:, 1]
            sensors = scale.y.decode(drawn.u[k])[:, 0]
            matches = torch.isclose(possible[:, at], sensors, atol=1e-4).all(1)
            image = possible[matches.nonzero()[0, 0]]
            assert torch.allclose(scale.y.decode(drawn.y[k])[:, 0], image, atol=1e-4)


def test_training_on_symmetries_helps_on_images_of_the_samples() -> None:
    """Bumps in one corner are trained on, bumps in all corners are predicted."""
    random, side = np.random.default_rng(0), np.linspace(0, 1, 8)
    x = np.stack(np.meshgrid(side, side, indexing="ij"), -1).reshape(-1, 2)
    centres = random.uniform(0, 0.4, (12, 1, 2))
    u = np.exp(-20 * ((x - centres) ** 2).sum(-1, keepdims=True))
    data = Fields(x, u, y=u + 1, grid=(8, 8))
    moved = np.concatenate([g(v := u.reshape(12, 8, 8, 1), v)[0] for g in square()])
    moved = moved.reshape(-1, 64, 1)
    images = Fields(x, moved, y=moved + 1, grid=(8, 8))
    keys = {"recipe": Recipe(epochs=40, learning_rate=5e-3, batch=4), "config": tiny.LNO}
    keys |= {"progress": False, "device": "cpu", "validation": 0.0}
    errors = [
        Operator.fit(data, symmetries=g, **keys).evaluate(images)["relative_l2"]
        for g in (square(), ())
    ]
    assert errors[0] < 0.7 * errors[1]


def test_training_on_symmetries_resumes(darcy: Fields, tmp_path: Path) -> None:
    keys = {"recipe": Recipe(epochs=3), "config": tiny.LNO, "progress": False, "device": "cpu"}
    keys |= {"symmetries": Darcy.symmetries}
    whole = Operator.fit(darcy, **keys)
    Operator.fit(darcy, folder=tmp_path, pause_after=1e-9, **keys)
    with pytest.raises(ValueError, match="symmetries was"):
        Operator.fit(darcy, folder=tmp_path, resume=True, **{**keys, "symmetries": ()})
    resumed = Operator.fit(darcy, folder=tmp_path, resume=True, **keys)
    assert np.array_equal(resumed.predict(darcy), whole.predict(darcy))


def test_symmetries_need_a_grid_of_two_axes_or_a_cloud(darcy: Fields) -> None:
    keys = {"epochs": 1, "config": tiny.LNO, "progress": False, "symmetries": Darcy.symmetries}
    line = Fields(darcy.x, darcy.u, y=darcy.y, grid=(len(darcy.x),))
    with pytest.raises(ValueError, match="grids of two axes"):
        Operator.fit(line, **keys)
    apart = Fields(darcy.x, darcy.u, np.asarray(darcy.x) / 2, darcy.y, grid=darcy.grid)
    with pytest.raises(ValueError, match="at points where outputs are given"):
        Operator.fit(apart, **keys)


def test_on_a_cloud_the_points_move() -> None:
    """The image has at x what was at M x + shift."""
    random = np.random.default_rng(0)
    x = random.uniform(size=(3, 40, 2))
    u, y = (np.stack([f(p[..., :1], p[..., 1:]) for p in x]) for f in (np.hypot, np.arctan2))
    data = Fields(x, u, y=y)
    scale = Steady().normalizers(data)
    augment, batch = RandomSymmetry(square(), data, scale), scale.encode(data.batch([0, 1, 2]))
    generator, seen = torch.Generator().manual_seed(0), set()
    for _ in range(20):
        drawn = augment.draw(batch, generator)
        assert drawn.x_query is drawn.x
        assert torch.allclose(drawn.u, batch.u, atol=1e-5)
        moved = scale.x.scale.decode(drawn.x).numpy()
        for k in range(3):
            found = [
                j
                for j, g in enumerate(square())
                if np.allclose(moved[k] @ np.array(g.matrix).T + np.array(g.shift), x[k], atol=1e-5)
            ]
            assert found, "an image that is none of the symmetries'"
            seen |= set(found)
    assert seen == set(range(8))


def test_differences_are_exact_for_quadratic_functions() -> None:
    i, j = np.meshgrid(np.arange(5.0), np.arange(4.0), indexing="ij")
    field = torch.from_numpy(i**2 + 3 * i * j).reshape(1, 20, 1)
    got = differences(field, (5, 4)).flatten().numpy()
    inner_i, inner_j = i[1:-1, 1:-1].ravel(), j[1:-1, 1:-1].ravel()
    expected = np.concatenate((2 * (2 * inner_i + 3 * inner_j), 2 * 3 * inner_i))
    np.testing.assert_allclose(got, expected)


def test_the_gradient_loss_is_added_and_needs_a_grid(darcy: Fields) -> None:
    def first_loss(**recipe: object) -> float:
        settings = Recipe(epochs=1, batch=12, **recipe)  # type: ignore[arg-type]
        operator = Operator.fit(
            darcy, recipe=settings, config=tiny.LNO, validation=0.0, progress=False, device="cpu"
        )
        return operator.provenance["curve"][0]["loss"]

    plain, half, whole = (first_loss(gradient=g) for g in (0.0, 0.5, 1.0))
    assert plain < half < whole
    assert whole - plain == pytest.approx(2 * (half - plain), rel=1e-4)
    bare = Fields(darcy.x, darcy.u, y=darcy.y)
    with pytest.raises(ValueError, match="needs data on a grid"):
        Operator.fit(bare, recipe=Recipe(epochs=1, gradient=0.1), config=tiny.LNO, progress=False)
    for part in ({"queries": 10}, {"point_dropout": 0.1}):
        with pytest.raises(ValueError, match="needs the whole grid in every step"):
            Recipe(gradient=0.1, **part)


def loss_of(batch: Batch, **recipe: object) -> tuple[float, torch.Tensor, torch.Tensor]:
    """A loss, and prediction and target in physical units, of a random model."""
    torch.manual_seed(0)
    model = LNO(Spec(1, 1, 1), LNOConfig(**tiny.LNO)).double()
    values = np.array([[[3.0], [7.0]]])  # mean 5, standard deviation 2
    data, task = Fields(np.array([[0.0], [1.0]]), values, y=values), Steady()
    scale, settings = task.normalizers(data), Recipe(**recipe)  # type: ignore[arg-type]
    cpu = torch.device("cpu")
    training = Training([model], task, scale, settings, data, None, cpu, 0)
    physical = [scale.y.decode(v) for v in (model(batch.x, batch.u, batch.x_query), batch.y)]
    return Loss(model, training)(batch).item(), *physical


def random_batch() -> Batch:
    random = torch.Generator().manual_seed(0)
    x, u, q, y = torch.randn(4, 3, 6, 1, generator=random, dtype=torch.float64)
    return Batch(x, u, q, 0.05 * y)


@pytest.mark.parametrize("name", METRICS)
def test_a_query_point_of_twice_the_weight_counts_like_two(name: str) -> None:
    plain, counts = random_batch(), torch.tensor([1, 2, 1, 3, 1, 1])
    repeated = plain.at_queries(torch.arange(6).repeat_interleave(counts))
    weighted = replace(plain, query_weights=0.1 * counts[None].double())
    expected = loss_of(repeated, loss=name)[0]
    assert loss_of(weighted, loss=name, weighted=True)[0] == pytest.approx(expected, rel=1e-9)
    unweighted = loss_of(plain, loss=name)[0]
    assert unweighted != pytest.approx(expected, rel=1e-3)
    assert loss_of(weighted, loss=name)[0] == unweighted, "weights count only where asked"


def test_an_observed_point_of_twice_the_weight_counts_like_two() -> None:
    plain, counts = random_batch(), torch.tensor([1, 2, 1, 3, 1, 1])
    repeated = plain.at_points(torch.arange(6).repeat_interleave(counts))
    weighted = replace(plain, weights=0.1 * counts[None].double())
    expected = loss_of(repeated)[0]
    assert loss_of(weighted, weighted=True)[0] == pytest.approx(expected, rel=1e-6)
    assert loss_of(weighted)[0] != pytest.approx(expected, rel=1e-3)


def test_the_loss_in_physical_units_includes_the_background() -> None:
    plain = random_batch()
    background = torch.full_like(plain.y, 100.0)
    loss, prediction, target = loss_of(replace(plain, background=background), physical=True)
    expected = METRICS["relative_l2"](prediction + background, target + background).mean()
    assert loss == pytest.approx(expected.item(), rel=1e-6)
    assert loss < 0.1 * loss_of(plain, physical=True)[0]
