from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from lno import Fields, Operator, Recipe, Spec, Steady
from lno.data import Batch
from lno.models import LNO, LNOConfig
from lno.training.distributed import SPLITS, join
from lno.training.state import Training
from lno.training.step import Step

CASES = [(k, loss) for k in ("shared", "ragged") for loss in ("relative_l2", "relative_mae", "mse")]
CASES.append(("huge", "relative_l2"))
CONFIG = LNOConfig(width=16, latents=8, blocks=2, heads=2, layers=1)


def batches(kind: str, count: int = 20) -> list[Batch]:
    """Random batches in double precision, some with fewer samples than processes."""
    random = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=random, dtype=torch.float64)

    made = []
    for k in range(count):
        b = 1 if k % 7 == 6 else 4
        if kind in ("shared", "huge"):  # the squares of the latter are beyond all numbers
            x, u = draw(1, 30, 2), draw(b, 30, 1)
            made.append(Batch(x, u, x, draw(b, 30, 1) * (1e200 if kind == "huge" else 1)))
            continue
        mask, query_mask = torch.rand(b, 31, generator=random) < 0.7, torch.rand(b, 17) > -1
        mask[:, 0] = True
        query_mask[:, 11:] = False
        x, q = draw(b, 31, 2), draw(b, 17, 2)
        made.append(Batch(x, draw(b, 31, 1), q, draw(b, 17, 1), mask, query_mask))
    return made


def trained(kind: str, loss: str, split: str) -> tuple[list[float], torch.Tensor]:
    """Losses of 20 steps and the weights after them; under torchrun, shared out."""
    torch.manual_seed(0)
    cpu, task = torch.device("cpu"), Steady()
    model = LNO(Spec(2, 1, 1), CONFIG).double()
    data = Fields(np.zeros((3, 2)), np.zeros((4, 3, 1)), y=np.zeros((4, 3, 1)))
    recipe = Recipe(epochs=20, batch=4, loss=loss, clip=1.0)
    scale = task.normalizers(data)
    training = Training([model], task, scale, recipe, data, None, cpu, 0, "fp32", join(split, cpu))
    step = Step(training)
    losses = []
    for batch in batches(kind):
        mine = training.team.share(batch)
        losses.append(float(step([mine], training.team.weight(batch, mine))))
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
    a, b = (np.load(tmp_path / f"prediction-{rank}.npy") for rank in range(2))
    assert np.array_equal(a, b)
    alone = run(tmp_path / "alone", "samples")
    np.testing.assert_allclose(alone, a, rtol=1e-3, atol=1e-4)


def run(folder: Path, split: str) -> np.ndarray:
    random = np.random.default_rng(0)
    u = random.normal(size=(12, 20, 1))
    data = Fields(random.uniform(size=(20, 2)), u, y=np.cumsum(u, axis=1))
    keys = {"recipe": Recipe(epochs=3), "config": CONFIG, "folder": folder, "split": split}
    keys |= {"device": "cpu", "progress": False, "members": 2}
    first = Operator.fit(data, minutes=1e-9, **keys)
    assert not first.finished
    return Operator.fit(data, resume=True, **keys).predict(data)


def test_impossible_ways_to_share_are_errors() -> None:
    with pytest.raises(ValueError, match="no way to share 'layers' out: expected one of samples"):
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
    torch.distributed.destroy_process_group()
