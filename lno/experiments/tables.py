"""The tables of the paper that are made of runs: which runs, and what is printed of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from lno.experiments import (
    ablations,
    comparison,
    forward,
    inverse,
    inverse_tables,
    ladder,
    overview,
    pareto,
    plus,
    resolution,
    scaling,
    significance,
)
from lno.experiments.runs import RunSpec
from lno.report.tables import Table

ERRORS = (
    "Unless a note says otherwise, errors are those of the last checkpoint on held-out test "
    "samples, in physical units. ± is the standard deviation over seeds."
)
CONDITIONS = (
    f"{ERRORS} The data come from our own solvers, with the standard protocol of each problem."
)
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
        "Accuracy of all models on the forward problems (Table 1 of the paper): for equal training "
        "time, for equal epochs, and with the published number of epochs.",
        "--problems darcy --models fno,lno --dry-run",
        lambda: forward.specs(),
        (
            comparison.equal_time_table,
            comparison.epochs_table,
            comparison.equal_epochs_table,
            comparison.published_table,
            forward.table,
        ),
        takes_files=True,
        figures=(overview.forward_chart,),
    ),
    Experiment(
        "resolution",
        "Zero-shot resolution: trained on 43² points, tested on up to 421² (Table 5 of the paper).",
        "--models lno",
        lambda: resolution.SPECS,
        (resolution.table,),
        seeds=1,
        figures=(overview.resolution_chart,),
    ),
    Experiment(
        "completer",
        "Reconstruct a field in a time window from scattered observations (Table 2 of the paper).",
        "--models lno,rbf --recipes our-completer,completer --dry-run",
        lambda: inverse.COMPLETERS,
        (inverse_tables.completer_table,),
        figures=(overview.completer_chart,),
    ),
    Experiment(
        "propagator",
        "Extrapolate the field from a time window to all times (Table 3 of the paper). Runs start "
        "from completers of the same seed, which are retrained if they are not in the cache.",
        "--recipes propagator",
        lambda: inverse.PROPAGATORS,
        (inverse_tables.propagator_table,),
        figures=(overview.propagator_chart,),
    ),
    Experiment(
        "intervals",
        "Both stages with sensors on regular grids (Figure 8 of the paper).",
        "--models lno",
        lambda: inverse.ON_GRIDS,
        (inverse_tables.completer_intervals, inverse_tables.propagator_intervals),
        figures=(inverse_tables.interval_maps,),
    ),
    Experiment(
        "attention",
        "Other attention in the latent space (Table 6 of the paper).",
        "--problems elasticity",
        lambda: ablations.ATTENTION_SPECS,
        (ablations.attention_table,),
        seeds=1,
    ),
    Experiment(
        "projectors",
        "Encoder and decoder with a shared projector or one each (Table 7 of the paper).",
        "--problems elasticity --seeds 3",
        lambda: ablations.PROJECTOR_SPECS,
        (ablations.projector_table,),
        seeds=1,
    ),
    Experiment(
        "latents",
        "From 16 to 512 latent positions: error and cost, also on the inverse problem (Figure 3 of "
        "the paper).",
        "--problems elasticity,darcy",
        lambda: scaling.LATENT_SPECS,
        (scaling.latents_table,),
        seeds=1,
        figures=(scaling.latents_figures,),
    ),
    Experiment(
        "depth",
        "From 1 to 16 blocks: error and cost (Figure 4 of the paper).",
        "--problems elasticity",
        lambda: scaling.DEPTH_SPECS,
        (scaling.depth_table,),
        seeds=1,
        figures=(scaling.depth_figures,),
    ),
    Experiment(
        "width",
        "From 32 to 256 features: error and cost (Figure 5 of the paper).",
        "--problems elasticity",
        lambda: scaling.WIDTH_SPECS,
        (scaling.width_table,),
        seeds=1,
        figures=(scaling.width_figures,),
    ),
    Experiment(
        "seeds",
        "LNO and Transolver with five seeds each: is the difference significant? And the spread of "
        "other models over seeds (Table 8 of the paper).",
        "--problems elasticity",
        lambda: significance.SPECS,
        (significance.table, significance.models_table),
        seeds=significance.SEEDS,
    ),
    Experiment(
        "ladder",
        "Ablations of LNO+: its error without one part at a time.",
        "--problems darcy --dry-run",
        lambda: ladder.SPECS,
        (ladder.table,),
    ),
    Experiment(
        "pareto",
        "Error against training time: LNO, LNO+ and Transolver after 1 to 8 minutes.",
        "--problems elasticity --dry-run",
        lambda: pareto.SPECS,
        (pareto.table,),
        seeds=1,
        figures=(pareto.figures,),
    ),
    Experiment(
        "plus",
        "Accuracy of LNO+ next to the best published models.",
        "--problems darcy --dry-run",
        lambda: plus.SPECS,
        (plus.table,),
    ),
)
EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in _ALL}
