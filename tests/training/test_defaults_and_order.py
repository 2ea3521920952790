"""The rule for defaults, early stopping, and the order of samples of different sizes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from lno import Completion, Fields, Operator, RandomRatio, Recipe, Rollout, Steady
from lno.models import LNOConfig, LNOPlusConfig
from lno.training.best import PATIENCE
from lno.training.defaults import MEDIUM, SMALL, choose, rollout_for
from lno.training.order import epoch_order

X = np.linspace(0, 1, 16)[:, None]
TINY = {"width": 8, "latents": 4, "blocks": 1, "heads": 2}


def lines(samples: int = 30, points: int = 16, **more: object) -> Fields:
    x = np.linspace(0, 1, points)[:, None]
    slope = np.random.default_rng(0).normal(size=(samples, 1, 1))
    return Fields(x, slope * x, y=slope * x**2, **more)


@pytest.mark.parametrize(
    ("shared", "device", "config"),
    [
        (True, "cpu", replace(MEDIUM, octaves=0)),
        (False, "cpu", MEDIUM),
        (True, "cuda", LNOPlusConfig(octaves=0)),
        (False, "cuda", LNOPlusConfig()),
    ],
)
def test_sizes_follow_from_points_and_device(shared: bool, device: str, config: object) -> None:
    data = lines(9)
    if not shared:
        data = data.replace(x=np.random.default_rng(1).uniform(size=(9, 16, 1)))
    found = choose(data, Steady(), device)
    assert (found.model, found.config) == ("lno_plus", config)


def test_fields_observed_at_some_points_have_lno_and_a_subset_of_queries() -> None:
    task = Completion(RandomRatio(0.1))
    found = choose(lines(400, 3000), task)
    assert (found.model, found.config) == ("lno", SMALL)
    assert (found.recipe.queries, found.recipe.loss) == (1024, "relative_mae")
    assert choose(lines(400, 3000), Steady()).recipe.queries is None  # LNO+ reads all of them


@pytest.mark.parametrize(("samples", "batch"), [(20, 4), (499, 4), (500, 8), (2000, 16)])
def test_about_ten_thousand_steps(samples: int, batch: int) -> None:
    recipe = choose(lines(samples), Steady()).recipe
    assert recipe.batch == batch
    assert recipe.epochs * -(-samples // batch) == pytest.approx(10_000, rel=0.05)


def test_weights_of_points_are_used_where_there_are_any() -> None:
    assert not choose(lines(), Steady()).recipe.weighted
    assert choose(lines(weights=np.ones(16)), Steady()).recipe.weighted


def test_many_points_that_all_samples_share_are_not_learned_by_heart() -> None:
    x = np.linspace(0, 1, 200)[:, None]
    shared = Fields(x, y=np.zeros((9, 200, 1)), parameters=np.arange(9.0)[:, None])
    own = Fields(np.broadcast_to(x, (9, 200, 1)).copy(), y=np.zeros((9, 200, 1)))
    sensors = Completion(RandomRatio(0.1))
    found = [
        choose(data, task, model=model).recipe.point_dropout
        for data, task, model in (
            (shared, Steady(), None),
            (lines(), Steady(), None),  # 16 points are few
            (own, Steady(), None),
            (shared, sensors, None),  # which are drawn at random anyway
            (shared, Steady(), "transolver"),
        )
    ]
    assert found == [0.3, 0.0, 0.0, 0.0, 0.0]
    decays = [
        choose(shared, Steady(), model=model).recipe.weight_decay for model in (None, "transolver")
    ]
    assert decays == [0.1, Recipe().weight_decay]
    assert choose(own, Steady()).recipe.weight_decay == Recipe().weight_decay
    changed = Recipe(queries=5, point_dropout=0.3).changed({"gradient": 0.1})
    assert (changed.queries, changed.point_dropout) == (None, 0.0)


def test_points_of_a_grid_that_resolves_the_outputs_move() -> None:
    """In place of dropout, decay and coarse features, which rough fields and clouds keep."""
    smooth = lines(9, 200, grid=(200,))
    rough = smooth.replace(y=np.random.default_rng(0).normal(size=(9, 200, 1)))
    frames = Fields(smooth.x, smooth.u, y=np.zeros((9, 200, 2)), grid=(200,))
    kept = (0.0, 0.3, 0.1, 0)
    for data, task, expected in (
        (smooth, Steady(), (0.5, 0.0, Recipe().weight_decay, MEDIUM.octaves)),
        (rough, Steady(), kept),
        (lines(9, 200), Steady(), kept),  # not known to be a grid
        (frames, Rollout(2), kept),
    ):
        found = choose(data, task)
        recipe, config = found.recipe, found.config
        assert isinstance(config, LNOPlusConfig)
        got = (recipe.jitter, recipe.point_dropout, recipe.weight_decay, config.octaves)
        assert got == expected
    few = choose(lines(9, 16, grid=(16,)), Steady())
    assert few.recipe.jitter == 0.0 and few.config == replace(MEDIUM, octaves=0)
    assert choose(smooth, Steady(), model="transolver").recipe.jitter == 0.0
    assert choose(smooth, Completion(RandomRatio(0.1))).recipe.jitter == 0.0


def test_models_that_need_the_grid_are_trained_on_it_by_default() -> None:
    """What the rule chose for other sizes of the model gives way; what was asked for does not."""
    x = np.stack(np.meshgrid(*[np.linspace(0, 1, 12)] * 2, indexing="ij"), -1).reshape(144, 2)
    data = Fields(x, np.ones((4, 1, 1)) * x[:, :1], y=np.ones((4, 1, 1)) * x[:, 1:], grid=(12, 12))
    sizes = {"width": 8, "latents": 4, "rounds": 1, "local": 3}
    how = {"model": "lno_plus", "config": sizes, "device": "cpu", "progress": False, "epochs": 1}
    used = Operator.fit(data, **how).provenance["recipe"]
    assert (used["jitter"], used["point_dropout"]) == (0.0, 0.0)
    for asked in ({"jitter": 0.5}, {"point_dropout": 0.3}, Recipe(jitter=0.5)):
        with pytest.raises(ValueError, match=r"needs .* the grid"):
            Operator.fit(data, recipe=asked, **how)


@pytest.mark.parametrize(("interval", "increments"), [(0.2, True), (3.0, False)])
@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_rollouts_learn_increments_where_frames_change_little(
    interval: float, increments: bool, offset: float
) -> None:
    """Waves in both channels; a third one never changes, where the last frame is exact."""
    x, time = np.linspace(0, 2 * np.pi, 16), interval * np.arange(4)
    phase = np.random.default_rng(0).uniform(0, 6, (100, 1, 1)) + x[:, None] + time
    still = np.broadcast_to(offset, phase.shape)
    frames = np.stack((np.cos(phase), offset + np.sin(phase), still), -1).reshape(100, 16, 12)
    data = Fields(x[:, None], frames[..., :6], y=frames[..., 6:])
    assert rollout_for(data, Rollout(2, 3)) == Rollout(2, 3, increments)


def test_fit_takes_the_rule_only_where_nothing_is_asked_for() -> None:
    data, how = lines(12), {"progress": False, "device": "cpu", "epochs": 1}
    assert Operator.fit(data, **how).model.config == replace(MEDIUM, octaves=0)
    assert Operator.fit(data, model="lno_plus", **how).model.config == replace(MEDIUM, octaves=0)
    assert Operator.fit(data, model="lno", **how).model.config == LNOConfig()
    named = Operator.fit(data, config=LNOPlusConfig(8, 4, 1), **how)
    assert named.kind == "lno_plus"
    changed = Operator.fit(data, config=TINY, recipe={"batch": 3}, **how)
    assert changed.kind == "lno" and changed.provenance["recipe"]["batch"] == 3
    with pytest.raises(ValueError, match="no model 'lnu'"):
        Operator.fit(data, model="lnu", **how)


def noisy(samples: int = 24) -> Fields:
    """Nothing to learn: the validation error rises as the model fits the noise."""
    random = np.random.default_rng(1)
    return Fields(X, random.normal(size=(samples, 16, 1)), y=random.normal(size=(samples, 16, 1)))


EARLY = {
    "recipe": Recipe(epochs=60, batch=8, learning_rate=0.01, schedule="constant"),
    "config": TINY,
    "validation": 0.3,
    "progress": False,
    "device": "cpu",
    "early_stop": True,
}


def test_early_stopping_keeps_the_model_with_the_lowest_validation_error(tmp_path: Path) -> None:
    data = noisy()
    whole = Operator.fit(data, **EARLY, folder=tmp_path / "whole")
    origin, curve = whole.provenance, whole.provenance["curve"]
    lowest = min(curve, key=lambda row: row["error"])
    assert origin["best_steps"] == [lowest["step"]]
    assert whole.finished and origin["steps"] < origin["total_steps"]
    assert curve.index(lowest) == len(curve) - 1 - PATIENCE
    from lno.training.samples import split_validation

    _, held_out = split_validation(data, 0.3)
    assert held_out is not None
    assert whole.evaluate(held_out)["relative_l2"] == pytest.approx(lowest["error"], rel=1e-4)
    again = Operator.fit(data, **EARLY, folder=tmp_path / "whole", resume=True)
    assert again.provenance["steps"] == origin["steps"]  # it does not go on
    Operator.fit(data, **EARLY, folder=tmp_path / "parts", pause_after=1e-9)
    parts = Operator.fit(data, **EARLY, folder=tmp_path / "parts", resume=True)
    for a, b in zip(whole.model.parameters(), parts.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_early_stopping_needs_validation_samples() -> None:
    with pytest.raises(ValueError, match="early_stop: needs validation samples"):
        Operator.fit(noisy(), **{**EARLY, "validation": 0.0})


def padded(order: np.ndarray, sizes: np.ndarray, batch: int) -> float:
    parts = [sizes[order[k : k + batch]] for k in range(0, len(order), batch)]
    return sum(len(part) * part.max() for part in parts) / sizes.sum()


def test_batches_of_similar_sizes_pad_little_and_visit_every_sample_once() -> None:
    sizes = np.random.default_rng(0).integers(100, 1001, 205)
    orders = [epoch_order(np.random.default_rng(k), 205, 4, sizes) for k in range(3)]
    for order in orders:
        assert sorted(order.tolist()) == list(range(205))
        assert padded(order, sizes, 4) < 1.1
    plain = epoch_order(np.random.default_rng(0), 205, 4)
    assert padded(plain, sizes, 4) > 1.3
    batches = [{frozenset(o[k : k + 4].tolist()) for k in range(0, 204, 4)} for o in orders]
    assert len(batches[0] & batches[1]) < 5  # other batches in every epoch
    assert np.array_equal(orders[0], epoch_order(np.random.default_rng(0), 205, 4, sizes))


def test_samples_of_one_size_keep_their_order() -> None:
    expected = np.random.default_rng(7).permutation(20)
    assert np.array_equal(epoch_order(np.random.default_rng(7), 20, 4), expected)
