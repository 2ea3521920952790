"""The paper's tables on a small scale: runs, ledger, resuming, and what tests may not influence."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from lno import Fields, Operator, cli
from lno.config import to_dict
from lno.experiments import cells as running
from lno.experiments import datasets, efficiency, forward, inverse, paper, presets, resolution
from lno.experiments.cells import Cell, errors_of, train_missing
from lno.experiments.plan import estimate, plan
from lno.ledger import Run
from lno.models import LNOConfig, TransolverConfig
from lno.tasks import to_json

LNO = LNOConfig(width=16, latents=8, blocks=1, heads=2, layers=1)
TRANSOLVER = TransolverConfig(width=16, layers=1, heads=2, slices=4, reference=3)


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Tiny data and models in place of the paper's; returns an empty ledger."""
    monkeypatch.setenv("LNO_DATA", str(tmp_path / "cache"))
    monkeypatch.setattr(datasets, "pick_solver_device", lambda name: torch.device("cpu"))
    tiny = datasets.Protocol(6, 4, {"grid": 15, "every": 2})
    monkeypatch.setitem(datasets.PROTOCOLS["standard"], "darcy", tiny)
    monkeypatch.setitem(datasets.PROTOCOLS["resolution"], "darcy", tiny)
    flow = datasets.Protocol(4, 2, {"grid": 16, "every": 2})
    monkeypatch.setitem(datasets.PROTOCOLS["standard"], "ns2d", flow)
    for model, config in (("lno", LNO), ("transolver", TRANSOLVER)):
        for recipes in presets.PRESETS[model].values():
            for problem in ("darcy", "ns2d"):
                if problem in recipes:
                    changed = replace(recipes[problem], config=config)
                    monkeypatch.setitem(recipes, problem, changed)
    return tmp_path / "results"


def lno(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> str:
    monkeypatch.setattr("sys.argv", ["lno", *words])
    with pytest.raises(SystemExit) as left:
        cli.main()
    assert left.value.code == 0, capsys.readouterr().err
    return capsys.readouterr().out


PAPER = Cell("darcy", "lno", "paper", 3, "fp32")


def test_missing_runs_are_trained_recorded_and_found(small: Path) -> None:
    assert PAPER.missing(small, range(2)) == [0, 1]
    assert train_missing([PAPER], range(2), small, device="cpu")
    assert PAPER.missing(small, range(3)) == [2]
    runs = PAPER.runs(small, range(3))
    assert sorted(runs) == [0, 1]
    for seed, run in runs.items():
        assert (run.seed, run.members, run.epochs, run.steps) == (seed, 2, 3, 6)
        assert run.metrics["test"]["relative_l2"] == pytest.approx(np.mean(run.samples["test"]))
        assert run.curve[-1]["error"] == pytest.approx(run.metrics["test"]["relative_l2"], rel=1e-4)
    assert runs[0].curve[0]["loss"] != runs[1].curve[0]["loss"]
    alone = small.parent / "alone"
    shutil.rmtree(datasets.cache_folder() / "runs")
    train_missing([PAPER], [1], alone, device="cpu")
    [run] = PAPER.runs(alone, [1]).values()
    assert run.members == 1
    a, b = run.metrics["test"]["relative_l2"], runs[1].metrics["test"]["relative_l2"]
    assert a == pytest.approx(b, rel=1e-3)  # a member is the run of its seed
    kept = np.load(PAPER.path(small, 0).with_suffix(".npz"), allow_pickle=False)
    assert kept["prediction"].shape == kept["y"].shape == (64, 1)
    assert kept["grid"].tolist() == [8, 8]


def test_nothing_is_done_twice_and_a_deleted_run_comes_back(small: Path) -> None:
    train_missing([PAPER], range(2), small, device="cpu")
    before = PAPER.runs(small, range(2))
    times = {p: p.stat().st_mtime_ns for p in small.rglob("*.json")}
    assert train_missing([PAPER], range(2), small, device="cpu")
    assert times == {p: p.stat().st_mtime_ns for p in small.rglob("*.json")}
    PAPER.path(small, 0).unlink()
    assert train_missing([PAPER], range(2), small, device="cpu")  # its operator is kept
    assert PAPER.runs(small, range(2)) == before
    PAPER.path(small, 0).unlink()
    shutil.rmtree(datasets.cache_folder() / "runs")
    assert train_missing([PAPER], range(2), small, device="cpu")
    again = PAPER.runs(small, range(2))
    assert again[0] != before[0]
    assert again[0].metrics["test"]["mse"] == pytest.approx(before[0].metrics["test"]["mse"], 1e-3)


def test_a_run_that_was_cut_off_goes_on(small: Path) -> None:
    assert not train_missing([PAPER], range(2), small, device="cpu", minutes=1e-9)
    assert not list(small.rglob("*.json"))
    assert train_missing([PAPER], range(2), small, device="cpu")
    cut = PAPER.runs(small, range(2))
    whole = small.parent / "whole"
    shutil.rmtree(datasets.cache_folder() / "runs")
    assert train_missing([PAPER], range(2), whole, device="cpu")
    for seed, run in PAPER.runs(whole, range(2)).items():
        assert run.metrics == cut[seed].metrics


def test_test_samples_decide_nothing(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With absurd test samples the same weights and normalisers come out, to the bit."""
    operators = []
    for absurd in (False, True):
        train, test = datasets.dataset("darcy", device="cpu", show=False)
        if absurd:
            test = Fields(test.x, test.u * 1e6, y=test.y * 1e9 + 7, grid=test.grid)
        monkeypatch.setattr(running, "dataset", lambda *_, pair=(train, test): pair)
        monkeypatch.setenv("LNO_DATA", str(small.parent / f"cache-{absurd}"))
        operators.append(running.train_operators(replace(PAPER, recipe="fast"), [0, 1], "cpu"))
    for honest, marked in zip(*operators, strict=True):
        assert honest.normalizers == marked.normalizers
        for p, q in zip(honest.model.parameters(), marked.model.parameters(), strict=True):
            assert torch.equal(p, q)
    a, b = (seeds[0].provenance["curve"][-1]["error"] for seeds in operators)
    assert abs(a - b) > 1e-3  # it was watched, all the same


def test_the_table_shows_means_ratios_and_gaps(small: Path) -> None:
    def fake(cell: Cell, seed: int, error: float, losses: tuple[float, ...] = (0.2, 0.1)) -> None:
        # Four samples with a standard deviation of 0.002: the standard error is 0.001.
        deviations = np.sqrt(0.75) * 0.002 * np.array([1, -1, 1, -1])
        run = Run(
            problem=cell.problem,
            model=cell.model,
            recipe=cell.recipe,
            protocol="standard",
            seed=seed,
            epochs=cell.epochs,
            steps=1000,
            task={"kind": "steady"},
            hardware="a GPU",
            seconds=30.0,
            parameters=5,
            data_hash="",
            config={},
            metrics={"test": {"relative_l2": error}},
            members=3,
            precision="tf32",
            samples={"test": (error + deviations).tolist()},
            curve=[{"step": 500 * k, "loss": loss} for k, loss in enumerate(losses, start=1)],
        )
        run.save(small, cell.name(seed))

    ours, theirs = (Cell("darcy", m, "paper", 100, "tf32") for m in ("lno", "transolver"))
    for seed, error in enumerate((0.010, 0.012, 0.014)):
        fake(ours, seed, error)
    fake(theirs, 0, 0.016, losses=(0.1, 0.2))
    absent = Cell("ns2d", "lno", "paper", 20, "tf32")
    shown = forward.table([ours, theirs, absent], range(3), small)
    text = shown.markdown()
    assert "| 1.200 ± 0.200 | 3 | 0.100 | 0.49 | 10 (3 at once) |" in text
    assert "| 1.600 | 1 | 0.100 | 0.58 |" in text
    assert "| ns2d | LNO | paper | tf32 | 20 | missing | 0 | missing | 8.45 | missing |" in text
    assert text.count("unstable") == 1
    assert "transolver, 100 epochs, tf32, seed 0: training became unstable after step 500" in text
    assert "LNO / Transolver = 0.75 (paper: 0.49 / 0.58 = 0.84 at 500 epochs)" in text
    shown = plan([ours, theirs, absent], range(3), small)
    assert [row[:2] + row[5:6] for row in shown.rows] == [
        ["darcy", "transolver", "1, 2"],
        ["ns2d", "lno", "0, 1, 2"],
    ]
    per_step = 30.0 / 1000 / 3
    assert estimate(theirs, 2, small) == pytest.approx(per_step * theirs.steps * 2 / 60)
    assert estimate(absent, 3, small) is None


def test_asking_for_what_the_table_has_not_is_an_error() -> None:
    with pytest.raises(ValueError, match="no problem 'drcy' in this table: expected one of darcy"):
        running.chosen(forward.CELLS, ["drcy"])
    changed = running.chosen(forward.CELLS, ["darcy"], ["lno"], ["paper"], epochs=7)
    assert len(changed) == 2  # tf32 and mixed; 500 and 100 epochs fall together
    assert {c.epochs for c in changed} == {7}


def test_the_command_runs_what_is_missing_and_prints_it(
    small: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["reproduce", "forward", "--epochs", "1", "--seeds", "1", "--device", "cpu"]
    words += ["--precision", "fp32", "--recipes", "paper", "--results", str(small)]
    listed = lno(capsys, monkeypatch, *words, "--dry-run")
    assert listed.count("darcy") == listed.count("ns2d") == 2
    assert not small.exists()
    shown = lno(capsys, monkeypatch, *words)
    assert "missing" not in shown
    assert "LNO / Transolver" in shown
    assert "nothing is missing" in lno(capsys, monkeypatch, *words, "--dry-run")
    film = Run.load(small / "ns2d" / "transolver" / "paper-1-fp32-seed0.json")
    assert film.task == {"kind": "rollout", "frames": 10}
    assert len(film.frames) == 10
    assert film.config["model"]["slices"] == 4


def test_resolutions_are_the_same_fields(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolution, "FINE", 15)
    monkeypatch.setattr(resolution, "GRIDS", (8, 15, 9))
    resolution.fine_samples.cache_clear()
    fine = resolution.fine_samples("cpu")
    _, test = datasets.dataset("darcy", "resolution", "cpu", show=False)
    coarse = resolution.at_nodes(fine, 8)
    np.testing.assert_array_equal(coarse.u, test.u)
    np.testing.assert_allclose(coarse.y, test.y, rtol=1e-6)
    between = resolution.at_nodes(fine, 9)
    assert set(np.unique(between.u)) <= {3.0, 12.0}
    assert np.asarray(between.y).max() == pytest.approx(np.asarray(fine.y).max(), rel=0.1)
    cells = [replace(c, epochs=1, precision="fp32") for c in resolution.CELLS]
    assert train_missing(cells, [0], small, device="cpu")
    resolution.fine_samples.cache_clear()
    for cell in cells:
        [run] = cell.runs(small, [0]).values()
        assert set(run.metrics) == {f"test:grid={n}" for n in (8, 15, 9)}
    text = resolution.table(cells, [0], small).markdown()
    assert "missing" not in text


def test_the_spline_reads_smooth_functions_exactly() -> None:
    def field(n: int) -> Fields:
        s = np.linspace(0, 1, n)
        y = (s[:, None] ** 3 - s * s[:, None]).reshape(1, -1, 1)
        x = np.stack(np.meshgrid(s, s, indexing="ij"), -1).reshape(-1, 2)
        return Fields(x, u=np.full_like(y, 3.0), y=y, grid=(n, n))

    np.testing.assert_allclose(resolution.at_nodes(field(15), 11).y, field(11).y, atol=1e-6)


def test_costs_are_measured_for_both_models_and_shown_beside_the_papers(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(efficiency, "GRIDS", {"darcy": (8, 1, 1), "ns2d": (8, 10, 10)})
    monkeypatch.setattr(efficiency, "SAMPLES", 4)
    efficiency.measure_all(small, device="cpu")
    rows = json.loads((small / "benchmarks" / "efficiency.json").read_text())["rows"]
    assert [(r["problem"], r["model"]) for r in rows] == [
        (p, m) for p in ("darcy", "ns2d") for m in ("lno", "transolver")
    ]
    assert all(r["seconds_per_epoch"] > 0 and r["parameters"] > 100 for r in rows)
    text = efficiency.table(small).markdown()
    assert "0.76, 5.75, 38.98" in text
    assert "missing" not in text


def test_the_printed_numbers_have_both_models_and_all_problems() -> None:
    for table in (paper.FORWARD, paper.EFFICIENCY):
        assert set(table["lno"]) == set(table["transolver"])
        assert len(table["lno"]) == 6


def test_the_report_shows_what_there_is_and_what_is_missing(
    small: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    film = Cell("ns2d", "lno", "paper", 1, "fp32")
    monkeypatch.setattr(forward, "CELLS", (PAPER, film))
    out, tables = small.parent / "report.html", small.parent / "results.md"
    words = ["report", "--results", str(small), "--out", str(out), "--markdown", str(tables)]
    small.mkdir()
    lno(capsys, monkeypatch, *words)
    assert "missing" in tables.read_text()
    assert "<img" not in out.read_text()
    train_missing([PAPER, film], [0], small, device="cpu")
    lno(capsys, monkeypatch, *words)
    [run] = PAPER.runs(small, [0]).values()
    error = f"{100 * run.metrics['test']['relative_l2']:.3f}"
    assert f"| {error} | 1 | " in tables.read_text()
    page = out.read_text()
    assert error in page
    for words in ("Navier–Stokes", "frame by frame", "the test sample with the median error"):
        assert words in page
    assert "http" not in page.replace("http-equiv", "")  # opens anywhere, also without a network


def test_errors_of_each_frame_are_those_of_the_rollout(small: Path) -> None:
    cell = Cell("ns2d", "lno", "paper", 1, "fp32")
    assert train_missing([cell], [0], small, device="cpu")
    [run] = cell.runs(small, [0]).values()
    operator = Operator.load(cell.folder([0]) / "model.safetensors", device="cpu")
    _, test = datasets.dataset("ns2d", device="cpu", show=False)
    prediction, truth = operator.predict(test), np.asarray(test.y)
    by_frame = np.linalg.norm(prediction - truth, axis=1) / np.linalg.norm(truth, axis=1)
    np.testing.assert_allclose(run.frames, by_frame.mean(0), rtol=1e-4)
    assert errors_of(operator, test).metrics == run.metrics


def test_every_run_of_the_ledger_was_made_as_its_name_says() -> None:
    """A preset that changes leaves runs behind that are no longer its own: they must go."""
    results = Path(__file__).parents[2] / "results"
    every = (*forward.CELLS, *resolution.CELLS, *inverse.COMPLETERS, *inverse.PROPAGATORS)
    found = [(c, run) for c in every if c.epochs for run in c.runs(results, range(3)).values()]
    assert len(found) > 10
    for cell, run in found:
        recipe, made = to_dict(cell.preset.recipe), run.config["recipe"]
        changed = {key for key in recipe if key in made and made[key] != recipe[key]}
        assert not changed, cell.path(results, run.seed)
        assert run.config["model"] == json.loads(json.dumps(asdict(cell.preset.config)))
        assert run.task == json.loads(json.dumps(to_json(cell.preset.task)))
        assert run.steps == cell.steps
        assert run.precision == cell.precision
