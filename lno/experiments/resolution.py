"""Trained on 43² points of Darcy flow, tested on more: the paper's Table 5.

All test sets are the same 200 random fields, solved on 421² nodes and read at every k-th node. 241
does not divide 421: there the coefficient is that of the nearest node, and the solution is read off
the bicubic spline through all nodes.

LNO+ is trained at points that move (`Recipe.jitter`), with the weights of the trapezoidal rule.
Without them it learns the points of the coarse grid alone: with small models, its error doubles
between them (`benchmarks/small_resolution.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
from scipy.interpolate import CubicSpline

from lno.data import Fields
from lno.data.grids import trapezoidal_weights
from lno.evaluation import Errors
from lno.experiments.datasets import protocol_of
from lno.experiments.paper import RESOLUTION
from lno.experiments.preset import Preset
from lno.experiments.presets import usual_preset
from lno.experiments.runs import RunSpec
from lno.files import read_json
from lno.operator import Operator
from lno.problems import Darcy
from lno.problems.make import make
from lno.report.runs import model_name
from lno.report.tables import Table, spread
from lno.training.device import pick_solver_device

FINE = 421
GRIDS = (43, 61, 85, 141, 211, 241, 421)


class OnGrids(RunSpec):
    """A setup that is tested at every resolution."""

    def adapted(self, fields: Fields) -> Fields:
        """With the weights of the points, where the recipe asks for them."""
        return weighted(fields) if self.preset.recipe.weighted else fields

    def errors(self, operator: Operator, test: Fields, seed: int) -> dict[str, Errors]:
        """Errors on the test samples at every resolution."""
        fine = fine_samples("cuda" if operator.device.type == "cuda" else "cpu")
        return {
            f"test:grid={n}": operator.on_grid((n, n)).errors(self.adapted(at_nodes(fine, n)))
            for n in GRIDS
        }


class BetweenGrids(OnGrids):
    """The same, trained at points that move and with the weights of the trapezoidal rule."""

    @property
    def setup(self) -> str:
        """The preset, and that points move."""
        return f"{super().setup}.jitter"

    def base(self) -> Preset:
        """The preset with another recipe."""
        found = super().base()
        return replace(found, recipe=replace(found.recipe, jitter=0.5, weighted=True))


_REQUIRED = ("lno", "transolver", "lno_plus")
SPECS = tuple(
    (BetweenGrids if model == "lno_plus" else OnGrids)(
        "darcy",
        model,
        usual_preset(model),
        100,
        "tf32",
        "resolution",
        required=int(model in _REQUIRED),
    )
    for model in dict.fromkeys((*_REQUIRED, *RESOLUTION))
)


@lru_cache(maxsize=1)
def fine_samples(device: str = "auto") -> Fields:
    """The test samples on all nodes of the solver."""
    protocol = protocol_of("darcy", "resolution")
    where = str(pick_solver_device(device))
    return make(Darcy(FINE, 1), protocol.test, 0, where, first=protocol.train)


def weighted(fields: Fields) -> Fields:
    """Fields whose points count by their size in the encoder, and equally in losses and errors."""
    assert fields.grid is not None
    weights = trapezoidal_weights(fields.grid)
    return fields.replace(weights=weights, query_weights=np.ones_like(weights))


def at_nodes(fine: Fields, n: int) -> Fields:
    """Samples on FINE² nodes read at n² nodes of the same square."""
    fine_grid = fine.grid
    assert fine_grid is not None
    m = fine_grid[0]
    a, u = (np.asarray(v)[..., 0].reshape(-1, m, m) for v in (fine.u, fine.y))
    if (m - 1) % (n - 1) == 0:
        step = (m - 1) // (n - 1)
        a, u = a[:, ::step, ::step], u[:, ::step, ::step]
    else:
        nearest = np.round(np.linspace(0, m - 1, n)).astype(int)
        a = a[:, nearest][:, :, nearest]
        spline = CubicSpline(np.linspace(0, 1, m), np.eye(m))(np.linspace(0, 1, n))
        u = np.einsum("ia,sab,jb->sij", spline, u, spline, optimize=True)
    side = np.linspace(0, 1, n)
    return Fields(
        np.stack(np.meshgrid(side, side, indexing="ij"), -1).reshape(-1, 2),
        u=a.reshape(len(a), -1, 1),
        y=u.reshape(len(u), -1, 1).astype(np.float32),
        grid=(n, n),
        names=fine.names,
        frame=fine.frame,
        provenance=fine.provenance,
    )


def table(specs: Sequence[RunSpec], seeds: Sequence[int], results: Path) -> Table:
    """Errors at every resolution beside the paper's."""
    rows = []
    for spec in specs:
        found = list(spec.runs(results, seeds).values())
        name = model_name(spec.model) + ", jitter and weights" * isinstance(spec, BetweenGrids)
        errors = [[r.metrics[f"test:grid={n}"]["relative_l2"] for r in found] for n in GRIDS]
        ours = [spread(e, digits=2) for e in errors]
        rows.append([f"{name}, {spec.epochs} epochs", str(len(found)), *ours])
        printed = RESOLUTION.get(spec.model, {})
        if printed:
            shown = [f"{printed[n]:.2f}" if n in printed else "not given" for n in GRIDS]
            rows.append([f"{name}, as published", "", *shown])
    header = ["relative L2, %", "seeds", *(f"{n}²" for n in GRIDS)]
    note = (
        "Darcy, trained on 1,000 samples of 43² points and tested on 200 others, the same random "
        "fields at every resolution. 241² is no subgrid of 421²: there the coefficient is that of "
        "the nearest node, and the solution is interpolated (bicubic). Jitter and weights: trained "
        "at points between those of the grid, too, with the weights of the trapezoidal rule. "
        "`lno reproduce resolution`"
    )
    title = "Trained on 43² points, tested on finer grids"
    return Table(title, header, rows, [note], aside=("seeds",))


def small_table(results: Path) -> Table:
    """Errors of small models on finer grids (`benchmarks/small_resolution.py`)."""
    content = read_json(results / "benchmarks" / "small_resolution.json")
    rows = []
    for r in content["rows"]:
        errors = list(r["relative_l2"].values())
        ratio = f"{max(errors) / errors[0]:.2f}"
        rows.append([r["label"], *(f"{100 * error:.2f} %" for error in errors), ratio])
    first = content["rows"][0]
    note = (
        f"Relative L2 on {content['test']} test samples of Darcy flow at every resolution, after "
        f"{content['epochs']} epochs with {content['samples']:,} samples of 43² points, and the "
        f"largest error divided by that on 43² points. Models of width 64, {first['hardware']}. "
        "`python benchmarks/small_resolution.py`"
    )
    header = ["model", *(f"{n}²" for n in first["relative_l2"]), "ratio"]
    return Table("Trained on 43² points, small models", header, rows, [note])
