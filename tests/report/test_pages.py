"""Pages and their parts: what is in a section is shown, harmless, as HTML and as Markdown."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest
from matplotlib.figure import Figure
from pages import read
from PIL import Image

from lno.report import alt, comparisons, html
from lno.report.comparisons import Dot, Series
from lno.report.sections import Picture, Section, Verdict, contents, contents_markdown
from lno.report.tables import MISSING, Table

HOSTILE = '<script>alert("a")</script> & `<b>` **<i>**'
TABLE = Table("Errors", ["model", "error, %"], [["LNO", "0.5"], ["LNO, as published", MISSING]])


def chart() -> Figure:
    figure = Figure(figsize=(4, 3))
    axis = figure.subplots()
    axis.plot([1, 2], [4.0, 3.0], label="LNO")
    axis.set(xlabel="epochs", ylabel="error")
    return figure


def tree() -> list[Section]:
    inner = Section(
        "Table 1. Errors on Burgers' equation",
        "How to read it.\n\nMore of it.",
        "lno reproduce forward",
        [TABLE],
        [Picture("A chart.", chart, kept=True), Picture("Nothing.", lambda: None)],
        Verdict("good", "holds", "Because it is so.", "2 of 3 runs"),
        more=[Section("Every run", tables=[TABLE, TABLE])],
    )
    return [Section("Forward problems", parts=[inner]), Section("Rest", figures=[])]


def test_a_page_holds_every_part_of_its_sections() -> None:
    sections = tree()
    page = read(html.page("A title", [contents(sections), *(s.html() for s in sections)]))
    for text in (
        "How to read it.",
        "More of it.",
        "lno reproduce forward",
        "Because it is so.",
        "2 of 3 runs",
        "A chart.",
        "Every run",
        MISSING,
    ):
        assert text in page.text
    assert [level for level, _ in page.headings] == [1, 2, 2, 3, 2]
    assert page.ids == ["forward-problems", "table-1-errors-on-burgers-equation", "rest"]
    assert page.links == [f"#{name}" for name in page.ids]
    assert page.alts == ["A chart. error against epochs: LNO ends at 3."]


def test_markdown_holds_the_same_and_its_links_lead_to_headings() -> None:
    sections = tree()
    text = "\n\n".join(s.markdown(images="images/a-") for s in sections)
    for part in ("How to read it.", "**holds** · 2 of 3 runs · `lno reproduce forward`"):
        assert part in text
    assert "![A chart.](images/a-table-1.png)" in text and "Nothing." not in text
    assert [name for s in sections for name, _ in s.files()] == ["table-1.png"]
    headings = {html.slug(line.lstrip("# ")) for line in text.splitlines() if line[:1] == "#"}
    for to in re.findall(r"\]\(#([^)]+)\)", contents_markdown(sections)):
        assert to in headings


def test_whatever_a_file_says_is_text() -> None:
    table = Table(HOSTILE, [HOSTILE, "b"], [[HOSTILE, HOSTILE]], [HOSTILE])
    several = [table, table]
    verdict = Verdict("open", HOSTILE, HOSTILE, HOSTILE)
    section = Section(HOSTILE, HOSTILE, "", several, [Picture(HOSTILE, chart)], verdict)
    text = html.page(
        HOSTILE, [contents([section]), section.html(), html.sentences([("bad", HOSTILE)])]
    )
    page = read(text)
    assert "i" not in page.tags and "b" not in page.tags
    assert 'alert("a")' in page.text
    assert "<script" not in section.markdown() + contents_markdown([section])


def test_a_picture_of_a_damaged_file_is_a_note() -> None:
    def draw() -> Figure:
        raise ValueError("a.npz: damaged")

    page = read(
        html.page("A title", [Section("Fields", figures=[Picture("A sample", draw)]).html()])
    )
    assert "A sample: a.npz: damaged" in page.text and not page.alts


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (["LNO, as published", "1"], "<tr class=paper>"),
        (["LNO", MISSING], "<td class=missing>"),
        (["LNO", "**1**"], "<strong>1</strong>"),
        (["LNO", "word"], "<td class=text>"),
    ],
)
def test_rows_and_cells_look_like_what_they_are(row: list[str], expected: str) -> None:
    assert expected in html.table(["a", "b"], [row]).replace('"', "")


def test_long_notes_are_folded_and_short_ones_are_not() -> None:
    short = Table("a", ["b"], [["c"]], ["Short."]).html()
    long = Table("a", ["b"], [["c"]], ["Long. " * 100]).html()
    assert "<details" not in short and "<details" in long
    assert "Short." in short and "Long. Long." in long


def test_pictures_are_small_and_their_background_is_white() -> None:
    figure = Figure(figsize=(4, 3))
    field = np.sin(np.linspace(0, 6, 400))[:, None] * np.cos(np.linspace(0, 6, 400))
    figure.subplots().imshow(field, cmap="viridis")
    few = Image.open(io.BytesIO(html.png(figure)))
    assert few.size == (400, 300)
    full = io.BytesIO()
    figure.savefig(full, dpi=html.DPI)
    true = np.asarray(Image.open(full).convert("RGB")).astype(int)
    found = np.asarray(few.convert("RGB")).astype(int)
    assert (found[0, 0] == 255).all() and ((found == 255) == (true == 255)).mean() > 0.99
    assert np.abs(found - true).mean() < 3
    blurred = [a[:296, :396].reshape(74, 4, 99, 4, 3).mean((1, 3)) for a in (found, true)]
    assert np.abs(blurred[0] - blurred[1]).max() < 12  # dithering keeps the mean
    assert len(html.png(figure)) < len(full.getvalue())


def test_a_description_says_what_lines_say() -> None:
    figure = Figure()
    left, right = figure.subplots(1, 2)
    left.plot([1, 2], [3.0, 0.25], label="LNO")
    left.plot([1, 2], [3.0, 9.0], label="_hidden")
    left.set(xlabel="epochs", ylabel="error")
    right.set_title("truth: u")
    assert alt.describe(figure, "Errors.") == (
        "Errors. error against epochs: LNO ends at 0.25. truth: u."
    )
    assert len(alt.describe(figure, "a" * 5000)) == alt.LONGEST
    assert alt.describe(Figure(), "\x1b") == "\\x1b"


def test_charts_hold_both_numbers() -> None:
    dots = [Dot("LNO", 0.8, 0.5, "500 epochs"), Dot("GNOT", None, 1.0), Dot("FNO", None, None)]
    figure = comparisons.dots({"Darcy": dots, "Pipe": dots[:1]}, "error", even=1.0)
    first = figure.axes[0]
    marks = [line for line in first.lines if line.get_marker() == "o"]
    drawn = {tuple(map(float, line.get_xydata()[0])) for line in marks}
    assert {(0.8, 0), (0.5, 0), (1.0, 1)} <= drawn
    assert [t.get_text() for t in first.get_yticklabels()] == ["LNO", "GNOT", "FNO"]
    assert first.get_xscale() == "log"
    series = [Series("LNO", [1.0, None, 3.0], [None, 2.0, 4.0])]
    (axis,) = comparisons.lines(series, ["a", "b", "c"], "x", "y").axes
    ours, theirs = axis.lines
    np.testing.assert_array_equal(ours.get_xydata(), [[0, 1], [2, 3]])
    np.testing.assert_array_equal(theirs.get_xydata(), [[1, 2], [2, 4]])
