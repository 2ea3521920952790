"""The inverse problem on a small scale: errors as written out, and what is trained again."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.layout_engine import ConstrainedLayoutEngine
from small_forward import train_missing
from small_inverse import (
    ALL,
    COMPLETER,
    OURS,
    PROPAGATOR,
    SEEDS,
    SIZES,
    listed,
    relative_mae,
    reproduce,
)

from lno import Fields
from lno.data.observe import Intervals, RandomRatio
from lno.experiments import datasets, inverse, inverse_tables, presets, report
from lno.experiments.inverse import Completer, observed, predicted
from lno.kernel_methods.krige import krige
from lno.kernel_methods.rbf import interpolate_rbf
from lno.ledger import Run


@pytest.fixture(scope="module")
def ledger(root: Path) -> Iterator[Path]:
    """Both stages of all models, trained for two epochs and tested on four grids of sensors."""
    results, steps = root / "results", (4, 8)
    few = {inverse.interval(t, x) for t in steps for x in steps}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inverse_tables, "STEPS", steps)
        for name in inverse.GRIDS.keys() - few:
            patch.delitem(inverse.GRIDS, name)
        # Predictions of GNOT are made in sets of as many points.
        gnot = presets.PRESETS["gnot"]
        for recipes in (gnot["completer"], gnot["propagator"]):
            chosen = recipes["burgers"]
            recipe = replace(chosen.recipe, queries=256)
            patch.setitem(recipes, "burgers", replace(chosen, recipe=recipe))
        every = [replace(s, epochs=2, precision="fp32") if s.trained else s for s in ALL]
        assert train_missing(every, SEEDS, results, device="cpu")
        yield results


@pytest.mark.parametrize("spec", [COMPLETER, OURS], ids=lambda spec: spec.recipe)
def test_errors_of_completers_are_those_written_out(
    spec: Completer, ledger: Path, samples: tuple[Fields, Fields, Fields]
) -> None:
    for seed, run in spec.runs(ledger, SEEDS).items():
        assert set(run.metrics) == set(spec.data_sets())
        assert run.config.get("conditional", False) == spec.preset.conditional
        operator = spec.operator(seed)
        assert operator is not None
        for name, pattern in (
            ("test:ratio=10%", RandomRatio(0.1)),
            ("test:interval=4x8", Intervals((4, 8))),
        ):
            seen = observed(samples[2], pattern)
            guess = np.stack([operator.predict(s.x, s.u, s.x_query) for s in seen])
            expected = relative_mae(guess[..., 0], np.asarray(seen.y)[..., 0])
            assert run.metrics[name]["relative_mae"] == pytest.approx(expected, rel=1e-4)


def test_propagators_are_measured_at_both_ends_alone(
    ledger: Path, samples: tuple[Fields, Fields, Fields]
) -> None:
    test = samples[2]
    truth = np.asarray(test.y).reshape(3, 32, 32)
    points = np.asarray(test.x)
    inside = (points[:, 0] >= 0.25) & (points[:, 0] <= 0.75)
    for seed, run in PROPAGATOR.runs(ledger, SEEDS).items():
        assert set(run.metrics) == set(PROPAGATOR.data_sets())
        operator = PROPAGATOR.operator(seed)
        gnot = replace(COMPLETER, model="gnot").operator(seed)
        mine = COMPLETER.operator(seed)
        assert operator is not None and gnot is not None and mine is not None
        starts = {
            "test:from=truth": np.asarray(test.y)[:, inside],
            "test:from=gnot 1%": predicted(gnot, observed(test, RandomRatio(0.01))).numpy(),
            "test:interval=8x4": predicted(mine, observed(test, Intervals((8, 4)))).numpy(),
        }
        for name, start in starts.items():
            whole = [operator.predict(points[inside], values, points) for values in start]
            ends = np.stack(whole).reshape(3, 32, 32)[:, [0, -1]].reshape(3, -1)
            expected = relative_mae(ends, truth[:, [0, -1]].reshape(3, -1))
            assert run.metrics[name]["relative_mae"] == pytest.approx(expected, rel=1e-4)
    a, b = (run.metrics for run in PROPAGATOR.runs(ledger, SEEDS).values())
    assert a["test:from=lno 10%"] != b["test:from=lno 10%"]


@pytest.mark.parametrize("model", inverse.MODELS)
def test_what_is_not_observed_changes_no_prediction(
    model: str, ledger: Path, samples: tuple[Fields, Fields, Fields]
) -> None:
    test = samples[2]
    spec = replace(COMPLETER, model=model)
    operators = [o for s in {spec, OURS} if (o := s.operator(0)) is not None]
    points, values = np.asarray(test.x), np.asarray(test.y)
    for pattern in (RandomRatio(0.1), RandomRatio(0.005), Intervals((8, 16))):
        seen = observed(test, pattern)
        hidden = values + np.random.default_rng(0).normal(size=values.shape).astype(np.float32)
        for k, sample in enumerate(seen):
            known = (points[:, None] == sample.x).all(-1).any(1)
            assert known.sum() == len(sample.x)
            hidden[k, known] = values[k, known]
        other = observed(
            Fields(points, y=hidden, grid=test.grid, names=test.names, period=test.period), pattern
        )
        for operator in operators:
            assert torch.equal(predicted(operator, seen), predicted(operator, other))


def test_methods_without_training_get_the_same_sensors_and_are_recorded(
    ledger: Path, samples: tuple[Fields, Fields, Fields]
) -> None:
    def kriging(s: Any) -> np.ndarray:
        def features(v: np.ndarray) -> torch.Tensor:
            angle = 2 * np.pi * v[None, :, 1]
            return torch.from_numpy(np.stack((7 * v[None, :, 0], np.cos(angle), np.sin(angle)), -1))

        values = torch.from_numpy(s.u)[None]
        return krige(features(s.x), values, features(s.x_query), axes=(0, 1, 1))[0].numpy()

    def rbf(s: Any) -> np.ndarray:
        return interpolate_rbf(s.x, s.u, s.x_query, (None, 1.0), 64)

    seen = observed(samples[2], RandomRatio(0.2))
    for name, method, within in (("rbf", rbf, 1e-4), ("kriging", kriging, 0.05)):
        run = Run.load(ledger / "burgers" / name / "completer-0-fp64-seed0.json")
        assert (run.model, run.recipe, run.protocol) == (name, "completer", "standard")
        assert (run.seed, run.epochs, run.parameters) == (0, 0, 0)
        assert len(run.metrics) == 5
        guess = np.stack([method(s) for s in seen])
        expected = relative_mae(guess[..., 0], np.asarray(seen.y)[..., 0])
        assert run.metrics["test:ratio=20%"]["relative_mae"] == pytest.approx(expected, rel=within)
        assert len(list((ledger / "burgers" / name).iterdir())) == 1


def test_the_commands_run_what_is_missing_and_print_it(
    ledger: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """What the cache keeps is read again; an empty ledger has nothing."""
    assert listed(reproduce(capsys, "completer", tmp_path, "--dry-run")) == [
        ("rbf", "completer", "0"),
        ("kriging", "completer", "0"),
        ("lno", "our-completer", "0–1"),
        ("lno", "completer", "0–1"),
        ("gnot", "completer", "0–1"),
        ("deeponet", "completer", "0–1"),
        *(("lno", f"completer-{r}", "0–1") for r in ("20", "10", "5", "1", "0.5")),
        ("lno", "completer-1.batch=4", "0–1"),
    ]
    assert not list(tmp_path.iterdir())
    shown = reproduce(capsys, "completer", tmp_path)
    assert "missing" not in shown
    assert "LNO, one per ratio" in shown
    assert "nothing is missing" in reproduce(capsys, "completer", tmp_path, "--dry-run")
    some = ("--models", "lno,gnot")
    listing = reproduce(capsys, "propagator", tmp_path, *some, "--dry-run")
    assert listed(listing) == [
        ("lno", "our-propagator", "0–1"),
        ("lno", "propagator", "0–1"),
        ("gnot", "propagator", "0–1"),
    ]
    assert "missing" not in reproduce(capsys, "propagator", tmp_path, *some)
    intervals = reproduce(capsys, "intervals", tmp_path, "--models", "gnot")
    assert "missing" not in intervals
    assert intervals.count("GNOT") == 4
    for path in tmp_path.rglob("*.json"):
        assert Run.load(path).metrics == Run.load(ledger / path.relative_to(tmp_path)).metrics


def test_a_deleted_run_comes_back_also_without_the_completers_that_it_needs(
    ledger: Path,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cache, results = tmp_path / "cache", tmp_path / "results"
    shutil.copytree(datasets.cache_folder(), cache)
    shutil.copytree(ledger, results)
    monkeypatch.setenv("LNO_DATA", str(cache))
    gone = PROPAGATOR.path(results, 1)
    before = Run.load(gone)
    gone.unlink()
    assert listed(reproduce(capsys, "propagator", results, "--dry-run")) == [
        ("lno", "propagator", "1")
    ]
    for model in ("lno", "gnot"):
        shutil.rmtree(replace(COMPLETER, model=model).folder(SEEDS))
    assert listed(reproduce(capsys, "propagator", results, "--dry-run")) == [
        ("lno", "completer", "1"),
        ("gnot", "completer", "1"),
        ("lno", "propagator", "1"),
    ]
    times = {path: path.stat().st_mtime_ns for path in results.rglob("*.json")}
    assert "missing" not in reproduce(capsys, "propagator", results)
    assert {path: path.stat().st_mtime_ns for path in times} == times
    after = Run.load(gone)
    assert set(after.metrics) == set(before.metrics)
    for name, errors in before.metrics.items():
        assert after.metrics[name]["relative_mae"] == pytest.approx(
            errors["relative_mae"], rel=1e-3
        )
    shutil.rmtree(cache / "runs")  # all is there that tables need
    assert "nothing is missing" in reproduce(capsys, "propagator", results, "--dry-run")


def test_only_finished_operators_of_the_same_setup_are_used(
    ledger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert COMPLETER.operator(1) is not None
    assert COMPLETER.operator(2) is None
    assert replace(COMPLETER, epochs=3).operator(0) is None
    now = presets.preset("burgers", "completer")
    for other in (
        replace(now, config=replace(SIZES["lno"], latents=5)),
        replace(now, symmetries=not now.symmetries),
        replace(now, raw_coordinates=not now.raw_coordinates),
        replace(now, conditional=not now.conditional),
    ):
        with monkeypatch.context() as changed:
            changed.setitem(presets.PRESETS["lno"]["completer"], "burgers", other)
            assert COMPLETER.operator(1) is None
    cut = replace(COMPLETER, epochs=4)
    assert not train_missing([cut], [0], tmp_path, device="cpu", minutes=1e-9)
    assert (cut.folder([0]) / "model.safetensors").exists()
    assert cut.operator(0) is None
    (cut.folder([0]) / "model.safetensors").write_bytes(b"damaged")
    assert cut.operator(0) is None


def test_the_report_has_both_stages_and_what_is_missing(
    ledger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = report.page(tmp_path)
    assert "Not run yet: “Completers: reconstruction from scattered observations”" in empty
    assert "<img" not in empty
    changed = {
        name: tuple(
            replace(s, epochs=2, precision="fp32") if s.trained else s
            for s in getattr(inverse, name)
        )
        for name in ("COMPLETERS", "PROPAGATORS", "ON_GRIDS")
    }
    for name, several in changed.items():
        monkeypatch.setattr(inverse, name, several)
    # Pictures take long: of one sample of either stage, and without arranging them.
    monkeypatch.setattr(ConstrainedLayoutEngine, "execute", lambda engine, figure: None)
    shown = [spec.path(ledger, 0).with_suffix(".npz") for spec in (COMPLETER, PROPAGATOR)]
    hidden = [path.relative_to(ledger) for path in ledger.rglob("*.npz") if path not in shown]
    results = shutil.copytree(ledger, tmp_path / "results")
    for path in hidden:
        (results / path).unlink()
    page = report.page(results)
    assert hidden and page.count(": median error") == 2 * 2  # in the caption and as its text
    for words in (
        "Relative MAE of completers with sensors on a grid",
        "Relative MAE of propagators after completers with sensors on a grid",
        "Burgers&#x27; equation: completers:",
        "Burgers&#x27; equation: completers for one ratio",
        "Burgers&#x27; equation: propagators",
    ):
        assert words in page
    assert "://" not in page
    [run] = COMPLETER.runs(ledger, [0]).values()
    [other] = COMPLETER.runs(ledger, [1]).values()
    both = [100 * r.metrics["test:interval=4x8"]["relative_mae"] for r in (run, other)]
    assert f"{np.mean(both):.3f} ± {np.std(both, ddof=1):.3f}" in report.markdown(ledger)
