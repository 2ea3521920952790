"""Whether LNO and Transolver differ by more than chance: the paper's appendix C, its Table 8.

Two tests, of two questions:

- over test samples: do these trained models differ on new samples? Both predict the same samples,
  so their errors are paired: each is averaged over the seeds, and Wilcoxon's signed-rank test asks
  whether the differences are symmetric about zero.
- over seeds: would newly trained models differ, too? Seeds of different models have nothing in
  common, so there are no pairs: Welch's t-test compares the mean errors of the seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy import stats

from lno.experiments.ablations import EPOCHS, Grid, claim, mean, paper_run, place_of
from lno.experiments.claims import Verdict
from lno.experiments.paper import FORWARD_SPREAD
from lno.experiments.runs import RunSpec
from lno.ledger import Run
from lno.report.runs import hardware_of, model_name
from lno.report.tables import MISSING, Table, spread

SEEDS = 5
LEVEL = 0.05  # of significance
COMPARED = ("lno", "transolver")
SPECS = tuple(
    replace(
        paper_run(problem, model),
        required=SEEDS if model in COMPARED and paper_run(problem).required else 0,
    )
    for problem in EPOCHS
    for model in (*COMPARED, *(m for m in FORWARD_SPREAD if m not in COMPARED))
)


def over_samples(ours: Sequence[Run], theirs: Sequence[Run]) -> float | None:
    """The p-value of Wilcoxon's signed-rank test on errors of test samples, averaged over seeds.

    None: there are no errors of single samples, or not of the same ones.
    """
    errors = [[run.samples.get("test", []) for run in runs] for runs in (ours, theirs)]
    lengths = {len(samples) for runs in errors for samples in runs}
    data = {run.data_hash for run in (*ours, *theirs)}
    if not ours or not theirs or len(lengths) != 1 or min(lengths) < 2 or len(data) != 1:
        return None
    a, b = (np.mean(runs, axis=0) for runs in errors)
    return 1.0 if np.array_equal(a, b) else float(stats.wilcoxon(a, b).pvalue)


def over_seeds(ours: Sequence[float], theirs: Sequence[float]) -> float | None:
    """The p-value of Welch's t-test on the errors of seeds; None: fewer than two of a model.

    >>> round(over_seeds([0.010, 0.011, 0.012], [0.020, 0.021, 0.022]), 4)
    0.0003
    """
    if min(len(ours), len(theirs)) < 2:
        return None
    return float(stats.ttest_ind(ours, theirs, equal_var=False).pvalue)


def table(specs: Sequence[RunSpec], seeds: Sequence[int], results: Path) -> Table:
    """Means, standard deviations and p-values beside the paper's means and standard deviations."""
    rows, verdicts = [], []
    pairs: dict[str, dict[str, RunSpec]] = {}
    for spec in (spec for spec in specs if spec.model in COMPARED):
        pairs.setdefault(place_of(spec), {})[spec.model] = spec
    for place, both in pairs.items():
        problem = next(iter(both.values())).problem
        runs = {model: _runs(both, model, seeds, results) for model in COMPARED}
        errors = {
            model: [run.metrics["test"]["relative_l2"] for run in found]
            for model, found in runs.items()
        }
        values = (over_samples(*runs.values()), over_seeds(*errors.values()))
        printed = (FORWARD_SPREAD[model].get(problem) for model in COMPARED)
        rows.append(
            [
                place,
                *(spread(found) for found in errors.values()),
                ", ".join(str(len(found)) for found in errors.values()),
                *map(_shown, values),
                *("not given" if p is None else f"{p[0]:.2f} ± {p[1]:.2f}" for p in printed),
            ]
        )
        verdicts.append(_verdict(place, problem, errors, values))
    header = ["relative L2, %", "LNO", "Transolver", "seeds", "p over samples", "p over seeds"]
    runs_ = [run for spec in specs for run in spec.runs(results, seeds).values()]
    machines = hardware_of(runs_)
    notes = [
        "p over samples: Wilcoxon signed-rank test, paired over the held-out test samples, with "
        "errors averaged over seeds. It asks whether these trained models differ on new samples. "
        "p over seeds: Welch's t-test of the mean error of each seed, unpaired. It asks whether "
        "newly trained models would differ.",
        *claim(
            "LNO has the smaller error on Darcy, NS2d, Elasticity and Pipe, Transolver on Airfoil "
            "and Plasticity",
            verdicts,
        ),
        "Each model has its own published recipe, and both train for the same number of epochs"
        f"{f', on {machines}' * bool(machines)}; the paper trained for 500. `lno reproduce seeds`",
    ]
    printed_too = ["paper: LNO", "paper: Transolver"]
    return Table(
        "LNO and Transolver over seeds",
        [*header, *printed_too],
        rows,
        notes,
        aside=("seeds", *printed_too),
    )


def models_table(specs: Sequence[RunSpec], seeds: Sequence[int], results: Path) -> Table:
    """Means and standard deviations of all models that the paper has them of."""
    grid = Grid(specs, lambda spec: spec.model, seeds, results)
    rows = grid.rows({model: model_name(model) for model in FORWARD_SPREAD}, FORWARD_SPREAD)
    note = (
        "Each model has its own published recipe, for the number of epochs given; the paper "
        "trained for 500, five times. `lno reproduce seeds`"
    )
    return Table("Spread over seeds, forward problems", grid.header(), rows, [note], 1, ("seeds",))


def _runs(
    both: Mapping[str, RunSpec], model: str, seeds: Sequence[int], results: Path
) -> list[Run]:
    return list(both[model].runs(results, seeds).values()) if model in both else []


def _verdict(
    place: str,
    problem: str,
    errors: Mapping[str, Sequence[float]],
    values: tuple[float | None, float | None],
) -> Verdict:
    """Whether the model that the paper found better is better here; no difference: it is not."""
    ours, theirs = mean(errors["lno"]), mean(errors["transolver"])
    if ours is None or theirs is None or problem not in FORWARD_SPREAD["lno"]:
        return Verdict(place, None)
    expected = FORWARD_SPREAD["lno"][problem][0] < FORWARD_SPREAD["transolver"][problem][0]
    known = [value for value in values if value is not None]
    significant = len(known) == len(values) and max(known) < LEVEL
    chance = "" if significant else ", which may be chance"
    found = f"LNO {100 * ours:.2f}, Transolver {100 * theirs:.2f} %{chance}"
    return Verdict(place, ours < theirs if expected else theirs < ours, found)


def _shown(value: float | None) -> str:
    """A p-value."""
    if value is None:
        return MISSING
    return f"{value:.3f}" if value >= 1e-3 else f"{value:.0e}"
