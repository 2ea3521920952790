"""The inverse problem on a small scale: observations, errors, and what is trained again."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from lno import Fields, Operator, cli
from lno.data.interpolate import interpolate_rbf
from lno.data.krige import krige
from lno.data.observe import Intervals, RandomRatio
from lno.experiments import datasets, inverse, inverse_tables, paper, presets, pretrained, report
from lno.experiments.interpolants import by_rbf
from lno.experiments.inverse import Completer, Propagator, observed, predicted
from lno.experiments.queue import train_missing, train_operators
from lno.experiments.runs import RunSpec
from lno.ledger import Run
from lno.models import DeepONetConfig, GNOTConfig, LNOConfig
from lno.problems import Burgers, Protocol
from lno.reconstruct import Reconstructor
from lno.report import plots

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
PRESETS = {model: presets.preset("burgers", "completer", model) for model in inverse.MODELS}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Small fields and models in place of the paper's; the folder that everything is in."""
    path = tmp_path_factory.mktemp("inverse")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LNO_DATA", str(path / "cache"))
        patch.setattr(datasets, "pick_solver_device", lambda name: torch.device("cpu"))
        patch.setattr(Burgers, "protocols", {"standard": Protocol(8, 6, {"grid": 32})})
        for model, config in SIZES.items():
            for recipes in presets.PRESETS[model].values():
                if recipes.get("burgers") and recipes["burgers"].protocol == "standard":
                    chosen = recipes["burgers"]
                    recipe = replace(chosen.recipe, batch=4, queries=64)
                    patch.setitem(recipes, "burgers", replace(chosen, config=config, recipe=recipe))
        yield path


@pytest.fixture(scope="module")
def samples(root: Path) -> tuple[Fields, Fields, Fields]:
    return COMPLETER.samples("cpu")


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
    return [(row[1], row[2], row[5]) for row in rows]


@pytest.fixture(scope="module")
def ledger(root: Path) -> Path:
    """Both stages of all models, trained for two epochs."""
    results = root / "results"
    every = [replace(s, epochs=2, precision="fp32") if s.trained else s for s in ALL]
    assert train_missing(every, SEEDS, results, device="cpu")
    return results


def relative_mae(guess: np.ndarray, truth: np.ndarray) -> float:
    """Of fields (s, q), written out."""
    return float(np.mean(np.abs(guess - truth).mean(1) / np.abs(truth).mean(1)))


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
    assert len(sets["gnot", "completer"]) == 5 + 16
    assert sets["lno", "completer-0.5"] == ["test:ratio=0.5%"]
    assert sets["lno", "completer-20"] == ["test:ratio=20%"]
    ours, theirs, *_ = inverse.PROPAGATORS
    assert [name.removeprefix("test:") for name in ours.data_sets()[:4]] == [
        "from=truth",
        "from=lno 10%",
        "from=lno 1%",
        "interval=2x2",
    ]
    assert {s.recipe for s in ours.needs()} == {"our-completer"}
    assert [(s.model, s.recipe) for s in theirs.needs()] == [
        (m, "completer") for m in ("lno", "gnot", "deeponet")
    ]


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
            "test:interval=8x2": predicted(mine, observed(test, Intervals((8, 2)))).numpy(),
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


def test_interpolation_is_the_same_in_several_processes(
    samples: tuple[Fields, Fields, Fields], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    seen = observed(samples[0], RandomRatio(0.05))
    several = by_rbf([seen] * 8)
    assert len(several) == 8
    for alone in by_rbf([seen]):
        for answer in several:
            assert torch.equal(answer, alone)


def test_the_commands_run_what_is_missing_and_print_it(
    ledger: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """What the cache keeps is read again; an empty ledger has nothing."""
    assert listed(reproduce(capsys, "completer", tmp_path, "--dry-run")) == [
        ("rbf", "completer", "0"),
        ("kriging", "completer", "0"),
        ("lno", "our-completer", "0, 1"),
        ("lno", "completer", "0, 1"),
        ("gnot", "completer", "0, 1"),
        ("deeponet", "completer", "0, 1"),
        *(("lno", f"completer-{r}", "0, 1") for r in ("20", "10", "5", "1", "0.5")),
    ]
    assert not list(tmp_path.iterdir())
    shown = reproduce(capsys, "completer", tmp_path)
    assert "missing" not in shown
    assert "LNO, one for each ratio" in shown
    assert "nothing is missing" in reproduce(capsys, "completer", tmp_path, "--dry-run")
    some = ("--models", "lno,gnot")
    listing = reproduce(capsys, "propagator", tmp_path, *some, "--dry-run")
    assert listed(listing) == [
        ("lno", "our-propagator", "0, 1"),
        ("lno", "propagator", "0, 1"),
        ("gnot", "propagator", "0, 1"),
    ]
    assert "missing" not in reproduce(capsys, "propagator", tmp_path, *some)
    intervals = reproduce(capsys, "intervals", tmp_path, "--models", "gnot")
    assert "missing" not in intervals
    assert intervals.count("GNOT") == 8
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
        recipe=spec.recipe,
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
    shorter, longer = (s for s in inverse.COMPLETERS if s.recipe == "completer-1")
    for spec, error in ((shorter, 0.08), (longer, 0.008)):  # a tenth after ten times the steps
        assert "to the power of" not in text_of_completers(tmp_path)
        fake(tmp_path, spec, 0, {"ratio=1%": error})
    gain = "At 1 %, 3,000 steps reduce its error from 8 to 0.8 %: it falls like the number of steps"
    assert f"{gain} to the power of -1.00." in text_of_completers(tmp_path)


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
    assert "| LNO, one for each ratio | 0–1 | missing | missing | 2.000 | missing |" in text
    assert "| LNO, as published | 1 | 0.60 |" in text
    assert "| DeepONet, as published | 3 | 2.37 ± 0.18 |" in text
    for sentence in (
        "8 training samples, 3 for validation and 3 others for testing",
        "Budget of our recipe: 200 epochs, 4 samples and 64 query points in a step, mixed; "
        "of LNO, GNOT, DeepONet: 30 epochs, 4 samples and 64 query points in a step, mixed; of "
        "LNO, one for each ratio, 10 times as long: 300 epochs, 4 samples",
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
    told = f"it was trained on random sets of 64 query points and tested {way}."
    assert told in text_of_completers(tmp_path)


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


def test_the_report_has_both_stages_and_what_is_missing(
    ledger: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = report.page(tmp_path)
    assert "Completers: a field from some of its points" in empty
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
    page = report.page(ledger)
    for words in (
        "Relative MAE of completers where sensors form a grid",
        "Relative MAE of propagators after completers where sensors form a grid",
        "Burgers&#x27; equation: completers<",
        "Burgers&#x27; equation: completers for one ratio",
        "Burgers&#x27; equation: propagators",
    ):
        assert words in page
    assert "http" not in page.replace("http-equiv", "")
    [run] = COMPLETER.runs(ledger, [0]).values()
    [other] = COMPLETER.runs(ledger, [1]).values()
    both = [100 * r.metrics["test:interval=4x8"]["relative_mae"] for r in (run, other)]
    assert f"{np.mean(both):.3f} ± {np.std(both, ddof=1):.3f}" in report.markdown(ledger)


@pytest.mark.parametrize("table", ["completer", "propagator", "intervals"])
def test_the_commands_have_help_with_an_example(
    table: str, capsys: pytest.CaptureFixture[str]
) -> None:
    page = lno(capsys, "reproduce", table, "--help")
    assert f"Example: lno reproduce {table}" in page
    for option in ("minutes", "seeds", "epochs", "models", "precision", "apart", "dry-run"):
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
