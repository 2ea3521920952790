"""Several models at once are what each of them would be alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from small_runs import SMALL

from lno import Completion, Fields, Operator, RandomRatio, Recipe, Spec, Steady
from lno.data import Batch
from lno.data.symmetry import square
from lno.models import LNO, LNOConfig
from lno.training import step as steps
from lno.training.loop import next_batches
from lno.training.samples import Samples
from lno.training.state import Training

CONFIG = LNOConfig(width=32, latents=8, blocks=2, heads=2, layers=1)
K = 3


def fields(kind: str) -> Fields:
    random = np.random.default_rng(0)
    if kind == "ragged":
        x = [random.uniform(size=(int(n), 2)) for n in random.integers(9, 20, 10)]
        return Fields(x, [a[:, :1] for a in x], y=[a[:, 1:] ** 2 for a in x])
    u = random.normal(size=(10, 25, 1))
    x = np.stack(np.meshgrid(*[np.linspace(0, 1, 5)] * 2, indexing="ij"), -1).reshape(25, 2)
    return Fields(x, u, y=np.cumsum(u, 1) + 1, grid=(5, 5))


CASES = {
    "shared": ("grid", Recipe(clip=0.5, decay_all=False, weight_decay=0.1), Steady(), ()),
    "queries": ("grid", Recipe(queries=7, ema=0.9, optimizer="muon"), Steady(), ()),
    "dropout": ("grid", Recipe(point_dropout=0.4, queries=9), Steady(), ()),
    "ragged": ("ragged", Recipe(loss="mse"), Steady(), ()),
    "ragged dropout": ("ragged", Recipe(point_dropout=0.4), Steady(), ()),
    "ragged queries": ("ragged", Recipe(queries=5), Steady(), ()),
    "ragged completion": ("ragged", Recipe(), Completion(RandomRatio(0.2, 0.8)), ()),
    "symmetries": ("grid", Recipe(gradient=0.1, physical=True), Steady(), square()),
    "completion": ("grid", Recipe(optimizer="adam"), Completion(RandomRatio(0.2, 0.8)), ()),
}


@pytest.mark.parametrize("case", CASES)
def test_each_member_is_the_model_of_its_seed(case: str) -> None:
    """Twenty steps in double precision, to 1e-8."""
    kind, recipe, task, symmetries = CASES[case]
    data = task.prepare(fields(kind))
    scale = task.normalizers(data)
    spec = Spec(scale.x.features, 1, 1)

    def models(count: int, seed: int) -> list[LNO]:
        made = []
        for k in range(count):
            torch.manual_seed(seed + k)
            made.append(LNO(spec, CONFIG).double())
        return made

    def trained(members: list[LNO], seed: int) -> tuple[torch.Tensor, list[torch.Tensor]]:
        chosen = replace(recipe, epochs=7, batch=3)
        device = torch.device("cpu")
        training = Training(
            members, task, scale, chosen, data, None, device, seed, symmetries=symmetries
        )
        step, samples = steps.Step(training), Samples(data, scale, device)
        losses = []
        for _ in range(20):
            batches, share = next_batches(training, samples)
            losses.append(step([double(batch) for batch in batches], share))
            training.step += 1
        weights = [
            torch.cat([p.detach().flatten() for p in model.parameters()])
            for model in training.end()
        ]
        return torch.stack(losses), weights

    losses, together = trained(models(K, 5), 5)
    for k in range(K):
        expected, [alone] = trained(models(1, 5 + k), 5 + k)
        torch.testing.assert_close(losses[:, k : k + 1], expected, rtol=1e-8, atol=0)
        assert (together[k] - alone).abs().max() < 1e-8
    assert (together[0] - together[1]).abs().max() > 1e-2


def double(batch: Batch) -> Batch:
    return batch.each(lambda values: values.double() if values.is_floating_point() else values)


def test_an_ensemble_predicts_the_mean_and_survives_its_file(
    line_fields: Fields, tmp_path: Path
) -> None:
    keys = {"epochs": 2, "config": SMALL, "progress": False, "device": "cpu"}
    ensemble = Operator.fit(line_fields, members=K, seed=4, **keys)
    assert len(ensemble.members) == K
    alone = [Operator.fit(line_fields, seed=4 + k, **keys) for k in range(K)]
    x, u = line_fields.x, line_fields.u[:2]
    expected = np.mean([op.predict(x, u) for op in alone], axis=0)
    np.testing.assert_allclose(ensemble.predict(x, u), expected, atol=1e-5)
    np.testing.assert_allclose(ensemble.member(1).predict(x, u), alone[1].predict(x, u), atol=1e-5)
    rows = ensemble.provenance["curve"]
    assert [row["losses"][2] for row in rows] == pytest.approx(
        [row["loss"] for row in alone[2].provenance["curve"]], rel=1e-4
    )
    ensemble.save(tmp_path / "a.safetensors")
    loaded = Operator.load(tmp_path / "a.safetensors", device="cpu")
    assert np.array_equal(loaded.predict(x, u), ensemble.predict(x, u))
    tuned = Operator.fit(line_fields, init=loaded, members=2, **{**keys, "config": None})
    assert len(tuned.members) == 2
    with pytest.raises(ValueError, match="pass either init or config"):
        Operator.fit(line_fields, init=loaded, **keys)


def test_an_ensemble_resumes_bit_for_bit(line_fields: Fields, tmp_path: Path) -> None:
    recipe = Recipe(epochs=3, batch=5, optimizer="muon", ema=0.9, clip=1.0, queries=9)
    keys = {"recipe": recipe, "config": SMALL, "progress": False, "members": 2}
    whole = Operator.fit(line_fields, **keys)
    Operator.fit(line_fields, folder=tmp_path, pause_after=1e-9, **keys)
    resumed = Operator.fit(line_fields, folder=tmp_path, resume=True, **keys)
    for a, b in zip(whole.members, resumed.members, strict=True):
        for p, q in zip(a.parameters(), b.parameters(), strict=True):
            assert torch.equal(p, q)
    with pytest.raises(ValueError, match="members was 2 there and is 3 now"):
        Operator.fit(line_fields, folder=tmp_path, resume=True, **{**keys, "members": 3})


def test_a_member_that_diverges_is_named(line_fields: Fields) -> None:
    keys = {"epochs": 1, "config": SMALL, "progress": False, "members": 2}
    ensemble = Operator.fit(line_fields, **keys)
    torch.nn.init.constant_(next(ensemble.members[1].parameters()), float("nan"))
    with pytest.raises(RuntimeError, match="of the member with seed 10 became nan at step 1 of"):
        Operator.fit(line_fields, init=ensemble, seed=9, **{**keys, "config": None})


def test_the_number_of_members_is_checked(line_fields: Fields) -> None:
    with pytest.raises(ValueError, match="members must be a whole number from 1 to 1024, got 0"):
        Operator.fit(line_fields, members=0)


def test_weights_in_half_precision_take_half_the_space(line_fields: Fields, tmp_path: Path) -> None:
    config = {**SMALL, "width": 128}
    keys = {"epochs": 2, "config": config, "progress": False, "device": "cpu", "members": 2}
    ensemble = Operator.fit(line_fields, **keys)
    sizes, predictions = [], []
    for half in (False, True):
        path = tmp_path / f"{half}.safetensors"
        ensemble.save(path, half=half)
        sizes.append(path.stat().st_size)
        loaded = Operator.load(path, device="cpu")
        assert next(loaded.model.parameters()).dtype == torch.float32
        predictions.append(loaded.predict(line_fields))
    assert sizes[1] < 0.55 * sizes[0]
    with pytest.raises(IndexError, match="no member 2: this operator has 2, from 0 on"):
        ensemble.member(2)
    with torch.no_grad():
        next(ensemble.member(1).model.parameters()).fill_(1e6)
    with pytest.raises(ValueError, match="too large for float16"):
        ensemble.save(tmp_path / "large.safetensors", half=True)
    assert np.abs(predictions[1] - predictions[0]).max() < 2e-3 * np.abs(predictions[0]).max()
