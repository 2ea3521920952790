"""The tables of the paper that are made of runs: which runs, and what is printed of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lno.experiments import (
    ablations,
    comparison,
    forward,
    inverse,
    inverse_tables,
    ladder,
    pareto,
    plus,
    resolution,
    scaling,
    significance,
)
from lno.experiments.runs import RunSpec
from lno.report.tables import Table

MakeTable = Callable[[Any, Sequence[int], Path], Table]


@dataclass(frozen=True)
class Experiment:
    """One or several tables of the paper.

    Args:
        name: of the command that makes it.
        text: what it shows.
        example: options of the command.
        specs: the runs of its rows; a function, so that tests can change them.
        tables: from specs, seeds and the ledger to tables.
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


_ALL = (
    Experiment(
        "forward",
        "Accuracy of all models on the forward problems (Table 1 of the paper): at equal time, at "
        "equal epochs, and as published.",
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
    ),
    Experiment(
        "resolution",
        "Trained on 43² points, tested on up to 421² (Table 5 of the paper).",
        "--models lno",
        lambda: resolution.SPECS,
        (resolution.table,),
        seeds=1,
    ),
    Experiment(
        "completer",
        "A field inside a window of time from some of its points (Table 2 of the paper).",
        "--models lno,rbf --recipes our-completer,completer --dry-run",
        lambda: inverse.COMPLETERS,
        (inverse_tables.completer_table,),
    ),
    Experiment(
        "propagator",
        "All times from the field inside a window (Table 3 of the paper). Runs start from "
        "completers of the same seed, which are trained again if they are not in the cache.",
        "--recipes propagator",
        lambda: inverse.PROPAGATORS,
        (inverse_tables.propagator_table,),
    ),
    Experiment(
        "intervals",
        "Both stages from sensors that form a grid (Figure 8 of the paper).",
        "--models lno",
        lambda: inverse.ON_GRIDS,
        (inverse_tables.completer_intervals, inverse_tables.propagator_intervals),
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
        "Encoder and decoder with one projector or two (Table 7 of the paper).",
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
    ),
    Experiment(
        "depth",
        "From 1 to 16 blocks: error and cost (Figure 4 of the paper).",
        "--problems elasticity",
        lambda: scaling.DEPTH_SPECS,
        (scaling.depth_table,),
        seeds=1,
    ),
    Experiment(
        "width",
        "From 32 to 256 features: error and cost (Figure 5 of the paper).",
        "--problems elasticity",
        lambda: scaling.WIDTH_SPECS,
        (scaling.width_table,),
        seeds=1,
    ),
    Experiment(
        "seeds",
        "LNO and Transolver from five seeds: do they differ by more than chance? (Table 8 of the "
        "paper)",
        "--problems elasticity",
        lambda: significance.SPECS,
        (significance.table,),
        seeds=significance.SEEDS,
    ),
    Experiment(
        "ladder",
        "What each ingredient of LNO+ is worth: without one of them at a time.",
        "--problems darcy --dry-run",
        lambda: ladder.SPECS,
        (ladder.table,),
    ),
    Experiment(
        "pareto",
        "Error against training time: LNO, LNO+ and Transolver after one to eight minutes.",
        "--problems elasticity --dry-run",
        lambda: pareto.SPECS,
        (pareto.table,),
        seeds=1,
    ),
    Experiment(
        "plus",
        "The accuracy of LNO+ beside the best published models.",
        "--problems darcy --dry-run",
        lambda: plus.SPECS,
        (plus.table,),
    ),
)
EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in _ALL}
