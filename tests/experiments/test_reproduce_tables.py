"""The paper's tables on a small scale: errors, resolutions, costs, and the report on them."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import lno
from deformed import shrink_presets
from small_forward import PAPER, train_missing

from lno import Fields, Operator, Recipe
from lno.experiments import datasets, efficiency, forward, paper, plan, resolution
from lno.experiments.runs import RunSpec
from lno.ledger import Run
from lno.problems import Darcy
from lno.problems.make import make


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
    needed, others, _ = plan.plan(
        plan.jobs_of_table([ours, theirs, absent], range(3), small), small
    )
    assert [row[0:3:2] for row in needed.rows] == [["ns2d lno paper", "0–2"]]
    assert [row[0:3:2] for row in others.rows] == [["darcy transolver paper", "1–2"]]
    per_step = 30.0 / 1000 / 3
    assert plan.estimate(theirs, 2, small) == pytest.approx(per_step * theirs.steps * 2 / 60)
    assert plan.estimate(absent, 3, small) is None


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
    once = partial(efficiency.measure, repeats=1)  # the times themselves are not looked at
    monkeypatch.setattr(efficiency, "measure", once)
    efficiency.measure_all(
        small, [("darcy", m, 4, "paper") for m in ("transolver", "lno")], device="cpu"
    )
    text = efficiency.table(small).markdown()
    assert "0.76, 5.75, 38.98" in text
    assert text.count("| missing |") == 10 * 4 / 2  # "| missing | missing |" counts once
    words = ["reproduce", "efficiency", "--results", str(small), "--device", "cpu"]
    listed = " ".join(lno(capsys, *words, "--dry-run").split())
    assert "fno (paper) on darcy in batches of 4" in listed
    words += ["--models", "lno,transolver"]
    listed = " ".join(lno(capsys, *words, "--dry-run").split())
    assert "(paper) on darcy" not in listed and "lno (fast) on darcy" in listed
    assert "transolver (paper) on plasticity in batches of 8" in listed
    first = (small / "benchmarks" / "efficiency.json").read_text()
    assert "missing" not in lno(capsys, *words)
    rows = json.loads((small / "benchmarks" / "efficiency.json").read_text())["rows"]
    own = {"ns2d": 2, "airfoil": 8, "elasticity": 1, "plasticity": 8}  # batches of Transolver
    of_paper = [r for r in rows if r["recipe"] == "paper"]
    assert [(r["problem"], r["model"], r["batch"]) for r in of_paper] == [
        (p, m, b)
        for p in efficiency.CASES
        for m in ("lno", "transolver")
        for b in sorted({4, own.get(p, 4) if m == "transolver" else 4})
    ]
    assert of_paper[:2] == json.loads(first)["rows"]  # what was known is not measured again
    assert all(r["seconds_per_epoch"] > 0 and r["parameters"] > 100 for r in rows)
    by = {(r["problem"], r["model"]): r for r in rows if r["batch"] == 4}
    for model, steps in (("lno", 225), ("transolver", 225 * 20)):  # all times, or one
        r = by["plasticity", model]
        assert r["seconds_per_epoch"] == pytest.approx(r["milliseconds_per_step"] * steps / 1e3)
    assert "nothing is missing" in lno(capsys, *words, "--dry-run")


def test_costs_that_another_process_measures_meanwhile_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cost(problem: str, model: str, batch: int, recipe: str, *_: str) -> dict[str, Any]:
        row = dict.fromkeys(efficiency.ROW, 1.0)
        row |= {"precision": "tf32", "hardware": "a GPU", "parameters": 1}
        row |= {"problem": problem, "model": model, "batch": batch, "recipe": recipe}
        if model == "lno":  # takes a minute, in which another process measures the other
            efficiency.measure_all(tmp_path, [("darcy", "transolver", 4, "paper")])
        return row

    monkeypatch.setattr(efficiency, "cost", cost)
    efficiency.measure_all(tmp_path, [("darcy", "lno", 4, "paper")])
    assert {model for _, model, *_ in efficiency.measured(tmp_path)} == {"lno", "transolver"}


def shrink_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Costs of tiny data and models."""
    shrink_presets(monkeypatch)
    for problem, case in efficiency.CASES.items():
        grid = tuple(min(side, 8) for side in case.grid[:2]) + case.grid[2:]
        monkeypatch.setitem(efficiency.CASES, problem, replace(case, grid=grid))
    monkeypatch.setattr(efficiency, "SAMPLES", 4)


def test_the_printed_numbers_have_both_models_and_all_problems() -> None:
    assert set(paper.EFFICIENCY["lno"]) == set(paper.EFFICIENCY["transolver"])
    assert len(paper.EFFICIENCY["lno"]) == 6


def test_the_report_shows_what_there_is_and_what_is_missing(
    small: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = RunSpec("ns2d", "lno", "paper", 1, "fp32")
    monkeypatch.setattr(forward, "specs", lambda: (PAPER, flow))
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
    assert "://" not in page  # opens anywhere, also without a network


def test_sizes_of_points_count_in_the_encoder_alone() -> None:
    """Errors on finer grids are those of the paper, in which every point counts equally."""
    data = resolution.weighted(make(Darcy(15, 2), 4, seed=0))
    assert np.asarray(data.weights).min() < np.asarray(data.weights).max()
    small = {"width": 8, "latents": 4, "rounds": 1}
    recipe = Recipe(epochs=1, weighted=True)
    op = Operator.fit(
        data, model="lno_plus", config=small, recipe=recipe, device="cpu", progress=False
    )
    found = op.predict(data)
    assert np.abs(found - op.predict(data.replace(weights=None, query_weights=None))).max() > 0
    y = np.asarray(data.y)
    errors = np.linalg.norm(found - y, axis=(1, 2)) / np.linalg.norm(y, axis=(1, 2))
    assert op.evaluate(data)["relative_l2"] == pytest.approx(errors.mean(), rel=1e-5)
