"""Every model through the training of this package: paused and resumed, saved and loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import small_models
import torch
from small_models import GRID

from lno import Fields, Operator
from lno.models import MODELS

CONFIGS = {
    "lno": small_models.LNO_TIED,
    "lno_plus": small_models.PLUS_LOCAL,
    "deeponet": small_models.DEEPONET,
    "gnot": small_models.GNOT_THREE,
    "transolver": small_models.REGULAR,
    "fno": small_models.FNO_GRID,
    "geofno": small_models.GEOFNO_CLOUD,
    "ffno": small_models.FFNO,
    "ufno": small_models.UFNO_CLOUD,
    "lsm": small_models.LSM_CLOUD,
    "galerkin": small_models.GALERKIN_GRID,
    "oformer": small_models.OFORMER,
    "factformer": small_models.FACTFORMER_GRID,
    "ono": small_models.ONO_NYSTROM,
    "sliced_lno": small_models.SLICED,
}
CLOUDS = ("ufno", "lsm", "geofno")  # of which the form for scattered points is trained


def data(model: str) -> Fields:
    """Twelve samples on a grid, or at points of their own."""
    random = np.random.default_rng(0)
    rows, columns = GRID
    if model in CLOUDS:
        x = random.uniform(size=(12, rows * columns, 2))
        return Fields(x, x[..., :1] ** 2, y=np.sin(3 * x[..., 1:]))
    axes = np.meshgrid(np.linspace(0, 1, rows), np.linspace(0, 1, columns), indexing="ij")
    u = random.normal(size=(12, rows * columns, 1))
    return Fields(np.stack(axes, -1).reshape(-1, 2), u, y=u**2, grid=GRID)


def fit(model: str, **keys: Any) -> Operator:
    recipe = {"batch": 4, "optimizer": "muon", "epochs": 4, "ema": 0.9}
    return Operator.fit(
        data(model),
        model=model,
        config=CONFIGS[model],
        recipe=recipe,
        device="cpu",
        progress=False,
        **keys,
    )


@pytest.mark.parametrize("model", MODELS)
def test_a_paused_run_ends_like_one_that_never_was_and_is_kept(model: str, tmp_path: Path) -> None:
    whole, folder = fit(model), tmp_path / "run"
    assert not fit(model, folder=folder, pause_after=1e-9).finished
    resumed = fit(model, folder=folder, resume=True)
    assert resumed.finished
    expected, got = (operator.model.state_dict() for operator in (whole, resumed))
    assert list(expected) == list(got)
    assert all(torch.equal(got[name], value) for name, value in expected.items())
    resumed.save(tmp_path / "model.safetensors")
    loaded = Operator.load(tmp_path / "model.safetensors")
    test = data(model)
    assert np.array_equal(loaded.predict(test), resumed.predict(test))
