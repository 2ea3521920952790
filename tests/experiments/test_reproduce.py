"""The paper's tables on a small scale: runs, ledger, resuming, and what tests may not influence."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from deformed import shrink_presets

from lno import Fields, Operator, cli
from lno.config import from_dict, to_dict
from lno.experiments import (
    datasets,
    efficiency,
    forward,
    inverse,
    paper,
    plan,
    presets,
    queue,
    resolution,
    runs,
    tables,
)
from lno.experiments.queue import train_missing, train_operators
from lno.experiments.runs import RunSpec
from lno.files import write_json
from lno.ledger import Run
from lno.models import LNOConfig, TransolverConfig
from lno.problems import Darcy, NS2d, Protocol
from lno.tasks import to_json

LNO = LNOConfig(width=16, latents=8, blocks=1, heads=2, layers=1)
TRANSOLVER = TransolverConfig(width=16, layers=1, heads=2, slices=4, reference=3)


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Tiny data and models in place of the paper's; returns an empty ledger."""
    monkeypatch.setenv("LNO_DATA", str(tmp_path / "cache"))
    monkeypatch.setattr(datasets, "pick_solver_device", lambda name: torch.device("cpu"))
    tiny = Protocol(6, 4, {"grid": 15, "every": 2})
    monkeypatch.setattr(Darcy, "protocols", {"standard": tiny, "resolution": tiny})
    flow = Protocol(4, 2, {"grid": 16, "every": 2})
    monkeypatch.setattr(NS2d, "protocols", {"standard": flow})
    for model, config in (("lno", LNO), ("transolver", TRANSOLVER)):
        for recipes in presets.PRESETS[model].values():
            for problem in ("darcy", "ns2d"):
                if problem in recipes:
                    changed = replace(recipes[problem], config=config)
                    monkeypatch.setitem(recipes, problem, changed)
    return tmp_path / "results"


def lno(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    code = cli.run(words)
    printed = capsys.readouterr()
    assert code == 0, printed.err
    return printed.out


PAPER = RunSpec("darcy", "lno", "paper", 3, "fp32")


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


def test_test_samples_are_held_out(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With absurd test samples the weights and normalisers are the same, bit-for-bit."""
    operators = []
    for absurd in (False, True):
        train, test = datasets.dataset("darcy", device="cpu", show=False)
        if absurd:
            test = Fields(test.x, test.u * 1e6, y=test.y * 1e9 + 7, grid=test.grid)
        monkeypatch.setattr(runs, "dataset", lambda *_, pair=(train, test): pair)
        monkeypatch.setenv("LNO_DATA", str(small.parent / f"cache-{absurd}"))
        operators.append(train_operators(replace(PAPER, recipe="fast"), [0, 1], "cpu"))
    for honest, marked in zip(*operators, strict=True):
        assert honest.normalizers == marked.normalizers
        for p, q in zip(honest.model.parameters(), marked.model.parameters(), strict=True):
            assert torch.equal(p, q)
    a, b = (seeds[0].provenance["curve"][-1]["error"] for seeds in operators)
    assert abs(a - b) > 1e-3  # the curve shows the test error, all the same


def test_the_table_shows_means_ratios_and_gaps(small: Path) -> None:
    def fake(
        spec: RunSpec, seed: int, error: float, losses: tuple[float, ...] = (0.2, 0.1)
    ) -> None:
        # Four samples with a standard deviation of 0.002: the standard error is 0.001.
        deviations = np.sqrt(0.75) * 0.002 * np.array([1, -1, 1, -1])
        run = Run(
            problem=spec.problem,
            model=spec.model,
            recipe=spec.recipe,
            protocol="standard",
            seed=seed,
            epochs=spec.epochs,
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
            curve=[
                {"step": 500 * k, "seconds": 15.0 * k, "loss": loss, "error": None}
                for k, loss in enumerate(losses, start=1)
            ],
        )
        run.save(small, spec.name(seed))

    ours, theirs = (RunSpec("darcy", m, "paper", 100, "tf32") for m in ("lno", "transolver"))
    for seed, error in enumerate((0.010, 0.012, 0.014)):
        fake(ours, seed, error)
    fake(theirs, 0, 0.016, losses=(0.1, 0.2))
    absent = RunSpec("ns2d", "lno", "paper", 20, "tf32")
    shown = forward.table([ours, theirs, absent], range(3), small)
    text = shown.markdown()
    assert "| seeds | standard error | paper, 500 epochs |" in text
    assert "| 1.200 ± 0.200 | 3 | 0.100 | 0.49 | 10 (3 at once) |" in text
    assert "| 1.600 | 1 | 0.100 | 0.58 |" in text
    assert "| ns2d | LNO | paper | tf32 | 20 | missing | 0 | missing | 8.45 | missing |" in text
    assert text.count("unstable") == 1
    assert "transolver, 100 epochs, tf32, seed 0: training became unstable after step 500" in text
    assert "LNO / Transolver = 0.75 (paper: 0.49 / 0.58 = 0.84 at 500 epochs)" in text
    shown = plan.plan(plan.jobs_of_table([ours, theirs, absent], range(3), small))
    assert [row[:2] + row[5:6] for row in shown.rows] == [
        ["darcy", "transolver", "1, 2"],
        ["ns2d", "lno", "0, 1, 2"],
    ]
    per_step = 30.0 / 1000 / 3
    assert plan.estimate(theirs, 2, small) == pytest.approx(per_step * theirs.steps * 2 / 60)
    assert plan.estimate(absent, 3, small) is None


def test_asking_for_what_the_table_has_not_is_an_error() -> None:
    with pytest.raises(ValueError, match="no problem 'drcy' in this table: expected one of airf"):
        queue.chosen(forward.SPECS, ["drcy"])
    changed = queue.chosen(forward.SPECS, ["darcy"], ["lno"], ["paper"], epochs=7)
    assert len(changed) == 2  # tf32 and mixed; 500 and 100 epochs fall together
    assert {c.epochs for c in changed} == {7}


def test_the_command_runs_what_is_missing_and_prints_it(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["reproduce", "forward", "--epochs", "1", "--seeds", "1", "--device", "cpu"]
    words += ["--precision", "fp32", "--recipes", "paper", "--results", str(small)]
    words += ["--problems", "darcy,ns2d"]
    listed = lno(capsys, *words, "--dry-run")
    assert listed.count("darcy") == listed.count("ns2d") == 2
    assert not small.exists()
    shown = lno(capsys, *words)
    assert "missing" not in shown
    assert "LNO / Transolver" in shown
    assert "nothing is missing" in lno(capsys, *words, "--dry-run")
    run = Run.load(small / "ns2d" / "transolver" / "paper-1-fp32-seed0.json")
    assert run.task == {"kind": "rollout", "frames": 10, "channels": 1}
    assert len(run.frames) == 10
    assert run.config["model"]["slices"] == 4


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
    specs = [replace(s, epochs=1, precision="fp32") for s in resolution.SPECS]
    assert train_missing(specs, [0], small, device="cpu")
    resolution.fine_samples.cache_clear()
    for spec in specs:
        [run] = spec.runs(small, [0]).values()
        assert set(run.metrics) == {f"test:grid={n}" for n in (8, 15, 9)}
    text = resolution.table(specs, [0], small).markdown()
    assert "missing" not in text


def test_the_spline_reads_smooth_functions_exactly() -> None:
    def field(n: int) -> Fields:
        s = np.linspace(0, 1, n)
        y = (s[:, None] ** 3 - s * s[:, None]).reshape(1, -1, 1)
        x = np.stack(np.meshgrid(s, s, indexing="ij"), -1).reshape(-1, 2)
        return Fields(x, u=np.full_like(y, 3.0), y=y, grid=(n, n))

    np.testing.assert_allclose(resolution.at_nodes(field(15), 11).y, field(11).y, atol=1e-6)


def test_costs_are_measured_for_both_models_and_shown_beside_the_papers(
    small: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shrink_cases(monkeypatch)
    efficiency.measure_all(small, [("darcy", "lno"), ("darcy", "transolver")], device="cpu")
    text = efficiency.table(small).markdown()
    assert "0.76, 5.75, 38.98" in text
    assert text.count("| missing |") == 10 * 4 / 2  # "| missing | missing |" counts once
    words = ["reproduce", "efficiency", "--results", str(small), "--device", "cpu"]
    listed = lno(capsys, *words, "--dry-run").replace("\n", " ")
    assert "darcy" not in listed and "transolver on plasticity" in listed
    first = (small / "benchmarks" / "efficiency.json").read_text()
    assert "missing" not in lno(capsys, *words)
    rows = json.loads((small / "benchmarks" / "efficiency.json").read_text())["rows"]
    assert [(r["problem"], r["model"]) for r in rows] == [
        (p, m) for p in efficiency.CASES for m in ("lno", "transolver")
    ]
    assert rows[:2] == json.loads(first)["rows"]  # what was known is not measured again
    assert all(r["seconds_per_epoch"] > 0 and r["parameters"] > 100 for r in rows)
    by = {(r["problem"], r["model"]): r for r in rows}
    for model, steps in (("lno", 225), ("transolver", 225 * 20)):  # all times, or one
        r = by["plasticity", model]
        assert r["seconds_per_epoch"] == pytest.approx(r["milliseconds_per_step"] * steps / 1e3)
    assert "nothing is missing" in lno(capsys, *words, "--dry-run")


def shrink_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Costs of tiny data and models."""
    shrink_presets(monkeypatch)
    for problem, case in efficiency.CASES.items():
        grid = tuple(min(side, 8) for side in case.grid[:2]) + case.grid[2:]
        monkeypatch.setitem(efficiency.CASES, problem, replace(case, grid=grid))
    monkeypatch.setattr(efficiency, "SAMPLES", 4)


def test_how_long_a_run_takes_is_estimated_from_the_cost_of_its_points(
    tmp_path: Path,
) -> None:
    def row(problem: str, model: str, ms: float) -> dict:
        return {
            "problem": problem,
            "model": model,
            "precision": "tf32",
            "batch": 4,
            "milliseconds_per_step": ms,
        }

    rows = [row("darcy", "transolver", 15.0), row("pipe", "transolver", 40.0)]
    write_json(tmp_path / "benchmarks" / "efficiency.json", {"rows": rows})
    write_json(
        tmp_path / "benchmarks" / "training_step.json",
        {"rows": [{"case": "plasticity", "tf32_ms": 9.0}]},
    )

    def minutes(problem: str, model: str, epochs: int) -> float | None:
        return plan.estimate(RunSpec(problem, model, "paper", epochs, "tf32"), 2, tmp_path)

    assert minutes("pipe", "transolver", 50) == pytest.approx(0.040 * 50 * 250 * 2 / 60)
    points = 8 * 221 * 51 / (4 * 85**2)  # Transolver's batches are larger on Airfoil
    assert minutes("airfoil", "transolver", 100) == pytest.approx(
        0.015 * points * 100 * 125 * 2 / 60
    )
    points = 8 * 101 * 31 / (4 * 85**2)  # one time of each sample
    assert minutes("plasticity", "transolver", 10) == pytest.approx(
        0.015 * points * 10 * 2250 * 2 / 60
    )
    # One sample of 972 points: launching a step takes longer than computing it.
    assert minutes("elasticity", "transolver", 1) == pytest.approx(0.002 * 1000 * 2 / 60)
    assert minutes("plasticity", "lno", 100) == pytest.approx(0.009 * 100 * 225 * 2 / 60)
    assert minutes("airfoil", "lno", 1) is None


def test_the_printed_numbers_have_both_models_and_all_problems() -> None:
    for table in (paper.FORWARD, paper.EFFICIENCY):
        assert set(table["lno"]) == set(table["transolver"])
        assert len(table["lno"]) == 6


def test_the_report_shows_what_there_is_and_what_is_missing(
    small: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = RunSpec("ns2d", "lno", "paper", 1, "fp32")
    monkeypatch.setattr(forward, "SPECS", (PAPER, flow))
    out, markdown = small.parent / "report.html", small.parent / "results.md"
    words = ["report", "--results", str(small), "--out", str(out), "--markdown", str(markdown)]
    small.mkdir()
    lno(capsys, *words)
    assert "missing" in markdown.read_text()
    assert "<img" not in out.read_text()
    train_missing([PAPER, flow], [0], small, device="cpu")
    lno(capsys, *words)
    [run] = PAPER.runs(small, [0]).values()
    error = f"{100 * run.metrics['test']['relative_l2']:.3f}"
    assert f"| {error} | 1 | " in markdown.read_text()
    page = out.read_text()
    assert error in page
    for text in ("Navier–Stokes", "frame by frame", "median error, frames"):
        assert text in page
    assert "http" not in page.replace("http-equiv", "")  # opens anywhere, also without a network


def test_errors_of_each_frame_are_those_of_the_rollout(small: Path) -> None:
    spec = RunSpec("ns2d", "lno", "paper", 1, "fp32")
    assert train_missing([spec], [0], small, device="cpu")
    [run] = spec.runs(small, [0]).values()
    operator = Operator.load(spec.folder([0]) / "model.safetensors", device="cpu")
    _, test = datasets.dataset("ns2d", device="cpu", show=False)
    prediction, truth = operator.predict(test), np.asarray(test.y)
    by_frame = np.linalg.norm(prediction - truth, axis=1) / np.linalg.norm(truth, axis=1)
    np.testing.assert_allclose(run.frames, by_frame.mean(0), rtol=1e-4)
    assert operator.evaluate(test) == run.metrics["test"]


def test_every_run_of_the_ledger_was_made_as_its_name_says() -> None:
    """A preset that changes leaves runs behind that are no longer its own: they must go."""
    results = Path(__file__).parents[2] / "results"
    every = (*forward.SPECS, *resolution.SPECS, *inverse.COMPLETERS, *inverse.PROPAGATORS)
    found = [(s, run) for s in every if s.trained for run in s.runs(results, range(3)).values()]
    assert len(found) > 10
    for spec, run in found:
        recipe, made = to_dict(spec.preset.recipe), run.config["recipe"]
        assert {"learning_rate", "beta2"} <= set(made)  # renamed keys are renamed there as well
        changed = {key for key in recipe if key in made and made[key] != recipe[key]}
        assert not changed, spec.path(results, run.seed)
        config = spec.preset.config  # keys that are newer than the run have their defaults
        assert from_dict(type(config), run.config["model"]) == config
        assert run.config.get("conditional", False) == spec.preset.conditional
        assert run.task == json.loads(json.dumps(to_json(spec.preset.task)))
        assert run.steps == spec.steps
        assert run.precision == spec.precision


def test_all_missing_runs_are_listed_required_ones_first_by_problem_then_the_cheapest(
    small: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, fast = (RunSpec("darcy", "lno", "paper", e, "fp32") for e in (4, 2))
    extra = RunSpec("darcy", "lno", "paper", 1, "fp32", required=False)
    flow = RunSpec("ns2d", "lno", "paper", 1, "fp32")
    monkeypatch.setattr(forward, "SPECS", (flow, slow, extra, fast))
    experiments = [replace(tables.EXPERIMENTS["forward"], seeds=2)]
    train_missing([slow], [1], small, device="cpu")  # so that the time of Darcy is known
    jobs = plan.jobs_of_all(experiments, small)
    assert [(j.spec.problem, j.spec.epochs, j.seeds, j.required) for j in jobs] == [
        ("darcy", 2, (0,), True),
        ("darcy", 4, (0,), True),
        ("ns2d", 1, (0,), True),
        ("darcy", 1, (0, 1), False),
        ("darcy", 2, (1,), False),
        ("ns2d", 1, (1,), False),
    ]
    assert [j.spec.problem for j in plan.jobs_of_all(experiments, small, ["ns2d"])] == ["ns2d"] * 2
    monkeypatch.setattr(inverse, "COMPLETERS", ())
    monkeypatch.setattr(inverse, "PROPAGATORS", ())
    monkeypatch.setattr(inverse, "ON_GRIDS", ())
    monkeypatch.setattr(resolution, "SPECS", ())
    words = ["reproduce", "all", "--results", str(small), "--device", "cpu"]
    assert len([w for w in lno(capsys, *words, "--dry-run").split() if w == "darcy"]) == 5
    assert "the same command continues" in lno(capsys, *words, "--minutes", "1e-9")
    lno(capsys, *words)
    assert "nothing is missing" in lno(capsys, *words, "--dry-run")
    assert len(list(small.rglob("*.json"))) == 3 * 4  # three seeds of four rows
