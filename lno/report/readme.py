"""The numbers in README.md, from the ledger: `python -m lno.report.readme` writes them in."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from lno.files import write_text
from lno.ledger import Run


def quickstart_table(results: Path) -> str:
    """Errors of the quickstart beside those of radial basis functions."""
    learned, classical = (
        Run.load(results / "burgers" / model / "quickstart.json") for model in ("lno", "rbf")
    )
    rows = ["| observed | LNO, relative MAE | RBF, relative MAE |", "|---|---|---|"]
    for key, errors in learned.metrics.items():
        a, b = errors["relative_mae"], classical.metrics[key]["relative_mae"]
        cells = [f"{100 * v:.2f} %" for v in (a, b)]
        cells[a > b] = f"**{cells[a > b]}**"
        ratio = float(key.split("=")[1])
        rows.append(f"| {100 * ratio:g} % | {cells[0]} | {cells[1]} |")
    note = (
        f"One model of {learned.parameters:,} weights for all three, trained for "
        f"{learned.seconds:.0f} s ({learned.hardware}); 64 solutions that neither method saw."
    )
    return "\n".join([*rows, "", note])


def memory_table(results: Path) -> str:
    """Peak memory of a prediction against the number of points."""
    content = json.loads((results / "benchmarks" / "memory_predict.json").read_text())
    rows = ["| points in, points out | peak memory |", "|---|---|"]
    rows += [f"| {r['points']:,} | {r['extra_gb']:.2f} GB |" for r in content["rows"]]
    return "\n".join(rows)


TABLES: dict[str, Callable[[Path], str]] = {"quickstart": quickstart_table, "memory": memory_table}


def fill(text: str, results: Path) -> str:
    """A text with the part between `<!-- name -->` and `<!-- /name -->` made anew."""
    for name, table in TABLES.items():
        before, opening, rest = text.partition(f"<!-- {name} -->\n")
        _, closing, after = rest.partition(f"<!-- /{name} -->")
        if opening and closing:
            text = f"{before}{opening}{table(results)}\n{closing}{after}"
    return text


def main() -> None:
    """Rewrite README.md of the checkout that this file is in."""
    root = Path(__file__).parents[2]
    readme = root / "README.md"
    write_text(readme, fill(readme.read_text(encoding="utf-8"), root / "results"))


if __name__ == "__main__":
    main()
