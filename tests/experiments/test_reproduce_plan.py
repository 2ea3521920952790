"""What `lno reproduce` has still to run: in which order, and for how long."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from command_line import lno
from filed_runs import fake
from rich.console import Console
from small_forward import train_missing, write_costs

from lno import cli
from lno.commands import reproduce
from lno.experiments import forward, plan, queue, tables
from lno.experiments.runs import RunSpec
from lno.files import read_json, write_json
from lno.report.tables import Table


def test_asking_for_what_the_table_has_not_is_an_error() -> None:
    with pytest.raises(ValueError, match="no problem 'drcy' in this table: expected one of airf"):
        queue.chosen(forward.SPECS, ["drcy"])
    changed = queue.chosen(forward.SPECS, ["darcy"], ["lno"], ["paper"], epochs=7)
    assert len(changed) == 3  # tf32, mixed, and other data; 500 and 100 epochs fall together
    assert {c.epochs for c in changed} == {7}


def test_how_long_a_run_takes_is_estimated_from_the_cost_of_its_points(
    tmp_path: Path,
) -> None:
    rows = [("darcy", "transolver", 4, 15.0), ("pipe", "transolver", 4, 40.0)]
    write_costs(tmp_path, *rows)
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


def test_a_run_that_shared_the_gpu_says_less_than_a_measured_step(tmp_path: Path) -> None:
    spec = RunSpec("pipe", "lno", "paper", 50, "tf32")  # of 250 steps each

    def minutes() -> float | None:
        return plan.estimate(spec, 1, tmp_path)

    fake(tmp_path, spec, [0.1], members=1, hardware="a GPU, shared")  # 1,000 steps in 30 s
    assert minutes() == pytest.approx(50 * 250 * 0.030 / 60)
    write_costs(tmp_path, ("pipe", "lno", 4, 4.0))
    assert minutes() == pytest.approx(50 * 250 * 0.004 / 60)
    fake(tmp_path, spec, [0.1], members=1)
    assert minutes() == pytest.approx(50 * 250 * 0.030 / 60)


def test_a_changed_setup_costs_by_its_blocks_rounds_and_steps(tmp_path: Path) -> None:
    lno, plus = (RunSpec("darcy", m, "fast", 100, "mixed") for m in ("lno", "lno_plus"))
    for spec in (lno, plus):
        fake(tmp_path, spec, [0.1])

    def ratio(spec: RunSpec, **changes: int) -> float:
        changed = replace(spec, changes=tuple(changes.items()))
        times = (plan.estimate(each, 1, tmp_path) for each in (changed, spec))
        after, before = (time for time in times if time is not None)
        return after / before

    assert ratio(lno, blocks=8) == 2 and ratio(lno, batch=1) == 4
    assert ratio(plus, rounds=1, blocks=4) == 1


def test_the_measured_cost_of_another_preset_counts_by_its_rounds(tmp_path: Path) -> None:
    write_costs(tmp_path, ("darcy", "lno_plus", 4, 4.0))
    read = read_json(tmp_path / "benchmarks" / "efficiency.json")
    write_json(
        tmp_path / "benchmarks" / "efficiency.json",
        {"rows": [{**row, "recipe": "fast"} for row in read["rows"]]},
    )
    fast, best = (RunSpec("darcy", "lno_plus", name, 10, "tf32") for name in ("fast", "best"))
    assert plan.estimate(fast, 1, tmp_path) == pytest.approx(0.004 * 2500 / 60)
    assert plan.estimate(best, 1, tmp_path) == pytest.approx(0.008 * 2500 / 60)  # 8 rounds, not 4


def test_other_data_cost_by_their_points_and_samples(tmp_path: Path) -> None:
    usual = RunSpec("darcy", "lno", "paper", 500, "mixed")
    assert plan.estimate(replace(usual, protocol="reference"), 1, tmp_path) is None
    fake(tmp_path, usual, [0.01], members=1)
    minutes = plan.estimate(usual, 1, tmp_path)
    reference, coarse = (
        plan.estimate(replace(usual, protocol=name), 1, tmp_path)
        for name in ("reference", "resolution")
    )
    assert minutes is not None
    assert reference == pytest.approx(minutes * 241**2 / 85**2 * 1.024)
    assert coarse == pytest.approx(minutes / 2)  # a quarter of the points


def test_all_missing_runs_are_listed_required_ones_first_the_cheapest_first(
    small: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, fast = (RunSpec("darcy", "lno", "paper", e, "fp32") for e in (4, 2))
    extra = RunSpec("darcy", "lno", "paper", 1, "fp32", required=False)
    flow = RunSpec("ns2d", "lno", "paper", 1, "fp32")
    monkeypatch.setattr(forward, "specs", lambda: (flow, slow, extra, fast))
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
    one = {"forward": tables.EXPERIMENTS["forward"]}
    monkeypatch.setattr(reproduce, "EXPERIMENTS", one)
    words = ["reproduce", "all", "--results", str(small), "--device", "cpu"]
    assert len([w for w in lno(capsys, *words, "--dry-run").split() if w == "darcy"]) == 6
    assert "the same command continues" in lno(capsys, *words, "--minutes", "1e-9")
    lno(capsys, *words)
    assert "nothing is missing" in lno(capsys, *words, "--dry-run")
    assert len(list(small.rglob("*.json"))) == 3 * 4  # three seeds of four rows


def test_seeds_that_are_left_are_consecutive_and_have_their_own_time(tmp_path: Path) -> None:
    """Required seeds come first; what remains of the others is split and estimated again."""
    spec = RunSpec("darcy", "lno", "paper", 100, "tf32")
    fake(tmp_path, spec, [])
    fake(tmp_path, replace(spec, epochs=50), [0.1], members=1)
    alone = plan.estimate(spec, 1, tmp_path)
    assert alone is not None

    def experiment(required: int, seeds: int) -> tables.Experiment:
        specs = (replace(spec, required=required),)
        return replace(tables.EXPERIMENTS["forward"], specs=lambda: specs, seeds=seeds)

    jobs = plan.jobs_of_all([experiment(1, 1), experiment(0, 5)], tmp_path)
    assert [(job.seeds, job.required) for job in jobs] == [((0,), True), ((1, 2, 3, 4), False)]
    assert [job.minutes for job in jobs] == pytest.approx([alone, 4 * alone])
    middle = [queue.Job(spec, seeds) for seeds in ((1,), (0, 1, 2))]
    assert [job.seeds for job in plan._once(middle, tmp_path)] == [(1,), (0,), (2,)]


def test_a_limit_of_time_counts_compilation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two minutes are two minutes, however little of them is spent in steps."""
    now, began = [0.0], []

    def fit(spec: RunSpec, *_: object, **__: object) -> SimpleNamespace:
        began.append(spec)
        now[0] += 90.0  # of which 80 are compilation
        return SimpleNamespace(finished=True, provenance={"seconds": 10.0})

    monkeypatch.setenv("LNO_DATA", str(tmp_path))
    monkeypatch.setattr("lno.experiments.queue.fit", fit)
    monkeypatch.setattr("lno.experiments.queue.perf_counter", lambda: now[0])
    monkeypatch.setattr("lno.experiments.queue._file", lambda *_: None)
    monkeypatch.setattr(RunSpec, "samples", lambda *_: (None, None, None))
    trained = SimpleNamespace(provenance={})
    monkeypatch.setattr(RunSpec, "kept", lambda s, *_: (trained, 0) if s in began else None)
    specs = [RunSpec("darcy", "lno", "paper", epochs, "fp32") for epochs in range(1, 9)]
    jobs = [queue.Job(spec, (0,)) for spec in specs]
    assert not queue.work_off(jobs, tmp_path, minutes=2.0)
    assert began == specs[:2]  # the second was asked to pause after half a minute


def test_an_interrupted_job_ends_the_queue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    began = []

    def fit(spec: RunSpec, *_: object, **__: object) -> SimpleNamespace:
        began.append(spec)
        return SimpleNamespace(provenance={"stopped": "interrupted", "seconds": 1.0})

    monkeypatch.setenv("LNO_DATA", str(tmp_path))
    monkeypatch.setattr("lno.experiments.queue.fit", fit)
    monkeypatch.setattr(RunSpec, "samples", lambda *_: (None, None, None))
    words = ["reproduce", "forward", "--results", str(tmp_path), "--minutes", "30"]
    assert cli.run(words) == 130
    assert len(began) == 1
    assert "interrupted" in capsys.readouterr().err


def test_a_list_of_everything_names_what_is_measured_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LNO_DATA", str(tmp_path))
    said = lno(capsys, "reproduce", "all", "--dry-run", "--results", tmp_path)
    assert "efficiency is missing" in said and "reproduce efficiency" in said
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "pretrained.json").write_text("{}")
    said = lno(capsys, "reproduce", "all", "--dry-run", "--results", tmp_path)
    assert "pretrained is there" in said


def shown(table: Table, width: int = 80) -> list[str]:
    """The lines of a table on a terminal."""
    console = Console(file=io.StringIO(), width=width, highlight=False, markup=False)
    console.print(table.rich())
    return console.file.getvalue().splitlines()


def test_a_plan_of_everything_has_a_line_for_each_job_in_80_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LNO_DATA", str(tmp_path))
    jobs = plan.jobs_of_all(tables.EXPERIMENTS.values(), tmp_path)
    made = plan.plan(jobs, tmp_path)
    assert [table.title for table in made][:2] == [
        "Missing runs",
        "Further missing runs: not required",
    ]
    assert sum(len(table.rows) for table in made[:2]) == len(jobs) > 100
    for table in made:
        lines = shown(table)
        assert max(map(len, lines)) <= 80 and len(lines) == 3 + len(table.rows)
        for row in table.rows:
            assert any(all(cell in line for cell in row) for line in lines)


def test_a_plan_ends_with_minutes_by_problem(tmp_path: Path) -> None:
    specs = [RunSpec(name, "lno", "paper", 100, "tf32") for name in ("darcy", "pipe", "airfoil")]
    jobs = [
        queue.Job(specs[0], (0,), True, 2.0),
        queue.Job(specs[1], (0,), True, 3.0),
        queue.Job(specs[0], (1, 2), False, 10.0),
        queue.Job(specs[2], (0,), True, None),
    ]
    [*_, totals] = plan.plan(jobs, tmp_path)
    assert totals.rows == [
        ["darcy", "2", "10", ""],
        ["pipe", "3", "0", ""],
        ["airfoil", "0", "0", "1"],
        ["all", "5", "10", "1"],
    ]
