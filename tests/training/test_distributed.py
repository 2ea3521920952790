from __future__ import annotations

import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from lno import Fields, Operator, Recipe, Spec, Steady
from lno.data import Batch
from lno.metrics import METRICS
from lno.models import LNO, DeepONet, LNOConfig, LNOPlus, LNOPlusConfig
from lno.training.distributed import SPLITS, Processes, join
from lno.training.state import Training
from lno.training.step import Step

CASES = [(k, m) for k in ("shared", "ragged", "weighted") for m in METRICS]
CASES += [(k, "relative_l2") for k in ("huge", "plus", "plus-weighted", "plus-ragged")]
CONFIG = LNOConfig(width=16, latents=8, blocks=2, heads=2, layers=1)
PLUS = LNOPlusConfig(width=16, latents=8, rounds=2)
MODELS = {
    "plus": lambda spec: LNOPlus(spec, PLUS),
    "plus-weighted": lambda spec: LNOPlus(spec, PLUS),
    "plus-ragged": lambda spec: LNOPlus(spec, replace(PLUS, values=False)),
}


def batches(kind: str, count: int = 10) -> list[Batch]:
    """Random batches in double precision, some with fewer samples than processes."""
    random = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=random, dtype=torch.float64)

    made = []
    for k in range(count):
        b = 1 if k % 7 == 6 else 4
        parameters = draw(b, 1)
        if not kind.endswith("ragged"):
            x, u, y = draw(1, 30, 2), draw(b, 30, 1), draw(b, 30, 1)
            y = y * (1e200 if kind == "huge" else 1)  # whose squares are beyond all numbers
            sizes = draw(1, 30).exp()
            made.append(Batch(x, u, x, y, None, None, parameters, sizes, sizes))
            continue
        mask, query_mask = torch.rand(b, 31, generator=random) < 0.7, torch.rand(b, 17) > -1
        mask[:, 0] = True
        query_mask[:, 11:] = False
        x, q = draw(b, 31, 2), draw(b, 17, 2)
        made.append(Batch(x, draw(b, 31, 1), q, draw(b, 17, 1), mask, query_mask, parameters))
    return made


def trained(kind: str, loss: str, split: str) -> tuple[list[float], torch.Tensor]:
    """Losses of 10 steps and the weights after them; under torchrun, split over processes."""
    torch.manual_seed(0)
    cpu, task = torch.device("cpu"), Steady()
    model = MODELS.get(kind, lambda spec: LNO(spec, CONFIG))(Spec(2, 2, 1)).double()
    data = Fields(np.zeros((3, 2)), np.zeros((4, 3, 1)), y=np.zeros((4, 3, 1)))
    recipe = Recipe(epochs=20, batch=4, loss=loss, clip=1.0, weighted=kind.endswith("weighted"))
    scale = task.normalizers(data)
    training = Training([model], task, scale, recipe, data, None, cpu, 0, "fp32", join(split, cpu))
    step = Step(training)
    losses = []
    for batch in batches(kind):
        mine = training.processes.part(batch)
        losses.append(float(step([mine], training.processes.share(batch, mine))))
        training.step += 1
    return losses, torch.cat([p.detach().flatten() for p in model.parameters()])


def two_processes(script: str, *arguments: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    common = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    processes = [
        subprocess.Popen(
            [sys.executable, script, *arguments],
            env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    for process in processes:
        _, complained = process.communicate(timeout=120)
        assert process.returncode == 0, complained


@pytest.mark.parametrize("split", SPLITS)
def test_two_processes_give_the_curve_of_one(split: str, tmp_path: Path) -> None:
    two_processes(__file__, "steps", split, str(tmp_path))
    for kind, loss in CASES:
        losses, weights = trained(kind, loss, "samples")
        assert np.isfinite(losses).all()
        for rank in range(2):
            got = np.load(tmp_path / f"{kind}-{loss}-{rank}.npz")
            np.testing.assert_allclose(got["losses"], losses, rtol=1e-8)
            np.testing.assert_allclose(got["weights"], weights.numpy(), rtol=0, atol=1e-8)


@pytest.mark.parametrize("split", SPLITS)
def test_a_run_of_two_processes_is_kept_resumed_and_usable(split: str, tmp_path: Path) -> None:
    two_processes(__file__, "run", split, str(tmp_path))
    assert len(list(tmp_path.glob("run/checkpoint-*"))) == 2
    a, b = (np.load(tmp_path / f"budget-{rank}.npy") for rank in range(2))
    assert np.array_equal(a, b)
    a, b = (np.load(tmp_path / f"prediction-{rank}.npy") for rank in range(2))
    assert np.array_equal(a, b)
    alone = run(tmp_path / "alone", "samples")
    np.testing.assert_allclose(alone, a, rtol=1e-3, atol=1e-4)
    a, b = (np.load(tmp_path / f"elsewhere-{rank}.npy") for rank in range(2))
    assert np.array_equal(a, b)
    np.testing.assert_allclose(run_elsewhere("samples"), a, rtol=1e-3, atol=1e-4)


def run(folder: Path, split: str) -> np.ndarray:
    data = sums()
    keys = {"recipe": Recipe(epochs=3), "config": CONFIG, "folder": folder, "split": split}
    keys |= {"device": "cpu", "progress": False, "members": 2}
    first = Operator.fit(data, pause_after=1e-9, **keys)
    assert not first.finished
    return Operator.fit(data, resume=True, **keys).predict(data)


def sums() -> Fields:
    random = np.random.default_rng(0)
    u = random.normal(size=(12, 20, 1))
    return Fields(random.uniform(size=(20, 2)), u, y=np.cumsum(u, axis=1))


def run_with_budget(split: str) -> np.ndarray:
    """Processes must agree on the number of steps, or the slower one waits forever."""
    keys = {"recipe": Recipe(epochs=3), "config": CONFIG, "split": split}
    operator = Operator.fit(sums(), minutes=0.02, device="cpu", progress=False, **keys)
    assert operator.finished
    return operator.predict(sums())


def run_elsewhere(split: str) -> np.ndarray:
    """Predictions of LNO+ at points where nothing is observed."""
    x, q = np.random.default_rng(1).uniform(size=(2, 12, 20, 2))
    data = Fields(x, np.sin(4 * x[..., :1]), q, y=np.cos(4 * q[..., :1]))
    keys = {"model": "lno_plus", "config": replace(PLUS, values=False), "split": split}
    keys |= {"recipe": Recipe(epochs=3), "device": "cpu", "progress": False}
    return Operator.fit(data, **keys).predict(data)


def test_processes_that_split_points_need_a_model_that_streams() -> None:
    two = Processes(0, 2, "points")
    with pytest.raises(ValueError, match=r"DeepONet needs all points .* \(lno, lno_plus\)"):
        two.prepare(DeepONet(Spec(2, 1, 1)))
    with pytest.raises(ValueError, match="2 processes split the points of a sample"):
        two.part(Batch(torch.zeros(1, 1, 2), torch.zeros(1, 1, 1), torch.zeros(1, 1, 2)))


def test_impossible_splits_are_errors() -> None:
    with pytest.raises(ValueError, match="no split 'layers': expected one of samples"):
        join("layers", torch.device("cpu"))


if __name__ == "__main__":
    what, way, out = sys.argv[1:]
    rank = os.environ["RANK"]
    if what == "steps":
        for k, name in CASES:
            values, flat = trained(k, name, way)
            np.savez(Path(out) / f"{k}-{name}-{rank}.npz", losses=values, weights=flat.numpy())
    else:
        np.save(Path(out) / f"prediction-{rank}.npy", run(Path(out) / "run", way))
        np.save(Path(out) / f"budget-{rank}.npy", run_with_budget(way))
        np.save(Path(out) / f"elsewhere-{rank}.npy", run_elsewhere(way))
    torch.distributed.destroy_process_group()
