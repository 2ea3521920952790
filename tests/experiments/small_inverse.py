"""The inverse problem on a small scale, for tests: sizes, specs, and how commands are called."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from lno import cli
from lno.experiments import datasets, inverse, presets
from lno.experiments.inverse import Completer, Propagator
from lno.models import DeepONetConfig, GNOTConfig, LNOConfig
from lno.problems import Burgers, Protocol

SIZES = {
    "lno": LNOConfig(width=8, latents=4, blocks=1, heads=2, layers=1),
    "gnot": GNOTConfig(width=8, blocks=1, heads=2, layers=1),
    "deeponet": DeepONetConfig(width=8, blocks=1, heads=2, layers=2, basis=4),
}
SEEDS = range(2)
COMPLETER = Completer("burgers", "lno", "completer", 2, "fp32")
OURS = replace(COMPLETER, recipe="our-completer")
PROPAGATOR = Propagator("burgers", "lno", "propagator", 2, "fp32")
ALL = (*inverse.COMPLETERS, *inverse.PROPAGATORS)


def shrink(patch: pytest.MonkeyPatch, cache: Path) -> None:
    """Small fields and models in place of the paper's."""
    patch.setenv("LNO_DATA", str(cache))
    patch.setattr(datasets, "pick_solver_device", lambda name: torch.device("cpu"))
    patch.setattr(Burgers, "protocols", {"standard": Protocol(8, 6, {"grid": 32})})
    for model, config in SIZES.items():
        for recipes in presets.PRESETS[model].values():
            if recipes.get("burgers") and recipes["burgers"].protocol == "standard":
                chosen = recipes["burgers"]
                recipe = replace(chosen.recipe, batch=4, queries=64)
                patch.setitem(recipes, "burgers", replace(chosen, config=config, recipe=recipe))


def lno(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "200")
        code = cli.run(words)
    printed = capsys.readouterr()
    assert code == 0, printed.err
    return printed.out


def reproduce(capsys: pytest.CaptureFixture[str], table: str, results: Path, *more: str) -> str:
    words = ["--epochs", "2", "--precision", "fp32", "--seeds", "2", "--device", "cpu"]
    return lno(capsys, "reproduce", table, *words, "--results", str(results), *more)


def listed(shown: str) -> list[tuple[str, str, str]]:
    """Model, recipe and seeds of the rows of a dry run."""
    lines = [line.strip() for line in shown.splitlines()]
    rows = [re.split(" {2,}", line) for line in lines if line.startswith("burgers")]
    runs = [(row[0].split()[1:], row[2]) for row in rows if " " in row[0]]  # not the totals
    return [(model, recipe, seeds) for (model, recipe), seeds in runs]


def relative_mae(guess: np.ndarray, truth: np.ndarray) -> float:
    """Of fields (s, q), written out."""
    return float(np.mean(np.abs(guess - truth).mean(1) / np.abs(truth).mean(1)))
