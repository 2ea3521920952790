"""The models at a glance: what each costs on Darcy flow, and what it can take."""

from __future__ import annotations

from pathlib import Path

import torch

from lno.data import Spec
from lno.experiments import efficiency
from lno.experiments.cases import CASES, obstacle
from lno.experiments.presets import preset, usual_preset
from lno.models import MODELS, Demand, build_model, capable_models
from lno.report.runs import model_name
from lno.report.tables import Table
from lno.training.inputs import model_config

PROBLEM = "darcy"
UNKNOWN = "–"
PLANE, SPACE = Spec(2, 1, 1), Spec(3, 1, 1)  # clouds of points


def table(results: Path) -> Table:
    """Weights, cost of a training step, and capabilities of every model."""
    costs = efficiency.measured(results)
    in_plane, in_space = (set(capable_models(Demand(spec))) for spec in (PLANE, SPACE))
    anywhere = set(capable_models(Demand(PLANE, elsewhere=True)))
    rows, hardware, missing = [], set(), False
    for model, (cls, _) in MODELS.items():
        row = costs.get((PROBLEM, model, efficiency.BATCH, usual_preset(model)))
        cells = [UNKNOWN, UNKNOWN]
        if row is not None:
            memory = row["peak_memory_gb"]
            cells = [f"{row['milliseconds_per_step']:.2f}"]
            cells.append(UNKNOWN if memory is None else f"{memory:.2f}")
            hardware.add(f"{row['hardware']} in {row['precision']}")
        missing |= UNKNOWN in cells
        points = "any points" if model in in_space else "2-D grids"
        points += ", points in 2-D" * (model in in_plane and model not in in_space)
        where = "anywhere" if model in anywhere else "at the observed points"
        streams = "yes" if cls.streams else "no"
        rows.append([model_name(model), parameters(model), *cells, points, where, streams])
    header = ["model", "parameters", "step, ms", "memory, GB", "takes", "predicts", "streams"]
    note = (
        "Parameters: with the published sizes for Darcy (85 × 85 points), otherwise the default "
        "sizes; complex ones count twice. "
        f"Time and memory of a training step on Darcy with batch size {efficiency.BATCH}"
        f"{', on one ' if hardware else ''}{' and '.join(sorted(hardware))}. "
        f"{f'{UNKNOWN}: not measured yet. ' if missing else ''}"
        f"`lno reproduce efficiency --problems {PROBLEM}`"
    )
    return Table("Models", header, rows, [note])


def parameters(model: str) -> str:
    """The number of parameters with the preset for the problem."""
    if obstacle(PROBLEM, model) is not None:
        return UNKNOWN
    chosen = preset(PROBLEM, usual_preset(model), model)
    spec = CASES[PROBLEM].model_spec(chosen.task)
    with torch.device("meta"):
        built = build_model(model, model_config(model, chosen.config, spec, chosen.task), spec)
    return f"{sum(p.numel() for p in built.parameters()):,}"
