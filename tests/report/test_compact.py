"""Tables that wait for runs: what is known stays, what is missing is named, nothing looks whole."""

from __future__ import annotations

from lno.report.compact import compact
from lno.report.sections import Section, each_note_once
from lno.report.tables import MISSING, Table

HEADER = ["error, %", "seeds", "Darcy", "Pipe", "Airfoil", "paper"]
ROWS = [
    ["FNO, ours", "0", MISSING, MISSING, f"{MISSING}† (1.2)", "1.1"],
    ["FNO, as published", "", "1.08", "–", "1.2", "1.1"],
    ["LNO, ours", "0–3", "0.8", MISSING, MISSING, "0.5"],
    ["LNO, as published", "", "0.49", "0.26", "0.51", "0.5"],
    ["F-FNO, ours", "0–1", MISSING, "0.7", "cannot", "0.7"],
]
NOTES = {"FNO, ours": ["† FNO on Airfoil: adapted."], "F-FNO, ours": ["Cannot: F-FNO."]}
TABLE = Table("Errors", HEADER, ROWS, ["Long. `lno x`"], 1, ("seeds", "paper"), NOTES)


def test_rows_and_columns_without_a_run_are_named_and_others_kept() -> None:
    small, said = compact(TABLE)
    assert said == "Not run yet: FNO. Columns without results yet: Airfoil."
    assert small.header == ["error, %", "seeds", "Darcy", "Pipe", "paper"]
    assert [row[0] for row in small.rows] == ["LNO, ours", "LNO, as published", "F-FNO, ours"]
    assert small.rows[0] == ["LNO, ours", "0–3", "0.8", MISSING, "0.5"]  # still incomplete
    assert small.rows[2][2] == MISSING
    assert small.remarks == ["Long. `lno x`", "Cannot: F-FNO."]


def test_no_result_is_lost_and_no_missing_cell_looks_known() -> None:
    small, _ = compact(TABLE)
    known = [row for row in ROWS if "published" not in row[0]]
    for row in known:
        for name, cell in zip(HEADER, row, strict=True):
            if cell[0].isdigit() and name not in TABLE.aside:
                [kept] = [each for each in small.rows if each[0] == row[0]]
                assert kept[small.header.index(name)] == cell
    shown = {row[0]: dict(zip(small.header, row, strict=True)) for row in small.rows}
    for row in known:
        for name, cell in zip(HEADER, row, strict=True):
            if row[0] in shown and name in small.header:
                assert shown[row[0]][name] == cell


def test_a_whole_table_is_its_own() -> None:
    whole = Table("Errors", ["model", "Darcy"], [["LNO", "0.5"], ["F-FNO", "cannot"]])
    assert compact(whole) == (whole, "")
    assert compact(Table("Errors", ["model"], []))[1] == ""


def test_rows_of_several_keys_are_named_by_as_many_as_it_takes() -> None:
    rows = [["darcy", "LNO", "1"], ["darcy", "FNO", MISSING], ["pipe", "LNO", MISSING]]
    small, said = compact(Table("Errors", ["problem", "model", "error"], rows, keys=2))
    assert small.rows == rows[:1] and said == "Not run yet: darcy (FNO) and pipe."


def test_a_table_without_any_run_is_one_sentence_of_its_section() -> None:
    empty = Table("Ablations", ["model", "Darcy"], [["LNO", MISSING]], ["A note. `lno reproduce`"])
    section = Section("All", "How to read it.", tables=[TABLE, empty])
    for text in (section.markdown(), section.html()):
        assert text.count("Not run yet: “Ablations” (") == 1 and "A note." not in text
        assert "Not run yet: FNO." in text and text.count("Ablations") == 1
    assert Section("One", tables=[empty]).markdown() == (
        "## One\n\nNot run yet: “Ablations” (`lno reproduce`)."
    )


def test_a_note_is_said_once_on_a_page_and_commands_every_time() -> None:
    table = Table("Errors", ["model"], [["LNO"]], ["The same.", "`lno x`"])
    inner = Section("Inner", tables=[table], more=[Section("More", tables=[table])])
    found = each_note_once([Section("First", tables=[table]), Section("Outer", parts=[inner])])
    text = "\n".join(section.markdown() for section in found)
    assert text.count("The same.") == 1 and text.count("`lno x`") == 3
