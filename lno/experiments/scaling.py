"""How large LNO should be: latent positions, depth and width. The paper's Figures 3, 4 and 5.

The number of latent positions is varied on the inverse problem, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from matplotlib.figure import Figure

from lno.experiments import paper
from lno.experiments.ablations import (
    EPOCHS,
    changed,
    claim,
    conditions,
    counted,
    errors_of,
    mean,
    paper_run,
    place_of,
)
from lno.experiments.claims import Verdict, least_where
from lno.experiments.inverse import COMPLETERS, PROPAGATORS, TRUTH, percent
from lno.experiments.inverse_tables import UNASKED
from lno.experiments.runs import RunSpec
from lno.ledger import Run
from lno.report.runs import timed
from lno.report.scaling import Curve, scaling_curves
from lno.report.tables import MISSING, Table, spread

LATENTS = (16, 32, 64, 128, 256, 512)
DEPTHS = (1, 2, 4, 8, 12, 16)
WIDTHS = (32, 64, 128, 192, 256)
RATIO = 0.01  # of the points, that completers are compared at
STAGES = tuple(
    next(replace(spec, required=0) for spec in specs if (spec.model, spec.recipe) == wanted)
    for specs, wanted in ((COMPLETERS, ("lno", "completer")), (PROPAGATORS, ("lno", "propagator")))
)


def _sized(key: str, sizes: Sequence[int], more: Sequence[RunSpec] = ()) -> tuple[RunSpec, ...]:
    setups = (*map(paper_run, EPOCHS), *more)
    return tuple(changed(spec, key, size) for spec in setups for size in sizes)


LATENT_SPECS = _sized("latents", LATENTS, STAGES)
DEPTH_SPECS = _sized("blocks", DEPTHS)
WIDTH_SPECS = _sized("width", WIDTHS)


@dataclass(frozen=True)
class Series:
    """One problem at every size.

    Args:
        label: of its row.
        specs: by size.
        kept: the size of the paper's preset.
        data_set: of the errors that are compared.
        error: which of them.
        printed: the paper's, in percent, at the size that it kept.
    """

    label: str
    specs: dict[int, RunSpec]
    kept: int
    data_set: str = "test"
    error: str = "relative_l2"
    printed: float | None = None

    def errors(self, seeds: Sequence[int], results: Path) -> dict[int, list[float]]:
        """Errors of all seeds, by size."""
        return {
            size: errors_of(spec, seeds, results, self.data_set, self.error)
            for size, spec in self.specs.items()
        }

    def runs(self, seeds: Sequence[int], results: Path) -> dict[int, list[Run]]:
        """Runs of all seeds, by size."""
        return {n: list(spec.runs(results, seeds).values()) for n, spec in self.specs.items()}


def series_of(specs: Sequence[RunSpec], key: str) -> list[Series]:
    """Specs that differ in one key of the model's config alone, together."""
    found: dict[RunSpec, dict[int, RunSpec]] = {}
    for spec in specs:
        size = getattr(spec.preset.config, key)
        found.setdefault(replace(spec, changes=()), {})[size] = spec
    several = []
    for base, by_size in found.items():
        name, data_set, error, printed = _compared(base)
        sizes = dict(sorted(by_size.items()))
        kept = getattr(base.preset.config, key)
        several.append(Series(name, sizes, kept, data_set, error, printed))
    return several


def _compared(base: RunSpec) -> tuple[str, str, str, float | None]:
    """Label, data set, error and the paper's number of what is compared of a setup."""
    if base.recipe == "completer":
        label, seen = f"completer at {base.epochs} epochs", f"test:ratio={percent(RATIO)}"
        return label, seen, "relative_mae", paper.COMPLETER["lno"][RATIO]
    if base.recipe == "propagator":
        label, printed = f"propagator at {base.epochs} epochs", paper.PROPAGATOR["lno"]["truth"]
        return label, TRUTH, "relative_mae", printed
    return place_of(base), "test", "relative_l2", paper.FORWARD["lno"].get(base.problem)


# -- tables ----------------------------------------------------------------------------------------


def latents_table(specs: Sequence[RunSpec], seeds: Sequence[int], results: Path) -> Table:
    """Errors and cost by the number of latent positions."""
    series = series_of(specs, "latents")
    saturating = [s for s in series if s.error == "relative_l2"]
    growing = [s for s in saturating if _problem(s) in paper.IMPROVES_TO_512]
    notes = [
        "Relative L2; for Burgers' equation relative MAE: of completers inside the window with "
        f"{100 * RATIO:g} % of the points observed, of propagators at t = 0 and t = 1 from the "
        "true field.",
        *claim(
            f"on Darcy and NS2d the error falls up to M = {LATENTS[-1]}",
            _judged(growing, lambda size: size == LATENTS[-1], "latents", seeds, results),
        ),
        *claim(
            f"on the others it is least before M = {LATENTS[-1]}",
            _judged(
                [s for s in saturating if s not in growing],
                lambda size: size < LATENTS[-1],
                "latents",
                seeds,
                results,
            ),
        ),
        conditions(specs, seeds, results, "latents"),
    ]
    return _table("The number of latent positions M", series, "M =", seeds, results, notes)


def depth_table(specs: Sequence[RunSpec], seeds: Sequence[int], results: Path) -> Table:
    """Errors and cost by the number of blocks."""
    series, best = series_of(specs, "blocks"), paper.BEST_DEPTHS
    notes = [
        *claim(
            f"more than {max(best)} blocks increase the error",
            _judged(series, lambda size: size <= max(best), "blocks", seeds, results),
        ),
        *claim(
            f"{' or '.join(map(str, best))} blocks are best",
            _judged(series, lambda size: size in best, "blocks", seeds, results),
        ),
        conditions(specs, seeds, results, "depth"),
    ]
    return _table("Depth: the number of blocks", series, "blocks:", seeds, results, notes)


def width_table(specs: Sequence[RunSpec], seeds: Sequence[int], results: Path) -> Table:
    """Errors and cost by the width."""
    series = series_of(specs, "width")
    notes = [
        *claim(
            f"the error falls up to a width of {paper.WIDE_ENOUGH}",
            _judged(series, lambda size: size >= paper.WIDE_ENOUGH, "features", seeds, results),
        ),
        conditions(specs, seeds, results, "width"),
    ]
    return _table("Width: the features of a token", series, "width", seeds, results, notes)


def _judged(
    series: Sequence[Series],
    wanted: Callable[[int], bool],
    unit: str,
    seeds: Sequence[int],
    results: Path,
) -> list[Verdict]:
    return [
        least_where(
            each.label,
            {size: mean(errors) for size, errors in each.errors(seeds, results).items()},
            wanted,
            unit,
        )
        for each in series
    ]


def _table(
    title: str,
    series: Sequence[Series],
    name: str,
    seeds: Sequence[int],
    results: Path,
    notes: list[str],
) -> Table:
    """For each problem a row of errors by size, and below it the cost of each, once it is known."""
    sizes, rows = sorted({size for each in series for size in each.specs}), []
    for each in series:
        errors, runs = each.errors(seeds, results), each.runs(seeds, results)
        shown = [spread(errors[size]) if size in errors else UNASKED for size in sizes]
        printed = "not given" if each.printed is None else f"{each.printed:.2f}"
        rows.append([each.label, "error, %", counted(list(errors.values())), *shown, printed])
        for what, cost in COSTS.items():
            costs = {n: [c for c in map(cost, some) if c is not None] for n, some in runs.items()}
            if sum(map(bool, costs.values())) > 1:
                cells = [_cost(costs[size]) if size in costs else UNASKED for size in sizes]
                rows.append([each.label, what, "", *cells, UNASKED])
    header = ["problem", "", "seeds", *(f"{name} {size}" for size in sizes), "paper, 500 epochs"]
    return Table(title, header, rows, notes, keys=2, aside=("seeds", header[-1]))


def _milliseconds(run: Run) -> float | None:
    """Of a step of one seed; of members, a share of the time of all. None: it shared the GPU."""
    if not timed([run]):
        return None
    return 1e3 * run.seconds / max(1, run.steps) / run.members


def _memory(run: Run) -> float | None:
    return None if run.peak_memory_gb is None else run.peak_memory_gb / run.members


COSTS: dict[str, Callable[[Run], float | None]] = {
    "ms a step": _milliseconds,
    "GB": _memory,
    "million parameters": lambda run: run.parameters / 1e6,
}


def _cost(numbers: Sequence[float]) -> str:
    return f"{sum(numbers) / len(numbers):.2f}" if numbers else MISSING


def _problem(series: Series) -> str:
    return next(iter(series.specs.values())).problem


# -- figures ---------------------------------------------------------------------------------------


def _figures(
    specs: Sequence[RunSpec], seeds: Sequence[int], results: Path, key: str, name: str
) -> list[tuple[str, Figure]]:
    """Errors and cost against a size, with what they show; none where there are no runs."""
    curves = [_curve(each, seeds, results) for each in series_of(specs, key)]
    figure = scaling_curves(curves, name)
    what = f"Error and, where it was measured, cost against the {name}."
    caption = f"{what} Dots: seeds, rings: the paper's choice."
    return [] if figure is None else [(caption, figure)]


latents_figures = partial(_figures, key="latents", name="number of latent positions")
depth_figures = partial(_figures, key="blocks", name="number of blocks")
width_figures = partial(_figures, key="width", name="width")


def _curve(each: Series, seeds: Sequence[int], results: Path) -> Curve:
    runs = each.runs(seeds, results)
    known = {size: errors for size, errors in each.errors(seeds, results).items() if errors}
    times = {n: [t for t in map(_milliseconds, runs[n]) if t is not None] for n in known}
    return Curve(
        each.label,
        {size: [100 * error for error in errors] for size, errors in known.items()},
        {size: sum(some) / len(some) for size, some in times.items() if some},
        each.kept,
        each.printed,
    )
