from __future__ import annotations

import re
from pathlib import Path

import pytest

from lno.experiments import report
from lno.experiments.documents import PAGES, TABLES, fill

ROOT = Path(__file__).parents[1]


def test_every_table_stands_somewhere() -> None:
    pages = "".join((ROOT / page).read_text(encoding="utf-8") for page in PAGES)
    for name in TABLES:
        assert f"<!-- {name} -->" in pages


@pytest.mark.parametrize("page", PAGES)
def test_the_numbers_in_the_documentation_are_those_of_the_ledger(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert fill(text, ROOT / "results") == text, "run: make tables"


def test_the_page_of_results_is_made_from_the_ledger() -> None:
    text = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert text == report.markdown(ROOT / "results"), "run: make tables"


@pytest.mark.parametrize(
    "page", ["README.md", "CONTRIBUTING.md", *map(str, ROOT.glob("docs/**/*.md"))]
)
def test_links_to_files_lead_somewhere(page: str) -> None:
    path = ROOT / page
    for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), f"{page}: {target}"


def test_every_make_target_that_the_docs_name_exists() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for page in ("README.md", "CONTRIBUTING.md"):
        for target in re.findall(r"^make (\w+)", (ROOT / page).read_text(), re.MULTILINE):
            assert f"\n{target}:" in makefile


def test_the_site_lists_every_page() -> None:
    listed = re.findall(r"([\w/]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md")]
    assert sorted(listed) == sorted(pages)
