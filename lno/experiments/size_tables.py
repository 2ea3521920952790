"""Memory and time of predictions and of training on very many points."""

from __future__ import annotations

from pathlib import Path

from lno.files import read_json
from lno.report.tables import Table

DEVICES = ("cpu", "cuda")


def large_predictions_table(results: Path) -> Table:
    """What millions of points cost; a device that was not measured has no rows."""
    paths = [results / "benchmarks" / f"large_predictions_{device}.json" for device in DEVICES]
    rows = []
    for found in (read_json(path) for path in paths if path.exists()):
        predict, mesh, train = (found[part] for part in ("predict", "mesh", "train"))
        memory = predict["extra_gb"] if predict["gpu_gb"] is None else predict["gpu_gb"]
        where = found["hardware"]
        asked = f"predictions at {predict['queries']:,} points"
        rows.append([asked, where, f"{predict['seconds']:.0f} s", f"{memory:.2f} GB"])
        written = f"a mesh file (.vtu) of {mesh['nodes']:,} nodes"
        rows.append([written, where, f"{mesh['seconds']:.2g} s", f"{mesh['extra_gb']:.1g} GB"])
        used = train["extra_gb"] if train["gpu_gb"] is None else train["gpu_gb"]
        step = f"a training step on {train['points']:,} points, width {train['width']}"
        rows.append([step, where, f"{train['seconds_per_step']:.1f} s", f"{used:.2f} GB"])
    if not rows:
        raise FileNotFoundError(f"{paths[0]}: not measured")
    note = (
        "In three dimensions; memory beyond the arrays themselves, on a GPU its own. The paper's "
        "Darcy model, from 100,000 observations; predictions equal one pass up to rounding. "
        "`python benchmarks/large_predictions.py`"
    )
    return Table("Many points", ["what", "on", "time", "memory"], rows, [note])
