"""Shared by the tests of experiments."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from own_data import trajectories
from small_forward import LNO, TRANSOLVER
from small_inverse import COMPLETER, shrink

from lno import Fields, cli
from lno.experiments import datasets, presets, report
from lno.problems import Darcy, NS2d, Protocol


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Small fields and models in place of the paper's; the folder that everything is in."""
    path = tmp_path_factory.mktemp("inverse")
    with pytest.MonkeyPatch.context() as patch:
        shrink(patch, path / "cache")
        yield path


@pytest.fixture(scope="module")
def samples(root: Path) -> tuple[Fields, Fields, Fields]:
    """To train on, to validate on and to test on."""
    return COMPLETER.samples("cpu")


@pytest.fixture(autouse=True)
def no_drawings(monkeypatch: pytest.MonkeyPatch) -> None:
    """The drawings of the paper take seconds and are the same in every report."""
    monkeypatch.setattr(report, "DRAWINGS", {})


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Tiny data and models in place of the paper's; returns an empty ledger."""
    monkeypatch.setenv("LNO_DATA", str(tmp_path / "cache"))
    monkeypatch.setattr(datasets, "pick_solver_device", lambda name: torch.device("cpu"))
    tiny = Protocol(6, 4, {"grid": 15, "every": 2})
    protocols = {"standard": tiny, "reference": tiny, "resolution": tiny}
    monkeypatch.setattr(Darcy, "protocols", protocols)
    flow = Protocol(4, 2, {"grid": 16, "every": 2})
    monkeypatch.setattr(NS2d, "protocols", {"standard": flow})
    for model, config in (("lno", LNO), ("transolver", TRANSOLVER)):
        for recipes in presets.PRESETS[model].values():
            for problem in ("darcy", "ns2d"):
                if problem in recipes:
                    changed = replace(recipes[problem], config=config)
                    monkeypatch.setitem(recipes, problem, changed)
    return tmp_path / "results"


@pytest.fixture(scope="session")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of `lno train` on the same trajectories, one of them an ensemble."""
    folder = tmp_path_factory.mktemp("two")
    trajectories(20).save(folder / "data.h5")
    for name, more in (
        ("ensemble", ["--preset", "small", "--members", "2", "--seed", "3"]),
        ("deeponet", ["--model", "deeponet"]),
    ):
        words = ["train", str(folder / "data.h5"), "--rollout", "2", "--epochs", "2"]
        assert cli.run([*words, *more, "--device", "cpu", "--out", str(folder / name)]) == 0
    return folder
