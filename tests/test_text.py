"""Text from files is harmless wherever it is shown."""

from __future__ import annotations

import io
import sys
import unicodedata

import numpy as np
import pytest
from matplotlib.figure import Figure

from lno import Fields
from lno.experiments.pictures import prediction_picture, sample_gallery
from lno.report import plots
from lno.report.tables import Table
from lno.text import LONGEST, markdown, plain, visible


def test_no_character_that_moves_or_hides_is_left() -> None:
    every = "".join(map(chr, range(sys.maxunicode + 1)))
    shown = visible(every)
    assert {unicodedata.category(c) for c in shown}.isdisjoint({"Cc", "Cf", "Cs", "Zl", "Zp"})
    assert visible(shown) == shown
    assert "\\n" in visible("a\nb") and visible("a\nb", keep="\n") == "a\nb"


def test_ordinary_text_stays_as_it_is() -> None:
    for text in ("height", "ω(t = 1), m²/s", "θ̂", "温度", "a b", "[red] :smile:", ""):
        assert visible(text) == text


@pytest.mark.parametrize(
    "name",
    [
        "<script>alert(1)</script>",
        "a | b",
        "\\| b",
        "![x](http://a/b.png)",
        "a\n\n# b",
        "`<script>`",
        "` a`` <script> ``` b",
        "`[a](b)",
    ],
)
def test_names_in_markdown_are_neither_html_nor_columns_nor_links(name: str) -> None:
    text = Table("Errors", ["run", "error"], [[name, "1 %"]], [name]).markdown()
    header, rule, row, _, note = text.split("\n")
    assert (header, rule) == ("| run | error |", "|---|---|")
    for line in (row, note):
        assert "<" not in line and "](" not in line.replace("\\](", "")
    bare = row.replace("\\\\", "").replace("\\|", "")  # what is escaped splits nothing
    assert bare.count("|") == 3
    assert markdown("**bold** `code && more` & so on") == "**bold** `code && more` &amp; so on"


@pytest.mark.parametrize(
    "name",
    [
        "$\\frac{$",
        "$$",
        "a $ b $ c",
        "\\$\\frac{\\$",
        "\\",
        "$" * 500,
        "x" * 10**5,
        "a\x1b\nb",
        "{x}",
    ],
)
def test_names_in_pictures_are_no_formulas(name: str) -> None:
    figure = Figure(layout="constrained")
    axis = figure.subplots()
    axis.set_title(plain(name))
    axis.set_xlabel(plain(name))
    figure.savefig(io.BytesIO(), format="png")
    figure.savefig(io.BytesIO(), format="svg")
    assert len(plain(name).replace(r"\$", "$")) <= LONGEST


def test_fields_with_hostile_names_are_drawn() -> None:
    name = "$\\frac{$\x1b"
    plane = plots.Plane((name, name), (0.0, 0.0), (1.0, 1.0))
    values, sensors = np.eye(3) - 0.5, (np.array([[0.5, 0.5]]), np.array([1.0]))
    side = np.linspace(0, 1, 3)
    x = np.stack(np.meshgrid(side, side, indexing="ij"), -1).reshape(9, 2)
    names = {"x": [name, name], "u": [name], "y": [name]}
    fields = Fields(x, np.ones((1, 9, 1)), y=np.eye(3).reshape(1, 9, 1), grid=(3, 3), names=names)
    for figure in (
        plots.field_picture(plane, values, sensors, name),
        plots.bounded_field(plane, values, values + 1, sensors, name),
        plots.reconstruction(plane, values, sensors, {name: values + 0.1}),
        plots.heat_maps({name: values + 1}, [1, 2, 3], (name, name), "error"),
        sample_gallery(fields),
        prediction_picture(fields),
    ):
        figure.savefig(io.BytesIO(), format="png", dpi=30)
