"""The report on the ledger: all that was measured is on the page, and nothing that was not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from filed_runs import file_run
from matplotlib.figure import Figure
from pages import Page, read

from lno.experiments import checklist, forward, method_pictures, overview, paper, report
from lno.experiments.checklist import ROWS
from lno.experiments.tables import EXPERIMENTS
from lno.report import html
from lno.report.compact import compact

RESULTS = Path(__file__).parents[2] / "results"
PIXEL = html.png(Figure(figsize=(0.1, 0.1)))


@pytest.fixture(scope="module")
def page() -> Iterator[tuple[Page, str]]:
    """The page of the real ledger, with pictures that cost nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(html, "png", lambda figure: PIXEL)
        patch.setattr("lno.report.samples.sample_fields", lambda path, title: Figure())
        patch.setattr("lno.report.samples.rollout_frames", lambda path, title: None)
        drawn = {number: (caption, Figure) for number, (caption, _) in report.DRAWINGS.items()}
        patch.setattr(report, "DRAWINGS", drawn)
        text = report.page(RESULTS)
    yield read(text), text


def test_every_table_and_figure_has_its_section(page: tuple[Page, str]) -> None:
    found, _ = page
    headings = [text for _, text in found.headings]
    for row in ROWS:
        assert headings.count(row.heading) == 1
        assert f"#{html.slug(row.heading)}" in found.links
        assert row.text in found.text


def test_every_table_of_every_experiment_is_there(page: tuple[Page, str]) -> None:
    found, text = page
    for name, experiment in EXPERIMENTS.items():
        for make in experiment.tables:
            whole = make(experiment.specs(), range(max(3, experiment.seeds)), RESULTS)
            table, waiting = compact(whole)
            assert html.prose(waiting) in text
            if not table.rows:
                assert table.title in waiting
                continue
            rows = html.table(table.header, table.rows, label=table.title)
            assert rows.split("<table>")[1].removeprefix("<caption>") in text or (
                html.table(table.header, table.rows, caption=table.title) in text
            ), name
        assert f"lno reproduce {name}" in found.text


def test_the_top_says_what_holds(page: tuple[Page, str]) -> None:
    found, _ = page
    start = found.text.index("Contents")
    for sentence in checklist.summary(RESULTS).values():
        words = html.inline(sentence.split("**")[2]).replace("\u00a0", " ")
        assert words.strip().replace("&#x27;", "'") in found.text[:start]


def test_what_comes_after_the_paper(page: tuple[Page, str]) -> None:
    found, _ = page
    second = [text for level, text in found.headings if level == 2]
    assert second == [
        "Contents",
        "Checklist",
        *checklist.GROUPS,
        report.BEYOND,
        report.SOLVERS,
        report.ENGINEERING,
    ]


def test_an_experiment_that_the_paper_lacks_is_shown_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = EXPERIMENTS["resolution"]
    monkeypatch.setitem(EXPERIMENTS, "ladder", type(other)(**{**vars(other), "name": "ladder"}))
    [beyond] = [s for s in report.sections(RESULTS) if s.title == report.BEYOND]
    first = beyond.parts[0]
    assert (first.command, first.text) == ("lno reproduce ladder", other.text)
    assert first.tables and first.figures


def test_an_empty_ledger_is_a_page_of_what_is_missing(tmp_path: Path) -> None:
    found = read(report.page(tmp_path))
    assert not found.alts
    empty = 1  # the table of models has a row of dashes
    every = sum(map(len, report._benchmarks().values()))
    assert found.text.count("Not measured yet.") == every - empty
    for row in ROWS:
        assert checklist.verdict_of(row, tmp_path).text in found.text
    assert "nothing is confirmed yet" in found.text


def test_markdown_has_a_row_for_each_and_its_pictures_have_names(tmp_path: Path) -> None:
    text = report.markdown(RESULTS, "images/a-")
    for row in ROWS:
        assert f"\n| [{row.number}](#{html.slug(row.heading)}) {row.title} | " in text
        assert f"\n### {row.heading}\n" in text
    shown = [line.split("](")[1].split(")")[0] for line in text.splitlines() if line[:2] == "!["]
    names = [f"images/a-{name}" for s in report.sections(RESULTS) for name, _ in s.files()]
    assert shown == names and len(set(names)) == len(names)


# -- tables as the paper prints them ---------------------------------------------------------------


def test_the_longest_training_is_shown_beside_the_papers(tmp_path: Path) -> None:
    specs = [s for s in forward.SPECS if (s.problem, s.model) == ("darcy", "lno")]
    for spec in specs:
        file_run(tmp_path, spec, {"test": 0.01 * 100 / spec.epochs})
    table = overview.forward_table(forward.SPECS, range(3), tmp_path)
    by = {row[0]: row[1:] for row in table.rows}
    assert by["LNO, ours"] == ["0.200 (500)", *["missing"] * 5]
    assert by["LNO, as published"][0] == "0.49"
    assert len(table.rows) == 2 * len(paper.FORWARD)


def test_costs_and_settings_stand_beside_the_papers() -> None:
    rows = overview.cost_table(RESULTS).rows
    assert [row[0].endswith("as published") for row in rows] == [False, True] * 6
    rows = overview.settings_table(RESULTS).rows
    for ours, theirs in zip(rows[0:12:2], rows[1:12:2], strict=True):
        assert ours[1:] == theirs[1:]


# -- the paper's drawings --------------------------------------------------------------------------


def test_the_weights_in_the_drawing_are_those_of_the_paper() -> None:
    (axis,) = method_pictures.architecture().axes
    texts = [text.get_text() for text in axis.texts]
    parts = [int(t.split("\n")[-1].replace(",", "")) for t in texts if t[-1:].isdigit()]
    [total] = [t for t in texts if "weights" in t]
    assert f"{sum(parts):,} weights" in total
    assert round(sum(parts) / 1e6, 2) == paper.EFFICIENCY["lno"]["darcy"][0]


def test_latent_positions_in_the_drawing_are_apart_and_scaled() -> None:
    axes = method_pictures.attention().axes
    images = [np.asarray(axis.images[0].get_array()) for axis in axes]
    assert all(image.max() == pytest.approx(1) and image.min() >= 0 for image in images)
    peaks = {np.unravel_index(image.argmax(), image.shape) for image in images[:4]}
    assert len(peaks) == 4
