"""What the tutorials' commands reach on data of others, beside simple methods."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lno.files import read_json
from lno.report.runs import model_name
from lno.report.tables import Table

COMMAND = "`python benchmarks/own_data.py {}`"
OPERATOR = "operator"  # among simple methods


def error_table(part: str, title: str) -> Callable[[Path], Table]:
    """Relative L2 errors of an operator and of simple methods on test samples."""

    def table(results: Path) -> Table:
        found = _measured(results, part)
        zero_shot = found.get("zero_shot")
        best = min(found["relative_l2"].values())
        rows = []
        for name, error in sorted(found["relative_l2"].items(), key=lambda pair: pair[1]):
            shown = f"{100 * error:.2f} %"
            row = [_method(name, found), f"**{shown}**" if error == best else shown]
            if zero_shot is not None:
                row.append(f"{100 * zero_shot:.2f} %" if name == OPERATOR else "–")
            rows.append(row)
        header = ["method", "relative L2"]
        if zero_shot is not None:
            header = ["method", "16 × 16", "32 × 32, zero-shot"]
        return Table(title, header, rows, [_note(part, found)])

    return table


def sst_table(results: Path) -> Table:
    """Root-mean-square errors of sea-surface temperatures."""
    title, found = "Sea-surface temperature", _measured(results, "sst")
    rows = [
        [_method(name, found), f"{error:.3f} °C"]
        for name, error in sorted(found["rmse"].items(), key=lambda pair: pair[1])
    ]
    sensors = f"Area-weighted root-mean-square error from {found['sensors']} sensors. "
    return Table(title, ["method", "RMSE"], rows, [sensors + _note("sst", found)])


def _method(name: str, found: dict[str, Any]) -> str:
    """The name of a method; of the operator, that of its model."""
    if name != OPERATOR:
        return name
    members = "" if found["members"] == 1 else f", {found['members']} members"
    return f"{model_name(found['model'])}{members}"


def _note(part: str, found: dict[str, Any]) -> str:
    weights = f"{found['parameters']:,} weights" + (" each" if found["members"] > 1 else "")
    contained = found.get("contained")
    bounds = f"; bounds of 90 % contain {100 * contained:.1f} % of the points" if contained else ""
    return (
        f"{found['test']} test samples{bounds}. {weights}, a budget of {found['minutes']:g} min "
        f"({found['hardware']}). {COMMAND.format(part)}"
    )


def _measured(results: Path, part: str) -> dict[str, Any]:
    return read_json(results / "benchmarks" / f"own_data_{part}.json")


OWN_TABLES: dict[str, Callable[[Path], Table]] = {
    "own_darcy_small": error_table("darcy_small", "Zero-shot resolution"),
    "own_holed_poisson": error_table("holed_poisson", "Varying geometry"),
    "own_parameters": error_table("parameters", "Parameters to a field"),
    "own_sst": sst_table,
    "own_stations": error_table("stations", "Weather stations"),
}
