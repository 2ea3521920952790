"""Costs of steps: all that runs wait for are measured, also by processes that compile at once."""

from __future__ import annotations

from pathlib import Path

from small_forward import write_costs

from lno.experiments import costs, efficiency
from lno.experiments.plan import awaited_costs, jobs_of_all
from lno.experiments.tables import EXPERIMENTS

SMALL = ("elasticity", "lno", 1, "paper")


def test_every_run_of_a_given_time_has_its_cost_measured(tmp_path: Path) -> None:
    specs = {spec for experiment in EXPERIMENTS.values() for spec in experiment.specs()}
    timed = {spec.cost_key for spec in specs if spec.trained and spec.seconds is not None}
    assert len(timed) > 50 and timed <= set(efficiency.cases())


def test_costs_that_required_runs_wait_for_come_first(tmp_path: Path) -> None:
    jobs = jobs_of_all(EXPERIMENTS.values(), tmp_path)
    keys = awaited_costs(jobs, tmp_path)
    required = {job.spec.cost_key for job in jobs if job.required and job.spec.seconds is not None}
    assert set(keys[: len(required)]) == required
    problem, model, batch, _ = known = ("darcy", "lno", 4, "paper")
    write_costs(tmp_path, (problem, model, batch, 2.0))
    assert set(keys) - set(awaited_costs(jobs, tmp_path)) == {known}


def test_costs_are_prepared_at_once_and_one_that_fails_stops_no_other(tmp_path: Path) -> None:
    lines: list[str] = []
    wanted = [("elasticity", "nothing", 1, "paper"), SMALL]
    done = costs.measure_at_once(tmp_path, wanted, 2, device="cpu", say=lines.append)
    assert not done and len(lines) == 2
    assert "could not be measured: ValueError: no model 'nothing'" in lines[0]
    assert lines[1].startswith("lno (paper) on elasticity in batches of 1: ")
    assert list(efficiency.measured(tmp_path)) == [SMALL]


def test_what_is_not_ready_in_time_is_left_for_the_same_command(tmp_path: Path) -> None:
    lines: list[str] = []
    late = (costs.MEASURING_SECONDS + 0.2) / 60
    for minutes in (late, 0.0):
        assert not costs.measure_at_once(
            tmp_path, [SMALL], 2, device="cpu", minutes=minutes, say=lines.append
        )
    assert "the time was over before it was compiled" in lines[0]
    assert lines[1] == "stopped with 1 left to measure; the same command continues"
    assert not efficiency.measured(tmp_path)
