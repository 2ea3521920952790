from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from matplotlib.layout_engine import ConstrainedLayoutEngine

from lno import Operator, Recipe, cli
from lno.data.tables import read_csv
from lno.experiments import quickstart as example
from lno.ledger import Run
from lno.models import LNOConfig


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[example.Comparison]]:
    """The quickstart with a tiny model and few samples: everything but the accuracy is real."""
    path = tmp_path_factory.mktemp("quickstart")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            example, "CONFIG", LNOConfig(width=16, latents=8, blocks=1, heads=2, layers=1)
        )
        patch.setattr(example, "RECIPE", Recipe(epochs=2, batch=4, queries=64))
        patch.setattr(example, "TRAIN", 8)
        patch.setattr(example, "TEST", 2)
        # Half of the time of drawing is that of arranging: nobody looks at these figures.
        patch.setattr(ConstrainedLayoutEngine, "execute", lambda engine, figure: None)
        return path, example.quickstart(path / "out", seed=1, results=path / "results")


def test_it_compares_all_methods_on_the_same_unseen_sensors(
    small: tuple[Path, list[example.Comparison]],
) -> None:
    _, comparisons = small
    assert [c.ratio for c in comparisons] == [0.05, 0.01, 0.005]
    for c in comparisons:
        assert c.seen.x.shape[:2] == (2, round(c.ratio * 64 * 128))
        learned, kriged, _ = (e["relative_mae"] for e in c.errors().values())
        # An untrained model contributes nothing: conditioned on the sensors, it is kriging.
        assert learned == pytest.approx(kriged, rel=0.1)


def test_the_rbf_error_is_the_known_one(small: tuple[Path, list[example.Comparison]]) -> None:
    """About 0.9, 6.2 and 11.9 % over 128 samples; two samples scatter around that."""
    _, comparisons = small
    for c, expected in zip(comparisons, (0.009, 0.062, 0.119), strict=True):
        assert c.errors()["rbf"]["relative_mae"] == pytest.approx(expected, rel=0.7)


def test_it_writes_a_page_that_needs_nothing_else(
    small: tuple[Path, list[example.Comparison]],
) -> None:
    folder, comparisons = small
    text = (folder / "out" / "report.html").read_text()
    assert text.count("data:image/png;base64,") == 4
    assert not re.findall(r'(?:src|href)="(?!data:)', text)
    for c in comparisons:
        for errors in c.errors().values():
            assert f"{100 * errors['relative_mae']:.2f} %" in text


def test_the_printed_commands_work_when_pasted(
    small: tuple[Path, list[example.Comparison]],
) -> None:
    folder, _ = small
    for command in example.next_commands(folder / "out"):
        assert cli.run(shlex.split(command)[1:]) == 0, command
    table = read_csv(folder / "out" / "field.csv", ["t", "x", "u"])
    operator = Operator.load(folder / "out" / "model.safetensors")
    sensors = read_csv(folder / "out" / "sensors.csv", ["t", "x", "u"])
    expected = operator.predict(sensors[:, :2], sensors[:, 2:], table[:, :2])
    np.testing.assert_allclose(table[:, 2:], expected, rtol=1e-5, atol=1e-6)
    assert np.load(folder / "out" / "fine.npz")["y"].shape == (1, 256 * 512, 1)


def test_it_records_all_runs_in_the_ledger(small: tuple[Path, list[example.Comparison]]) -> None:
    folder, comparisons = small
    for model in ("lno", "kriging", "rbf"):
        run = Run.load(folder / "results" / "burgers" / model / "quickstart.json")
        assert (run.problem, run.model, run.seed) == ("burgers", model, 1)
        for c in comparisons:
            assert run.metrics[f"test:ratio={c.ratio:g}"] == c.errors()[model]
    alone = Run.load(folder / "out" / "run.json")
    assert alone == Run.load(folder / "results" / "burgers" / "lno" / "quickstart.json")
    assert alone.hardware == "CPU, 1 thread" and alone.steps == alone.curve[-1]["step"]
    assert (folder / "out" / "sample.npz").exists()


def test_it_can_be_started_again(small: tuple[Path, list[example.Comparison]]) -> None:
    """Data, recipe and sizes are those whose numbers are quoted."""
    folder, _ = small
    assert not list((folder / "out").glob("checkpoint-*"))
    assert (example.TRAIN, example.TEST) == (1024, 64)
    assert Recipe(epochs=40, batch=8, loss="relative_mae", queries=256) == example.RECIPE
