"""Points that a training step leaves out: the same number, at random, and never all of a sample."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lno import Fields, Operator, Recipe, Steady
from lno.tasks.task import without_points


def grid_fields(samples: int = 6) -> Fields:
    x = np.stack(np.meshgrid(*[np.linspace(0, 1, 6)] * 2, indexing="ij"), -1).reshape(36, 2)
    u = np.random.default_rng(0).normal(size=(samples, 1, 1)) + x[:, :1]
    return Fields(x, u, y=u**2, grid=(6, 6))


def test_what_remains_belongs_together() -> None:
    batch = grid_fields().batch([0, 1, 2])
    some = without_points(batch, 0.25, torch.Generator().manual_seed(1))
    assert some.x_query is some.x and some.y is not None and some.x.shape[1] == 27
    torch.testing.assert_close(some.y, some.u**2)
    torch.testing.assert_close(some.u - some.x[..., :1], (batch.u - batch.x[..., :1])[:, :27])
    elsewhere = Fields(np.zeros((5, 1)), np.ones((2, 5, 1)), np.zeros((9, 1)), np.ones((2, 9, 1)))
    kept = without_points(elsewhere.batch([0, 1]), 0.4, torch.Generator())
    assert (kept.x.shape[1], kept.x_query.shape[1]) == (3, 9)  # queries elsewhere stay


def test_every_step_draws_others_and_all_come() -> None:
    batch, generator = grid_fields().batch([0]), torch.Generator().manual_seed(0)
    seen = [without_points(batch, 0.5, generator).x[0] for _ in range(20)]
    assert not torch.equal(seen[0], seen[1])
    assert len(torch.cat(seen).unique(dim=0)) == 36


def test_no_sample_loses_all_of_its_points() -> None:
    sizes = (1, 40)
    x = [np.random.default_rng(n).uniform(size=(n, 2)) for n in sizes]
    batch = Fields(x, [v[:, :1] for v in x], y=[v[:, 1:] for v in x]).batch([0, 1])
    for seed in range(20):
        some = without_points(batch, 0.9, torch.Generator().manual_seed(seed))
        assert some.mask is not None and bool(some.mask.any(1).all())


def test_a_model_that_needs_the_whole_grid_says_so_and_names_others() -> None:
    keys = {"recipe": Recipe(epochs=1, point_dropout=0.3), "device": "cpu", "progress": False}
    with pytest.raises(ValueError, match=r"needs every point of the grid.*point_dropout.*use lno"):
        Operator.fit(grid_fields(), model="fno", config={"width": 8, "modes": 2}, **keys)
    for value in (-0.1, 1.0):
        with pytest.raises(ValueError, match=r"Recipe\.point_dropout"):
            Recipe(point_dropout=value)


def test_predictions_are_made_from_all_points() -> None:
    """Unlike training, which sees a part of them."""
    data, small = grid_fields(), {"width": 16, "latents": 8, "rounds": 1}
    recipe = Recipe(epochs=2, point_dropout=0.5)
    op = Operator.fit(
        data, model="lno_plus", config=small, recipe=recipe, device="cpu", progress=False
    )
    assert op.predict(data).shape == (6, 36, 1)
    assert op.task == Steady()
