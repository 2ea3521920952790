from __future__ import annotations

import re
from pathlib import Path

import pytest

from lno.report.readme import TABLES, fill

ROOT = Path(__file__).parents[1]


def test_the_numbers_in_the_readme_are_those_of_the_ledger() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for name in TABLES:
        assert f"<!-- {name} -->" in text
    assert fill(text, ROOT / "results") == text, "run: python -m lno.report.readme"


@pytest.mark.parametrize(
    "page", ["README.md", "CONTRIBUTING.md", *map(str, ROOT.glob("docs/*.md"))]
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
