"""The inverse problem on a small scale: samples and sensors, tables, presets, shipped models."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_inverse import (
    ALL,
    PROPAGATOR,
    SEEDS,
    lno,
)

from lno import Fields, Operator
from lno.data.observe import Intervals, RandomRatio
from lno.experiments import datasets, inverse, inverse_tables, paper, presets, pretrained
from lno.experiments.interpolants import by_rbf
from lno.experiments.inverse import observed
from lno.experiments.queue import train_operators
from lno.experiments.runs import RunSpec
from lno.ledger import Run
from lno.problems import Burgers, Protocol
from lno.reconstruct import Reconstructor
from lno.report import plots

PRESETS = {model: presets.preset("burgers", "completer", model) for model in inverse.MODELS}


def test_samples_for_validation_and_testing_are_others(
    samples: tuple[Fields, Fields, Fields],
) -> None:
    train, validation, test = (np.asarray(part.y) for part in samples)
    assert [len(train), len(validation), len(test)] == [8, 3, 3]
    every = np.concatenate((train, validation, test)).reshape(14, -1)
    assert len(np.unique(every, axis=0)) == 14
    _, others = datasets.dataset("burgers", device="cpu", show=False)
    np.testing.assert_array_equal(np.concatenate((validation, test)), others.y)


def test_test_samples_are_held_out(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With absurd test samples the same weights and the same learning curve come out."""
    train, others = datasets.dataset("burgers", device="cpu", show=False)
    scale = np.float32([1, 1, 1, 1e6, 1e6, 1e6])[:, None, None]
    absurd = Fields(others.x, y=np.asarray(others.y) * scale, grid=others.grid, names=others.names)
    found = []
    for which in (others, absurd):
        monkeypatch.setattr(inverse, "dataset", lambda *_, which=which: (train, which))
        monkeypatch.setenv("LNO_DATA", str(root / f"cache-{which is absurd}"))
        [operator] = train_operators(PROPAGATOR, [0], "cpu")
        weights = torch.cat([p.detach().flatten() for p in operator.model.parameters()])
        errors = [row["error"] for row in operator.provenance["curve"]]
        found.append((weights, operator.normalizers, errors))
    assert torch.equal(found[0][0], found[1][0])
    assert found[0][1:] == found[1][1:]


def test_every_method_is_given_the_same_sensors_and_they_are_exact(
    samples: tuple[Fields, Fields, Fields],
) -> None:
    test = samples[2]
    t, x = (np.asarray(test.x)[:, k].reshape(32, 32) for k in (0, 1))
    inside = (t >= 0.25) & (t <= 0.75)
    rows = np.flatnonzero(inside[:, 0])
    for ratio in inverse.RATIOS:
        seen, again = (observed(test, RandomRatio(ratio)) for _ in range(2))
        assert seen.digest == again.digest
        assert np.asarray(seen.x).shape == (3, round(ratio * inside.sum()), 2)
        for sample, field in zip(seen, np.asarray(test.y).reshape(3, 32, 32), strict=True):
            j, i = np.round(sample.x * (31, 32)).astype(int).T
            assert np.all(np.isin(j, rows))
            np.testing.assert_array_equal(sample.u[:, 0], field[j, i])
            np.testing.assert_array_equal(sample.y[:, 0], field[inside])
    seen = observed(test, Intervals((4, 8)))
    for sample, field in zip(seen, np.asarray(test.y).reshape(3, 32, 32), strict=True):
        np.testing.assert_array_equal(sample.x[:, 0], t[rows[::4]][:, ::8].ravel())
        np.testing.assert_array_equal(sample.x[:, 1], x[rows[::4]][:, ::8].ravel())
        np.testing.assert_array_equal(sample.u[:, 0], field[rows[::4]][:, ::8].ravel())


def test_completers_are_tested_on_what_they_are_for() -> None:
    sets = {(s.model, s.recipe): s.data_sets() for s in inverse.COMPLETERS}
    ratios = [f"test:ratio={r}%" for r in ("20", "10", "5", "1", "0.5")]
    assert sets["rbf", "completer"] == ratios
    assert sets["lno", "our-completer"] == sets["gnot", "completer"]
    assert sets["gnot", "completer"][:5] == ratios
    assert len(sets["gnot", "completer"]) == 5 + len(inverse.GRIDS)
    assert sets["lno", "completer-0.5"] == ["test:ratio=0.5%"]
    assert sets["lno", "completer-20"] == ["test:ratio=20%"]
    ours, theirs, *_ = inverse.PROPAGATORS
    assert [name.removeprefix("test:") for name in ours.data_sets()[:4]] == [
        "from=truth",
        "from=lno 10%",
        "from=lno 1%",
        next(iter(inverse.GRIDS)).removeprefix("test:"),
    ]
    assert {s.recipe for s in ours.needs()} == {"our-completer"}
    assert [(s.model, s.recipe) for s in theirs.needs()] == [
        (m, "completer") for m in ("lno", "gnot", "deeponet")
    ]


def test_interpolation_is_the_same_in_several_processes(
    samples: tuple[Fields, Fields, Fields], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    seen = observed(samples[0], RandomRatio(0.05))
    several = by_rbf([seen] * 8)
    assert len(several) == 8
    for alone in by_rbf([seen]):
        for together in several:
            assert torch.equal(together, alone)


def fake(
    results: Path,
    spec: RunSpec,
    seed: int,
    errors: dict[str, float],
    config: dict[str, Any] | None = None,
) -> None:
    run = Run(
        problem="burgers",
        model=spec.model,
        recipe=spec.setup,
        protocol="standard",
        seed=seed,
        epochs=spec.epochs,
        steps=10 * spec.epochs,
        task={"kind": "completion", "pattern": {"kind": "random_ratio", "low": 0.1, "high": 0.2}},
        hardware="a GPU",
        seconds=30.0,
        parameters=5,
        data_hash="",
        config=config or {},
        metrics={f"test:{name}": {"relative_mae": error} for name, error in errors.items()},
        precision=spec.precision,
    )
    run.save(results, spec.name(seed))


def test_a_table_says_what_more_steps_bring(tmp_path: Path) -> None:
    shorter, longer, published = (s for s in inverse.COMPLETERS if s.recipe == "completer-1")
    for spec, error in ((shorter, 0.08), (longer, 0.008)):  # a tenth after ten times the steps
        assert "to the power" not in text_of_completers(tmp_path)
        fake(tmp_path, spec, 0, {"ratio=1%": error})
    gain = (
        "At 1 %, 3,000 steps reduce its error from 8 to 0.8 %: it scales with the number of steps"
    )
    assert f"{gain} to the power -1.00." in text_of_completers(tmp_path)
    fake(tmp_path, published, 0, {"ratio=1%": 0.0123})
    text = text_of_completers(tmp_path)
    assert "| LNO, one per ratio, the paper's budget | 1 | – | – | – | 1.230 | – |" in text
    assert "steps of 4 samples gives 1.23 % (paper: 1.18 %)." in text
    assert "LNO, one per ratio, the paper's budget: 500 epochs, 4 samples" in text


def text_of_completers(results: Path) -> str:
    return inverse_tables.completer_table(inverse.COMPLETERS, range(3), results).markdown()


def test_tables_show_means_gaps_and_the_papers_numbers(root: Path, tmp_path: Path) -> None:
    specs = {(s.model, s.recipe): s for s in ALL}
    ratios = dict.fromkeys((f"ratio={r}%" for r in (20, 10, 5, 1, 0.5)), 0.062)
    fake(tmp_path, specs["rbf", "completer"], 0, ratios)
    for seed, error in enumerate((0.010, 0.012, 0.014)):
        fake(tmp_path, specs["lno", "completer"], seed, dict.fromkeys(ratios, error))
    fake(tmp_path, specs["lno", "completer-5"], 0, {"ratio=5%": 0.02})
    text = text_of_completers(tmp_path)
    assert "| RBF | 1 | 6.200 | 6.200 | 6.200 | 6.200 | 6.200 |" in text
    assert "| LNO | 3 | 1.200 ± 0.200 |" in text
    assert "| GNOT | 0 | missing |" in text
    assert "| LNO, one per ratio | 0–1 | missing | missing | 2.000 | missing |" in text
    assert "| LNO, as published | 1 | 0.60 |" in text
    assert "| DeepONet, as published | 3 | 2.37 ± 0.18 |" in text
    for sentence in (
        "8 training samples, 3 for validation and 3 others for testing",
        "Budget of our recipe: 200 epochs, 4 samples and 64 query points per step, mixed; "
        "of LNO, GNOT, DeepONet: 30 epochs, 4 samples and 64 query points per step, mixed; of "
        "LNO, one per ratio, 10 times as long: 300 epochs, 4 samples",
        "on a GPU",
        "`lno reproduce completer`",
    ):
        assert sentence in text
    truth = {"from=truth": 0.03, "from=lno 10%": 0.05, "interval=2x4": 0.04}
    fake(tmp_path, specs["lno", "our-propagator"], 0, truth)
    text = inverse_tables.propagator_table(inverse.PROPAGATORS, range(3), tmp_path).markdown()
    assert "| LNO, our recipe | 0–1 | 3.000 | 5.000 | missing | – | – | – | – |" in text
    assert "| LNO, as published | 1 | 3.73 | 5.69 | 7.72 | 9.03 | 10.98 |" in text
    assert "| LNO, as published | 3 | 3.46 ± 0.21 | – |" in text
    squares = inverse_tables.propagator_intervals(inverse.ON_GRIDS, range(3), tmp_path)
    assert len(squares.rows) == 4 * 4
    assert "| LNO, our recipe | 0–1 | 2 | missing | 4.000 | missing | missing |" in (
        squares.markdown()
    )
    different = [specs["lno", "completer"], replace(specs["gnot", "completer"], epochs=7)]
    text = inverse_tables.completer_table(different, range(3), tmp_path).markdown()
    assert "Budget of LNO: 30 epochs" in text
    assert "; of GNOT: 7 epochs" in text


@pytest.mark.parametrize(
    ("config", "way"), [({}, "on all of them at once"), ({"query_set": 64}, "in such sets too")]
)
def test_a_table_says_how_interacting_queries_were_tested(
    root: Path, tmp_path: Path, config: dict[str, Any], way: str
) -> None:
    [spec] = [s for s in inverse.COMPLETERS if s.model == "gnot"]
    assert "GNOT depends" not in text_of_completers(tmp_path)
    fake(tmp_path, spec, 0, {"ratio=1%": 0.1}, config)
    note = f"It was trained on random sets of 64 query points and tested {way}."
    assert note in text_of_completers(tmp_path)


def test_the_papers_numbers_have_all_models_and_columns() -> None:
    for table in (paper.COMPLETER, paper.COMPLETER_SPREAD):
        assert set(table) == set(inverse.MODELS)
        assert all(tuple(row) == inverse.RATIOS for row in table.values())
    assert set(paper.PROPAGATOR) == set(paper.PROPAGATOR_SPREAD) == set(inverse.MODELS)
    asked = [name.removeprefix("test:from=") for name in inverse.PROPAGATORS[1].data_sets()]
    for row in paper.PROPAGATOR.values():
        assert list(row) == [name for name in asked if not name.startswith("test:")]


def test_squares_are_drawn_with_their_numbers(tmp_path: Path) -> None:
    values = np.arange(1.0, 17).reshape(4, 4)
    values[3, 0] = np.nan
    figure = plots.heat_maps({"a": values, "b": 2 * values}, (2, 4, 8, 16), ("t", "x"), "error")
    first, second = (axis for axis in figure.axes if axis.get_title())
    np.testing.assert_array_equal(np.ma.filled(first.images[0].get_array(), np.nan), values)
    assert first.images[0].get_clim() == second.images[0].get_clim() == (1, 32)
    texts = {t.get_position(): t.get_text() for t in second.texts}
    assert texts[1, 0] == "4.00"  # the column, then the row
    assert texts[0, 3] == "missing"
    assert (first.get_ylabel(), first.get_xlabel()) == ("t", "x")
    plots.save(figure, tmp_path / "a.png", dpi=40)


@pytest.mark.parametrize("table", ["completer", "propagator", "intervals"])
def test_the_commands_have_help_with_an_example(
    table: str, capsys: pytest.CaptureFixture[str]
) -> None:
    page = lno(capsys, "reproduce", table, "--help")
    assert f"Example: lno reproduce {table}" in page
    for option in ("minutes", "jobs", "seeds", "epochs", "models", "precision", "apart", "dry-run"):
        assert f"--{option}" in page


def test_presets_are_the_papers_and_can_be_trained(
    root: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "run"
    words = ["--preset", "completer-5", "--epochs", "1", "--device", "cpu", "--out", str(out)]
    assert "relative MAE" in lno(capsys, "train", "burgers", *words)
    assert Operator.load(out / "model.safetensors").task.pattern == RandomRatio(0.05)
    for model in inverse.MODELS:
        for name, how in (("completer", ("adam", "step")), ("propagator", ("adamw", "onecycle"))):
            chosen = presets.preset("burgers", name, model)
            recipe = chosen.recipe
            assert (recipe.loss, recipe.learning_rate) == ("mse", 1e-3)
            assert (recipe.optimizer, recipe.schedule) == how
            assert chosen.raw_coordinates and not chosen.conditional
        width, blocks = {"lno": (96, 4), "gnot": (96, 4), "deeponet": (128, 4)}[model]
        assert (PRESETS[model].config.width, PRESETS[model].config.blocks) == (width, blocks)
        assert (PRESETS[model].recipe.batch, PRESETS[model].recipe.queries) == (32, 2048)
    ours = presets.preset("burgers", "our-completer")
    assert ours.conditional and ours.symmetries and not ours.raw_coordinates


def test_models_for_reconstruction_are_made_measured_and_used(
    root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # Bounds need at least nine held-out fields.
    monkeypatch.setattr(Burgers, "protocols", {"standard": Protocol(8, 18, {"grid": 32})})
    small = tuple(replace(spec, epochs=2, precision="fp32") for spec in pretrained.SPECS)
    monkeypatch.setattr(pretrained, "SPECS", small)
    monkeypatch.setattr(pretrained, "SEEDS", SEEDS)
    monkeypatch.setattr(pretrained, "CALIBRATION", 9)
    models = tmp_path / "models"
    words = ("--results", str(tmp_path), "--out", str(models), "--device", "cpu")
    shown = " ".join(lno(capsys, "reproduce", "pretrained", *words).split())
    assert "Relative MAE on 9 held-out test samples" in shown and "Ensembles of 2" in shown
    found = json.loads((tmp_path / "benchmarks" / "pretrained.json").read_text())
    single, half = (found["errors"][kind] for kind in ("float32", "float16"))
    assert single.keys() == half.keys()
    assert list(half.values()) == pytest.approx(list(single.values()), rel=2e-3)
    levels = [point["level"] for point in found["coverage"]]
    assert levels == [0.5, 0.6, 0.7, 0.8, 0.9]  # no others can be promised with nine fields
    shares = [point["all"] for point in found["coverage"]]
    assert shares == sorted(shares)
    reconstructor = Reconstructor.load(models, "cpu")
    assert len(reconstructor.completer.members) == len(reconstructor.propagator.members) == 2
    assert reconstructor.calibration.sensors == (3, 5, 26, 51, 102)
    assert found["bytes"] == sum(p.stat().st_size for p in models.glob("*.safetensors"))
    card = (models / "README.md").read_text()
    assert "results/burgers/lno/our-completer-2-fp32-seed1.json" in card
    assert len(pretrained.coverage_curve(tmp_path)) == 1
    assert pretrained.coverage_curve(tmp_path / "nowhere") == []
    assert "missing" in pretrained.table(tmp_path / "nowhere").markdown()

    before = {path: path.read_bytes() for path in models.iterdir()}
    (models / "calibration.json").unlink()
    lno(capsys, "reproduce", "pretrained", *words, "--calibrate-only")
    assert {path: path.read_bytes() for path in models.iterdir()} == before
    assert json.loads((tmp_path / "benchmarks" / "pretrained.json").read_text()) == found
