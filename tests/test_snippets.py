"""The Python code in README and docs runs, page by page and in order, as a reader would type it."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

ROOT = Path(__file__).parents[1]
PAGES = ["README.md", *sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("docs/**/*.md"))]
NOT_RUN = "<!-- not run -->"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


def snippets(text: str) -> list[str]:
    """The blocks that run, each on its line of the page, so that errors point there."""
    return [
        "\n" * (text.count("\n", 0, found.start()) + 1) + found[1]
        for found in BLOCK.finditer(text)
        if not text[: found.start()].rstrip().endswith(NOT_RUN)
    ]


def test_snippets_keep_their_lines_and_those_marked_are_left_out() -> None:
    page = (
        f"# A\n```python\na = 1\n```\n{NOT_RUN}\n```python\na = 2\n```\n\n```python\nb = a\n```\n"
    )
    assert snippets(page) == ["\n\na = 1\n", "\n" * 10 + "b = a\n"]


@pytest.mark.parametrize("page", PAGES)
def test_python_code_on_the_page_runs(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    plt.switch_backend("agg")
    names: dict[str, object] = {"__name__": "__main__"}
    for code in snippets((ROOT / page).read_text(encoding="utf-8")):
        exec(compile(code, str(ROOT / page), "exec"), names)
