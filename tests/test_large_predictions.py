"""The benchmark of large predictions, at small sizes, and what bounds their memory."""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from lno import Fields, Operator
from lno.models import LNOConfig, LNOPlusConfig

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "large_predictions.py"


@pytest.fixture(scope="module")
def benchmark():
    spec = importlib.util.spec_from_file_location("large_predictions", SCRIPT)
    sys.modules["large_predictions"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_chunks_equal_one_pass_and_all_parts_give_plain_json(benchmark):
    cpu = torch.device("cpu")
    found = {name: part(benchmark.TINY, cpu) for name, part in benchmark.PARTS.items()}
    assert json.loads(json.dumps(found)) == found
    assert found["predict"]["queries"] == 18_000 and found["predict"]["difference"] < 1e-4
    assert found["mesh"]["nodes"] == 3600 and found["train"]["steps"] == 2


def test_lno_plus_in_chunks_equals_one_pass(benchmark, monkeypatch):
    monkeypatch.setitem(benchmark.CONFIGS, "lno_plus", SMALL["lno_plus"])
    found = benchmark.predict(benchmark.TINY, torch.device("cpu"), "lno_plus")
    assert json.loads(json.dumps(found)) == found
    assert found["queries"] == 18_000 and found["difference"] < 0.01  # of 3-D neighbours


SMALL = {
    "lno": LNOConfig(width=16, latents=9, blocks=1, heads=2),
    "lno_plus": LNOPlusConfig(width=16, latents=9, rounds=2),
    "lno_plus by position": LNOPlusConfig(width=16, latents=9, rounds=2, values=False),
}


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("points", [100, 400])
def test_no_layer_sees_more_points_than_a_chunk(name, points, monkeypatch):
    """Nor any other intermediate result: so memory does not grow with the number of points."""
    x, q = np.random.default_rng(0).uniform(size=(2, points, 2))
    u = np.sin(4 * x[:, :1])
    keys = {"model": name.split()[0], "config": SMALL[name], "epochs": 1, "progress": False}
    operator = Operator.fit(Fields(x, np.stack((u, 2 * u)), y=np.stack((u, u))), **keys)
    monkeypatch.setattr("lno.prediction.CHUNK", 32)
    seen = set()
    for module in operator.model.modules():
        module.register_forward_hook(
            lambda _, given, out: seen.update((len(given[0][0]), len(out[0])))
        )
    assert operator.predict(x, u, q).shape == (points, 1)
    assert max(seen) == 32
