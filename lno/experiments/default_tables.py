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
    rows = []
    for key in ("relative_l2", "finer"):
        by = {(r["data"], r["model"]): r[key] for r in found if r.get(key) is not None}
        for name in sets:
            errors = {model: by[name, model] for model in models if (name, model) in by}
            if not errors:
                continue
            least, cells = min(errors.values()), []
            for model in models:
                shown = f"{100 * errors[model]:.2f} %" if model in errors else "–"
                cells.append(f"**{shown}**" if errors.get(model) == least else shown)
            rows.append([name + ", on half the spacing" * (key == "finer"), *cells])
    minutes, machines = ({r[key] for r in found} for key in ("minutes", "hardware"))
    budget = ", ".join(f"{m:g}" for m in sorted(minutes))
    note = (
        f"Relative L2 on held-out samples after {budget} min of training each, on "
        f"{', '.join(sorted(machines))}. With dropout: the rule for points that are no grid. "
        f"`python benchmarks/defaults.py --minutes {budget} "
        "--darcy-small darcy_small.npz --holed holed_poisson.npz`"
    )
    header = [
        "data",
        *(" ".join([model_name(kind), *rest]) for kind, *rest in map(str.split, models)),
    ]
    return Table("Defaults", header, rows, [note])


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
