"""What the choice of a model for data without a preset rests on: errors after equal time."""

from __future__ import annotations

from pathlib import Path

from lno.files import read_json
from lno.report.runs import model_name
from lno.report.tables import Table


def defaults_table(results: Path) -> Table:
    """LNO and LNO+ after equal training time, on data without a preset."""
    found = read_json(results / "benchmarks" / "defaults.json")["rows"]
    models, sets = (list(dict.fromkeys(r[key] for r in found)) for key in ("model", "data"))
    by = {(r["data"], r["model"]): r["relative_l2"] for r in found}
    rows = []
    for name in sets:
        errors = [by[name, model] for model in models]
        cells = [f"**{100 * e:.2f} %**" if e == min(errors) else f"{100 * e:.2f} %" for e in errors]
        rows.append([name, *cells])
    minutes, machines = ({r[key] for r in found} for key in ("minutes", "hardware"))
    budget = ", ".join(f"{m:g}" for m in sorted(minutes))
    note = (
        f"Relative L2 on held-out samples after {budget} min of training each, on "
        f"{', '.join(sorted(machines))}. `python benchmarks/defaults.py --minutes {budget} "
        "--darcy-small darcy_small.npz --holed holed_poisson.npz`"
    )
    return Table("Defaults", ["data", *map(model_name, models)], rows, [note])


def sensors_table(results: Path) -> Table:
    """LNO and LNO+ after equal training time, on fields observed at some points."""
    content = read_json(results / "benchmarks" / "sensors.json")
    rows = []
    for r in content["rows"]:
        errors = [f"{100 * error:.2f} %" for error in r["relative_mae"].values()]
        rows.append([r["label"], f"{r['parameters']:,}", f"{r['epochs']:.0f}", *errors])
    first = content["rows"][0]
    observed = [f"{100 * float(ratio):g} % observed" for ratio in first["relative_mae"]]
    note = (
        "Relative MAE on held-out solutions of Burgers' equation (the data of the quickstart) "
        f"after {content['minutes']:g} min of training each, on {first['hardware']}. "
        "`python benchmarks/sensors.py`"
    )
    return Table("Sensors", ["model", "parameters", "epochs", *observed], rows, [note])
