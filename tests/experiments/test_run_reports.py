"""`lno report` on the folders of runs of `lno train`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from command_line import lno
from matplotlib.layout_engine import ConstrainedLayoutEngine

from lno import cli
from lno.ledger import Run


def test_the_report_shows_runs_side_by_side(
    two: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Half of the time of drawing is that of arranging: nobody looks at these figures.
    monkeypatch.setattr(ConstrainedLayoutEngine, "execute", lambda engine, figure: None)
    folders = [two / name for name in ("ensemble", "deeponet")]
    page, tables = tmp_path / "report.html", tmp_path / "report.md"
    lno(capsys, "report", *folders, "--out", page, "--markdown", tables)
    text, rows = page.read_text(), tables.read_text()
    for folder in folders:
        for path in folder.glob("run*.json"):
            run = Run.load(path)
            error = f"{100 * run.metrics['test']['relative_l2']:.3f} %"
            assert f"| {folder.name} | {run.seed} | test | {error} |" in rows and error in text
        run = Run.load(folder / "run.json")
        assert f"{run.parameters:,}" in rows
        number = int(np.argmax(run.samples["test"]))
        assert f"| {folder.name} | {number}: {100 * max(run.samples['test']):.3g} % |" in rows
    for caption in (
        "Error during training",
        "against time",
        "single test samples",
        "frame by frame",
        "ensemble: the worst test sample",
        "deeponet: the test sample with median error, frames",
    ):
        assert caption in text
    # Four figures of all runs, and of each run two samples and their frames.
    assert text.count("<img") == 4 + 2 * 2 * 2
    assert "://" not in text


def test_a_report_needs_runs(two: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["report", str(two), "--out", str(two / "a.html")]) == 1
    assert "expected the folder of a run that `lno train` has tested" in capsys.readouterr().err
    assert cli.run(["report", "--results", str(two / "none")]) == 1
    assert "no ledger at" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("run.json", "{}"),
        ("run.json", "[" * 100_000),
        ("run.json", '{"metrics": {"test": {}}}'),
        ("run.json", '{"curve": [{"error": 1}]}'),
        ("sample.npz", "PK"),
        ("sample.npz", ""),
    ],
)
def test_a_report_on_damaged_files_names_them(
    name: str,
    content: str,
    two: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lno.report.html.picture", lambda *_: "<img>")  # drawing takes seconds
    folder = tmp_path / "lno"
    shutil.copytree(two / "deeponet", folder)
    if content.startswith('{"'):
        content = json.dumps(json.loads((folder / name).read_text()) | json.loads(content))
    (folder / name).write_text(content)
    code = cli.run(["report", str(folder), "--out", str(tmp_path / "a.html")])
    said = capsys.readouterr().err
    assert "bug" not in said and "Traceback" not in said
    if code:
        assert str(folder) in said
    else:  # a page that says what it could not draw
        assert name == "sample.npz" and "sample.npz" in (tmp_path / "a.html").read_text()


def test_names_of_runs_are_harmless_in_a_report(
    two: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "<script> | $\\frac{$"
    folder = tmp_path / name
    shutil.copytree(two / "deeponet", folder)
    content = json.loads((folder / "run.json").read_text())
    content |= {"problem": name, "recipe": name, "hardware": name, "model": name}
    (folder / "run.json").write_text(json.dumps(content))
    with np.load(folder / "sample.npz") as file:
        arrays = {
            k: np.full(v.shape, name) if k.startswith("names") else v for k, v in file.items()
        }
    np.savez(folder / "sample.npz", **arrays)
    page, tables = tmp_path / "report.html", tmp_path / "report.md"
    lno(capsys, "report", folder, "--out", page, "--markdown", tables)
    assert "<script" not in page.read_text() + tables.read_text()
    rows = [line for line in tables.read_text().splitlines() if line.startswith("| &lt;script")]
    assert len(rows) == 3
    assert all(row.replace("\\\\", "").count("\\|") >= 1 for row in rows)
    text = page.read_text()
    assert text.count("<img") == 4 + 2 * 2
