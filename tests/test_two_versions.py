"""The benchmark that compares two versions of the code, on stand-ins for both."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "two_versions.py"
VERSION = """
import json, os, time
from types import SimpleNamespace
from pathlib import Path
import lno

peak = [3e9]
torch = SimpleNamespace(cuda=SimpleNamespace(
    reset_peak_memory_stats=lambda: None, synchronize=lambda: None,
    max_memory_allocated=lambda: peak[0]))
CASES = {{name: SimpleNamespace(name=name, points=4) for name in ("a", "b", "broken", "ending")}}

def measure(step, resident):
    step()
    log = Path(__file__).parents[2] / "log.txt"
    with log.open("a") as file:
        file.write(lno.NAME + " " + step.kind + "\\n")
    assert not step.kind.startswith("ending mixed")
    return step.milliseconds, 1.0

def ours(case, kind):
    assert case.name != "broken"
    print("something that a library prints")
    def step():
        pass
    step.kind, step.milliseconds = f"{{case.name}} {{kind}}", {milliseconds}
    return measure(step, 1e9)

def plain(case):
    def step():
        pass
    step.kind, step.milliseconds = f"{{case.name}} plain", 20.0
    return measure(step, 1e9)

def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({{"rows": rows}}))

def describe(row):
    return row["case"]

def compare(rows, before):
    print(len(rows), len(before))
"""


def version(folder: Path, milliseconds: float) -> Path:
    """A package and a benchmark without torch."""
    for name, text in {
        "lno/__init__.py": f"NAME = {folder.name!r}",
        "benchmarks/training_step.py": VERSION.format(milliseconds=milliseconds),
        "benchmarks/two_versions.py": SCRIPT.read_text(),
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_two_versions_are_measured_in_turn_beside_one_plain_step(tmp_path: Path) -> None:
    now, before = version(tmp_path / "now", 2.0), version(tmp_path / "before", 5.0)
    words = [sys.executable, now / "benchmarks" / "two_versions.py", before]
    words += ["--at-once", "4", "--rounds", "2"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "2 2" and "broken tf32 of" in done.stderr
    assert "ending mixed of" in done.stderr  # it failed when it was measured
    results = now / "results" / "benchmarks"
    names = ("two_versions_now.json", "two_versions_before.json")
    rows, old = (json.loads((results / name).read_text())["rows"] for name in names)
    assert [row["case"] for row in rows] == [row["case"] for row in old] == ["a", "b"]
    for row, milliseconds in [(rows[0], 2.0), (old[1], 5.0)]:
        times = [row[f"{kind}_ms"] for kind in ("plain", "tf32", "mixed")]
        assert times == [20.0, milliseconds, milliseconds]
        assert row["tf32_gb"] == 2.0 and row["points"] == 4  # the peak of the first steps
    lines = (tmp_path / "log.txt").read_text().splitlines()
    turns = [f"{who} a {kind}" for kind in ("tf32", "mixed") for who in ("before", "now")]
    assert lines[: 2 + 4 + 4] == ["now a plain", "now a plain", *turns, *turns]
