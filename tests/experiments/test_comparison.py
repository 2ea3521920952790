"""All models on all problems: budgets of time, the order of the queue, and the tables."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import lno
from deformed import pipe
from small_forward import train_missing, write_costs

from lno.commands import reproduce  # noqa: F401  (reads the specs that tests here replace)
from lno.experiments import comparison, efficiency, forward, model_table, plan, queue, tables
from lno.experiments.cases import obstacle
from lno.experiments.paper import FORWARD, PROBLEMS
from lno.experiments.runs import RunSpec
from lno.experiments.sources import on_file
from lno.ledger import Run
from lno.models import MODELS

SECONDS = RunSpec("darcy", "lno", "paper", precision="tf32", seconds=0.05)


def fake(results: Path, spec: RunSpec, error: float, steps: int = 1000) -> None:
    run = Run(
        problem=spec.problem,
        model=spec.model,
        recipe=spec.recipe,
        protocol="standard",
        seed=0,
        epochs=spec.epochs or 7.5,
        steps=steps,
        task={"kind": "steady"},
        hardware="a GPU",
        seconds=30.0,
        parameters=5,
        data_hash="",
        config={},
        metrics={"test": {"relative_l2": error}},
        precision=spec.precision,
    )
    run.save(results, spec.name(0))


# -- budgets of time -------------------------------------------------------------------------------


def test_seconds_become_steps_by_the_table_of_costs(tmp_path: Path) -> None:
    spec = RunSpec("ns2d", "transolver", "paper", precision="tf32", seconds=300.0)
    assert spec.steps_by(tmp_path) is None
    write_costs(tmp_path, ("ns2d", "transolver", 4, 88.0))  # not the batches of its recipe
    assert spec.steps_by(tmp_path) is None
    assert spec.waits_for(tmp_path) == "lno reproduce efficiency"
    write_costs(tmp_path, ("ns2d", "transolver", 4, 88.0), ("ns2d", "transolver", 2, 48.0))
    assert spec.steps_by(tmp_path) == int(300 / 0.048)
    assert spec.waits_for(tmp_path) is None
    assert replace(spec, precision="mixed").steps_by(tmp_path) is None
    key = ("ns2d", "transolver", 2, "paper")
    assert key not in efficiency.missing(tmp_path)
    write_costs(tmp_path, (*key[:3], 48.0), hardware="a GPU, shared (MPS)")
    assert spec.steps_by(tmp_path) is None  # measured while others used it
    assert key in efficiency.missing(tmp_path)


def test_the_name_of_a_run_does_not_depend_on_the_speed(small: Path) -> None:
    names = []
    for ms in (10.0, 20.0):
        write_costs(small, ("darcy", "lno", 4, ms))
        names.append((SECONDS.name(0), SECONDS.folder([0])))
    assert names[0] == names[1]
    assert SECONDS.name(0) == "paper-0.05s-tf32-seed0"


def test_only_one_length_can_be_given() -> None:
    with pytest.raises(ValueError, match="epochs and seconds both say how long"):
        RunSpec("darcy", "lno", "paper", 3, seconds=2.0)
    changed = queue.chosen([SECONDS], epochs=3)
    assert changed == [RunSpec("darcy", "lno", "paper", 3, "tf32")]


def test_a_budgeted_run_takes_the_steps_and_keeps_them_when_it_is_cut_off(small: Path) -> None:
    write_costs(small, ("darcy", "lno", 4, 10.0))
    assert not train_missing([SECONDS], [0], small, device="cpu", minutes=1e-9)
    write_costs(small, ("darcy", "lno", 4, 2.0))  # measured again: no other run for that
    assert train_missing([SECONDS], [0], small, device="cpu")
    [run] = SECONDS.runs(small, [0]).values()
    assert (run.steps, run.epochs, run.config["seconds"]) == (5, 2.5, 0.05)
    assert run.config["recipe"]["epochs"] == 500
    assert run.curve[-1]["step"] == 5


def test_runs_without_a_known_speed_wait_and_others_go_on(
    small: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ready = RunSpec("darcy", "lno", "paper", 1, "tf32")
    monkeypatch.setattr(forward, "specs", lambda: (SECONDS, ready))
    words = ["reproduce", "forward", "--seeds", "1", "--device", "cpu", "--results", str(small)]
    listed = " ".join(lno(capsys, *words, "--dry-run").split())
    assert "0.05 s" in listed and "0.0*" in listed
    assert "*: needs `lno reproduce efficiency` first" in listed
    lines: list[str] = []
    assert not train_missing([SECONDS, ready], [0], small, device="cpu", say=lines.append)
    assert ready.path(small, 0).exists() and not SECONDS.path(small, 0).exists()
    assert lines[0] == "darcy lno paper, 1 epochs, seed 0"
    assert lines[1:] == ["1 of 2 jobs need `lno reproduce efficiency` first"]
    write_costs(small, ("darcy", "lno", 4, 25.0))
    assert train_missing([SECONDS, ready], [0], small, device="cpu")
    assert SECONDS.runs(small, [0])[0].steps == 2


def test_a_data_file_has_no_budget_of_time(tmp_path: Path) -> None:
    pipe(6).save(tmp_path / "pipe.h5")
    timed = RunSpec("pipe", "lno", "paper", precision="tf32", seconds=120.0)
    full = RunSpec("pipe", "lno", "paper", 500, "tf32")
    twice = replace(full, protocol="reference")  # other data, which the file takes the place of
    found = on_file([timed, full, twice], tmp_path / "pipe.h5", tables.EXPERIMENTS["forward"])
    assert [(spec.seconds, spec.epochs) for spec in found] == [(None, 500)]


# -- which runs ------------------------------------------------------------------------------------


def test_nothing_that_cannot_work_is_queued() -> None:
    every = comparison.specs()
    assert all(obstacle(spec.problem, spec.model) is None for spec in every)
    there = {(s.problem, s.model) for s in every if s.seconds is not None}
    cannot = {(p, m) for p in PROBLEMS for m in FORWARD} - there
    assert cannot == {("elasticity", "factformer")}
    assert len({spec.name("") + spec.problem + spec.model for spec in every}) == len(every)


def test_thirty_cells_are_required_and_every_model_has_two() -> None:
    required = [s for s in forward.specs() if s.required and s.seconds is not None]
    assert len(required) == 30
    counts = Counter(spec.model for spec in required)
    assert set(counts) == {*FORWARD, "lno_plus"} and min(counts.values()) >= 2
    for problem in ("darcy", "elasticity"):
        able = {model for model in comparison.MODELS if obstacle(problem, model) is None}
        assert {s.model for s in required if s.problem == problem} == able


def test_required_runs_come_first_and_of_these_the_cheapest(tmp_path: Path) -> None:
    costs = [("darcy", model, 4, 3.0) for model in ("fno", "lno", "transolver")]
    write_costs(tmp_path, *costs)
    jobs = plan.jobs_of_all([tables.EXPERIMENTS["forward"]], tmp_path)
    assert [job.required for job in jobs] == sorted((job.required for job in jobs), reverse=True)
    for required in (True, False):
        minutes = [job.minutes for job in jobs if job.required == required]
        known = [m for m in minutes if m is not None]
        assert known == sorted(known) and minutes[: len(known)] == known
    two_minutes = [job for job in jobs if job.required and job.spec.seconds == 120.0]
    assert all(job.minutes == 2.0 for job in two_minutes) and len(two_minutes) == 30
    fifty = next(job for job in jobs if job.spec == comparison.equal_epochs("darcy", "fno"))
    assert fifty.minutes == pytest.approx(0.003 * 50 * 250 * 3 / 60)  # three seeds


# -- tables ----------------------------------------------------------------------------------------


def test_the_table_shows_ours_beside_the_papers_and_what_is_missing(tmp_path: Path) -> None:
    every = [comparison.equal_time(p, m) for p in ("darcy", "elasticity") for m in FORWARD]
    every = [spec for spec in every if obstacle(spec.problem, spec.model) is None]
    fake(tmp_path, comparison.equal_time("darcy", "fno"), 0.0123)
    fake(tmp_path, comparison.equal_time("darcy", "ffno"), 0.0234)
    shown = comparison.equal_time_table(every, range(3), tmp_path)
    assert shown.header == ["model", "darcy", "elasticity"]
    rows = {row[0]: row[1:] for row in shown.rows}
    assert list(rows)[:3] == ["FNO", "Geo-FNO", "F-FNO"] and list(rows)[-1] == "LNO"
    assert rows["FNO"] == ["1.23 (1.08)", "missing (–)"]
    assert rows["F-FNO"] == ["2.34† (0.75)", "missing† (1.85)"]
    assert rows["FactFormer"][1] == "cannot"
    assert rows["LNO"] == ["missing (0.49)", "missing (0.52)"]
    notes = "\n".join(shown.remarks)
    assert "† F-FNO on darcy: sizes and recipe of Pipe." in notes
    assert "† OFormer on elasticity: sizes and recipe of Darcy." in notes
    assert "Cannot: FactFormer on elasticity; FactFormer needs data on a 2-D grid" in notes
    assert "120 s" in notes and "on a GPU" in notes


def test_each_run_is_in_the_table_of_its_budget(tmp_path: Path) -> None:
    pairs = [("darcy", "fno"), ("darcy", "lno")]
    fake(tmp_path, comparison.equal_epochs("darcy", "fno"), 0.02)
    fake(tmp_path, RunSpec("darcy", "lno", "paper", 500, "mixed"), 0.03)
    made = forward.specs()
    chosen = [s for s in made if (s.problem, s.model) in pairs]
    fifty = comparison.equal_epochs_table(chosen, range(3), tmp_path)
    assert fifty.rows == [["FNO", "2.00 (1.08)"], ["LNO", "missing (0.49)"]]
    full = comparison.published_table(chosen, range(3), tmp_path)
    assert full.rows == [["FNO", "missing (1.08)"], ["LNO", "3.00 (0.49)"]]
    assert "LNO on darcy in mixed precision." in full.notes  # where there is no other
    assert {row[1] for row in forward.table(chosen, range(3), tmp_path).rows} == {"LNO"}
    assert comparison.equal_time_table(chosen[:1], range(3), tmp_path).rows == []


def test_how_far_a_model_comes_is_shown_before_and_after_its_run(tmp_path: Path) -> None:
    specs = [comparison.equal_time("darcy", model) for model in ("fno", "lno", "transolver")]
    write_costs(tmp_path, ("darcy", "lno", 4, 2.0), ("darcy", "transolver", 4, 15.0))
    fake(tmp_path, specs[2], 0.01, steps=7500)
    rows = comparison.epochs_table(specs, range(3), tmp_path).rows
    assert rows == [["FNO", "missing"], ["Transolver", "30 (16 ms)"], ["LNO", "240 (2 ms)"]]


def test_the_models_at_a_glance(tmp_path: Path) -> None:
    write_costs(tmp_path, ("darcy", "fno", 4, 3.21), ("darcy", "lsm", 20, 9.0))
    shown = model_table.table(tmp_path)
    rows = {row[0]: row[1:] for row in shown.rows}
    assert len(rows) == len(MODELS)
    assert rows["FNO"][:3] == ["37,881,217", "3.21", "0.50"]
    assert rows["LSM"][1:3] == ["–", "–"]  # only measured with other batches
    assert rows["LNO"][3:] == ["any points", "anywhere", "yes"]
    assert rows["Transolver"][3:] == ["any points", "at the observed points", "no"]
    assert rows["Geo-FNO"][3:] == ["2-D grids, points in 2-D", "anywhere", "no"]
    assert rows["FactFormer"][3] == "2-D grids"
    assert "–: not measured yet. `lno reproduce efficiency --problems darcy`" in shown.notes[0]


def test_the_printed_numbers_have_all_models_and_problems() -> None:
    assert len(FORWARD) == 12 and sum(map(len, FORWARD.values())) == 12 * len(PROBLEMS) - 5
    best = {p: min((row[p], m) for m, row in FORWARD.items() if p in row)[1] for p in PROBLEMS}
    assert set(best.values()) == {"lno", "transolver"}  # as the paper's bold numbers say
    assert [p for p in PROBLEMS if best[p] == "transolver"] == ["airfoil", "plasticity"]
