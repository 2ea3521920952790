"""Tables of LNO+: its ingredients, its accuracy, and error against training time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from filed_runs import fake

from lno.experiments import ladder, pareto, plus
from lno.experiments.presets import preset
from lno.experiments.runs import RunSpec
from lno.report.pareto import error_against_time


def test_changes_reach_config_recipe_and_symmetries() -> None:
    keys = (("rounds", 1), ("optimizer", "adamw"), ("symmetries", False))
    spec = RunSpec("darcy", "lno_plus", "fast", 100, "mixed", changes=keys)
    changed, plain = spec.preset, preset("darcy", "fast", "lno_plus")
    assert (changed.config.rounds, changed.recipe.optimizer) == (1, "adamw")
    assert not changed.symmetries and plain.symmetries and spec.symmetries == ()
    assert changed.config.width == plain.config.width and changed.recipe.gradient == 0.1
    assert spec.name(0).startswith("fast.rounds=1.optimizer=adamw.symmetries=False-100-")
    with pytest.raises(ValueError, match="ronds"):
        _ = RunSpec("darcy", "lno_plus", "fast", changes=(("ronds", 1),)).preset


def test_every_row_of_the_ladder_changes_something() -> None:
    whole = ladder.ROWS[ladder.KEPT]
    for label, row in ladder.ROWS.items():
        for problem, spec in row.items():
            same = spec.model == "lno_plus" and spec.preset == whole[problem].preset
            assert same == (label == ladder.KEPT), (label, problem)


def test_other_models_are_trained_like_lno_plus() -> None:
    """Rows compare models: all else is the same, but for the schedule of LNO."""
    for problem, spec in ladder.ROWS[ladder.KEPT].items():
        for label in ("LNO", "Transolver"):
            other = replace(ladder.ROWS[label][problem].preset, config=None)
            schedule = "onecycle" if label == "LNO" else "linear"
            assert other.recipe.schedule == schedule
            recipe = replace(other.recipe, schedule="linear")
            assert replace(other, recipe=recipe) == replace(spec.preset, config=None)


def test_the_ladder_shows_errors_and_their_ratio_to_that_of_all_ingredients(tmp_path: Path) -> None:
    fake(tmp_path, ladder.ROWS[ladder.KEPT]["darcy"], [0.004, 0.006])
    fake(tmp_path, ladder.ROWS["latent positions without places"]["darcy"], [0.010])
    text = ladder.table(ladder.SPECS, range(3), tmp_path).markdown()
    rows = {line.split(" | ")[0].strip("| "): line for line in text.splitlines() if "|" in line}
    assert "0.50" in rows["LNO+"] and "(" not in rows["LNO+"].split("|")[3]
    assert "(2.00)" in rows["latent positions without places"]
    assert "missing" in rows["AdamW for Muon"]


def test_error_against_time_takes_the_better_recipe_and_names_the_lowest(tmp_path: Path) -> None:
    def spec(model: str, recipe: str) -> RunSpec:
        wanted = ("darcy", model, recipe, 60.0)
        return next(s for s in pareto.SPECS if (s.problem, s.model, s.recipe, s.seconds) == wanted)

    assert pareto.figures(pareto.SPECS, range(3), tmp_path) == []
    fake(tmp_path, spec("lno", "fast"), [0.010])
    assert pareto.figures(pareto.SPECS, range(3), tmp_path) == []  # one point
    fake(tmp_path, spec("transolver", "paper"), [0.020])
    fake(tmp_path, spec("transolver", "fast"), [0.008])
    found = {p.model: p for p in pareto.points(pareto.SPECS, range(3), tmp_path)}
    assert found["transolver"].recipe == "fast" and found["lno"].mean == 0.010
    assert not any("lowest" in n for n in pareto.table(pareto.SPECS, [0], tmp_path).notes)
    fake(tmp_path, spec("lno_plus", "fast"), [0.006])
    with pytest.raises(StopIteration):  # too large for a minute
        spec("lno_plus", "best")
    shown = pareto.table(pareto.SPECS, [0], tmp_path)
    assert "darcy, lowest error: LNO+ at 1 min." in shown.notes
    [(_, figure)] = pareto.figures(pareto.SPECS, range(3), tmp_path)
    labels = {text.get_text() for text in figure.axes[0].get_legend().get_texts()}
    assert labels == {"LNO", "LNO+", "Transolver"}
    assert error_against_time([]) is None


def test_accuracy_of_lno_plus_stands_beside_published_numbers(tmp_path: Path) -> None:
    darcy = next(s for s in plus.SPECS if (s.problem, s.recipe) == ("darcy", "best"))
    fake(tmp_path, darcy, [0.0039], seconds=300.0, members=1)
    text = plus.table(plus.SPECS, range(3), tmp_path).markdown()
    assert "0.39" in text and "(300 s)" in text
    assert "| LaMO, as published |  | 0.39 | 4.60 |" in text
