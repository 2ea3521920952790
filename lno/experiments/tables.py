"""The tables of the paper that are made of runs: which runs, and what is printed of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from lno.experiments import forward, inverse, inverse_tables, overview, resolution
from lno.experiments.runs import RunSpec
from lno.report.tables import Table

MakeTable = Callable[[Any, Sequence[int], Path], Table]
MakeFigures = Callable[[Any, Sequence[int], Path], Sequence[tuple[str, Figure]]]


@dataclass(frozen=True)
class Experiment:
    """One or several tables of the paper.

    Args:
        name: of the command that makes it.
        text: what it shows.
        example: options of the command.
        specs: the runs of its rows; a function, so that tests can change them.
        tables: from specs, seeds and the ledger to tables.
        figures: from the same to captions and figures; none where there is nothing to draw.
        seeds: how many, from 0 on.
        takes_files: whether its runs can be made on a data file.
    """

    name: str
    text: str
    example: str
    specs: Callable[[], Sequence[RunSpec]]
    tables: tuple[MakeTable, ...]
    seeds: int = 3
    takes_files: bool = False
    figures: tuple[MakeFigures, ...] = ()


_ALL = (
    Experiment(
        "forward",
        "Accuracy on the forward problems, LNO beside Transolver (Table 1 of the paper).",
        "--problems darcy --dry-run",
        lambda: forward.SPECS,
        (forward.table,),
        takes_files=True,
        figures=(overview.forward_chart,),
    ),
    Experiment(
        "resolution",
        "Trained on 43² points, tested on up to 421² (Table 5 of the paper).",
        "--models lno",
        lambda: resolution.SPECS,
        (resolution.table,),
        seeds=1,
        figures=(overview.resolution_chart,),
    ),
    Experiment(
        "completer",
        "A field inside a window of time from some of its points (Table 2 of the paper).",
        "--models lno,rbf --recipes our-completer,completer --dry-run",
        lambda: inverse.COMPLETERS,
        (inverse_tables.completer_table,),
        figures=(overview.completer_chart,),
    ),
    Experiment(
        "propagator",
        "All times from the field inside a window (Table 3 of the paper). Runs start from "
        "completers of the same seed, which are trained again if they are not in the cache.",
        "--recipes propagator",
        lambda: inverse.PROPAGATORS,
        (inverse_tables.propagator_table,),
        figures=(overview.propagator_chart,),
    ),
    Experiment(
        "intervals",
        "Both stages from sensors that form a grid (Figure 8 of the paper).",
        "--models lno",
        lambda: inverse.ON_GRIDS,
        (inverse_tables.completer_intervals, inverse_tables.propagator_intervals),
        figures=(inverse_tables.interval_maps,),
    ),
)
EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in _ALL}
