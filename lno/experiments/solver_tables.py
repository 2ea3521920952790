"""Tables of the documentation on solvers and on making data, from `results/benchmarks`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lno.files import read_json
from lno.report.tables import Table


def make_data_table(results: Path) -> Table:
    """How long data sets take, on every kind of device that was measured."""
    rows = [
        [r["problem"], f"{r['samples']:,}", f"{r['seconds']:.1f}", r["hardware"]]
        for r in _made(results)
    ]
    command = "`python benchmarks/make_data.py PROBLEM …`, drawing and writing included."
    return Table("Making data", ["problem", "samples", "seconds", "on"], rows, [command])


def statistics_table(problem: str, published: Mapping[str, float]) -> Callable[[Path], Table]:
    """A table of the statistics of a problem's data, beside those of the published files."""

    def table(results: Path) -> Table:
        made = _made_on_gpu_if_any(results, problem)
        rows = []
        for name, found in made["statistics"].items():
            mean, spread = found["std_per_sample"]
            sample = f"{mean:.3g} ± {spread:.2g}"
            beside = f"{published[name]:g}" if name in published else "not known"
            rows.append([name, f"{found['mean']:.3g}", f"{found['std']:.3g}", sample, beside])
        header = ["channel", "mean", "std", "std of a sample", "std of a published sample"]
        return Table(problem, header, rows)

    return table


def accuracy_table(results: Path) -> Table:
    """Errors of the solvers."""
    content = read_json(results / "benchmarks" / "solver_accuracy.json")
    darcy, burgers, ns2d = (content["rows"][name] for name in ("darcy", "burgers", "ns2d"))
    iterations = [k for name, pair in darcy.items() if name.startswith("iter") for k in pair]
    rows = [
        [f"Darcy, {n}²", "sparse direct solution", f"{darcy[f'direct {n}']:.0e}"] for n in (85, 421)
    ]
    rows.append(["Burgers", "half the time step", f"{burgers['half steps']:.0e}"])
    rows.append(["Burgers", "twice the points", f"{burgers['1024 points']:.0e}"])
    names = {"single precision": "in double precision", "half steps": "half the time step"}
    for key, errors in ns2d.items():
        shown = ", ".join(f"{e:.0e}" for e in errors)
        rows.append(["NS2d at t = 1, 10, 20", names.get(key, "twice the points"), shown])
    note = (
        f"The largest of {content['samples']} samples (one for the direct solutions); Darcy takes "
        f"{min(iterations)} to {max(iterations)} iterations on 85², 141² and 421² alike. "
        "`python benchmarks/solver_accuracy.py`"
    )
    return Table("Solvers", ["solver", "compared with", "relative L2"], rows, [note])


def checks_table(problem: str) -> Callable[[Path], Table]:
    """A table of what was checked about the solver of a problem on a deformed mesh."""

    def table(results: Path) -> Table:
        checks = read_json(results / "benchmarks" / "solver_accuracy.json")["rows"][problem]
        rows = [
            [row["check"], f"{_number(row['value'])} {row.get('unit', '')}".strip()]
            for row in checks
        ]
        note = f"`python benchmarks/solver_accuracy.py {problem}`"
        return Table(problem, ["check", "result"], rows, [note])

    return table


def known_statistics_table(problem: str) -> Callable[[Path], Table]:
    """A table of statistics of the generated data beside what is known of the published data."""

    def table(results: Path) -> Table:
        made = _made_on_gpu_if_any(results, problem)
        rows = [
            [row["statistic"], _number(row["ours"]), _number(row["published"])]
            for row in made["statistics"]
        ]
        note = f"{made['samples']:,} samples. `python benchmarks/make_data.py {problem}`"
        return Table(problem, ["statistic", "generated", "published"], rows, [note])

    return table


def _made(results: Path) -> list[dict[str, Any]]:
    """All rows of `benchmarks/make_data.py`: on a CPU, then on a GPU."""
    paths = sorted((results / "benchmarks").glob("make_data_*.json"))
    return [row for path in paths for row in read_json(path)["rows"]]


def _made_on_gpu_if_any(results: Path, problem: str) -> dict[str, Any]:
    rows = [row for row in _made(results) if row["problem"] == problem]
    if not rows:
        raise FileNotFoundError(
            f"nothing in {results / 'benchmarks'} on making data of {problem}: run "
            f"python benchmarks/make_data.py {problem}"
        )
    return rows[-1]


def _number(value: float | str | None) -> str:
    """A number with a few digits; a text as it is.

    >>> _number(0.49312), _number(2e-5), _number(1.04391), _number(200044.0), _number(None)
    ('0.493', '2e-05', '1.0439', '200044', 'not known')
    """
    if not isinstance(value, float | int):
        return "not known" if value is None else value
    if value != 0 and abs(value) < 1e-2:
        return f"{value:.1e}".replace(".0e", "e")
    digits = 3 if abs(value) < 1 else 5
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.{digits}g}"
