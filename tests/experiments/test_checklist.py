"""The checklist of the paper: all of it is there, and verdicts follow from the runs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import lno
from filed_runs import file_run

from lno.experiments import checklist, findings, inverse, overview, paper, resolution
from lno.experiments.checklist import ROWS, Row, verdict_of
from lno.experiments.evidence import Cases
from lno.experiments.presets import PAPER_RECIPE
from lno.experiments.runs import RunSpec
from lno.experiments.tables import EXPERIMENTS
from lno.files import write_json

TABLES, FIGURES = 10, 8  # that the paper has, those of its appendices included
BY = {row.number: row for row in ROWS}


def test_every_table_and_figure_of_the_paper_has_a_row() -> None:
    numbers = [row.number for row in ROWS]
    assert [n for n in numbers if n.startswith("Table")] == [
        f"Table {k}" for k in range(1, TABLES + 1)
    ]
    assert [n for n in numbers if n.startswith("Figure")] == [
        f"Figure {k}" for k in range(1, FIGURES + 1)
    ]
    assert len(numbers) == TABLES + FIGURES
    assert len({row.title for row in ROWS}) == len(ROWS)
    assert {row.group for row in ROWS} == set(checklist.GROUPS)


def test_every_row_says_how_to_read_it_and_what_makes_it() -> None:
    for row in ROWS:
        assert row.text.endswith("."), row.number
        assert row.how or not row.exists, row.number
    table = checklist.checklist(Path("nowhere"))
    assert [row[0] for row in table.rows] == [row.heading for row in ROWS]
    for row, shown in zip(ROWS, table.rows, strict=True):
        assert shown[3] == (f"`{row.how}`" if row.exists else "none yet")
        assert shown[1] == f"**{verdict_of(row, Path('nowhere')).text}**"
        assert shown[2] == (verdict_of(row, Path("nowhere")).state or "–")


def test_commands_of_rows_are_commands(capsys: pytest.CaptureFixture[str]) -> None:
    for row in ROWS:
        if row.experiment in EXPERIMENTS and not row.command:
            assert row.how == f"lno reproduce {row.experiment}"
        for each in row.how.split(" && "):
            name, *arguments = shlex.split(each)
            assert name == "lno"
            lno(capsys, *arguments, "--help")
    names = {row.experiment for row in ROWS}
    paper_s = ("forward", "resolution", "completer", "propagator", "intervals")
    assert {*paper_s, "efficiency"} <= names


def test_an_experiment_that_does_not_exist_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    left = {name: each for name, each in EXPERIMENTS.items() if name != "resolution"}
    monkeypatch.setattr(checklist, "EXPERIMENTS", left)
    row = BY["Table 5"]
    assert (row.exists, row.how) == (False, "")
    assert verdict_of(row, Path("results")) == checklist.NO_COMMAND
    assert re.search(r"Table 5, because there is no command", _said(Path("results"))[2])


def test_an_empty_ledger_confirms_nothing(tmp_path: Path) -> None:
    for row in ROWS:
        found = verdict_of(row, tmp_path)
        if row.experiment:
            assert "undecided" in found.text, row.number
            assert not row.exists or " of " in found.state or found.state == ""
    holds, fails, left = _said(tmp_path)
    assert "nothing is confirmed yet" in holds and "nothing is refuted" in fails
    total = {name for row in ROWS for name in row.missing(tmp_path)}
    assert f"({len(total):,} runs are missing in total)" in left
    for row in ROWS:
        assert (row.number.split()[1] in left) or not row.experiment


# -- the rule --------------------------------------------------------------------------------------


def _row(*cases: tuple[bool, int], decides: bool = True) -> Row:
    def judge(specs: object, results: Path) -> list[findings.Evidence]:
        found = Cases()
        for k, (agrees, epochs) in enumerate(cases):
            found.add(f"case {k}", agrees, epochs)
        return found.evidence("it is so", decides=decides)

    return Row("Table 1", "", checklist.FORWARD, "", "forward", judge, specs=tuple)


@pytest.mark.parametrize(
    ("cases", "expected"),
    [
        ([(True, 500), (True, 600)], checklist.HOLDS),
        ([(False, 500)], checklist.FAILS),
        ([(True, 500), (False, 500)], checklist.IN_PART),
        ([(True, 100), (True, 499)], checklist.SHORTER),
        ([(False, 100)], checklist.SHORTER),
        ([(True, 500), (False, 100)], checklist.HOLDS),  # shorter runs decide nothing
        ([], checklist.MISSING),
    ],
)
def test_only_runs_as_long_as_the_papers_decide(
    cases: list[tuple[bool, int]], expected: checklist.Verdict
) -> None:
    found = verdict_of(_row(*cases), Path("nowhere"))
    assert (found.kind, found.text) == (expected.kind, expected.text)
    for k, (_, epochs) in enumerate(cases):
        assert f"case {k}" in found.why
        assert ("shorter runs" in found.why) or epochs >= PAPER_RECIPE.epochs


def test_what_our_own_recipe_reaches_decides_nothing() -> None:
    found = verdict_of(_row((True, 500), decides=False), Path("nowhere"))
    assert found.text == checklist.OWN_RECIPE.text and "it is so on case 0" in found.why.lower()


# -- each claim ------------------------------------------------------------------------------------

Errors = Callable[[str, str], float]  # from problem and model to an error, percent


def _forward(results: Path, epochs: int, errors: Errors) -> list[RunSpec]:
    specs = [
        RunSpec(problem, model, "paper", epochs, "tf32")
        for problem in paper.FORWARD["lno"]
        for model in paper.FORWARD
    ]
    for spec in specs:
        if spec.problem in paper.FORWARD[spec.model]:
            file_run(results, spec, {"test": errors(spec.problem, spec.model) / 100})
    return specs


def test_the_papers_own_numbers_confirm_its_table(tmp_path: Path) -> None:
    specs = _forward(tmp_path, 500, lambda problem, model: paper.FORWARD[model][problem])
    level, order = findings.forward_evidence(specs, tmp_path)
    for evidence in (level, order):
        assert len(evidence.agree) == 6 and not evidence.differ and not evidence.shorter
    assert "paper 0.49 %" in str(level) and "LNO / Transolver 0.84, paper 0.84" in str(order)


def test_errors_that_are_too_large_and_another_order_do_not(tmp_path: Path) -> None:
    def errors(problem: str, model: str) -> float:
        return 2.0 * paper.FORWARD[model][problem] if model == "lno" else 0.01

    level, order = findings.forward_evidence(_forward(tmp_path, 500, errors), tmp_path)
    assert [case.name for case in level.differ] == [*map(findings.paper_name, paper.FORWARD["lno"])]
    # Where the paper has another model first, it still is.
    assert {case.name for case in order.agree} == {"Airfoil", "Plasticity"}
    assert {case.name for case in order.differ} == {"Darcy", "NS2d", "Elasticity", "Pipe"}


def test_equal_time_is_a_claim_of_its_own(tmp_path: Path) -> None:
    def errors(problem: str, model: str) -> float:
        return paper.FORWARD[model][problem]

    specs = _forward(tmp_path, 100, errors)
    for model, error in (("lno", 2.0), ("transolver", 1.0)):  # the other way round
        spec = RunSpec("darcy", model, "paper", precision="tf32", seconds=120)
        file_run(tmp_path, spec, {"test": error / 100}, epochs=240.0)
        specs.append(spec)
    order, timed = findings.forward_evidence(specs, tmp_path)
    assert order.shorter == "100 of 500 epochs" and len(order.agree) == 6
    assert [case.name for case in timed.differ] == ["Darcy"] and not timed.decides
    assert "after equal training time" in str(timed)


def test_every_data_set_of_a_problem_is_a_case(tmp_path: Path) -> None:
    standard = RunSpec("darcy", "lno", "paper", 500, "tf32")
    reference = replace(standard, precision="mixed", protocol="reference")
    mixed = replace(standard, precision="mixed")
    for spec, error in ((standard, 0.0082), (reference, 0.0049), (mixed, 0.0081)):
        file_run(tmp_path, spec, {"test": error})
    [level] = findings.forward_evidence([standard, reference, mixed], tmp_path)
    assert [str(case) for case in level.differ] == ["Darcy (0.82 %, paper 0.49 %)"]  # not the best
    [case] = level.agree
    assert case.name == "Darcy with the data of the reference protocol"
    shown = overview.forward_table([standard, reference, mixed], range(3), tmp_path)
    rows = {row[0]: row[1:] for row in shown.rows}
    assert rows["LNO, ours"][0] == "0.820 (500)" and rows["FactFormer, ours"][3] == "cannot"
    assert (
        "LNO on Darcy with the data of the reference protocol: 0.490 (500, mixed)." in shown.notes
    )


def test_shorter_runs_say_so(tmp_path: Path) -> None:
    specs = _forward(tmp_path, 100, lambda problem, model: paper.FORWARD[model][problem])
    [order] = findings.forward_evidence(specs, tmp_path)
    assert order.shorter == "100 of 500 epochs" and len(order.agree) == 6


def test_costs_are_compared_in_all_three_ways(tmp_path: Path) -> None:
    keys = ("parameters", "peak_memory_gb", "seconds_per_epoch")
    rows = []
    for problem, factor in (("darcy", 0.5), ("pipe", 1.5)):
        for model, scale in (("lno", factor), ("transolver", 1.0)):
            row = {"problem": problem, "model": model, "hardware": "a GPU", "batch": 4}
            row |= {"precision": "tf32", "milliseconds_per_step": 1.0, "recipe": "paper"}
            rows.append({**row, **dict.fromkeys(keys, scale), "parameters": round(1000 * scale)})
    write_json(tmp_path / "benchmarks" / "efficiency.json", {"rows": rows})
    [evidence] = findings.cost_evidence((), tmp_path)
    assert [case.name for case in evidence.agree] == ["Darcy"]
    assert [case.name for case in evidence.differ] == ["Pipe"]
    found = verdict_of(BY["Table 4"], tmp_path)
    assert found.text == "holds in part" and found.state == "4 of 12 runs"


def test_every_resolution_is_a_case(tmp_path: Path) -> None:
    for spec in resolution.SPECS:
        scale = 0.01 if spec.model == "lno" else 0.0102
        file_run(tmp_path, spec, {f"test:grid={n}": scale * n**0.001 for n in resolution.GRIDS})
    plus = next(spec for spec in resolution.SPECS if spec.model == "lno_plus")
    file_run(tmp_path, plus, {f"test:grid={n}": 0.001 for n in resolution.GRIDS})
    [evidence] = findings.resolution_evidence(resolution.SPECS, tmp_path)
    assert [case.name for case in evidence.agree] == [f"{n}²" for n in paper.RESOLUTION["lno"]]
    assert "LNO+" not in str(evidence)  # the paper says nothing about it
    assert evidence.shorter and verdict_of(BY["Table 5"], tmp_path).text == checklist.SHORTER.text


@pytest.mark.parametrize("number", ["Table 2", "Table 3"])
def test_the_best_model_of_each_column_is_that_of_the_paper(number: str, tmp_path: Path) -> None:
    stage = {"Table 2": "completer", "Table 3": "propagator"}[number]
    printed = {"completer": paper.COMPLETER, "propagator": paper.PROPAGATOR}[stage]
    specs = {"completer": inverse.COMPLETERS, "propagator": inverse.PROPAGATORS}[stage]
    for spec in specs:
        if spec.trained and spec.recipe in (stage, f"our-{stage}"):
            values = {
                f"test:ratio={inverse.percent(key)}"
                if stage == "completer"
                else f"test:from={key}": v
                for key, v in printed[spec.model].items()
            }
            file_run(tmp_path, spec, {name: value / 100 for name, value in values.items()})
    best, ours = BY[number].evidence(tmp_path)
    assert len(best.agree) == len(printed["lno"]) and not best.differ
    assert len(ours.agree) == len(printed["lno"]) and not ours.decides
    assert "In shorter runs" in str(best) and "With our own recipe" in str(ours)


def test_the_papers_own_budget_decides_about_a_completer(tmp_path: Path) -> None:
    file_run(tmp_path, inverse.AS_PUBLISHED, {"test:ratio=1%": 0.0121}, epochs=500.0)
    [level] = BY["Table 2"].evidence(tmp_path)
    assert [str(case) for case in level.agree] == ["1 % (1.21 %, paper 1.18 %)"]
    assert verdict_of(BY["Table 2"], tmp_path).text == checklist.HOLDS_SO_FAR.text


def test_gaps_in_space_and_in_time_are_compared(tmp_path: Path) -> None:
    for spec, in_space in zip(
        [s for s in inverse.ON_GRIDS if s.recipe.startswith("our-")], (2.0, 0.05), strict=True
    ):
        errors = {
            inverse.interval(t, x): 1e-4 * t**0.1 * x**in_space
            for t in inverse.STEPS
            for x in inverse.STEPS
        }
        file_run(tmp_path, spec, errors)
    [evidence] = findings.intervals_evidence(inverse.ON_GRIDS, tmp_path)
    assert not evidence.decides and "with our own recipe" in evidence.claim
    assert [case.name for case in evidence.agree] == ["completers"]
    assert [case.name for case in evidence.differ] == ["propagators"]


def test_seeds_are_compared_all_with_all(tmp_path: Path) -> None:
    row = BY["Table 9"]
    assert all(spec.required == 3 for spec in row.wanted())
    base = {"lno": 0.01, "gnot": 0.02, "deeponet": 0.03}
    for spec in row.wanted():
        names = spec.data_sets() if isinstance(spec, inverse.Stage) else []
        for seed in range(2):
            error = base[spec.model] + (0.015 if (spec.model, seed) == ("lno", 1) else 0.0)
            values = {n: error if "0.5%" in n else base[spec.model] for n in names}
            file_run(tmp_path, spec, values, seed)
    [evidence] = row.evidence(tmp_path)
    assert [case.name for case in evidence.differ] == [
        "0.5 %"
    ]  # one seed is worse than one of GNOT
    assert len(evidence.agree) == 5
    assert verdict_of(row, tmp_path).state == "12 of 18 runs"


def test_seeds_of_the_forward_problems(tmp_path: Path) -> None:
    specs = [RunSpec("darcy", model, "paper", 500, "tf32") for model in ("lno", "transolver")]
    for spec, errors in zip(specs, ((0.004, 0.005), (0.006, 0.0055)), strict=True):
        for seed, error in enumerate(errors):
            file_run(tmp_path, spec, {"test": error}, seed)
    [evidence] = findings.forward_spread_evidence(specs, tmp_path)
    assert [case.name for case in evidence.agree] == ["Darcy"]


class Changed(RunSpec):
    """LNO with as many blocks as the precision is long: a variant, for tests."""

    @property
    def preset(self) -> findings.Any:
        found = super().preset
        return replace(found, config=replace(found.config, blocks=int(self.protocol)))


def test_ablations_are_compared_with_the_model_as_published(tmp_path: Path) -> None:
    published = RunSpec("darcy", "lno", "paper", 100, "tf32")
    others = [Changed("darcy", "lno", "paper", 100, "tf32", f"{k}") for k in (2, 8, 16)]
    for spec, error in zip([published, *others], (0.02, 0.03, 0.04, 0.05), strict=True):
        file_run(tmp_path, spec, {"test": error})
    specs = [published, *others]
    [evidence] = findings.best_as_published()(specs, tmp_path)
    assert [case.name for case in evidence.agree] == ["Darcy"] and evidence.shorter
    [evidence] = findings.best_as_published(exceptions=("darcy",))(specs, tmp_path)
    assert [case.name for case in evidence.differ] == ["Darcy"]
    assert findings.best_as_published()([*specs, replace(published, epochs=200)], tmp_path)
    untrained = Changed("darcy", "lno", "paper", 100, "tf32", "12")
    assert findings.best_as_published()([*specs, untrained], tmp_path) == []  # one is missing
    judge = findings.best_size("4 is best", "blocks", lambda name, sizes, best: best == 4)
    assert judge([*specs, untrained], tmp_path) == []
    [evidence] = judge(specs, tmp_path)
    assert [str(case) for case in evidence.agree] == ["Darcy (best at 4)"]


def test_settings_are_those_of_the_paper_where_we_say_so() -> None:
    [evidence] = findings.settings_evidence((), Path("nowhere"))
    assert {case.name for case in evidence.agree} == {
        *map(findings.paper_name, paper.FORWARD["lno"])
    }
    assert "batch 32, not 4" in str(evidence)


def _said(results: Path) -> list[str]:
    return list(checklist.summary(results).values())
