"""The benchmark of large predictions, at small sizes."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest
import torch

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
